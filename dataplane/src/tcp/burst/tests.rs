//! Connections get the same inputs. One queues and sends segment by segment, the others in groups and in
//! bursts: one as for super-frames, whose segments are equally long but for a last one that is shorter.

use super::*;
use crate::device::Device;
use crate::device::sim::{self, EndConfig, SimDevice, SimFrame};
use crate::rate_limit::RateLimit;
use crate::tcp::congestion::Algorithm;
use crate::tcp::receive_queue::HeldPool;
use crate::tcp::scan_budget::ScanBudget;
use crate::tcp::send_queue::SegmentPool;
use crate::tcp::{Behaviour, Config, EcnField, EcnPolicy, Payload};
use crate::wire::tcp::{Header, Options, SeqNumber, Timestamps};

const ISS: SeqNumber = SeqNumber(u32::MAX - 20_000);
const PEER_ISS: SeqNumber = SeqNumber(7000);
const MSS: u16 = 1460;

/// The number of a segment, counted from the first of its group.
impl SendPayload for u32 {
    fn move_on(&mut self, count: u32) {
        *self += count;
    }
}

/// What a segment shows: its header, its ECN field, and its octets: which they are, and from where to where.
type Shown = (Header, EcnField, Option<(u32, u32, u32)>);

fn shown(header: Header, ecn: EcnField, segment: Option<&Segment<u32>>) -> Shown {
    (header, ecn, segment.map(|segment| (segment.payload, segment.skip, segment.octets)))
}

struct End {
    tcp: Connection,
    pools: Pools<u32, SimFrame>,
    device: SimDevice,
    /// If it queues in groups and sends in bursts, whether as for super-frames.
    bursts: Option<bool>,
    /// Segments sent in bursts, and those after the first of each.
    sent: usize,
    followed: usize,
    /// Last segments of super-frames that are shorter than those before.
    joined_shorter: usize,
}

impl End {
    fn new(behaviour: Behaviour, bursts: Option<bool>) -> Self {
        let config = Config { mss_octets: MSS, window_octets: 1 << 20, timestamp_offset: 99, behaviour };
        let pools = Pools {
            segments: SegmentPool::new(400),
            held: HeldPool::new(8, 2048, 8),
            challenges: RateLimit::new(100, [1, 2]),
            scan_budget: ScanBudget::new(),
        };
        let (device, _) = sim::link(1, EndConfig::a(), EndConfig::b());
        Self {
            tcp: Connection::connect(config, ISS),
            pools,
            device,
            bursts,
            sent: 0,
            followed: 0,
            joined_shorter: 0,
        }
    }

    fn receive(&mut self, now: Instant, header: &Header) {
        let frame = self.device.allocate().expect("a frame");
        let payload = Payload { frame, offset: 0, octets: 0, ecn: EcnField::NotCapable };
        self.pools.scan_budget.begin_poll();
        let _ = self.tcp.on_segment(now, header, payload, &mut self.pools);
    }

    /// Queues `count` segments, whose numbers begin at `first`, of `octets` octets each.
    fn queue(&mut self, first: u32, count: u32, octets: u32) {
        if self.bursts.is_none() {
            (first..first + count).all(|number| self.tcp.queue(&mut self.pools, number, 0, octets));
        } else if count > 0 && self.tcp.queue(&mut self.pools, first, 0, octets) {
            self.tcp.queue_more(&mut self.pools, count - 1);
        }
    }

    /// Sends up to `most` segments, as a connection that is served does.
    fn send(&mut self, now: Instant, most: usize) -> Vec<Shown> {
        let mut sent = Vec::new();
        while sent.len() < most {
            let straight = !Unusual::of(&self.tcp).intersects(Unusual::SEND);
            let begun = self
                .bursts
                .filter(|_| straight)
                .and_then(|super_frames| Burst::begin(&mut self.tcp, now, &mut self.pools, super_frames));
            let Some(mut burst) = begun else {
                let Some(single) = self.tcp.poll_transmit(now, &mut self.pools) else { break };
                sent.push(shown(single.header.clone(), single.ecn, single.segment.as_ref()));
                continue;
            };
            // Octets of the first segment of a super-frame.
            let mut octets = burst.segment().octets;
            self.sent += 1;
            loop {
                let segment = burst.segment();
                let mut header = Header { seq: segment.seq, ..Header::from(*burst.header()) };
                header.flags.set(Flags::PSH, burst.push());
                let last = segment.octets;
                sent.push(shown(header, burst.ecn(), Some(segment)));
                if sent.len() == most {
                    break;
                }
                let mut goes_on = |most| burst.advance(&mut self.tcp, now, &mut self.pools, most);
                let joined = self.bursts == Some(true) && last == octets && goes_on(octets);
                if !joined && !goes_on(u32::MAX) {
                    break;
                }
                let next = burst.segment().octets;
                assert!(!joined || next <= octets, "it is not longer than those before");
                self.joined_shorter += usize::from(joined && next < octets);
                if !joined {
                    octets = next;
                }
                self.sent += 1;
                self.followed += 1;
            }
            burst.end(&mut self.tcp, now, &mut self.pools);
        }
        sent
    }
}

fn from_peer(now: Instant, flags: Flags, ack: SeqNumber, sack: &[(SeqNumber, SeqNumber)]) -> Header {
    let ticks = (now.as_nanos() / 1_000_000) as u32;
    // Of a segment that was sent a millisecond before.
    let clock = Timestamps { value: ticks, echo: 99 + ticks - 1 };
    Header {
        seq: if flags.contains(Flags::SYN) { PEER_ISS } else { PEER_ISS + 1 },
        ack,
        flags,
        window: 20_000,
        options: Options {
            mss: flags.contains(Flags::SYN).then_some(MSS),
            window_scale: flags.contains(Flags::SYN).then_some(3),
            sack_permitted: flags.contains(Flags::SYN),
            timestamps: Some(clock),
            sack: sack.iter().copied().collect(),
            rdma: None,
        },
        ..Header::default()
    }
}

/// Random work: what the ends send, and when they would do something next, is the same after each step, over
/// losses, timeouts, ECN marks, times of rest, Nagle's algorithm and pacing.
#[test]
fn bursts_send_what_single_segments_would() {
    let (mut followed, mut sent_in_bursts, mut joined_shorter) = ([0; 3], 0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let behaviour = Behaviour {
            congestion: if rng.bool() { Algorithm::default() } else { Algorithm::Dctcp },
            ecn: if rng.bool() { EcnPolicy::Request } else { EcnPolicy::Off },
            nagle: rng.u8(..4) == 0,
            ..Behaviour::default()
        };
        let mut ends = [None, Some(true), Some(false)].map(|bursts| End::new(behaviour, bursts));
        let mut now = Instant::from_nanos(1_000_000_000);
        let round_trip_ns = [50_000, 20_000_000][rng.usize(..2)];
        let syn_ack = Flags::SYN | Flags::ACK | if rng.bool() { Flags::ECE } else { Flags::empty() };
        for end in &mut ends {
            assert_eq!(end.send(now, 32).len(), 1, "a SYN");
            end.receive(now + round_trip_ns, &from_peer(now, syn_ack, ISS + 1, &[]));
        }
        let mut number = 0;
        for _ in 0..300 {
            now += rng.u64(..round_trip_ns);
            if rng.u8(..16) == 0 {
                // All is acknowledged, and nothing is sent for longer than a retransmission timeout: the
                // window is smaller then, and so is the pace of a burst.
                let all = from_peer(now, Flags::ACK, ends[0].tcp.send.queue.nxt(), &[]);
                for end in &mut ends {
                    end.receive(now, &all);
                }
                now += 3_000_000_000;
            }
            let [queued, lens] = [rng.u32(..40), rng.u32(..4)];
            number += 40;
            let (una, nxt) = (ends[0].tcp.send.una, ends[0].tcp.send.queue.nxt());
            let flight = (nxt - una).max(0).cast_unsigned();
            let ack = una + if rng.bool() { flight } else { rng.u32(..=flight) };
            let hole = rng.u8(..8) == 0 && ack + 3000 < nxt;
            let blocks = [(ack + 1448, ack + 3000)];
            let marked = if rng.u8(..10) == 0 { Flags::ACK | Flags::ECE } else { Flags::ACK };
            let header = from_peer(now, marked, ack, if hole { &blocks } else { &[] });
            let (arrives, expires, most) = (rng.u8(..4) > 0, rng.u8(..3) == 0, rng.usize(1..40));
            let sent = ends.each_mut().map(|end| {
                let emss = end.tcp.emss_octets() as u32;
                for first in (0..queued).step_by(16) {
                    let full = (queued - first).min(16 - lens);
                    end.queue(number + first, full, emss);
                    for other in first + full..queued.min(first + 16) {
                        end.queue(number + other, 1, 1 + 37 * (other % 16));
                    }
                }
                if arrives {
                    end.receive(now, &header);
                }
                if expires {
                    let _ = end.tcp.on_timer(now, &mut end.pools);
                }
                end.send(now, most)
            });
            let [single, bursts @ ..] = &ends;
            for (bursts, shown) in bursts.iter().zip(&sent[1..]) {
                assert_eq!(&sent[0], shown, "seed {seed}");
                assert_eq!(single.tcp.next_deadline(), bursts.tcp.next_deadline(), "seed {seed}");
                assert_eq!(single.tcp.counters(), bursts.tcp.counters(), "seed {seed}");
            }
        }
        for (sum, end) in followed.iter_mut().zip(&ends) {
            *sum += end.followed;
        }
        sent_in_bursts += ends[2].sent;
        joined_shorter += ends[1].joined_shorter;
    }
    let [none, super_frames, any] = followed;
    assert!(none == 0 && super_frames == any && any > 10_000, "{followed:?} segments in bursts");
    assert!(joined_shorter > 1000, "{joined_shorter} super-frames end with a shorter segment");
    assert!(sent_in_bursts > any + 3000, "{sent_in_bursts} segments in bursts: single ones are some, too");
}
