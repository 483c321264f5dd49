//! FPDUs that go out in several segments, because the path or the peer's window has become narrower than they
//! are, or was never wide enough (RFC 5044 App. A.5).

use std::collections::{BTreeMap, VecDeque};

use crate::conn::ConnectionId;
use crate::wire::tcp::SeqNumber;

/// The octets of one run of FPDUs.
#[derive(Debug)]
struct CutRun {
    begin: SeqNumber,
    octets: Box<[u8]>,
}

impl CutRun {
    fn end(&self) -> SeqNumber {
        self.begin + self.octets.len() as u32
    }
}

/// The runs of FPDUs of one connection that have been sent in part, as they were when their first part was
/// built, until all of them is acknowledged.
///
/// All other segments are built again from their source each time, and the CRC with them. Parts that are
/// built one after the other would not fit together if the source changed in between, which RFC 5040 §5.5 (8)
/// allows at the cost of the contents only: the peer would join an old part with a CRC over new ones.
#[derive(Debug, Default)]
pub(super) struct CutRuns {
    /// In the order of the stream.
    runs: VecDeque<CutRun>,
}

impl CutRuns {
    /// Returns how many octets they have together.
    fn octets(&self) -> usize {
        self.runs.iter().map(|run| run.octets.len()).sum()
    }

    fn place(&self, begin: SeqNumber) -> usize {
        self.runs.partition_point(|run| run.begin < begin)
    }

    /// Returns the octets of the run that begins at `begin`.
    pub(super) fn get(&self, begin: SeqNumber) -> Option<&[u8]> {
        self.runs.get(self.place(begin)).filter(|run| run.begin == begin).map(|run| &*run.octets)
    }

    /// Keeps `octets` of a run that begins at `begin` and is not kept yet.
    fn keep(&mut self, begin: SeqNumber, octets: Box<[u8]>) {
        let place = self.place(begin);
        debug_assert!(self.get(begin).is_none(), "a run is kept as it was first");
        self.runs.insert(place, CutRun { begin, octets });
    }

    /// Frees the runs that are acknowledged; returns how many octets they had.
    fn acknowledge(&mut self, acknowledged: SeqNumber) -> usize {
        let mut octets = 0;
        while let Some(run) = self.runs.pop_front_if(|run| run.end() <= acknowledged) {
            octets += run.octets.len();
        }
        octets
    }
}

/// The runs of FPDUs that have been sent in part, of all connections of a core: few connections have any.
#[derive(Debug)]
pub(crate) struct CutRunStore {
    /// By the connection's slot.
    by_slot: BTreeMap<u32, CutRuns>,
    /// Octets kept of all of them.
    octets: usize,
    octets_max: usize,
}

impl CutRunStore {
    /// Returns an empty store for `octets_max` octets, besides one run of each connection.
    pub(crate) const fn new(octets_max: usize) -> Self {
        Self { by_slot: BTreeMap::new(), octets: 0, octets_max }
    }

    /// Returns how many octets are kept.
    pub(crate) const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the runs of a connection.
    pub(super) fn of(&self, id: ConnectionId) -> Option<&CutRuns> {
        self.by_slot.get(&id.slot())
    }

    /// Frees the runs of a connection that the peer has acknowledged, up to `acknowledged`. Returns true if
    /// there is room for `octets` of another that begins at `begin`.
    ///
    /// The oldest run that is not acknowledged is kept in any case: the peer acknowledges no other before it,
    /// so the connection would make no progress without it. Each connection has one such run at a time,
    /// besides those that found room.
    pub(super) fn make_room(
        &mut self,
        id: ConnectionId,
        begin: SeqNumber,
        octets: usize,
        acknowledged: SeqNumber,
    ) -> bool {
        self.acknowledge(id, acknowledged);
        begin <= acknowledged || self.octets + octets <= self.octets_max
    }

    /// Keeps `octets` of a run of the connection that begins at `begin` and is not kept yet.
    pub(super) fn keep(&mut self, id: ConnectionId, begin: SeqNumber, octets: Box<[u8]>) {
        self.octets += octets.len();
        self.by_slot.entry(id.slot()).or_default().keep(begin, octets);
    }

    /// Frees the runs of a connection that the peer has acknowledged.
    #[inline]
    pub(super) fn acknowledge(&mut self, id: ConnectionId, acknowledged: SeqNumber) {
        if self.octets > 0
            && let Some(runs) = self.by_slot.get_mut(&id.slot())
        {
            self.octets -= runs.acknowledge(acknowledged);
        }
    }

    /// Frees all runs of a connection.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        if let Some(runs) = self.by_slot.remove(&id.slot()) {
            self.octets -= runs.octets();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_kept_until_all_of_them_is_acknowledged() {
        let start = SeqNumber(u32::MAX - 10);
        let mut cut = CutRuns::default();
        let run = |octet: u8| vec![octet; 8].into_boxed_slice();
        for at in [16, 0, 8] {
            cut.keep(start + at, run(at as u8));
        }
        assert_eq!((cut.octets(), cut.get(start + 8)), (24, Some(&[8; 8][..])));
        assert_eq!((cut.get(start + 4), cut.get(start + 24)), (None, None));
        assert_eq!(cut.acknowledge(start + 15), 8, "across the wrap, and not what is acknowledged in part");
        assert_eq!((cut.get(start), cut.get(start + 8)), (None, Some(&[8; 8][..])));
        assert_eq!(cut.acknowledge(start + 100), 16);
        assert_eq!(cut.octets(), 0);
    }
}
