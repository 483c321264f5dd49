//! The peers' side: the connections, and each peer's state of its connection.

use std::net::{IpAddr, SocketAddr};

use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::frames::PEERS;
use super::speech::{Framing, Next};
use super::watch::{ACK, FIN, RST, SYN, Said, Sent, Tracker, distance};

/// Octets a peer's stream may have.
pub const STREAM_OCTETS: usize = 1 << 16;

/// More octets than the core sends on a connection in one run.
pub const SENT_OCTETS: u32 = 1 << 24;
/// SYNs of the core that are remembered for a conversation.
const REMEMBERED_SYNS: usize = 256;

/// One connection, or the attempt at one, between a peer's port and a port of the core.
#[derive(Debug)]
pub struct Conversation {
    pub local_port: u16,
    /// The peer's first sequence number.
    pub iss: u32,
    /// The peer's stream, from the octet after its SYN.
    pub stream: Vec<u8>,
    pub framing: Framing,
    pub next: Next,
    pub said: Said,
    pub tracker: Option<Tracker>,
    /// Other possible starts of connections of these ports: the trackers of the core's earlier SYNs, in their
    /// state at that time.
    earlier: Vec<Tracker>,
    pub id: Option<ConnectionId>,
    /// The core has opened a connection since the tracker began.
    opened: bool,
    /// A RST or a FIN was said, at either end.
    ended: bool,
    /// Cookies that had come back to the core at its end.
    good_at_end: Option<u64>,
    /// A cookie that has come back since may have been that of the tracker: two connections have its numbers.
    may_be_again: bool,
    /// Control has brought it into Full Operation.
    pub operating: bool,
    /// The peer's acknowledgement.
    pub acked: u32,
    /// The widest window of its SYNs.
    pub syn_window: u32,
}

impl Conversation {
    fn new(local_port: u16, iss: u32) -> Self {
        Self {
            local_port,
            iss,
            stream: Vec::new(),
            framing: Framing::default(),
            next: Next::default(),
            said: Said::default(),
            tracker: None,
            earlier: Vec::new(),
            id: None,
            opened: false,
            ended: false,
            good_at_end: None,
            may_be_again: false,
            operating: false,
            acked: 0,
            syn_window: 0,
        }
    }

    /// The place after all of the peer's stream.
    pub fn end(&self) -> u32 {
        self.iss.wrapping_add(1).wrapping_add(self.stream.len() as u32)
    }

    /// The core's next expected octet, as far as the core has acknowledged.
    pub fn expected(&self) -> u32 {
        self.tracker.as_ref().and_then(|tracker| tracker.ack).unwrap_or(self.iss.wrapping_add(1))
    }

    /// The place after all the core has sent.
    pub fn core_next(&self) -> u32 {
        self.tracker.as_ref().map_or(0, |tracker| tracker.nxt)
    }

    /// The peer's octets from place `seq` on; zeros where its stream has none.
    pub fn octets(&self, seq: u32, octets: usize) -> Vec<u8> {
        let begin = seq.wrapping_sub(self.iss.wrapping_add(1));
        (0..octets as u32)
            .map(|at| self.stream.get(begin.wrapping_add(at) as usize).copied().unwrap_or(0))
            .collect()
    }

    /// The timestamps option, if the core has sent one: a segment without it is then no segment of the
    /// connection (RFC 7323 §3.2).
    pub fn timestamps(&self, now: Instant) -> Vec<u8> {
        let Some(echo) = self.tracker.as_ref().and_then(|tracker| tracker.timestamp) else {
            return Vec::new();
        };
        timestamps(milliseconds(now), echo)
    }

    /// Records a segment that the peer sends now, with its promises. For a SYN, `scales` are the window
    /// scales that it may be read as naming.
    pub fn say(
        &mut self,
        (seq, octets): (u32, u32),
        flags: u8,
        (ack, window): (u32, u16),
        scales: &[Option<u8>],
    ) {
        let syn = flags & SYN != 0;
        self.ended |= flags & (RST | FIN) != 0;
        let control = u32::from(syn) + u32::from(flags & FIN != 0);
        self.said.note(seq, octets + control);
        if flags & FIN != 0 {
            self.said.note_fin(seq.wrapping_add(octets + control));
        }
        if syn {
            for scale in scales {
                self.said.note_syn(*scale);
            }
            self.syn_window = self.syn_window.max(u32::from(window));
        }
        let Some(tracker) = &mut self.tracker else { return };
        let acked = if flags & ACK != 0 { ack } else { tracker.iss.wrapping_add(1) };
        let from_iss = acked.wrapping_sub(tracker.iss);
        // An acknowledgement of octets that the core cannot have sent makes no promise.
        if from_iss <= tracker.nxt.wrapping_sub(tracker.iss) + (1 << 20) {
            let shift = if syn { 0 } else { self.said.scale };
            tracker.peer_edge = tracker.peer_edge.max(from_iss + (u32::from(window) << shift));
            if flags & ACK != 0 && distance(self.acked, acked) > 0 {
                self.acked = acked;
            }
        }
    }

    fn begin(&mut self, syn: &Sent<'_>) {
        let mut tracker = Tracker::new(syn);
        tracker.peer_edge = 1 + self.syn_window;
        (self.opened, self.ended) = (false, false);
        (self.good_at_end, self.may_be_again) = (None, false);
        self.follow(tracker);
    }

    /// Learns that the core has opened it as connection `id`. One that is not the first since its SYN has the
    /// same cookie, and the same numbers.
    pub fn open(&mut self, id: ConnectionId) {
        self.may_be_again |= core::mem::replace(&mut self.opened, true);
        (self.id, self.operating) = (Some(id), false);
    }

    /// Learns how many cookies have come back to the core so far, before and after each of its polls.
    pub fn learn_good_cookies(&mut self, good: u64) {
        if self.ended {
            self.may_be_again |= good > *self.good_at_end.get_or_insert(good);
        }
    }

    /// Whether `una` may be of another connection than the one that is tracked.
    pub fn may_be_of_another(&self, una: u32) -> bool {
        self.may_be_again || self.is_of_earlier_syn(una)
    }

    /// Follows the connection of `tracker` from now on.
    fn follow(&mut self, tracker: Tracker) {
        self.acked = tracker.iss;
        if let Some(before) = self.tracker.replace(tracker) {
            if self.earlier.len() == REMEMBERED_SYNS {
                self.earlier.remove(0);
            }
            self.earlier.push(before);
        }
    }

    /// Whether `una` acknowledges what a connection of an earlier SYN has sent, whose cookie may have come
    /// back: initial sequence numbers are random, and may be near each other.
    fn is_of_earlier_syn(&self, una: u32) -> bool {
        let is_of = |before: &Tracker| distance(before.iss, una) >= 0 && distance(una, before.nxt) >= 0;
        self.earlier.iter().any(is_of)
    }

    /// A segment belongs to the connection whose initial number is next before its own: one that an older SYN
    /// began, if its cookie was returned, or it is in TIME-WAIT.
    fn find(&mut self, sent: &Sent<'_>) {
        let sent_since = |tracker: &Tracker| sent.seq.wrapping_sub(tracker.iss);
        let Some(current) = self.tracker.as_ref().map(sent_since) else { return };
        // The last of those with the same number.
        let earlier = self.earlier.iter().map(sent_since).enumerate().rev().min_by_key(|(_, octets)| *octets);
        if let Some((place, octets)) = earlier
            && octets < SENT_OCTETS
            && octets < current
        {
            let tracker = self.earlier.remove(place);
            self.follow(tracker.again(1 + self.syn_window));
            // Which of several that its cookie may have opened is not known any more.
            self.may_be_again = true;
        }
    }
}

/// The peers' clock: it ticks in milliseconds.
pub fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / MILLISECOND) as u32
}

/// The timestamps option as Linux aligns it (RFC 7323 appendix A).
pub fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// A port of a peer and its conversations; one of them is the one it now talks in.
#[derive(Debug)]
pub struct Flow {
    pub host: IpAddr,
    pub port: u16,
    conversations: Vec<Conversation>,
    current: usize,
}

impl Flow {
    pub fn new(index: usize, local_port: u16) -> Self {
        Self {
            host: PEERS[index % PEERS.len()],
            port: 40_000 + index as u16,
            conversations: vec![Conversation::new(local_port, 0xffff_ff00)],
            current: 0,
        }
    }

    /// Its address and port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    pub fn now(&mut self) -> &mut Conversation {
        &mut self.conversations[self.current]
    }

    pub fn talks(&self) -> impl Iterator<Item = &Conversation> {
        self.conversations.iter()
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Conversation> {
        self.conversations.iter_mut()
    }

    /// Begins a conversation with `local_port`, or restarts it with another sequence number.
    pub fn turn_to(&mut self, local_port: u16, iss: u32) {
        let place = self.conversations.iter().position(|talk| talk.local_port == local_port);
        self.current = place.unwrap_or_else(|| {
            self.conversations.push(Conversation::new(local_port, iss));
            self.conversations.len() - 1
        });
        let talk = self.now();
        if talk.iss != iss {
            talk.iss = iss;
            talk.stream.clear();
            talk.framing = Framing::default();
            talk.next = Next::default();
        }
    }

    /// Takes a segment of the core.
    pub fn hear(&mut self, sent: &Sent<'_>) {
        let opens = sent.flags & (SYN | ACK) == SYN;
        let place = self.conversations.iter().position(|talk| talk.local_port == sent.local_port);
        let Some(place) = place else {
            // A segment other than a SYN answers a segment whose ports a fuzzed frame named.
            if opens {
                self.conversations.push(Conversation::new(sent.local_port, 0x1000));
                self.current = self.conversations.len() - 1;
                self.now().begin(sent);
            }
            return;
        };
        let talk = &mut self.conversations[place];
        if sent.flags & SYN != 0 && !talk.tracker.as_ref().is_some_and(|tracker| tracker.is_opened_by(sent)) {
            talk.begin(sent);
        } else if sent.flags & (SYN | RST) == 0 {
            talk.find(sent);
        }
        talk.ended |= sent.flags & (RST | FIN) != 0;
        if talk.may_be_again {
            talk.tracker = talk.tracker.take().map(|tracker| tracker.restarted_if_before(sent));
        }
        if let Some(tracker) = &mut talk.tracker {
            tracker.check(sent, &talk.said);
        }
    }
}
