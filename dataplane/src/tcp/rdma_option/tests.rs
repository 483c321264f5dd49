//! Connections whose payloads have options: the handshake, the cuts, the retransmissions, the bursts.

use super::*;
use crate::device::Device;
use crate::device::sim::{self, EndConfig, SimDevice, SimFrame};
use crate::rate_limit::RateLimit;
use crate::tcp::Connection;
use crate::tcp::receive_queue::HeldPool;
use crate::tcp::scan_budget::ScanBudget;
use crate::tcp::send_queue::SegmentPool;
use crate::tcp::{Behaviour, Burst, Config, EcnField, Outgoing, PathMtu, Payload, Pools, Unusual};
use crate::time::Instant;
use crate::wire::tcp::{Options, SeqNumber, Timestamps};
use crate::wire::tcp_rdma::{Rid, Transfer};

const ISS: SeqNumber = SeqNumber(u32::MAX - 5000);
const PEER_ISS: SeqNumber = SeqNumber(7000);
const MSS: u16 = 1460;
const ROUND_TRIP_NS: u64 = 50_000;

/// Part of a message: a header, and then a piece of a transfer. Of a unannotated one, none of it is a
/// transfer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    rid: u64,
    header: u32,
    data: u32,
    buffer_offset: u32,
    total: Option<u32>,
    unannotated: bool,
}

impl Piece {
    const fn of(rid: u64, header: u32, data: u32) -> Self {
        Self { rid, header, data, buffer_offset: 0, total: Some(100_000), unannotated: false }
    }

    const fn octets(&self) -> u32 {
        self.header + self.data
    }
}

impl SendPayload for Piece {
    fn move_on(&mut self, count: u32) {
        self.buffer_offset += self.data * count;
    }

    fn rdma_option(&self, skip: u32, octets: u32) -> Option<RdmaOption> {
        if self.unannotated {
            return None;
        }
        let (begin, end) = (skip.max(self.header), (skip + octets).min(self.octets()));
        if begin >= end {
            let aligned = RdmaOption::Aligned { message_aligned: true, unsolicited: false };
            return (skip == 0).then_some(aligned);
        }
        Some(RdmaOption::Transfer(Transfer {
            rid: Rid::new(self.rid).expect("46 bits"),
            message_aligned: skip == 0,
            unsolicited: false,
            buffer_offset: self.buffer_offset + begin - self.header,
            data_offset: (begin - skip) as u16,
            data_octets: (end - begin) as u16,
            total_octets: self.total,
        }))
    }

    fn option_octets(&self) -> u32 {
        match (self.unannotated, self.total) {
            (true, _) => 0,
            (false, None) => 16,
            (false, Some(_)) => 20,
        }
    }
}

struct End {
    tcp: Connection,
    pools: Pools<Piece, SimFrame>,
    device: SimDevice,
    now: Instant,
    /// Segments sent in bursts after their first.
    followed: usize,
}

/// Octets from the first of the stream on, octets, and the option of a segment.
type Shown = (u32, u32, Option<RdmaOption>);

const ON: Behaviour = Behaviour { rdma_option: true, ..BEHAVIOUR };
const BEHAVIOUR: Behaviour = Behaviour {
    congestion: crate::tcp::congestion::Algorithm::Cubic,
    ecn: crate::tcp::EcnPolicy::Off,
    sack: true,
    timestamps: true,
    rdma_option: false,
    nagle: false,
    pacing: false,
    rate_limit_kbps: None,
    keepalive: None,
    user_timeout_ms: None,
};
const OFFER: Option<RdmaOption> = Some(RdmaOption::Permitted);
const ALIGNED: Option<RdmaOption> = Some(RdmaOption::Aligned { message_aligned: true, unsolicited: false });

/// A transfer form that a SYN must not have.
fn transfer() -> Option<RdmaOption> {
    Piece::of(1, 0, 10).rdma_option(0, 10)
}

fn config(behaviour: Behaviour) -> Config {
    Config { mss_octets: MSS, window_octets: 1 << 20, timestamp_offset: 99, behaviour }
}

impl End {
    fn of(tcp: Connection) -> Self {
        let pools = Pools {
            segments: SegmentPool::new(4000),
            held: HeldPool::new(8, 2048, 8),
            challenges: RateLimit::new(100, [1, 2]),
            scan_budget: ScanBudget::new(),
        };
        let (device, _) = sim::link(1, EndConfig::a(), EndConfig::b());
        Self { tcp, pools, device, now: Instant::from_nanos(1_000_000_000), followed: 0 }
    }

    /// An active open, whose SYN the peer answers with this option.
    fn connected(behaviour: Behaviour, answer: Option<RdmaOption>) -> Self {
        let mut end = Self::of(Connection::connect(config(behaviour), ISS));
        assert!(end.poll().is_some_and(|syn| syn.header.flags == Flags::SYN));
        end.now += ROUND_TRIP_NS;
        let syn = end.peer_segment(Flags::SYN | Flags::ACK, ISS + 1);
        end.take(&Header { options: Options { rdma: answer, ..syn.options.clone() }, ..syn });
        assert!(end.poll().is_some_and(|ack| ack.header.flags == Flags::ACK));
        end
    }

    /// A segment of the peer, which offers timestamps if this end does.
    fn peer_segment(&self, flags: Flags, ack: SeqNumber) -> Header {
        let syn = flags.contains(Flags::SYN);
        let clock = Timestamps { value: (self.now.as_nanos() / 1_000_000) as u32, echo: 99 };
        let options = Options {
            mss: syn.then_some(MSS),
            window_scale: syn.then_some(7),
            sack_permitted: syn,
            timestamps: self.tcp.config.behaviour.timestamps.then_some(clock),
            ..Options::default()
        };
        let seq = if syn { PEER_ISS } else { PEER_ISS + 1 };
        Header { seq, ack, flags, window: 20_000, options, ..Header::default() }
    }

    fn take(&mut self, header: &Header) {
        let frame = self.device.allocate().expect("a frame");
        let payload = Payload { frame, offset: 0, octets: 0, ecn: EcnField::NotCapable };
        self.pools.scan_budget.begin_poll();
        let _ = self.tcp.on_segment(self.now, header, payload, &mut self.pools);
    }

    fn acknowledge(&mut self, octets: u32, sack: &[(u32, u32)]) {
        let mut header = self.peer_segment(Flags::ACK, ISS + 1 + octets);
        let start = ISS + 1;
        header.options.sack = sack.iter().map(|block| (start + block.0, start + block.1)).collect();
        self.take(&header);
    }

    fn poll(&mut self) -> Option<Outgoing<Piece>> {
        self.tcp.poll_transmit(self.now, &mut self.pools)
    }

    fn queue(&mut self, piece: Piece) {
        assert!(self.tcp.queue(&mut self.pools, piece, 0, piece.octets()));
    }

    /// Sends all that may be sent, in bursts where there are any.
    fn send(&mut self) -> Vec<Shown> {
        let mut sent = Vec::new();
        loop {
            let straight = !Unusual::of(&self.tcp).intersects(Unusual::SEND);
            let begun =
                if straight { Burst::begin(&mut self.tcp, self.now, &mut self.pools, false) } else { None };
            let Some(mut burst) = begun else {
                let Some(outgoing) = self.poll() else { return sent };
                let Some(segment) = &outgoing.segment else { continue };
                let probes = self.tcp.counters().retransmitted_as_probe;
                sent.push(self.shown(&outgoing.header, segment, probes > 0));
                continue;
            };
            loop {
                let segment = *burst.segment();
                let mut header = Header { seq: segment.seq, ..Header::from(*burst.header()) };
                header.options.rdma = self.tcp.rdma_option().of(&segment);
                sent.push(self.shown(&header, &segment, false));
                if !burst.advance(&mut self.tcp, self.now, &mut self.pools, u32::MAX) {
                    break;
                }
                self.followed += 1;
            }
            burst.end(&mut self.tcp, self.now, &mut self.pools);
        }
    }

    /// Asserts what holds for the headers of every segment.
    fn shown(&self, header: &Header, segment: &Segment<Piece>, may_be_probe: bool) -> Shown {
        let mut octets = vec![0; header.header_len()];
        header.emit(&mut octets);
        assert_eq!(Header::parse(&octets), Ok((header.clone(), octets.len())), "within 40 octets");
        let options = octets.len() - Header::MIN_LEN;
        let mss = self.tcp.emss_octets() + usize::from(self.tcp.timestamps.option_octets());
        let fits = options + segment.octets as usize <= mss;
        assert!(fits || may_be_probe, "{options} + {} octets in {mss}", segment.octets);
        let option = header.options.rdma;
        if let Some(RdmaOption::Transfer(transfer)) = &option {
            assert!(transfer.fits(segment.octets as usize), "{transfer:?}");
        }
        ((segment.seq - (ISS + 1)) as u32, segment.octets, option)
    }
}

/// The offset in the payload and in the buffer, and the octets, that each option describes.
fn places(sent: &[Shown]) -> Vec<(u32, u32, u32, u32)> {
    let place = |(from, octets, option): &Shown| match option {
        Some(RdmaOption::Transfer(t)) => (*from, *octets, u32::from(t.data_offset), t.buffer_offset),
        other => panic!("{other:?}"),
    };
    sent.iter().map(place).collect()
}

/// the option is in use if both SYNs have the form of two octets, and it is only offered if it is on.
// Requirements: TRO-3.2-01
#[test]
fn both_ends_have_to_offer_it() {
    for (behaviour, is_on) in [(ON, true), (BEHAVIOUR, false)] {
        for (theirs, offered) in [(None, false), (OFFER, true), (ALIGNED, false), (transfer(), false)] {
            let end = End::connected(behaviour, theirs);
            assert_eq!(end.tcp.rdma_option().is_agreed(), is_on && offered, "{is_on} {theirs:?}");
            let mut opener = End::of(Connection::connect(config(behaviour), ISS));
            let syn = opener.poll().expect("a SYN").header;
            assert_eq!(syn.options.rdma, if is_on { OFFER } else { None });
            let syn = opener.peer_segment(Flags::SYN, SeqNumber(0));
            let options = Options { rdma: theirs, ..syn.options.clone() };
            let syn = Header { options, ..syn };
            let mut accepted = End::of(Connection::accept(opener.now, config(behaviour), ISS, &syn));
            // The same SYN crosses that of the opener: it answers as the other does.
            opener.take(&syn);
            for end in [&mut accepted, &mut opener] {
                let answer = end.poll().expect("a SYN-ACK").header;
                assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
                assert_eq!(answer.options.rdma, if is_on && offered { OFFER } else { None });
                assert_eq!(end.tcp.rdma_option().is_agreed(), is_on && offered, "{is_on} {theirs:?}");
                assert_eq!(end.tcp.snapshot().rdma_option, is_on && offered);
            }
        }
    }
}

/// A SYN that is sent again offers it again.
// Requirements: TRO-3.2-01
#[test]
fn every_syn_offers_it() {
    let mut end = End::of(Connection::connect(config(ON), ISS));
    for _ in 0..3 {
        assert_eq!(end.poll().expect("a SYN").header.options.rdma, OFFER);
        end.now = end.tcp.next_deadline();
        let _ = end.tcp.on_timer(end.now, &mut end.pools);
    }
}

// Requirements: TRO-3.2-01
#[test]
fn only_options_that_count_are_returned() {
    let on = End::connected(ON, OFFER);
    let off = End::connected(ON, None);
    let received = |end: &End, flags: Flags, rdma: Option<RdmaOption>| {
        let header = Header { flags, options: Options { rdma, ..Options::default() }, ..Header::default() };
        end.tcp.rdma_option().received(&header)
    };
    for flags in [Flags::ACK, Flags::ACK | Flags::PSH, Flags::ACK | Flags::FIN] {
        assert_eq!(received(&on, flags, transfer()), transfer());
        assert_eq!(received(&on, flags, ALIGNED), ALIGNED);
        assert_eq!(received(&on, flags, OFFER), None, "it belongs to a SYN");
        assert_eq!(received(&off, flags, transfer()), None, "not negotiated");
        assert_eq!(received(&off, flags, ALIGNED), None, "not negotiated");
    }
    for flags in [Flags::SYN, Flags::SYN | Flags::ACK, Flags::RST, Flags::RST | Flags::ACK] {
        for option in [transfer(), ALIGNED, OFFER] {
            assert_eq!(received(&on, flags, option), None, "{flags:?}");
        }
    }
}

/// The example of the draft (§4), with an MSS that leaves 1000 octets.
// Requirements: TRO-3.1.8-01, TRO-3.1.8-03, TRO-4-03
#[test]
fn segments_leave_room_for_the_option() {
    for (timestamps, total, first) in
        [(true, Some(4000), 1428), (true, None, 1432), (false, Some(4000), 1440), (false, None, 1444)]
    {
        let mut end = End::connected(Behaviour { timestamps, ..ON }, OFFER);
        end.queue(Piece { total, ..Piece::of(1, 100, 2000) });
        end.queue(Piece { total, buffer_offset: 2000, ..Piece::of(1, 100, 500) });
        let rest = 2100 - first;
        let expected = [(0, first, 100, 0), (first, rest, 0, first - 100), (2100, 600, 100, 2000)];
        assert_eq!(places(&end.send()), expected);
    }
}

/// Without agreement nothing is different from other payloads.
// Requirements: TRO-3.2-01
#[test]
fn without_agreement_there_is_no_option() {
    for end in [&mut End::connected(ON, None), &mut End::connected(BEHAVIOUR, OFFER)] {
        end.queue(Piece::of(1, 100, 2000));
        assert_eq!(end.send(), [(0, 1448, None), (1448, 652, None)]);
    }
}

/// The path turns out narrower: what is retransmitted is cut again, and every part has its option. A segment
/// that would pass without its option is one of those that do not.
// Requirements: TRO-3.1.8-01, TRO-3.1.8-03
#[test]
fn a_narrower_path_cuts_what_is_sent_again() {
    let mut end = End::connected(ON, OFFER);
    end.queue(Piece::of(1, 0, 1428));
    end.queue(Piece { buffer_offset: 1428, ..Piece::of(1, 0, 970) });
    end.queue(Piece { buffer_offset: 2398, ..Piece::of(1, 0, 968) });
    assert_eq!(places(&end.send()), [(0, 1428, 0, 0), (1428, 970, 0, 1428), (2398, 968, 0, 2398)]);
    // An EMSS of 988 octets beside timestamps, 968 beside the option too.
    assert!(PathMtu::of(&mut end.tcp).on_packet_too_big(end.now, ISS + 1, 1000, &mut end.pools));
    assert_eq!(
        places(&end.send()),
        [(0, 968, 0, 0), (968, 460, 0, 968), (1428, 968, 0, 1428), (2396, 2, 0, 2396)],
        "the third has passed"
    );
    assert_eq!(end.tcp.counters().retransmitted_segments, 4);
}

/// Of a segment that was cut and sent as two, one is lost.
// Requirements: TRO-3.1.8-01
#[test]
fn a_part_that_is_sent_again_has_its_own_option() {
    let mut end = End::connected(ON, OFFER);
    end.queue(Piece::of(1, 20, 6000));
    let sent = end.send();
    assert_eq!(sent.len(), 5);
    end.now += ROUND_TRIP_NS;
    end.acknowledge(1428, &[(2 * 1428, 6020)]);
    assert_eq!(end.send(), sent[1..2], "the same octets, the same option");
}

/// Nothing joins a segment with an option, so Nagle's algorithm does not hold one back for those after it.
#[test]
fn segments_with_options_are_not_joined() {
    let mut end = End::connected(Behaviour { nagle: true, ..ON }, OFFER);
    for rid in 1..=3 {
        end.queue(Piece::of(rid, 0, 100));
        assert_eq!(end.tcp.last_unsent(&end.pools).map(|(_, octets)| octets), None);
    }
    assert_eq!(places(&end.send()), [(0, 100, 0, 0), (100, 100, 0, 0)], "the last may still grow");
    end.acknowledge(200, &[]);
    assert_eq!(places(&end.send()), [(200, 100, 0, 0)]);
    end.queue(Piece { unannotated: true, ..Piece::of(0, 0, 100) });
    assert_eq!(end.tcp.last_unsent(&end.pools).map(|(_, octets)| octets), Some(100));
}

/// A group of equal segments: each has headers of its own, and the option of its place.
#[test]
fn each_segment_of_a_group_has_its_option() {
    let mut end = End::connected(ON, OFFER);
    end.queue(Piece::of(1, 0, 1428));
    assert_eq!(end.tcp.queue_more(&mut end.pools, 4), 4);
    let expected: Vec<_> = (0..5).map(|n| (n * 1428, 1428, 0, n * 1428)).collect();
    assert_eq!(places(&end.send()), expected);
    assert_eq!(end.followed, 4, "they leave in one burst");
    end.now += ROUND_TRIP_NS;
    end.acknowledge(1428, &[(4 * 1428, 5 * 1428)]);
    assert!(PathMtu::of(&mut end.tcp).on_packet_too_big(end.now, ISS + 1 + 1428, 1459, &mut end.pools));
    assert_eq!(places(&end.send())[..2], [(1428, 1427, 0, 1428), (2855, 1, 0, 2855)]);
}

/// An octet of the stream: the RID and the place in the buffer that it belongs to, if any.
type Meaning = Option<(u64, u32)>;

/// Asserts that the option of a segment describes exactly the octets of it that are of a transfer.
fn describes(meanings: &[Meaning], (from, octets, option): &Shown) {
    let described = match option {
        Some(RdmaOption::Transfer(transfer)) => Some(transfer),
        _ => None,
    };
    for at in 0..*octets {
        let shown = described.and_then(|transfer| {
            let data = at.checked_sub(transfer.data_offset.into())?;
            let inside = data < u32::from(transfer.data_octets);
            inside.then(|| (transfer.rid.get(), transfer.buffer_offset + data))
        });
        assert_eq!(shown, meanings[(*from + at) as usize], "octet {at} of {from}: {option:?}");
    }
}

/// Random work: whatever is lost, acknowledged in part, or too large for a path that narrows, each segment
/// says of each of its octets where it belongs.
// Requirements: TRO-3.1.1-01, TRO-3.1.8-01, TRO-3.1.8-02, TRO-3.1.8-03, TRO-3.3-02, TRO-4-03
#[test]
fn every_segmentation_describes_its_octets() {
    let (mut with_option, mut followed, mut cut, mut again) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let behaviour = Behaviour { timestamps: rng.bool(), nagle: rng.u8(..4) == 0, ..ON };
        let mut end = End::connected(behaviour, OFFER);
        let mut meanings: Vec<Meaning> = Vec::new();
        let mut mss = MSS;
        for rid in 0..200 {
            end.now += rng.u64(..2 * ROUND_TRIP_NS);
            let piece = Piece {
                rid: rid % 7,
                header: if rng.bool() { rng.u32(..120) } else { 0 },
                data: rng.u32(1..3000),
                buffer_offset: rng.u32(..1 << 30),
                total: rng.bool().then_some(1 << 31),
                unannotated: rng.u8(..4) == 0,
            };
            let data = (0..piece.data).map(|at| Some((piece.rid, piece.buffer_offset + at)));
            let octets = (0..piece.header).map(|_| None).chain(data);
            meanings.extend(octets.map(|meaning| meaning.filter(|_| !piece.unannotated)));
            end.queue(piece);
            let flight = (end.tcp.send.queue.nxt() - end.tcp.send.una).cast_unsigned();
            let una = (end.tcp.send.una - (ISS + 1)).cast_unsigned();
            match rng.u8(..6) {
                0..2 => end.acknowledge(una + flight, &[]),
                2 => end.acknowledge(una + rng.u32(..=flight), &[]),
                3 if flight > 2 => end.acknowledge(una, &[(una + rng.u32(1..flight), una + flight)]),
                4 if flight > 0 && rng.u8(..8) == 0 => {
                    mss = (mss - rng.u16(..200)).max(300);
                    PathMtu::of(&mut end.tcp).on_packet_too_big(end.now, ISS + 1 + una, mss, &mut end.pools);
                }
                5 => {
                    end.now = end.now.max(end.tcp.next_deadline().min(end.now + 300_000_000));
                    let _ = end.tcp.on_timer(end.now, &mut end.pools);
                }
                _ => {}
            }
            for shown in end.send() {
                describes(&meanings, &shown);
                with_option += usize::from(shown.2.is_some());
            }
        }
        followed += end.followed;
        cut += end.tcp.counters().cut_segments;
        again += end.tcp.counters().retransmitted_segments;
    }
    let enough = with_option > 10_000 && followed > 100 && cut > 2000 && again > 1000;
    assert!(enough, "{with_option} with an option, {followed} in bursts, {cut} cut, {again} again");
}
