//! Two cores with connections between them: work of every kind on perfect and bad paths, and every way to
//! end.

use warpline_dataplane::device::sim::{End, EndConfig, Impairments, OptionFaults};
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::{Operation, Slice};
use warpline_dataplane::ring::{AfterStream, Command, Event};
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::Case;
use super::capture::Capture;
use super::work::{self, OWN, SHARED};
use crate::common::{Host, Pair, Setup, pattern};
use crate::matrix::bottleneck::{Flows, Line};
use crate::model::world::Pair as RandomWork;

/// How the connection of a case runs.
#[derive(Clone, Copy)]
struct Path {
    mtu_octets: usize,
    setup: Setup,
    over_ipv6: bool,
    reads: u16,
    /// The device computes checksums and supports payload by reference.
    offloads: bool,
    impairments: Impairments,
}

const CLEAR: Path = Path {
    mtu_octets: 1500,
    setup: Setup { markers: false, crc: true },
    over_ipv6: false,
    reads: 3,
    offloads: false,
    impairments: PERFECT,
};
const WITH_MARKERS: Setup = Setup { markers: true, crc: true };
const WITHOUT_CRC: Setup = Setup { markers: false, crc: false };
const PERFECT: Impairments = Impairments {
    loss: 0.0,
    duplicate: 0.0,
    reorder: 0.0,
    reorder_delay_ns: 100_000,
    corrupt_bits: 0.0,
    corrupt_payload: 0.0,
    corrupt_payload_spares: 0,
    resegment: 0.0,
    rdma_option: OptionFaults::NONE,
    delay_min_ns: 5_000,
    delay_max_ns: 9_000,
    rate_bits_per_second: None,
    queue_octets: u64::MAX,
    mark_octets: None,
    in_flight_frames: 1 << 16,
    mtu_octets: None,
};
const LOSING: Impairments = Impairments { loss: 0.03, ..PERFECT };
const REORDERING: Impairments = Impairments { reorder: 0.1, ..PERFECT };
const REPEATING: Impairments = Impairments { duplicate: 0.1, ..PERFECT };
const CUTTING: Impairments = Impairments { resegment: 0.2, ..PERFECT };
const DAMAGING: Impairments = Impairments { corrupt_bits: 0.03, ..PERFECT };
const BAD: Impairments =
    Impairments { loss: 0.02, reorder: 0.05, duplicate: 0.05, resegment: 0.1, ..PERFECT };

const SEED: u64 = 7;

/// Every simulation of two cores.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, path) in [
        ("work-mtu1500", CLEAR),
        ("work-mtu1500-markers", Path { setup: WITH_MARKERS, ..CLEAR }),
        ("work-mtu1500-no-crc", Path { setup: WITHOUT_CRC, ..CLEAR }),
        ("work-mtu9000", Path { mtu_octets: 9000, ..CLEAR }),
        ("work-mtu9000-markers", Path { mtu_octets: 9000, setup: WITH_MARKERS, ..CLEAR }),
        ("work-ipv6", Path { over_ipv6: true, ..CLEAR }),
        (
            "work-ipv6-mtu9000-markers",
            Path { over_ipv6: true, mtu_octets: 9000, setup: WITH_MARKERS, ..CLEAR },
        ),
        ("work-no-reads", Path { reads: 0, ..CLEAR }),
        ("work-offloads-mtu9000", Path { offloads: true, mtu_octets: 9000, ..CLEAR }),
        ("work-loss", Path { impairments: LOSING, ..CLEAR }),
        ("work-loss-markers", Path { impairments: LOSING, setup: WITH_MARKERS, ..CLEAR }),
        ("work-loss-ipv6-mtu9000", Path { impairments: LOSING, over_ipv6: true, mtu_octets: 9000, ..CLEAR }),
        ("work-reordering", Path { impairments: REORDERING, ..CLEAR }),
        ("work-reordering-markers", Path { impairments: REORDERING, setup: WITH_MARKERS, ..CLEAR }),
        ("work-duplication", Path { impairments: REPEATING, ..CLEAR }),
        ("work-cut-segments", Path { impairments: CUTTING, ..CLEAR }),
        ("work-cut-segments-markers", Path { impairments: CUTTING, setup: WITH_MARKERS, ..CLEAR }),
        ("work-damaged-segments", Path { impairments: DAMAGING, ..CLEAR }),
        ("work-bad-path", Path { impairments: BAD, ..CLEAR }),
        (
            "work-bad-path-ipv6-markers",
            Path { impairments: BAD, over_ipv6: true, setup: WITH_MARKERS, ..CLEAR },
        ),
        ("work-bad-path-no-crc", Path { impairments: BAD, setup: WITHOUT_CRC, ..CLEAR }),
    ] {
        cases.push(Case::new(name, move |capture| {
            let mut pair = established(capture, path);
            work::run(&mut pair, SEED, 120);
            close(&mut pair);
        }));
    }
    for seed in 0..6 {
        cases.push(Case::new(format!("random-work-and-faults-{seed}"), move |capture| {
            RandomWork::watched(seed, |network| capture.watch(network)).run();
        }));
    }
    for (name, algorithm) in
        [("cubic", Algorithm::Cubic), ("newreno", Algorithm::NewReno), ("dctcp", Algorithm::Dctcp)]
    {
        for (how, loss, marks) in [("loss", 0.005, None), ("marks", 0.0, Some(30_000))] {
            let line = Line::new(50_000_000, 10 * MILLISECOND, 1500);
            let line = Line { loss, reorder: loss, mark_octets: marks, ..line };
            cases.push(Case::new(format!("bottleneck-{name}-{how}"), move |capture| {
                bottleneck(capture, line, algorithm);
            }));
        }
    }
    cases.push(Case::new("streaming", |capture| stream(capture, CLEAR)));
    let path = Path { over_ipv6: true, impairments: BAD, ..CLEAR };
    cases.push(Case::new("streaming-bad-path-ipv6", move |capture| stream(capture, path)));
    cases.extend(endings());
    cases
}

/// Simulations of random work on a path of chance, most of them with Markers: their digests cover the
/// counters of both ends too, and are not in the file.
pub fn cases_of_chance(seeds: u64) -> Vec<Case> {
    let case = |seed| {
        Case::new(format!("chance-{seed}"), move |capture| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let path = Path {
                mtu_octets: rng.usize(600..9000),
                setup: Setup { markers: rng.u8(..4) > 0, crc: true },
                over_ipv6: rng.bool(),
                offloads: rng.bool(),
                ..CLEAR
            };
            let mut pair = established(capture, path);
            // The network cuts and damages IPv4 only, and octets that a CRC alone protects only in segments
            // that are whole: a stream fails if a part of the FPDU was acknowledged (RFC 5044 §8).
            let kinds = if path.over_ipv6 { 2 } else { 5 };
            let impairments = match rng.u8(..kinds) {
                0 => PERFECT,
                1 => Impairments { loss: 0.02, reorder: 0.05, duplicate: 0.05, ..PERFECT },
                2 => Impairments { resegment: 0.3, ..PERFECT },
                3 => Impairments { resegment: 0.1, corrupt_bits: 0.02, loss: 0.02, ..PERFECT },
                _ => Impairments { corrupt_payload: 0.02, corrupt_payload_spares: 8, ..PERFECT },
            };
            for end in [End::A, End::B] {
                pair.network.set_impairments(end, impairments);
            }
            work::run(&mut pair, seed, 80);
            close(&mut pair);
            for host in [&pair.a, &pair.b] {
                capture.add_counters(&host.statistics());
            }
        })
    };
    (0..seeds).map(case).collect()
}

fn endings() -> [Case; 11] {
    [
        Case::new("connection-refused", |capture| {
            let mut pair = new(capture, CLEAR);
            connect_without_listener(&mut pair);
            assert!(pair.run_until(60, |pair| !pair.a.events.is_empty()), "no answer");
            pair.run_for(5);
        }),
        Case::new("connection-to-silence", |capture| {
            let path = Path { impairments: Impairments { loss: 1.0, ..PERFECT }, ..CLEAR };
            let mut pair = new(capture, path);
            connect_without_listener(&mut pair);
            pair.run_for(200);
        }),
        Case::new("silence-during-work", |capture| {
            let mut pair = established(capture, CLEAR);
            pair.a.write(1, slice(60_000), SHARED, 0);
            (0..20).for_each(|_| pair.step());
            for end in [End::A, End::B] {
                pair.network.set_impairments(end, Impairments { loss: 1.0, ..PERFECT });
            }
            pair.run_for(2000);
            assert!(closed(&pair.a), "the retransmissions end");
        }),
        Case::new("smaller-path-mtu-without-icmp", |capture| {
            let mut pair = established(capture, Path { mtu_octets: 9000, ..CLEAR });
            pair.a.write(1, slice(60_000), SHARED, 0);
            (0..20).for_each(|_| pair.step());
            pair.network.set_impairments(End::A, Impairments { mtu_octets: Some(1500), ..PERFECT });
            pair.a.write(2, slice(60_000), SHARED, 0);
            pair.run_for(300);
        }),
        Case::new("receiver-not-ready", |capture| {
            let mut pair = new(capture, CLEAR);
            pair.receive_wait_ns = Some(30 * SECOND);
            pair.establish(CLEAR.setup);
            for id in 0..60 {
                pair.a.send(id, slice(6000));
            }
            for id in 0..60 {
                pair.run_until(20, |pair| pair.now.as_nanos() % 7 == 0);
                pair.run_for(id / 30);
                pair.b.receive(id, slice(8000));
            }
            pair.run_for(10);
            assert_eq!(pair.b.poll_completions().len(), 60);
            // This Send has no receive.
            pair.a.send(99, slice(10));
            pair.run_for(60);
        }),
        Case::new("abort", |capture| {
            let mut pair = established(capture, CLEAR);
            pair.a.write(1, slice(100_000), SHARED, 0);
            (0..30).for_each(|_| pair.step());
            pair.b.command(Command::Abort { connection: pair.b.connection.unwrap() });
            pair.run_for(10);
            assert!(closed(&pair.a) && closed(&pair.b));
        }),
        Case::new("queue-pair-destroyed", |capture| {
            let mut pair = established(capture, CLEAR);
            pair.a.write(1, slice(100_000), SHARED, 0);
            (0..30).for_each(|_| pair.step());
            pair.a.command(Command::DestroyQp(pair.a.qp.clone()));
            pair.run_for(10);
        }),
        Case::new("disconnect-without-answer", |capture| {
            let mut pair = established(capture, CLEAR);
            pair.a.write(1, slice(5000), SHARED, 0);
            let connection = pair.a.connection.unwrap();
            pair.a.command(Command::Disconnect { connection, within_ns: Some(7 * SECOND) });
            pair.run_for(20);
            assert!(closed(&pair.a));
        }),
        Case::new("terminate-for-a-write", |capture| {
            let operation = Operation::Write { stag: STag::new(9, 0x9999), to: 0 };
            terminated_by(capture, CLEAR, operation);
        }),
        Case::new("terminate-for-a-read", |capture| {
            let operation = Operation::Read { stag: SHARED, to: 1 << 40 };
            terminated_by(capture, Path { setup: WITH_MARKERS, over_ipv6: true, ..CLEAR }, operation);
        }),
        Case::new("terminate-for-a-crc", |capture| {
            let mut pair = established(capture, CLEAR);
            let damage = Impairments { corrupt_payload: 1.0, corrupt_payload_spares: 8, ..PERFECT };
            pair.network.set_impairments(End::A, damage);
            pair.a.write(1, slice(5000), SHARED, 0);
            pair.run_for(30);
            assert!(pair.b.qp.error().is_some());
        }),
    ]
}

fn slice(octets: u32) -> Slice {
    Slice { stag: OWN, to: 0, len: octets }
}

/// Two hosts, watched from the first frame on.
fn new(capture: &Capture, path: Path) -> Pair {
    let end = |end: EndConfig| EndConfig {
        mtu_bytes: path.mtu_octets,
        transmit_checksums: path.offloads,
        gather: path.offloads,
        outbound: path.impairments,
        ..end
    };
    let mut pair = Pair::new(SEED, end(EndConfig::a()), end(EndConfig::b()));
    capture.watch(&pair.network);
    pair.over_ipv6 = path.over_ipv6;
    pair.reads = path.reads;
    work::register(&pair);
    pair
}

/// Two hosts in Full Operation.
fn established(capture: &Capture, path: Path) -> Pair {
    let mut pair = new(capture, path);
    pair.establish(path.setup);
    pair
}

fn connect_without_listener(pair: &mut Pair) {
    pair.a.command(Command::Connect {
        token: 1,
        local: None,
        remote: (crate::common::address(2), crate::common::PORT).into(),
        timeout_ns: 100 * SECOND,
        tcp: None,
        octets: Box::default(),
    });
}

fn closed(host: &Host) -> bool {
    host.events.iter().any(|event| matches!(event, Event::Closed { .. }))
}

/// Closes the connection from both ends, and waits until TIME-WAIT is over.
fn close(pair: &mut Pair) {
    pair.a.command(Command::Close { connection: pair.a.connection.unwrap() });
    let finished =
        |pair: &mut Pair| pair.b.events.iter().any(|event| matches!(event, Event::PeerFinished { .. }));
    assert!(pair.run_until(60, finished), "no FIN");
    pair.b.command(Command::Close { connection: pair.b.connection.unwrap() });
    assert!(pair.run_until(60, |pair| closed(&pair.a) && closed(&pair.b)), "not closed");
    pair.run_for(200);
}

/// `a` posts `operation`, which `b` must refuse.
fn terminated_by(capture: &Capture, path: Path, operation: Operation) {
    let mut pair = established(capture, path);
    pair.a.post(1, operation, slice(3000));
    pair.run_for(30);
    assert!(pair.a.qp.error().is_some() && pair.b.qp.error().is_some());
}

/// Streaming octets in both directions, without Full Operation.
fn stream(capture: &Capture, path: Path) {
    let mut pair = new(capture, path);
    pair.connect();
    let connections = [pair.a.connection.unwrap(), pair.b.connection.unwrap()];
    let mut sent = [Vec::new(), Vec::new()];
    for round in 0..60 {
        for side in 0..2 {
            let octets = pattern(round * 2 + side as u64, (round as usize * 97 + side) % 3000 + 1);
            sent[side].extend_from_slice(&octets);
            let host = if side == 0 { &pair.a } else { &pair.b };
            let connection = connections[side];
            host.command(Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay });
        }
        if round % 10 == 9 {
            let arrived =
                pair.run_until(60, |pair| pair.b.streamed() == sent[0] && pair.a.streamed() == sent[1]);
            assert!(arrived, "streaming octets are missing");
        }
    }
    let last = Command::Stream {
        connection: connections[0],
        octets: b"the end".as_slice().into(),
        then: AfterStream::Close,
    };
    pair.a.command(last);
    let finished =
        |pair: &mut Pair| pair.b.events.iter().any(|event| matches!(event, Event::PeerFinished { .. }));
    assert!(pair.run_until(60, finished), "no FIN");
    pair.b.command(Command::Close { connection: connections[1] });
    assert!(pair.run_until(60, |pair| closed(&pair.a) && closed(&pair.b)), "not closed");
    pair.run_for(200);
}

/// Two connections that fill a bottleneck for half a second.
fn bottleneck(capture: &Capture, line: Line, algorithm: Algorithm) {
    let mut flows = Flows::new(SEED, line, algorithm);
    capture.watch(&flows.network);
    flows.open();
    flows.open();
    flows.register_busy();
    flows.impair();
    flows.keep_busy(flows.now + SECOND / 2);
}
