//! One end of a connection as the wire shows it, from its SYN on: what it has sent, what of that has reached
//! its peer, and what the peer has let it know.

use std::collections::{HashSet, VecDeque};

use warpline_dataplane::limits;
use warpline_dataplane::time::{Instant, MILLISECOND};

use super::super::host::MPA_PORT;
use super::Target;
use super::fpdus::{Fpdus, Startup};
use super::runs::Runs;
use super::segment::{CONGESTION_EXPERIENCED, Flow, Segment, flag};

/// What a segment breaks.
pub(super) type Verdict = Result<(), String>;

/// Returns an error that says what is wrong unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
pub(super) use ensure;

/// Virtual time by which a busy host may be later than its timers.
const SLACK_NS: u64 = 20 * MILLISECOND;
/// Runs of marked and unmarked text that come at once and are acknowledged one by one.
const RUNS_OF_MARKS: usize = 4;
/// Segments of the first congestion window.
const INITIAL_SEGMENTS: i64 = 10;
/// The largest segment that a peer without the option takes (RFC 9293 §3.7.1).
const DEFAULT_MSS: u16 = 536;

/// What a SYN offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) mss: u16,
    scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
    window: u16,
}

/// Places in a stream are offsets from its first octet. The FIN has the place after the last one.
#[derive(Debug)]
pub(super) struct Half {
    /// The host that it belongs to.
    pub(super) host: usize,
    iss: u32,
    pub(super) offer: Offer,
    /// It has offered ECN, or agreed to it.
    pub(super) takes_ecn: bool,
    /// The ISS of the peer's connection that it talks to, once it has seen that.
    peer_iss: Option<u32>,
    /// The stream that it sends.
    pub(super) octets: Vec<u8>,
    fin: bool,
    /// How often it has sent its FIN.
    fins: u8,
    reset: bool,
    forgotten: bool,
    /// Its newest text has PSH.
    pushes: bool,
    /// Its startup frame and its FPDUs, if it sends such.
    speaks_mpa: bool,
    startup: Option<Startup>,
    fpdus: Option<Fpdus>,
    /// Segments after MPA startup that begin or end inside of an FPDU.
    pub(super) unaligned: u64,
    /// The place in the peer's stream that it has acknowledged, and the end of the window that it has
    /// offered.
    acknowledged: i64,
    edge: i64,
    /// Its last timestamp, and the last that it has echoed.
    clock: Option<(u32, u32)>,
    /// What of its stream has reached the peer: the end of each run by its beginning.
    arrived: Runs,
    fin_arrived: bool,
    /// What of that has reached it more than once.
    repeated: Runs,
    /// Text that has reached the peer and is of a connection before, as sequence numbers.
    strays: Vec<(u32, u32)>,
    /// Timestamps that have reached the peer.
    clocks_arrived: HashSet<u32>,
    /// What the peer's segments have said: what is acknowledged, and how far it may send.
    pub(super) una: i64,
    pub(super) window_end: i64,
    /// Ends of windows that came after one with a later end.
    late_window_ends: HashSet<i64>,
    congestion_arrived: bool,
    /// Text in order that has come and is not acknowledged: the end of each segment, and when it came.
    unacknowledged: VecDeque<(i64, Instant)>,
    /// Text beyond a gap that has come last, and text that has come again since its last acknowledgement
    /// without text.
    latest: Option<(i64, i64)>,
    again: Option<(i64, i64)>,
    /// Runs of text that have come in order and are not acknowledged: the end of each, and whether they met
    /// congestion. `None` once text has come in another order.
    marks: Option<VecDeque<(i64, bool)>>,
    /// What would be wrong if it has kept everything that has come.
    pub(super) doubt: Option<String>,
}

const fn count(octets: usize) -> i64 {
    octets.cast_signed() as i64
}

impl Half {
    /// Returns the end that sends `syn`, to a `peer` whose SYN it answers.
    pub(super) fn begin(host: usize, syn: &Segment<'_>, peer: Option<&Self>) -> Result<Self, String> {
        let options = &syn.options;
        ensure!(syn.payload.is_empty() && !syn.has(flag::FIN), "a SYN with text");
        ensure!(syn.ecn == 0, "a SYN that is ECN-capable (RFC 3168 §6.1.1)");
        ensure!(options.scale.is_none_or(|scale| scale <= 14), "a shift above 14 (RFC 7323 §2.3)");
        let peer = if syn.has(flag::ACK) {
            let peer = peer.filter(|peer| peer.iss.wrapping_add(1) == syn.ack);
            ensure!(peer.is_some(), "a SYN-ACK for no SYN");
            peer
        } else {
            None
        };
        if let Some(peer) = peer {
            let offer = peer.offer;
            let unasked = (options.scale.is_some() && offer.scale.is_none())
                || (options.sack_permitted && !offer.sack)
                || (options.timestamps.is_some() && !offer.timestamps);
            ensure!(!unasked, "a SYN-ACK with options that the SYN has not");
            let echo = options.timestamps.map(|(_, echo)| echo);
            ensure!(
                echo.is_none_or(|echo| peer.clocks_arrived.contains(&echo)),
                "an echo of no timestamp in a SYN-ACK"
            );
        } else {
            ensure!(options.timestamps.is_none_or(|(_, echo)| echo == 0), "an echo in a SYN");
        }
        let offer = Offer {
            mss: options.mss.unwrap_or(DEFAULT_MSS),
            scale: options.scale,
            sack: options.sack_permitted,
            timestamps: options.timestamps.is_some(),
            window: syn.window,
        };
        Ok(Self {
            host,
            iss: syn.seq,
            offer,
            takes_ecn: syn.has(flag::ECE),
            peer_iss: peer.map(|peer| peer.iss),
            octets: Vec::new(),
            fin: false,
            fins: 0,
            reset: false,
            forgotten: false,
            pushes: true,
            speaks_mpa: syn.flow.ports().contains(&MPA_PORT),
            startup: None,
            fpdus: None,
            unaligned: 0,
            acknowledged: 0,
            edge: i64::from(syn.window),
            clock: options.timestamps,
            arrived: Runs::default(),
            repeated: Runs::default(),
            fin_arrived: false,
            strays: Vec::new(),
            clocks_arrived: HashSet::new(),
            una: 0,
            window_end: peer.map_or(0, |peer| peer.offer.window.into()),
            late_window_ends: HashSet::new(),
            congestion_arrived: false,
            unacknowledged: VecDeque::new(),
            latest: None,
            again: None,
            marks: Some(VecDeque::new()),
            doubt: None,
        })
    }

    /// Its host starts again, and knows nothing of it.
    pub(super) fn forget(&mut self) {
        (self.forgotten, self.doubt) = (true, None);
    }

    /// Whether both ends have seen each other's SYN, and neither has closed, reset or forgotten the
    /// connection.
    pub(super) fn is_open_to(&self, peer: &Self) -> bool {
        let is_open = |half: &Self| !half.fin && !half.reset && !half.forgotten;
        self.talks_to(peer) && peer.talks_to(self) && is_open(self) && is_open(peer)
    }

    /// Returns this end as a target of forged segments, which come in `flow` as those of `peer` do.
    pub(super) const fn target(&self, flow: Flow, peer: &Self) -> Target {
        Target {
            host: self.host,
            flow,
            iss: peer.iss,
            next: self.acknowledged,
            edge: self.edge,
            ack: self.iss.wrapping_add(1).wrapping_add(peer.acknowledged as u32),
            una: self.iss.wrapping_add(1).wrapping_add(self.una as u32),
            clock: peer.clock,
        }
    }

    pub(super) const fn has_iss(&self, iss: u32) -> bool {
        self.iss == iss
    }

    pub(super) fn talks_to(&self, peer: &Self) -> bool {
        self.peer_iss == Some(peer.iss)
    }

    const fn place(&self, seq: u32) -> i64 {
        seq.wrapping_sub(self.iss.wrapping_add(1)).cast_signed() as i64
    }

    /// The place after everything that it has sent.
    pub(super) fn next(&self) -> i64 {
        count(self.octets.len()) + i64::from(self.fin)
    }

    /// What of its stream has reached the peer in order, with the FIN.
    fn arrived_to(&self) -> i64 {
        let octets = self.arrived.around(0).filter(|(from, _)| *from == 0).map_or(0, |(_, to)| to);
        octets + i64::from(self.fin_arrived && octets == count(self.octets.len()))
    }

    /// Judges a segment that it sends to `peer`. Its host is a receiver of DCTCP if `echoes_each_mark` is
    /// set. Returns true if the segment has octets that were sent before.
    pub(super) fn send(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        peer: Option<&Self>,
        echoes_each_mark: bool,
    ) -> Result<bool, String> {
        let at = self.place(segment.seq);
        if segment.has(flag::RST) {
            ensure!(segment.payload.is_empty(), "a RST with text");
            if at == self.next() {
                self.reset = true;
                self.unacknowledged.clear();
            }
            return Ok(false);
        }
        ensure!(!self.reset, "a segment after a RST");
        ensure!(segment.has(flag::ACK), "no ACK");
        ensure!(!segment.has(flag::URG), "URG");
        let again = self.send_text(at, segment, peer)?;
        let Some(peer) = peer else { return Ok(again) };
        let before = self.acknowledged;
        self.acknowledge(now, segment, peer)?;
        let echoed = self.echo_marks(before, segment);
        if echoes_each_mark && self.takes_ecn && peer.takes_ecn {
            self.suspect(now, segment, echoed);
        }
        self.echo(segment, peer)?;
        self.report(now, segment, peer)?;
        self.mark(segment, peer, again)?;
        Ok(again)
    }

    /// The place of a segment and its text. Returns true if that was sent before.
    fn send_text(&mut self, at: i64, segment: &Segment<'_>, peer: Option<&Self>) -> Result<bool, String> {
        let (len, fin) = (count(segment.payload.len()), segment.has(flag::FIN));
        let (end, known) = (at + len, count(self.octets.len()));
        if len == 0 && !fin {
            // A probe is of the octet before what is not acknowledged (RFC 9293 §3.8.4, §3.8.6.1). A window
            // that comes late takes back a wider one of the same acknowledgement (§3.10.7.4).
            let is_known = at == self.next() || at < self.una || self.late_window_ends.contains(&at);
            ensure!(is_known, "no text at {at}, not at {}", self.next());
            return Ok(false);
        }
        ensure!(at >= 0 && at <= known, "text at {at}, after {known}");
        ensure!(!self.fin || end <= known, "text up to {end} after the FIN at {known}");
        ensure!(!fin || end >= known, "a FIN at {end}, before {known}");
        ensure!(end <= self.window_end, "text up to {end}, of a window up to {}", self.window_end);
        if let Some(peer) = peer {
            let octets = segment.payload.len() + segment.options_octets;
            ensure!(
                octets <= usize::from(peer.offer.mss),
                "{octets} octets for an MSS of {}",
                peer.offer.mss
            );
            // What the peer has is its application's, which may have had the source changed.
            let from = at.max(peer.acknowledged.min(known));
            let to = end.min(known);
            if from < to {
                let before = &self.octets[from as usize..to as usize];
                let octets = &segment.payload[(from - at) as usize..(to - at) as usize];
                ensure!(octets == before, "other octets than before at {from}..{to}");
            }
        }
        let new = (known - at).clamp(0, len) as usize;
        self.octets.extend_from_slice(&segment.payload[new..]);
        self.fin |= fin;
        self.fins = self.fins.saturating_add(fin.into());
        if known < end {
            self.pushes = segment.has(flag::PSH);
        }
        if let Some(peer) = peer.filter(|_| self.speaks_mpa && known < end) {
            self.look_at_fpdus(peer)?;
        }
        Ok(len > 0 && at < known)
    }

    /// RFC 5681 §3.1, RFC 6928 §2: on a clear path a congestion window begins with ten segments and grows by
    /// no more than what is acknowledged. A tail loss probe ignores it (RFC 8985 §7.3).
    pub(super) fn is_within_congestion_window(&self) -> Verdict {
        let most = self.una + (INITIAL_SEGMENTS + 1) * i64::from(self.offer.mss);
        let flight = count(self.octets.len()) - self.una;
        ensure!(flight <= most, "{flight} octets in flight, of {most} at most");
        Ok(())
    }

    /// Nothing has happened for a while: all is acknowledged and pushed, and nearly all of a window of
    /// `window_octets` is offered (RFC 9293 §3.8.6.2.2).
    pub(super) fn is_at_rest(&self, peer: &Self, window_octets: u32) -> Verdict {
        if self.fin || self.reset || peer.fin || peer.reset {
            return Ok(());
        }
        ensure!(self.acknowledged == peer.next(), "{} of {} acknowledged", self.acknowledged, peer.next());
        ensure!(self.pushes, "the last text has no PSH");
        let offered = self.edge - self.acknowledged;
        let least = i64::from(window_octets) / 2;
        ensure!(offered >= least, "a window of {offered}, and {window_octets} are free");
        Ok(())
    }

    /// Returns the FPDUs that it has sent, and their octets.
    pub(super) fn fpdus(&self) -> [u64; 2] {
        self.fpdus.as_ref().map_or([0; 2], |fpdus| fpdus.seen)
    }

    /// Whether it has sent its FIN as often as one does that has the peer's: then it gives up, has closed in
    /// order, and resets a peer that has not heard of that.
    pub(super) const fn has_given_up(&self) -> bool {
        self.reset && self.fins >= limits::LAST_FIN_ATTEMPTS
    }

    pub(super) const fn speaks_mpa(&self) -> bool {
        self.speaks_mpa
    }

    fn look_at_fpdus(&mut self, peer: &Self) -> Verdict {
        self.startup = self.startup.or_else(|| Startup::parse(&self.octets));
        if self.fpdus.is_none()
            && let (Some(own), Some(peer)) = (self.startup, peer.startup)
        {
            self.fpdus = Fpdus::new(own, peer);
        }
        let Some(fpdus) = &mut self.fpdus else { return Ok(()) };
        fpdus.look_on(&self.octets)?;
        self.unaligned += u64::from(!fpdus.is_at_boundary());
        Ok(())
    }

    /// RFC 9293 §3.4, §3.8.6: acknowledgements and windows never go back, and no acknowledgement is of what
    /// has not come.
    fn acknowledge(&mut self, now: Instant, segment: &Segment<'_>, peer: &Self) -> Verdict {
        let ack = peer.place(segment.ack);
        ensure!(ack >= self.acknowledged, "acknowledgement {ack} after {}", self.acknowledged);
        ensure!(ack <= peer.arrived_to(), "acknowledgement {ack}, and {} has come", peer.arrived_to());
        self.acknowledged = ack;
        let scale = self.offer.scale.filter(|_| peer.offer.scale.is_some()).unwrap_or(0);
        let edge = ack + (i64::from(segment.window) << scale);
        // After the peer's FIN nobody uses it.
        let finished = peer.fin && ack == peer.next();
        ensure!(finished || edge >= self.edge, "a window up to {edge} after {}", self.edge);
        self.edge = edge;
        self.is_in_time(now)?;
        self.unacknowledged.retain(|(end, _)| *end > ack);
        Ok(())
    }

    /// RFC 8257 §3.2: an acknowledgement is of text that met congestion, or of text that did not, and says
    /// which. Of more than a few runs that come at once some go together.
    fn echo_marks(&mut self, before: i64, segment: &Segment<'_>) -> Verdict {
        let (after, echoes) = (self.acknowledged, segment.has(flag::ECE));
        let Some(marks) = &mut self.marks else { return Ok(()) };
        let acknowledged = |from: &mut i64, (to, marked): &(i64, bool)| {
            let run = (*from, (*to).min(after), *marked);
            *from = *to;
            (run.0 < after).then_some(run)
        };
        let other = marks.iter().scan(before, acknowledged).find(|(.., marked)| *marked != echoes);
        let are_few = marks.len() <= RUNS_OF_MARKS;
        marks.retain(|(to, _)| *to > after);
        ensure!(!are_few || other.is_none(), "{before}..{after} acknowledged, ECE {echoes}: {other:?}");
        Ok(())
    }

    /// RFC 9293 §3.8.6.3: what has come is acknowledged in time, two segments at once.
    pub(super) fn is_in_time(&self, now: Instant) -> Verdict {
        let Some((_, first)) = self.unacknowledged.front() else { return Ok(()) };
        let due = *first + limits::DELAYED_ACK_NS;
        let due = self.unacknowledged.get(1).map_or(due, |(_, second)| due.min(*second));
        let late = now > due + SLACK_NS;
        ensure!(!late, "{} segments acknowledged late, or never: due {due:?}", self.unacknowledged.len());
        Ok(())
    }

    /// RFC 7323 §3.2, §4: each segment has timestamps if both SYNs had, the clock does not go back, and what
    /// is echoed has come.
    fn echo(&mut self, segment: &Segment<'_>, peer: &Self) -> Verdict {
        let agreed = self.offer.timestamps && peer.offer.timestamps;
        let timestamps = segment.options.timestamps;
        ensure!(timestamps.is_some() == agreed, "timestamps {timestamps:?}, agreed {agreed}");
        let Some((value, echo)) = timestamps else { return Ok(()) };
        ensure!(peer.clocks_arrived.contains(&echo), "an echo of {echo}, which has not come");
        if let Some((last, last_echo)) = self.clock {
            ensure!(value.wrapping_sub(last).cast_signed() >= 0, "the clock goes from {last} to {value}");
            let back = echo.wrapping_sub(last_echo).cast_signed() < 0;
            ensure!(last_echo == 0 || !back, "the echo goes from {last_echo} to {echo}");
        }
        self.clock = Some((value, echo));
        Ok(())
    }

    /// RFC 2018 §3, §4, RFC 2883 §4: blocks name what has come beyond the acknowledgement, with octets
    /// missing between them; the first one may name what has come again.
    fn report(&mut self, now: Instant, segment: &Segment<'_>, peer: &Self) -> Verdict {
        let blocks: Vec<(i64, i64)> =
            segment.options.blocks.iter().map(|(from, to)| (peer.place(*from), peer.place(*to))).collect();
        let agreed = self.offer.sack && peer.offer.sack;
        ensure!(blocks.is_empty() || agreed, "blocks, but SACK is not agreed on");
        ensure!(blocks.len() <= 4, "{} blocks", blocks.len());
        let mut duplicate = None;
        for (number, (from, to)) in blocks.iter().enumerate() {
            ensure!(from < to, "block {from}..{to}");
            let is_stray = number == 0 && peer.strays.contains(&segment.options.blocks[0]);
            ensure!(is_stray || peer.arrived.have(*from, *to), "block {from}..{to}, of what has not come");
            let inside = |(begin, end): &(i64, i64)| begin <= from && to <= end;
            // The run that it is a part of may have no room in the option: several segments have one answer.
            let of_longer = peer.arrived.around(*from).is_some_and(|run| run != (*from, *to));
            let is_again = of_longer && peer.repeated.have(*from, *to);
            if number == 0 && (*to <= self.acknowledged || blocks[1..].iter().any(inside) || is_again) {
                let has_come_again = is_stray || peer.repeated.have(*from, *to);
                ensure!(has_come_again, "block {from}..{to} as a duplicate, which has come once");
                let around = blocks[1..].iter().position(inside);
                ensure!(around.is_none_or(|at| at == 0), "the block around {from}..{to} is not second");
                duplicate = Some((*from, *to));
                continue;
            }
            ensure!(*from > self.acknowledged, "block {from}..{to} at acknowledgement {}", self.acknowledged);
            let meets = |(begin, end): &(i64, i64)| from <= end && begin <= to;
            ensure!(!blocks[number + 1..].iter().any(meets), "blocks that meet: {blocks:?}");
        }
        // A segment with text or a FIN may be without them.
        let is_pure = segment.payload.is_empty() && !segment.has(flag::FIN);
        // Its peer drops a probe, so that says nothing of what has come twice.
        let is_probe = self.place(segment.seq) < self.una;
        // A host in TIME-WAIT has forgotten what has come.
        let finished = self.fin && peer.fin_arrived;
        if agreed && is_pure && !finished && self.acknowledged == peer.arrived_to() {
            let held = &blocks[usize::from(duplicate.is_some())..];
            let is_reported = duplicate.is_some() || is_probe || self.again.is_none();
            let unsaid = || Err(format!("{:?} has come again: blocks {held:?}", self.again));
            let reported = if is_reported { self.reports_all(held, duplicate, peer) } else { unsaid() };
            self.suspect(now, segment, reported);
            if !is_probe {
                self.again = None;
            }
        }
        Ok(())
    }

    /// Keeps what is wrong if all that has come was kept.
    fn suspect(&mut self, now: Instant, segment: &Segment<'_>, judged: Verdict) {
        if let Err(what) = judged {
            self.doubt.get_or_insert_with(|| {
                format!("{what}; {:?} at {}, ack {}", segment.flow.ports(), now.as_nanos(), segment.ack)
            });
        }
    }

    /// The same for one that keeps all that comes, after a `duplicate`. RFC 2018 §3, §4: each block is as
    /// long as what has come there, and the first is of what has come last, but for the block around a
    /// duplicate (RFC 2883 §4).
    fn reports_all(&self, held: &[(i64, i64)], duplicate: Option<(i64, i64)>, peer: &Self) -> Verdict {
        for block in held {
            let run = peer.arrived.around(block.0);
            ensure!(run == Some(*block), "block {block:?} of {run:?}");
        }
        let latest = self.latest.filter(|(from, _)| *from > self.acknowledged);
        let holds = |block: &(i64, i64), part: (i64, i64)| block.0 <= part.0 && part.1 <= block.1;
        let is_around = held.first().zip(duplicate).is_some_and(|(block, duplicate)| holds(block, duplicate));
        let mut first = held.iter().take(if is_around { 2 } else { 1 });
        ensure!(
            latest.is_none_or(|latest| first.any(|block| holds(block, latest))),
            "{latest:?} has come last: blocks {held:?}"
        );
        Ok(())
    }

    /// RFC 3168 §6.1: marks and echoes only where both ends agree, never on what was sent before or has no
    /// text.
    fn mark(&self, segment: &Segment<'_>, peer: &Self, again: bool) -> Verdict {
        let agreed = self.takes_ecn && peer.takes_ecn;
        ensure!(agreed || segment.ecn == 0, "ECN-capable, and not agreed");
        ensure!(segment.ecn != CONGESTION_EXPERIENCED, "marked by its sender");
        let new_text = !segment.payload.is_empty() && !again;
        ensure!(new_text || segment.ecn == 0, "ECN-capable without new text");
        ensure!(new_text || !segment.has(flag::CWR), "CWR without new text");
        ensure!(self.congestion_arrived || !segment.has(flag::ECE), "ECE, and no mark has come");
        Ok(())
    }

    /// A segment of this end reaches `receiver`, its peer. `is_prompt` is true if that has no cause to be
    /// slow.
    pub(super) fn arrive(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        receiver: Option<&mut Self>,
        is_prompt: bool,
    ) {
        if let Some((value, _)) = segment.options.timestamps {
            self.clocks_arrived.insert(value);
        }
        if segment.has(flag::SYN) {
            if let Some(receiver) = receiver
                && segment.has(flag::ACK)
                && segment.ack == receiver.iss.wrapping_add(1)
                && receiver.peer_iss.is_none()
            {
                receiver.peer_iss = Some(self.iss);
                receiver.window_end = segment.window.into();
            }
            return;
        }
        let (at, len) = (self.place(segment.seq), count(segment.payload.len()));
        if at < -1 || at + len > count(self.octets.len()) + 1 {
            // Of a connection before: its peer cannot tell that from text that has come twice.
            self.strays.push((segment.seq, segment.seq.wrapping_add(len as u32)));
            return;
        }
        let before = self.arrived_to();
        let (from, to) = (at.max(0), at + len);
        let again = len > 0 && self.arrived.have(from, to);
        if len > 0 {
            self.arrived.within(from, to).for_each(|(from, to)| self.repeated.add(from, to));
            self.arrived.add(from, to);
        }
        self.fin_arrived |= segment.has(flag::FIN) && self.fin;
        let Some(receiver) = receiver.filter(|receiver| receiver.talks_to(self)) else { return };
        if segment.has(flag::RST) && at == receiver.acknowledged {
            receiver.unacknowledged.clear();
        }
        if again {
            receiver.again = Some((from, to));
        }
        if len > 0 && from > self.arrived_to() {
            receiver.latest = Some((from, to));
        }
        let marked = segment.ecn == CONGESTION_EXPERIENCED;
        if len > 0
            && let Some(marks) = &mut receiver.marks
        {
            if at != before {
                receiver.marks = None;
            } else if let Some(last) = marks.back_mut().filter(|last| last.1 == marked) {
                last.0 = to;
            } else {
                marks.push_back((to, marked));
            }
        }
        receiver.congestion_arrived |= segment.ecn == CONGESTION_EXPERIENCED;
        if is_prompt && len > 0 && self.arrived_to() > before {
            receiver.unacknowledged.push_back((self.arrived_to(), now));
        }
        let ack = receiver.place(segment.ack);
        if segment.has(flag::ACK) && (0..=receiver.next()).contains(&ack) {
            let scale = self.offer.scale.filter(|_| receiver.offer.scale.is_some()).unwrap_or(0);
            receiver.una = receiver.una.max(ack);
            let end = ack + (i64::from(segment.window) << scale);
            if end < receiver.window_end {
                receiver.late_window_ends.insert(end);
            }
            receiver.window_end = receiver.window_end.max(end);
        }
    }
}
