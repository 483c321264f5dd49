//! Connections in TIME-WAIT (RFC 9293 §3.6.1), in a table of their own. Of each, the table keeps only the
//! state that answers an old segment and that distinguishes the SYN of a new connection.
//!
//! RSTs do not end the wait (RFC 1337); a peer that opens again does, if its SYN is certainly new (RFC 1122
//! §4.2.2.13, RFC 6191). A full table drops the oldest: it has waited longest.
//!
//! Connections are found by chains, one for each hash: unlike open addressing, that takes no memory before it
//! is used, and no insertion moves others, so that a table for a million connections costs nothing while
//! there are few.

use std::hash::BuildHasher;

use crate::drops::DropCause;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::rate_limit::RateLimit;
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
    /// Returns the disposition of a segment with `payload_octets` of payload (RFC 9293 §3.10.7.4).
    fn on_segment(&self, header: &Header, payload_octets: usize) -> Disposition {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            // RFC 1337 §3, (F1): a forged or repeated RST must not cut the wait short.
            return Disposition::Drop;
        }
        if flags & (Flags::SYN | Flags::ACK | Flags::FIN) == Flags::SYN && self.is_new(header) {
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

    /// Returns true if a SYN certainly does not belong to the old connection (RFC 6191 §2).
    fn is_new(&self, syn: &Header) -> bool {
        let is_after = syn.seq >= self.rcv_nxt;
        match (self.clocks, syn.options.timestamps) {
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
    /// The next entry with the same hash.
    chained: u32,
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
    /// The entries that were ever used.
    entries: Vec<Entry>,
    capacity: usize,
    len: usize,
    /// The first entry of each chain, plus one; 0 without one. A power of two of them.
    chains: Vec<u32>,
    hasher: KeyedHash,
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
            capacity,
            len: 0,
            chains: vec![0; capacity.next_power_of_two()],
            hasher: KeyedHash::new(key),
            free: NIL,
            oldest: NIL,
            newest: NIL,
        }
    }

    /// Returns the address space of a table for `capacity` connections, in bytes.
    pub(crate) const fn bytes(capacity: usize) -> usize {
        (size_of::<Entry>() + 2 * size_of::<u32>()) * capacity
    }

    /// Returns how many connections there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the chain of a connection.
    fn chain(&self, key: &FlowKey) -> usize {
        self.hasher.hash_one(key) as usize & (self.chains.len() - 1)
    }

    /// Returns the place of a connection.
    fn find(&self, key: &FlowKey) -> Option<u32> {
        let mut place = self.chains[self.chain(key)].wrapping_sub(1);
        while let Some(entry) = self.entries.get(place as usize) {
            if entry.key == *key {
                return Some(place);
            }
            place = entry.chained;
        }
        None
    }

    /// Returns the state of a connection whose wait is not over at `now`.
    pub(crate) fn get(&mut self, now: Instant, key: &FlowKey) -> Option<TimeWaitState> {
        if self.len == 0 {
            return None;
        }
        self.expire(now);
        let entry = &self.entries[self.find(key)? as usize];
        (entry.expires > now).then_some(entry.state)
    }

    /// Begins the wait of a connection. A full table drops its oldest: then the result is true.
    pub(crate) fn insert(&mut self, now: Instant, key: FlowKey, state: TimeWaitState) -> bool {
        self.expire(now);
        self.remove(&key);
        let evicts = self.len == self.capacity;
        if evicts {
            let oldest = self.entries[self.oldest as usize].key;
            self.remove(&oldest);
        }
        let expires = now + limits::LINGER_NS;
        let chain = self.chain(&key);
        let chained = self.chains[chain].wrapping_sub(1);
        let entry = Entry { chained, key, state, expires, acknowledged: None, previous: NIL, next: NIL };
        let place = if self.free == NIL {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let place = self.free;
            self.free = self.entries[place as usize].next;
            self.entries[place as usize] = entry;
            place
        };
        self.chains[chain] = place + 1;
        self.len += 1;
        self.link(place);
        evicts
    }

    /// Handles a segment of `payload_octets` for the connection `key`, which is in the table with `state`.
    /// `acknowledgements` bounds the rate of replies.
    pub(crate) fn on_segment(
        &mut self,
        now: Instant,
        key: &FlowKey,
        state: &TimeWaitState,
        header: &Header,
        payload_octets: usize,
        acknowledgements: &mut RateLimit,
    ) -> TimeWaitOutcome {
        let acknowledges = match state.on_segment(header, payload_octets) {
            Disposition::Reopen(iss_min) => return TimeWaitOutcome::Reopen(iss_min),
            Disposition::Drop => return TimeWaitOutcome::Drop(DropCause::WrongState),
            Disposition::AcknowledgeFin => {
                self.restart(now, key);
                true
            }
            Disposition::Acknowledge => self.may_acknowledge(now, key),
        };
        if acknowledges && acknowledgements.admit(now) {
            TimeWaitOutcome::Reply(state.acknowledgement(now))
        } else {
            TimeWaitOutcome::Drop(DropCause::RateLimited)
        }
    }

    /// Restarts the wait of a connection.
    fn restart(&mut self, now: Instant, key: &FlowKey) {
        if let Some(place) = self.find(key) {
            self.unlink(place);
            self.entries[place as usize].expires = now + limits::LINGER_NS;
            self.link(place);
        }
    }

    /// Returns true if an acknowledgement to another segment than a FIN may be sent now: two ends that
    /// disagree must not answer each other without end.
    fn may_acknowledge(&mut self, now: Instant, key: &FlowKey) -> bool {
        let Some(place) = self.find(key) else { return false };
        let entry = &mut self.entries[place as usize];
        let may = entry.acknowledged.is_none_or(|at| now - at >= limits::CHALLENGE_INTERVAL_NS);
        if may {
            entry.acknowledged = Some(now);
        }
        may
    }

    /// Ends the wait of a connection.
    pub(crate) fn remove(&mut self, key: &FlowKey) {
        let Some(place) = self.find(key) else { return };
        self.unchain(key, place);
        self.unlink(place);
        self.entries[place as usize].next = self.free;
        self.free = place;
        self.len -= 1;
    }

    /// Removes the entry at `place` from its chain.
    fn unchain(&mut self, key: &FlowKey, place: u32) {
        let after = self.entries[place as usize].chained;
        let chain = self.chain(key);
        let mut previous = self.chains[chain].wrapping_sub(1);
        if previous == place {
            self.chains[chain] = after.wrapping_add(1);
            return;
        }
        while let Some(entry) = self.entries.get_mut(previous as usize) {
            if entry.chained == place {
                entry.chained = after;
                return;
            }
            previous = entry.chained;
        }
    }

    /// Returns true if the connection is in the table and its wait is not over at `now`.
    pub(crate) fn contains(&self, now: Instant, key: &FlowKey) -> bool {
        self.find(key).is_some_and(|place| self.entries[place as usize].expires > now)
    }

    /// Returns the state of a connection that this end may open again: it used timestamps, and has waited
    /// long enough for our clock to tick (RFC 6191 §2, from our side).
    pub(crate) fn reusable(&self, now: Instant, key: &FlowKey) -> Option<TimeWaitState> {
        let entry = Some(&self.entries[self.find(key)? as usize]).filter(|entry| entry.expires > now)?;
        let began = entry.expires.nanos_since(Instant::from_nanos(limits::LINGER_NS));
        let has_waited = now.as_nanos() >= began + limits::TIME_WAIT_REST_NS;
        (has_waited && entry.state.clocks.is_some()).then_some(entry.state)
    }

    /// Removes connections whose wait is over: a few, so that none waits for many of them. Others have no
    /// effect any more, and are removed by later calls, of which there is one at least for each connection
    /// that enters.
    #[inline]
    pub(crate) fn expire(&mut self, now: Instant) {
        for _ in 0..limits::TIME_WAITS_EXPIRED_AT_ONCE {
            let oldest = self.entries.get(self.oldest as usize);
            let Some(entry) = oldest.filter(|entry| entry.expires <= now) else { return };
            let key = entry.key;
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
            let disposition = state(recent).on_segment(&header(Flags::SYN, seq, value), 0);
            let expected =
                if new { Disposition::Reopen(SeqNumber(0xfff0)) } else { Disposition::Acknowledge };
            assert_eq!(disposition, expected, "{recent:?} {value:?} {seq:?}");
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
            assert_eq!(state.on_segment(&header(flags, seq, None), octets), expected, "{flags:?} {seq:?}");
        }
    }

    #[test]
    fn a_fin_with_an_old_timestamp_does_not_restart_the_wait() {
        let fin = |value| state(Some(10)).on_segment(&header(Flags::FIN | Flags::ACK, END - 1, value), 0);
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
