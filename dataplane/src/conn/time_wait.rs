//! Connections in TIME-WAIT (RFC 9293 §3.6.1), in a table of their own. Of each, the table keeps only the
//! state that answers an old segment and that distinguishes the SYN of a new connection.
//!
//! RSTs do not end the wait (RFC 1337); a peer that opens again does, if its SYN is certainly new (RFC 1122
//! §4.2.2.13, RFC 6191). A full table drops the oldest: it has waited longest.

use super::flow_index::FlowIndex;
use crate::drops::DropCause;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::rate_limit::RateLimit;
use crate::tally;
use crate::time::{Instant, MILLISECOND};
use crate::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

/// The state of a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWaitState {
    /// The sequence number after our FIN.
    pub snd_nxt: SeqNumber,
    /// The sequence number after the peer's FIN.
    pub rcv_nxt: SeqNumber,
    /// The timestamps, if the connection used them.
    pub clocks: Option<Clocks>,
}

/// The clocks of a connection that used timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clocks {
    /// What our timestamps add to the milliseconds since the origin.
    pub offset: u32,
    /// The peer's last timestamp, in order (TS.Recent of RFC 7323).
    pub recent: u32,
}

impl Clocks {
    const fn option(self, now: Instant) -> Timestamps {
        let value = ((now.as_nanos() / MILLISECOND) as u32).wrapping_add(self.offset);
        Timestamps { value, echo: self.recent }
    }
}

/// How TIME-WAIT disposes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    /// Drop it.
    Drop,
    /// Acknowledge what we have again, at a bounded rate.
    Acknowledge,
    /// Acknowledge the peer's FIN again, and restart the wait.
    AcknowledgeFin,
    /// Let the SYN open a new connection, whose initial sequence number is not before this one.
    Reopen(SeqNumber),
}

/// What a segment for a connection in TIME-WAIT leads to.
#[derive(Debug)]
pub(crate) enum TimeWaitOutcome {
    /// The SYN may open a new connection, whose initial sequence number is not before this one.
    Reopen(SeqNumber),
    /// This acknowledgement goes to the peer.
    Reply(Header),
    /// The segment is dropped.
    Drop(DropCause),
}

impl TimeWaitState {
    /// Returns the disposition of a segment with `payload_octets` of payload (RFC 9293 §3.10.7.4). A new
    /// connection would use timestamps, if its peer offers them, only if `uses_timestamps` is true.
    fn on_segment(&self, header: &Header, payload_octets: usize, uses_timestamps: bool) -> Disposition {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            // RFC 1337 §3, (F1): a forged or repeated RST must not cut the wait short.
            return Disposition::Drop;
        }
        if flags & (Flags::SYN | Flags::ACK | Flags::FIN) == Flags::SYN
            && self.is_new(header, uses_timestamps)
        {
            return Disposition::Reopen(self.next_iss_min());
        }
        if flags.contains(Flags::SYN) {
            // RFC 5961 §4: a peer that has forgotten the connection answers this with a RST, and tries again
            // later.
            return Disposition::Acknowledge;
        }
        let octets = payload_octets as u32 + u32::from(flags.contains(Flags::FIN));
        let end = header.seq + octets;
        if flags.contains(Flags::FIN) && end == self.rcv_nxt && !self.is_old(header) {
            return Disposition::AcknowledgeFin;
        }
        // Only a segment without text or FIN is acceptable, at RCV.NXT: the window is closed. It is the
        // peer's last acknowledgement.
        if header.seq == self.rcv_nxt && octets == 0 { Disposition::Drop } else { Disposition::Acknowledge }
    }

    /// Returns the least initial sequence number of a new connection between the same ports: after everything
    /// that this end has sent (RFC 1122 §4.2.2.13), with a gap.
    pub(crate) fn next_iss_min(&self) -> SeqNumber {
        self.snd_nxt + 0x1_0000
    }

    /// Returns true if a SYN certainly does not belong to the old connection (RFC 6191 §2). Its timestamp
    /// counts only if the new connection would use timestamps too: without them nothing but sequence numbers
    /// protects the new connection from segments of the old one.
    fn is_new(&self, syn: &Header, uses_timestamps: bool) -> bool {
        let is_after = syn.seq >= self.rcv_nxt;
        match (self.clocks, syn.options.timestamps.filter(|_| uses_timestamps)) {
            (Some(clocks), Some(Timestamps { value, .. })) => {
                let ahead = value.wrapping_sub(clocks.recent).cast_signed();
                ahead > 0 || (ahead == 0 && is_after)
            }
            // Segments of the old connection have no timestamp, so the new connection refuses them.
            (None, Some(_)) => true,
            (_, None) => is_after,
        }
    }

    /// Returns true if the timestamp of a segment is older than the last one (RFC 7323 §5.3 R1).
    fn is_old(&self, header: &Header) -> bool {
        match (self.clocks, header.options.timestamps) {
            (Some(clocks), Some(Timestamps { value, .. })) => {
                value.wrapping_sub(clocks.recent).cast_signed() < 0
            }
            _ => false,
        }
    }

    fn acknowledgement(&self, now: Instant) -> Header {
        let timestamps = self.clocks.map(|clocks| clocks.option(now));
        Header {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            // The peer has closed: it sends no data.
            window: 0,
            options: Options { timestamps, ..Options::default() },
            ..Header::default()
        }
    }
}

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: FlowKey,
    state: TimeWaitState,
    expires: Instant,
    /// When an acknowledgement was last sent to another segment than a FIN.
    acknowledged: Option<Instant>,
    previous: u32,
    next: u32,
}

/// The connections of a core in TIME-WAIT, in the order in which their waits end.
#[derive(Debug)]
pub(crate) struct TimeWaitTable {
    entries: Vec<Entry>,
    by_key: FlowIndex,
    /// Free entries, linked by `next`.
    free: u32,
    oldest: u32,
    newest: u32,
}

impl TimeWaitTable {
    /// Returns a table for `capacity` connections, at least one, hashed under `key`.
    pub(crate) fn new(capacity: usize, key: [u64; 2]) -> Self {
        let capacity = capacity.max(1);
        Self {
            entries: Vec::with_capacity(capacity),
            by_key: FlowIndex::new(capacity, key),
            free: NIL,
            oldest: NIL,
            newest: NIL,
        }
    }

    /// Returns the address space of a table for `capacity` connections, in bytes.
    pub(crate) const fn bytes(capacity: usize) -> usize {
        size_of::<Entry>() * capacity + FlowIndex::bytes(capacity)
    }

    /// Returns how many connections there are, those included whose wait is over and that are not
    /// [removed](Self::expire) yet.
    pub(crate) const fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the place of a connection.
    fn place(&self, key: &FlowKey) -> Option<u32> {
        self.by_key.find(key, |place| self.entries[place as usize].key == *key)
    }

    /// Returns the state of a connection whose wait is not over at `now`.
    fn get(&self, now: Instant, key: &FlowKey) -> Option<TimeWaitState> {
        if self.by_key.len() == 0 {
            return None;
        }
        self.entry(now, key).map(|entry| entry.state)
    }

    /// Begins the wait of a connection. A full table drops its oldest: then the result is true.
    pub(crate) fn insert(&mut self, now: Instant, key: FlowKey, state: TimeWaitState) -> bool {
        self.expire(now);
        self.remove(&key);
        let evicts = self.free == NIL && self.entries.len() == self.entries.capacity();
        if evicts {
            let oldest = self.entries[self.oldest as usize].key;
            self.remove(&oldest);
        }
        let expires = now + limits::LINGER_NS;
        let entry = Entry { key, state, expires, acknowledged: None, previous: NIL, next: NIL };
        let place = if self.free == NIL {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let place = self.free;
            self.free = self.entries[place as usize].next;
            self.entries[place as usize] = entry;
            place
        };
        self.by_key.insert(&key, place);
        self.link(place);
        evicts
    }

    /// Handles a segment of `payload_octets` for the connection `key`; returns `None` if that is not in the
    /// table. A new connection would use timestamps only if `uses_timestamps` is true. `acknowledgements`
    /// bounds the rate of replies.
    pub(crate) fn on_segment(
        &mut self,
        now: Instant,
        key: &FlowKey,
        header: &Header,
        payload_octets: usize,
        uses_timestamps: bool,
        acknowledgements: &mut RateLimit,
    ) -> Option<TimeWaitOutcome> {
        let state = self.get(now, key)?;
        let acknowledges = match state.on_segment(header, payload_octets, uses_timestamps) {
            Disposition::Reopen(iss_min) => return Some(TimeWaitOutcome::Reopen(iss_min)),
            Disposition::Drop => return Some(TimeWaitOutcome::Drop(DropCause::WrongState)),
            Disposition::AcknowledgeFin => {
                self.restart(now, key);
                true
            }
            Disposition::Acknowledge => self.may_acknowledge(now, key),
        };
        Some(if acknowledges && acknowledgements.admit(now) {
            TimeWaitOutcome::Reply(state.acknowledgement(now))
        } else {
            TimeWaitOutcome::Drop(DropCause::RateLimited)
        })
    }

    /// Restarts the wait of a connection.
    fn restart(&mut self, now: Instant, key: &FlowKey) {
        if let Some(place) = self.place(key) {
            self.unlink(place);
            self.entries[place as usize].expires = now + limits::LINGER_NS;
            self.link(place);
        }
    }

    /// Returns true if an acknowledgement to another segment than a FIN may be sent now: two ends that
    /// disagree must not answer each other without end.
    fn may_acknowledge(&mut self, now: Instant, key: &FlowKey) -> bool {
        let Some(place) = self.place(key) else { return false };
        let entry = &mut self.entries[place as usize];
        let may = entry.acknowledged.is_none_or(|at| now - at >= limits::CHALLENGE_INTERVAL_NS);
        if may {
            entry.acknowledged = Some(now);
        }
        may
    }

    /// Ends the wait of a connection.
    pub(crate) fn remove(&mut self, key: &FlowKey) {
        if let Some(place) = self.place(key) {
            self.by_key.remove(key, place);
            self.unlink(place);
            self.entries[place as usize].next = self.free;
            self.free = place;
        }
    }

    /// Returns the entry of a connection whose wait is not over at `now`.
    fn entry(&self, now: Instant, key: &FlowKey) -> Option<&Entry> {
        let place = self.place(key)?;
        self.entries.get(place as usize).filter(|entry| entry.expires > now)
    }

    /// Returns true if the wait of the connection is not over at `now`.
    pub(crate) fn contains(&self, now: Instant, key: &FlowKey) -> bool {
        self.entry(now, key).is_some()
    }

    /// Returns the state of a connection that this end may open again: it used timestamps, and has waited
    /// long enough for our clock to tick (RFC 6191 §2, from our side).
    pub(crate) fn reusable(&self, now: Instant, key: &FlowKey) -> Option<TimeWaitState> {
        let entry = self.entry(now, key)?;
        let began = entry.expires.nanos_since(Instant::from_nanos(limits::LINGER_NS));
        let has_waited = now.as_nanos() >= began + limits::TIME_WAIT_REST_NS;
        (has_waited && entry.state.clocks.is_some()).then_some(entry.state)
    }

    /// Removes connections whose wait is over, a few at a time: after an idle minute it may be over for all.
    #[inline]
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.first_expired(now).is_some() {
            self.remove_expired(now);
        }
    }

    /// Returns when [`expire`](Self::expire) next finds a connection whose wait is over.
    pub(crate) fn next_expiry(&self) -> Instant {
        self.entries.get(self.oldest as usize).map_or(Instant::NEVER, |entry| entry.expires)
    }

    #[inline]
    fn first_expired(&self, now: Instant) -> Option<&Entry> {
        self.entries.get(self.oldest as usize).filter(|entry| entry.expires <= now)
    }

    #[inline(never)]
    fn remove_expired(&mut self, now: Instant) {
        for _ in 0..limits::TIME_WAITS_ENDED_TOGETHER {
            let Some(key) = self.first_expired(now).map(|entry| entry.key) else { return };
            tally::record_visits(1);
            self.remove(&key);
        }
    }

    fn link(&mut self, place: u32) {
        let previous = core::mem::replace(&mut self.newest, place);
        let entry = &mut self.entries[place as usize];
        (entry.previous, entry.next) = (previous, NIL);
        match self.entries.get_mut(previous as usize) {
            Some(previous) => previous.next = place,
            None => self.oldest = place,
        }
    }

    fn unlink(&mut self, place: u32) {
        let Entry { previous, next, .. } = self.entries[place as usize];
        match self.entries.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.oldest = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.newest = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const END: SeqNumber = SeqNumber(5);

    fn state(recent: Option<u32>) -> TimeWaitState {
        let clocks = recent.map(|recent| Clocks { offset: 0, recent });
        TimeWaitState { snd_nxt: SeqNumber(0xffff_fff0), rcv_nxt: END, clocks }
    }

    fn header(flags: Flags, seq: SeqNumber, value: Option<u32>) -> Header {
        let timestamps = value.map(|value| Timestamps { value, echo: 0 });
        Header { flags, seq, options: Options { timestamps, ..Options::default() }, ..Header::default() }
    }

    /// RFC 6191 §2, each of its cases, and RFC 1122 §4.2.2.13 without timestamps.
    #[test]
    fn a_syn_reopens_when_it_is_certainly_new() {
        let cases = [
            (None, None, END - 1, false),
            (None, None, END, true),
            (None, None, END + 1000, true),
            (None, None, END + 0x9000_0000, false),
            (None, Some(1), END - 1000, true),
            (Some(10), Some(11), END - 1000, true),
            (Some(10), Some(10), END - 1, false),
            (Some(10), Some(10), END, true),
            (Some(10), Some(9), END + 1000, false),
            (Some(u32::MAX), Some(0), END - 1000, true),
            (Some(10), None, END - 1, false),
            (Some(10), None, END, true),
        ];
        for (recent, value, seq, new) in cases {
            let disposition = state(recent).on_segment(&header(Flags::SYN, seq, value), 0, true);
            let expected =
                if new { Disposition::Reopen(SeqNumber(0xfff0)) } else { Disposition::Acknowledge };
            assert_eq!(disposition, expected, "{recent:?} {value:?} {seq:?}");
        }
    }

    /// RFC 6191 §2: the cases in which the new connection would use no timestamps.
    #[test]
    fn only_the_number_of_a_syn_counts_without_timestamps() {
        for recent in [None, Some(10)] {
            for value in [None, Some(9), Some(10), Some(11)] {
                for (seq, new) in [(END - 1000, false), (END - 1, false), (END, true), (END + 1000, true)] {
                    let disposition = state(recent).on_segment(&header(Flags::SYN, seq, value), 0, false);
                    let reopens = matches!(disposition, Disposition::Reopen(_));
                    assert_eq!(reopens, new, "{recent:?} {value:?} {seq:?}");
                }
            }
        }
    }

    /// RFC 9293 §3.10.7.4 and RFC 1337.
    #[test]
    fn old_segments_are_acknowledged_and_nothing_else() {
        let state = state(None);
        let (ack, fin) = (Flags::ACK, Flags::FIN | Flags::ACK);
        let cases = [
            (fin, END - 1, 0, Disposition::AcknowledgeFin),
            (fin, END - 101, 100, Disposition::AcknowledgeFin),
            (fin, END - 2, 0, Disposition::Acknowledge),
            (fin, END, 0, Disposition::Acknowledge),
            (ack, END, 0, Disposition::Drop),
            (ack, END, 100, Disposition::Acknowledge),
            (ack, END - 1, 0, Disposition::Acknowledge),
            (ack, END - 200, 100, Disposition::Acknowledge),
            (ack, END + 100, 0, Disposition::Acknowledge),
            (Flags::RST, END, 0, Disposition::Drop),
            (Flags::RST | ack, END, 0, Disposition::Drop),
            (Flags::SYN | ack, END + 100, 0, Disposition::Acknowledge),
        ];
        for (flags, seq, octets, expected) in cases {
            let disposition = state.on_segment(&header(flags, seq, None), octets, true);
            assert_eq!(disposition, expected, "{flags:?} {seq:?}");
        }
    }

    #[test]
    fn a_fin_with_an_old_timestamp_does_not_restart_the_wait() {
        let header = |value| header(Flags::FIN | Flags::ACK, END - 1, value);
        let fin = |value| state(Some(10)).on_segment(&header(value), 0, true);
        assert_eq!((fin(Some(10)), fin(Some(9))), (Disposition::AcknowledgeFin, Disposition::Acknowledge));
    }

    fn key(port: u16) -> FlowKey {
        FlowKey {
            local: [198, 18, 0, 1].into(),
            remote: [198, 18, 0, 2].into(),
            remote_port: port,
            local_port: 7471,
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * SECOND)
    }

    /// Waits that end together are removed a few at a time, and are over nevertheless.
    #[test]
    fn waits_that_end_together_are_removed_a_few_at_a_time() {
        let connections = 3 * limits::TIME_WAITS_ENDED_TOGETHER as u16;
        let mut table = TimeWaitTable::new(connections.into(), [1, 2]);
        for port in 0..connections {
            table.insert(at(0), key(port), state(None));
        }
        let over = at(0) + limits::LINGER_NS;
        table.expire(over);
        assert_eq!(table.len(), 2 * limits::TIME_WAITS_ENDED_TOGETHER);
        assert!((0..connections).all(|port| !table.contains(over, &key(port))));
        assert!(!table.insert(over, key(0), state(None)), "there is room again");
        assert!(table.contains(over, &key(0)) && !table.contains(over, &key(connections - 1)));
    }

    #[test]
    fn a_full_table_drops_its_oldest() {
        let (mut table, mut evicted) = (TimeWaitTable::new(4, [1, 2]), 0);
        for port in 0..4 {
            evicted += u32::from(table.insert(at(port.into()), key(port), state(None)));
        }
        // A FIN comes again: port 0 is no longer the oldest.
        table.restart(at(4), &key(0));
        evicted += u32::from(table.insert(at(5), key(4), state(None)));
        let left: Vec<u16> = (0..5).filter(|port| table.get(at(5), &key(*port)).is_some()).collect();
        assert_eq!((left, evicted), (vec![0, 2, 3, 4], 1));
    }

    /// The table against a list, over random insertions, removals, restarts and steps of time.
    #[test]
    fn agrees_with_a_list() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut table = TimeWaitTable::new(16, [1, 2]);
            let mut model: Vec<(u16, Instant)> = Vec::new();
            let mut now = at(0);
            for _ in 0..2000 {
                let port = rng.u16(..32);
                model.retain(|(_, expires)| *expires > now);
                let known = model.iter().position(|(known, _)| *known == port);
                assert_eq!(table.get(now, &key(port)).is_some(), known.is_some(), "seed {seed}");
                table.expire(now);
                assert_eq!(table.len(), model.len(), "seed {seed}");
                match (rng.u32(..4), known) {
                    (0, Some(place)) => {
                        table.remove(&key(port));
                        model.remove(place);
                    }
                    (1, Some(place)) => {
                        table.restart(now, &key(port));
                        model.remove(place);
                        model.push((port, now + limits::LINGER_NS));
                    }
                    _ => {
                        table.insert(now, key(port), state(None));
                        if let Some(place) = known {
                            model.remove(place);
                        } else if model.len() == 16 {
                            model.remove(0);
                        }
                        model.push((port, now + limits::LINGER_NS));
                    }
                }
                now += rng.u64(..5 * SECOND);
            }
        }
    }
}
