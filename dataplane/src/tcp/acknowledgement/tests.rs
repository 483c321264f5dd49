//! Two connections get the same segments. One takes the first branch of each step where it can, the other the
//! cold one of every step.

use super::*;
use crate::cold::ColdBranches;
use crate::device::sim::{self, EndConfig, SimDevice, SimFrame};
use crate::device::{Device, Frame};
use crate::rate_limit::RateLimit;
use crate::tcp::congestion::Algorithm;
use crate::tcp::receive_queue::HeldPool;
use crate::tcp::scan_budget::ScanBudget;
use crate::tcp::send_queue::SegmentPool;
use crate::tcp::send_queue::Verdict;
use crate::tcp::{Behaviour, Config, EcnField, EcnPolicy, Payload, Successors, Unusual};
use crate::wire::flow::{Flow, FlowV4};
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, Header, Options, Timestamps};

const ISS: SeqNumber = SeqNumber(u32::MAX - 20_000);
const PEER_ISS: SeqNumber = SeqNumber(7000);
const MSS: u16 = 1460;

/// A segment as it is sent: its header, and its number and octets.
type Sent = (Header, Option<(u32, u32)>);

struct End {
    tcp: Connection,
    pools: Pools<u32, SimFrame>,
    device: SimDevice,
    /// Whether it takes the cold branch of every step.
    cold: bool,
    /// How often it had nothing to send and could tell in advance.
    silent: usize,
}

impl End {
    fn new(behaviour: Behaviour, cold: bool) -> Self {
        let config = Config { mss_octets: MSS, window_octets: 1 << 20, timestamp_offset: 99, behaviour };
        let pools = Pools {
            segments: SegmentPool::new(4000),
            held: HeldPool::new(8, 2048, 8),
            challenges: RateLimit::new(100, [1, 2]),
            scan_budget: ScanBudget::new(),
        };
        let (device, _) = sim::link(1, EndConfig::a(), EndConfig::b());
        Self { tcp: Connection::connect(config, ISS), pools, device, cold, silent: 0 }
    }

    /// Receives a segment with `octets` octets of payload, and consumes what is in order. Returns what has
    /// changed, and true if it was expected.
    fn receive(&mut self, now: Instant, header: &Header, octets: usize) -> (Changes, bool) {
        self.tcp.unusual = Unusual::of(&self.tcp);
        let received = self.receive_reviewed(now, header, octets);
        self.tcp.unusual = Unusual::of(&self.tcp);
        received
    }

    fn receive_reviewed(&mut self, now: Instant, header: &Header, octets: usize) -> (Changes, bool) {
        let _cold = self.cold.then(ColdBranches::begin);
        self.pools.scan_budget.begin_poll();
        let flow = Flow::V4(FlowV4 { addresses: [0; 8], ports: [0; 4] });
        let segment = Segment::with_header(flow, header, 0, 0, header.header_len(), octets);
        if self.tcp.expects(now, &segment, &self.pools) {
            let changes = self.tcp.accept_expected(now, &segment, &mut self.pools);
            if octets > 0 {
                self.tcp.pass(octets);
                self.tcp.owe_window();
            }
            return (changes, true);
        }
        let mut frame = self.device.allocate().expect("a frame");
        frame.append(octets).expect("room");
        let payload = Payload { frame, offset: 0, octets, ecn: EcnField::NotCapable };
        let changes = self.tcp.on_segment(now, header, payload, &mut self.pools).changes;
        let in_order = self.tcp.received().available();
        self.tcp.consume(&mut self.pools, in_order);
        (changes, false)
    }

    /// Receives the segment of `header` and `followers` that follow it, all of as many octets, as a burst has
    /// them.
    /// Returns what [`receive`](Self::receive) does of the first, and how many were accepted as following.
    fn receive_burst(
        &mut self,
        now: Instant,
        header: &Header,
        octets: usize,
        followers: usize,
    ) -> ((Changes, bool), usize) {
        let flow = Flow::V4(FlowV4 { addresses: [0; 8], ports: [0; 4] });
        let first = self.receive(now, header, octets);
        let mut header = header.clone();
        let (mut followed, mut successors) = (0, None);
        for number in 0..followers {
            let _cold = self.cold.then(ColdBranches::begin);
            let before = Segment::with_header(flow, &header, 0, 0, header.header_len(), octets);
            header.seq += octets as u32;
            let segment = Segment { seq: header.seq, ..before };
            if number == 0 && first.1 {
                successors = Successors::after(&self.tcp, &before, &self.pools);
            }
            match &mut successors {
                Some(successors) if successors.expect(&segment) => {
                    assert!(successors.add(&segment), "none has marks");
                    followed += 1;
                }
                _ => {
                    self.accept(successors.take(), followed * octets);
                    self.receive(now, &header, octets);
                }
            }
        }
        self.accept(successors, followed * octets);
        (first, followed)
    }

    /// Counts `successors`, if there are any, and consumes their `octets` octets.
    fn accept(&mut self, successors: Option<Successors>, octets: usize) {
        if let Some(successors) = successors {
            successors.count(&mut self.tcp);
            self.tcp.pass(octets);
            self.tcp.owe_window();
        }
    }

    /// Sends the segment in flight after the first `skip` again, as if a spurious recovery had ended before
    /// that one was acknowledged.
    fn resend_one(&mut self, now: Instant, skip: usize) {
        let queue = &mut self.tcp.send.queue;
        if self.tcp.recovery.is_at_rest() && !queue.has_holes() {
            let Pools { segments, scan_budget, .. } = &mut self.pools;
            let mut verdicts = [Verdict::Keep].repeat(skip).into_iter().chain([Verdict::Lost]);
            queue.mark_lost(segments, scan_budget, |_| verdicts.next().unwrap_or(Verdict::Stop));
            queue.resend_lost(segments, now);
        }
    }

    /// Sends up to `most` segments.
    fn send(&mut self, now: Instant, most: usize) -> Vec<Sent> {
        let next = |_| {
            let rare = Unusual::of(&self.tcp).intersects(Unusual::SEND);
            let silent = !rare && self.tcp.is_silent();
            let next = self.tcp.poll_transmit(now, &mut self.pools);
            assert!(!silent || next.is_none(), "a silent connection sends nothing");
            self.silent += usize::from(silent);
            next
        };
        let sent = (0..most).map_while(next);
        sent.map(|out| (out.header, out.segment.map(|part| (part.payload, part.octets)))).collect()
    }
}

/// What the peer of a connection offers and does.
struct Peer {
    sack: bool,
    timestamps: bool,
}

impl Peer {
    fn segment(&self, now: Instant, flags: Flags, seq: SeqNumber, ack: SeqNumber) -> Header {
        let syn = flags.contains(Flags::SYN);
        let value = (now.as_nanos() / 1_000_000) as u32;
        Header {
            seq,
            ack,
            flags,
            window: 20_000,
            options: Options {
                mss: syn.then_some(MSS),
                window_scale: syn.then_some(3),
                sack_permitted: syn && self.sack,
                timestamps: self.timestamps.then_some(Timestamps { value, echo: value.wrapping_add(99) }),
                ..Options::default()
            },
            ..Header::default()
        }
    }
}

/// An acknowledgement of the peer, most of them without options but timestamps.
fn acknowledgement(rng: &mut fastrand::Rng, peer: &Peer, now: Instant, tcp: &Connection) -> Header {
    let (una, nxt) = (tcp.send.una, tcp.send.queue.nxt());
    let flight = (nxt - una).max(0).cast_unsigned();
    let ack = match rng.u8(..8) {
        0 => una,
        1 => una - rng.u32(..3000),
        2 => nxt + rng.u32(..2),
        3 => una + rng.u32(..=flight),
        4 => una + flight.min(1448),
        _ => nxt,
    };
    let mut header = peer.segment(now, Flags::ACK, tcp.receive.next(), ack);
    match rng.u8(..24) {
        0 => header.flags |= Flags::ECE,
        1 => header.flags |= Flags::PSH,
        2 if peer.sack && ack + 3000 < nxt => header.options.sack.push((ack + 1448, ack + 3000)),
        3 if peer.sack => header.options.sack.push((ack - 1448, ack)),
        4 => header.window = rng.u16(..400),
        5 => header.seq += [1, u32::MAX, 1 << 29][rng.usize(..3)],
        6 => header.options.timestamps = None,
        7 => header.options.timestamps = Some(Timestamps { value: 1, echo: 1 }),
        8 => {
            // An echo from before a retransmission, perhaps.
            if let Some(clock) = &mut header.options.timestamps {
                clock.echo = clock.echo.wrapping_sub(rng.u32(..100));
            }
        }
        9 if rng.u8(..20) == 0 => header.flags |= [Flags::FIN, Flags::RST][rng.usize(..2)],
        _ => {}
    }
    header
}

/// Random work: after each step every field of the connection is the same, over losses, timeouts, tail
/// probes, ECN echoes, closed windows, closes, and segments sent again, with and without timestamps and
/// selective acknowledgements.
#[test]
fn first_branches_change_what_cold_ones_do() {
    let (mut expected, mut with_data, mut after_loss, mut others, mut silent) = (0, 0, 0, 0, 0);
    let mut followed = 0;
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let algorithms = [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Dctcp];
        let behaviour = Behaviour {
            congestion: algorithms[rng.usize(..3)],
            ecn: if rng.bool() { EcnPolicy::Request } else { EcnPolicy::Off },
            nagle: rng.u8(..4) == 0,
            ..Behaviour::default()
        };
        let peer = Peer { sack: rng.u8(..4) > 0, timestamps: rng.u8(..4) > 0 };
        let mut ends = [false, true].map(|cold| End::new(behaviour, cold));
        let mut now = Instant::from_nanos(1_000_000_000);
        let round_trip_ns = [50_000, 20_000_000][rng.usize(..2)];
        let syn_ack = Flags::SYN | Flags::ACK | if rng.bool() { Flags::ECE } else { Flags::empty() };
        for end in &mut ends {
            assert_eq!(end.send(now, 32).len(), 1, "a SYN");
            end.receive(now + round_trip_ns, &peer.segment(now, syn_ack, PEER_ISS, ISS + 1), 0);
        }
        now += round_trip_ns;
        for step in 0..300 {
            now += rng.u64(..round_trip_ns);
            let header = acknowledgement(&mut rng, &peer, now, &ends[0].tcp);
            let carried = if rng.u8(..4) == 0 { rng.usize(1..1448) } else { 0 };
            let [arrives, expires] = [4, 5].map(|odds| rng.u8(..odds) > 0);
            if rng.u8(..30) == 0 {
                now += rng.u64(..400_000_000);
            }
            let [queued, most] = [rng.usize(..12), rng.usize(..20)];
            let octets = if rng.bool() { 1448 } else { rng.u32(1..1448) };
            let followers = if carried > 0 { rng.usize(..3) } else { 0 };
            let resends = (rng.u8(..16) == 0).then(|| rng.usize(..3));
            let closes = rng.u16(..1000) == 0;
            let results = ends.each_mut().map(|end| {
                for number in 0..queued as u32 {
                    end.tcp.queue(&mut end.pools, step * 100 + number, 0, octets);
                }
                let received = arrives.then(|| end.receive_burst(now, &header, carried, followers));
                if !expires {
                    let _ = end.tcp.on_timer(now, &mut end.pools);
                }
                if let Some(skip) = resends {
                    end.resend_one(now, skip);
                }
                if closes {
                    end.tcp.close();
                }
                (received, end.send(now, most))
            });
            let [(taken, sent), (cold, sent_by_other)] = results;
            followed += taken.map_or(0, |(_, followed)| followed);
            let [taken, cold] = [taken, cold].map(|received| received.map(|(first, _)| first));
            assert_eq!(taken.map(|(changes, _)| changes), cold.map(|(changes, _)| changes), "seed {seed}");
            assert_eq!(sent, sent_by_other, "seed {seed}");
            let [tcp, by_cold] = ends.each_ref().map(|end| format!("{:?}", end.tcp));
            if tcp != by_cold {
                let [tcp, by_cold] = ends.each_ref().map(|end| format!("{:#?}", end.tcp));
                assert_eq!(tcp, by_cold, "seed {seed}, step {step}: {header:?}");
            }
            assert_eq!(ends[0].pools.segments.used(), ends[1].pools.segments.used(), "seed {seed}");
            let is_expected = taken.is_some_and(|(_, is_expected)| is_expected);
            expected += usize::from(is_expected);
            with_data += usize::from(is_expected && carried > 0);
            others += usize::from(taken.is_some() && !is_expected);
            let repaired = ends[0].tcp.counters().retransmitted_segments > 0;
            after_loss += usize::from(is_expected && repaired);
        }
        silent += ends[0].silent;
    }
    let enough = expected > 5000 && with_data > 1000 && after_loss > 500 && others > 5000;
    assert!(followed > 500, "{followed} that follow");
    assert!(silent > 500, "{silent} times silent");
    assert!(
        enough,
        "{expected} as expected, {with_data} of them with data, {after_loss} after a loss, {others} others"
    );
}
