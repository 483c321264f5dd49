//! What the sender of a byte stream has said about its transfers, so that it never contradicts itself.

use std::collections::VecDeque;

use thiserror::Error;

use super::intervals::{BufferRange, Intervals};
use super::run::Section;
use crate::limits;
use crate::wire::tcp_rdma::Rid;

/// Why octets cannot be sent as a section of a transfer (draft-csapuntz-tcprdma-00 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum SectionError {
    /// Another section of the transfer has another total (§3.1.4).
    #[error("the transfer has a total of {before} bytes in another section, and {total} in this one")]
    TotalChanged {
        /// The total of the sections before.
        before: u32,
        /// The total of this one.
        total: u32,
    },
    /// Octets of this section, or of one before it, are beyond the total (§3.1.4).
    #[error("the transfer has bytes up to {end} of the peer's buffer, beyond its total of {total}")]
    BeyondTotal {
        /// The offset after the last octet of the transfer.
        end: u64,
        /// The total.
        total: u32,
    },
    /// The offset of an octet in the peer's buffer has more than 32 bits (§3.1.5).
    #[error("the last byte of the section has an offset of more than 32 bits")]
    BeyondOffsets,
    /// Octets of the peer's buffer were sent before in this transfer.
    #[error("a section before has some of the same bytes of the peer's buffer")]
    Overlapping,
    /// A transfer of nothing has no octets that it can go with: octets of no section, written right before it
    /// and not handed over yet.
    #[error("a transfer of nothing goes with bytes of no section, corked and written right before it")]
    NothingToGoWith,
}

/// What was sent of a transfer.
#[derive(Debug)]
struct SentTransfer {
    rid: Rid,
    total_octets: Option<u32>,
    /// Octets sent.
    octets: u64,
    /// The offset after the last octet.
    end: u64,
    /// Where they are in the peer's buffer; `None` if that takes more intervals than there may be.
    sent: Option<Intervals>,
}

/// The transfers that a sender has begun and not ended, as many as a receiver may have: the oldest is
/// forgotten for one more. A transfer ends with its last octet, or, if its total is not known, when the
/// application says so.
#[derive(Debug, Default)]
pub struct SentTransfers {
    /// In the order of their first sections.
    transfers: VecDeque<SentTransfer>,
}

impl SentTransfers {
    /// Checks that the `octets` octets from `buffer_offset` on may be sent as a part of `section`.
    ///
    /// # Errors
    ///
    /// All of [`SectionError`] but `NothingToGoWith`.
    // Requirements: TRO-3.1.4-01, TRO-3.1.5-01
    pub fn check(&self, section: &Section, buffer_offset: u32, octets: usize) -> Result<(), SectionError> {
        let range = u32::try_from(octets).ok().and_then(|octets| BufferRange::new(buffer_offset, octets));
        let range = range.ok_or(SectionError::BeyondOffsets)?;
        let transfer = self.find(section.rid).map(|at| &self.transfers[at]);
        let before = transfer.and_then(|transfer| transfer.total_octets);
        if let (Some(before), Some(total)) = (before, section.total_octets)
            && before != total
        {
            return Err(SectionError::TotalChanged { before, total });
        }
        let end = transfer.map_or(0, |transfer| transfer.end).max(range.end());
        if let Some(total) = section.total_octets.or(before)
            && end > u64::from(total)
        {
            return Err(SectionError::BeyondTotal { end, total });
        }
        let sent = transfer.and_then(|transfer| transfer.sent.as_ref());
        if sent.is_some_and(|sent| sent.overlaps(range)) {
            return Err(SectionError::Overlapping);
        }
        Ok(())
    }

    /// Records that such octets, one at least, were sent, which [`check`](Self::check) has found to be right.
    pub fn record(&mut self, section: &Section, buffer_offset: u32, octets: usize) {
        let Some(range) = BufferRange::new(buffer_offset, octets as u32) else { return };
        if octets == 0 {
            return;
        }
        let at = self.find(section.rid).unwrap_or_else(|| self.begin(section.rid));
        let transfer = &mut self.transfers[at];
        transfer.total_octets = transfer.total_octets.or(section.total_octets);
        transfer.octets += u64::from(range.octets());
        transfer.end = transfer.end.max(range.end());
        if !transfer.sent.as_mut().is_some_and(|sent| sent.insert(range)) {
            transfer.sent = None;
        }
        if transfer.total_octets.map(u64::from) == Some(transfer.octets) {
            self.transfers.remove(at);
        }
    }

    /// Ends a transfer: the next section with its name is of another.
    pub fn end(&mut self, rid: Rid) {
        if let Some(at) = self.find(rid) {
            self.transfers.remove(at);
        }
    }

    fn begin(&mut self, rid: Rid) -> usize {
        if self.transfers.len() == limits::TRANSFERS_PER_STREAM {
            self.transfers.pop_front();
        }
        let sent = Some(Intervals::default());
        self.transfers.push_back(SentTransfer { rid, total_octets: None, octets: 0, end: 0, sent });
        self.transfers.len() - 1
    }

    /// Most often it is the last.
    fn find(&self, rid: Rid) -> Option<usize> {
        self.transfers.iter().rposition(|transfer| transfer.rid == rid)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn section(rid: u64, total_octets: Option<u32>) -> Section {
        Section { rid: Rid::new(rid).unwrap(), unsolicited: false, total_octets }
    }

    /// Each error, at its edge.
    // Requirements: TRO-3.1.4-01, TRO-3.1.4-03, TRO-3.1.5-01
    #[test]
    fn contradictions_are_refused() {
        let mut sent = SentTransfers::default();
        let named = |total| section(1, total);
        assert_eq!(
            sent.check(&named(Some(99)), 0, 100),
            Err(SectionError::BeyondTotal { end: 100, total: 99 })
        );
        assert_eq!(sent.check(&named(Some(100)), 0, 100), Ok(()));
        sent.record(&named(Some(300)), 100, 100);
        assert_eq!(
            sent.check(&named(Some(301)), 0, 100),
            Err(SectionError::TotalChanged { before: 300, total: 301 })
        );
        for (offset, octets, result) in [
            (0, 100, Ok(())),
            (0, 101, Err(SectionError::Overlapping)),
            (199, 1, Err(SectionError::Overlapping)),
            (200, 100, Ok(())),
            (200, 101, Err(SectionError::BeyondTotal { end: 301, total: 300 })),
        ] {
            assert_eq!(sent.check(&named(Some(300)), offset, octets), result, "{offset} {octets}");
            // The form without a total says nothing about it, and what was said before holds.
            assert_eq!(sent.check(&named(None), offset, octets), result, "{offset} {octets}");
        }
        // Without a total the offsets end at 2^32, which no total can say.
        let open = section(2, None);
        assert_eq!(sent.check(&open, u32::MAX, 1), Ok(()));
        assert_eq!(sent.check(&open, u32::MAX, 2), Err(SectionError::BeyondOffsets));
        assert_eq!(sent.check(&open, 0, 1 << 33), Err(SectionError::BeyondOffsets));
        let end = Err(SectionError::BeyondTotal { end: 1 << 32, total: u32::MAX });
        assert_eq!(sent.check(&section(2, Some(u32::MAX)), u32::MAX, 1), end);
        // A total below what was sent; a transfer of nothing after octets.
        sent.record(&open, 50, 10);
        for total in [0, 59] {
            let end = Err(SectionError::BeyondTotal { end: 60, total });
            assert_eq!(sent.check(&section(2, Some(total)), 0, 0), end);
        }
        assert_eq!(sent.check(&section(2, Some(60)), 0, 50), Ok(()));
        // The name is free when its application says so, or after the last octet.
        sent.end(open.rid);
        assert_eq!(sent.check(&section(2, Some(0)), 0, 0), Ok(()));
        sent.record(&named(None), 0, 100);
        sent.record(&named(None), 200, 100);
        assert_eq!(sent.check(&named(Some(7)), 0, 7), Ok(()));
    }

    /// The oldest is forgotten, and what is too scattered is not remembered.
    #[test]
    fn it_is_bounded() {
        let mut sent = SentTransfers::default();
        for rid in 0..1000 {
            sent.record(&section(rid, Some(2)), 0, 1);
        }
        assert_eq!(sent.transfers.len(), limits::TRANSFERS_PER_STREAM);
        assert_eq!(sent.check(&section(999, Some(2)), 0, 1), Err(SectionError::Overlapping));
        for piece in 0..1000 {
            sent.record(&section(5000, Some(2000)), 2 * piece, 1);
            assert_eq!(sent.check(&section(5000, Some(2000)), 2 * piece + 1, 1), Ok(()));
        }
        assert_eq!(sent.transfers.back().unwrap().octets, 1000);
        for piece in 0..1000 {
            sent.record(&section(5000, Some(2000)), 2 * piece + 1, 1);
        }
        assert_eq!(sent.check(&section(5000, Some(1)), 0, 1), Ok(()), "it has ended");
    }

    proptest! {
        /// A model with a set of octets says the same.
        // Requirements: TRO-3.1.4-01
        #[test]
        fn what_is_sent_is_consistent(
            sections in proptest::collection::vec(
                (0_u64..3, proptest::option::of(0_u32..40), 0_u32..40, 0_usize..12), 1..60,
            ),
        ) {
            let mut sent = SentTransfers::default();
            let mut model = BTreeMap::<u64, (Option<u32>, BTreeSet<u32>)>::new();
            for (rid, total, offset, octets) in sections {
                let range = offset..offset + octets as u32;
                let (before, old) = model.entry(rid).or_default();
                let all = old.iter().copied().chain(range.clone());
                let known = before.or(total);
                // Of no octets, the end counts as that of others does.
                let end = all.map(|octet| octet + 1).max().unwrap_or(0).max(range.end);
                let right = (before.is_none() || total.is_none() || *before == total)
                    && known.is_none_or(|total| end <= total)
                    && range.clone().all(|octet| !old.contains(&octet));
                let checked = sent.check(&section(rid, total), offset, octets);
                prop_assert_eq!(checked.is_ok(), right, "{:?}", checked);
                if !right || octets == 0 {
                    continue;
                }
                sent.record(&section(rid, total), offset, octets);
                old.extend(range);
                *before = known;
                if known == Some(old.len() as u32) {
                    model.remove(&rid);
                }
            }
        }
    }
}
