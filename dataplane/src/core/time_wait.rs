//! Connections in TIME-WAIT (RFC 9293 §3.6.1), in a table of their own: all that is left of one is what it takes to answer
//! an old segment and to tell a new connection from it.
//!
//! RSTs do not end the wait (RFC 1337); a peer that opens again does, if its SYN is certainly new (RFC 1122 §4.2.2.13,
//! RFC 6191). When the table is full the oldest goes: it has waited longest.

use std::collections::HashMap;

use super::Core;
use super::statistics::{DropCause, Statistics};
use crate::device::Device;
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::tcp;
use crate::time::{Instant, MILLISECOND};
use crate::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

/// What is left of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The sequence number after our FIN.
    pub snd_nxt: SeqNumber,
    /// The sequence number after the peer's FIN.
    pub rcv_nxt: SeqNumber,
    /// The timestamps, if the connection used them.
    pub clocks: Option<Clocks>,
}

/// The clocks of a connection that used timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// What our clock is ahead of milliseconds since the origin.
    pub offset: u32,
    /// The last of the peer's, in order (TS.Recent of RFC 7323).
    pub recent: u32,
}

impl Clocks {
    const fn option(self, now: Instant) -> Timestamps {
        let value = ((now.as_nanos() / MILLISECOND) as u32).wrapping_add(self.offset);
        Timestamps { value, echo: self.recent }
    }
}

/// What a segment leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    None,
    /// What we have is acknowledged again, at a bounded rate.
    Acknowledge,
    /// The peer's FIN again: it is acknowledged, and the wait begins anew.
    AcknowledgeFin,
    /// A new connection between the same ports may begin. Our sequence numbers of it are to lie beyond this one.
    Reopen(SeqNumber),
}

impl Remains {
    /// What a segment of `payload_octets` octets leads to (RFC 9293 §3.10.7.4).
    pub fn on_segment(&self, header: &Header, payload_octets: usize) -> Answer {
        let flags = header.flags;
        if flags.contains(Flags::RST) {
            // RFC 1337 §3, (F1): whoever forges or repeats a RST must not cut the wait short.
            return Answer::None;
        }
        if flags & (Flags::SYN | Flags::ACK | Flags::FIN) == Flags::SYN && self.is_new(header) {
            return Answer::Reopen(self.beyond());
        }
        if flags.contains(Flags::SYN) {
            // RFC 5961 §4: a peer that has forgotten the connection answers this with a RST, and tries again later.
            return Answer::Acknowledge;
        }
        let end = header.seq + payload_octets as u32 + u32::from(flags.contains(Flags::FIN));
        if flags.contains(Flags::FIN) && end == self.rcv_nxt && !self.is_old(header) {
            return Answer::AcknowledgeFin;
        }
        // What is at the very place expected is the peer's last acknowledgement, or data after its FIN, which cannot be.
        if header.seq == self.rcv_nxt { Answer::None } else { Answer::Acknowledge }
    }

    /// Where our sequence numbers of a new connection between the same ports may begin: beyond all that was sent (RFC 1122
    /// §4.2.2.13), with a gap.
    pub fn beyond(&self) -> SeqNumber {
        self.snd_nxt + 0x1_0000
    }

    /// Whether a SYN is certainly none of the old connection (RFC 6191 §2).
    fn is_new(&self, syn: &Header) -> bool {
        let beyond = syn.seq >= self.rcv_nxt;
        match (self.clocks, syn.options.timestamps) {
            (Some(clocks), Some(Timestamps { value, .. })) => {
                let ahead = value.wrapping_sub(clocks.recent).cast_signed();
                ahead > 0 || (ahead == 0 && beyond)
            }
            // Segments of the old connection have no timestamp, and so none of them passes for one of the new.
            (None, Some(_)) => true,
            (_, None) => beyond,
        }
    }

    /// RFC 7323 §5.3 R1.
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
            // The peer has closed: it has no use for a window.
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
    remains: Remains,
    expires: Instant,
    /// When an acknowledgement was last sent that no FIN asked for.
    acknowledged: Option<Instant>,
    previous: u32,
    next: u32,
}

/// The connections of a core in TIME-WAIT, in the order in which they end.
#[derive(Debug)]
pub struct TimeWaits {
    entries: Vec<Entry>,
    by_key: HashMap<FlowKey, u32, KeyedHash>,
    /// Places no longer in use, linked by `next`.
    free: u32,
    oldest: u32,
    newest: u32,
}

impl TimeWaits {
    /// A table for `capacity` connections, at least one, hashed under `key`.
    pub fn new(capacity: usize, key: [u64; 2]) -> Self {
        let capacity = capacity.max(1);
        Self {
            entries: Vec::with_capacity(capacity),
            by_key: HashMap::with_capacity_and_hasher(capacity, KeyedHash::new(key)),
            free: NIL,
            oldest: NIL,
            newest: NIL,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// What is left of a connection.
    pub fn get(&mut self, now: Instant, key: &FlowKey) -> Option<Remains> {
        if self.by_key.is_empty() {
            return None;
        }
        self.expire(now);
        self.by_key.get(key).map(|place| self.entries[*place as usize].remains)
    }

    /// Begins the wait of a connection. A full table gives up its oldest, counted.
    pub fn insert(&mut self, now: Instant, key: FlowKey, remains: Remains, statistics: &mut Statistics) {
        self.expire(now);
        self.remove(&key);
        if self.free == NIL && self.entries.len() == self.entries.capacity() {
            statistics.time_waits_evicted += 1;
            let oldest = self.entries[self.oldest as usize].key;
            self.remove(&oldest);
        }
        let expires = now + limits::LINGER_NS;
        let entry = Entry { key, remains, expires, acknowledged: None, previous: NIL, next: NIL };
        let place = if self.free == NIL {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let place = self.free;
            self.free = self.entries[place as usize].next;
            self.entries[place as usize] = entry;
            place
        };
        self.by_key.insert(key, place);
        self.link(place);
    }

    /// Begins a wait anew.
    fn restart(&mut self, now: Instant, key: &FlowKey) {
        if let Some(&place) = self.by_key.get(key) {
            self.unlink(place);
            self.entries[place as usize].expires = now + limits::LINGER_NS;
            self.link(place);
        }
    }

    /// Whether an acknowledgement that no FIN asked for may be sent now: two ends that disagree must not answer each other
    /// without end.
    fn may_acknowledge(&mut self, now: Instant, key: &FlowKey) -> bool {
        let Some(&place) = self.by_key.get(key) else { return false };
        let entry = &mut self.entries[place as usize];
        let may = entry.acknowledged.is_none_or(|at| now - at >= limits::CHALLENGE_INTERVAL_NS);
        if may {
            entry.acknowledged = Some(now);
        }
        may
    }

    /// Ends a wait.
    pub fn remove(&mut self, key: &FlowKey) {
        if let Some(place) = self.by_key.remove(key) {
            self.unlink(place);
            self.entries[place as usize].next = self.free;
            self.free = place;
        }
    }

    /// Whether there is something left of a connection.
    pub fn contains(&self, key: &FlowKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// What is left of a connection that used timestamps and has rested long enough for us to open it anew.
    pub fn rested(&self, now: Instant, key: &FlowKey) -> Option<Remains> {
        let entry = &self.entries[*self.by_key.get(key)? as usize];
        let began = entry.expires.nanos_since(Instant::from_nanos(limits::LINGER_NS));
        let rested = now.as_nanos() >= began + limits::TIME_WAIT_REST_NS;
        (rested && entry.remains.clocks.is_some()).then_some(entry.remains)
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: Instant) {
        // In the order in which they end; each was put in once, so the cost is the insertion's.
        while let Some(entry) = self.entries.get(self.oldest as usize).filter(|entry| entry.expires <= now) {
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

impl<D: Device> Core<D> {
    /// Puts a connection that is in TIME-WAIT, and has nothing more to send or to hand up, where it costs little.
    pub(super) fn enter_time_wait(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_ref() else { return };
        let key = connection.key;
        let remains = Remains {
            snd_nxt: connection.tcp.acknowledged(),
            rcv_nxt: connection.tcp.received().nxt() + u32::from(connection.tcp.peer_finished()),
            clocks: connection.tcp.clocks().map(|(offset, recent)| Clocks { offset, recent }),
        };
        self.remove_connection(index);
        self.time_waits.insert(now, key, remains, &mut self.statistics);
    }

    /// Whether a connection is over but for TIME-WAIT.
    pub(super) fn rests(connection: &super::connection::Connection) -> bool {
        connection.tcp.state() == tcp::State::TimeWait
            && connection.told_closed
            && connection.tcp.received().available() == 0
    }

    /// A segment of a connection in TIME-WAIT; gives the sequence number beyond which a new one may begin.
    pub(super) fn on_segment_in_time_wait(
        &mut self,
        now: Instant,
        key: FlowKey,
        remains: &Remains,
        header: &Header,
        payload_octets: usize,
    ) -> Result<SeqNumber, DropCause> {
        let acknowledge = match remains.on_segment(header, payload_octets) {
            Answer::Reopen(beyond) => return Ok(beyond),
            Answer::None => return Err(DropCause::WrongState),
            Answer::AcknowledgeFin => {
                self.time_waits.restart(now, &key);
                true
            }
            Answer::Acknowledge => self.time_waits.may_acknowledge(now, &key),
        };
        if !acknowledge || !self.pools.challenges.take(now) {
            return Err(DropCause::RateLimited);
        }
        self.host.send_bare(key, remains.acknowledgement(now));
        Err(DropCause::Duplicate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const END: SeqNumber = SeqNumber(5);

    fn remains(recent: Option<u32>) -> Remains {
        let clocks = recent.map(|recent| Clocks { offset: 0, recent });
        Remains { snd_nxt: SeqNumber(0xffff_fff0), rcv_nxt: END, clocks }
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
            let answer = remains(recent).on_segment(&header(Flags::SYN, seq, value), 0);
            let expected = if new { Answer::Reopen(SeqNumber(0xfff0)) } else { Answer::Acknowledge };
            assert_eq!(answer, expected, "{recent:?} {value:?} {seq:?}");
        }
    }

    /// RFC 9293 §3.10.7.4 and RFC 1337.
    #[test]
    fn old_segments_are_acknowledged_and_nothing_else() {
        let remains = remains(None);
        let (ack, fin) = (Flags::ACK, Flags::FIN | Flags::ACK);
        let cases = [
            (fin, END - 1, 0, Answer::AcknowledgeFin),
            (fin, END - 101, 100, Answer::AcknowledgeFin),
            (fin, END - 2, 0, Answer::Acknowledge),
            (fin, END, 0, Answer::None),
            (ack, END, 0, Answer::None),
            (ack, END, 100, Answer::None),
            (ack, END - 1, 0, Answer::Acknowledge),
            (ack, END - 200, 100, Answer::Acknowledge),
            (ack, END + 100, 0, Answer::Acknowledge),
            (Flags::RST, END, 0, Answer::None),
            (Flags::RST | ack, END, 0, Answer::None),
            (Flags::SYN | ack, END + 100, 0, Answer::Acknowledge),
        ];
        for (flags, seq, octets, expected) in cases {
            assert_eq!(remains.on_segment(&header(flags, seq, None), octets), expected, "{flags:?} {seq:?}");
        }
    }

    #[test]
    fn a_fin_with_an_old_timestamp_does_not_prolong() {
        let fin = |value| remains(Some(10)).on_segment(&header(Flags::FIN | Flags::ACK, END - 1, value), 0);
        assert_eq!((fin(Some(10)), fin(Some(9))), (Answer::AcknowledgeFin, Answer::Acknowledge));
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
    fn a_full_table_gives_up_its_oldest() {
        let (mut table, mut statistics) = (TimeWaits::new(4, [1, 2]), Statistics::default());
        for port in 0..4 {
            table.insert(at(port.into()), key(port), remains(None), &mut statistics);
        }
        // A FIN comes again: port 0 is no longer the oldest.
        table.restart(at(4), &key(0));
        table.insert(at(5), key(4), remains(None), &mut statistics);
        let left: Vec<u16> = (0..5).filter(|port| table.get(at(5), &key(*port)).is_some()).collect();
        assert_eq!((left, statistics.time_waits_evicted), (vec![0, 2, 3, 4], 1));
    }

    /// The table against a list, over random insertions, removals, restarts and steps of time.
    #[test]
    fn agrees_with_a_list() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut table, mut statistics) = (TimeWaits::new(16, [1, 2]), Statistics::default());
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
                        table.insert(now, key(port), remains(None), &mut statistics);
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
