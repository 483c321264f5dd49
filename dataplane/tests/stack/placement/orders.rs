//! Tests of all orderings of the segments of a short stream: each message is delivered once, in order,
//! intact.

use super::play;
use super::receiver::{Receiver, Run, Ulpdu};

/// Segments of a run.
const SEGMENTS: usize = 6;

/// Every order of `0..SEGMENTS`.
fn orders() -> Vec<[usize; SEGMENTS]> {
    let mut orders = Vec::new();
    permute(&mut core::array::from_fn(|n| n), 0, &mut orders);
    assert_eq!(orders.len(), 720);
    orders
}

fn permute(order: &mut [usize; SEGMENTS], from: usize, orders: &mut Vec<[usize; SEGMENTS]>) {
    if from == SEGMENTS {
        orders.push(*order);
        return;
    }
    for at in from..SEGMENTS {
        order.swap(from, at);
        permute(order, from + 1, orders);
        order.swap(from, at);
    }
}

fn writes(octets: &[usize]) -> Vec<Ulpdu> {
    let mut to = 3;
    let write = |octets: &usize| {
        to += octets;
        Ulpdu::Write { to: to - octets, octets: *octets }
    };
    octets.iter().map(write).collect()
}

fn send(message: usize, parts: &[usize]) -> Vec<Ulpdu> {
    let mut mo = 0;
    let part = |(n, octets): (usize, &usize)| {
        mo += octets;
        Ulpdu::Send { message, mo: mo - octets, octets: *octets, last: n + 1 == parts.len() }
    };
    parts.iter().enumerate().map(part).collect()
}

/// How FPDUs lie in segments (RFC 5044 A.4).
struct Shape {
    name: &'static str,
    ulpdus: Vec<Ulpdu>,
    /// Where the segments but the first begin.
    cuts: fn(&Run) -> Vec<usize>,
}

fn aligned(run: &Run) -> Vec<usize> {
    let each = run.fpdus.len() / SEGMENTS;
    (1..SEGMENTS).map(|n| run.fpdus[n * each].start).collect()
}

fn shapes() -> Vec<Shape> {
    let mut single = writes(&[1400, 1, 700, 1300, 0]);
    single.extend(send(0, &[1380]));
    let mut several = writes(&[100, 480, 33, 0, 7, 511, 250, 90, 64, 300, 2, 13, 440, 39, 160]);
    several.extend([send(0, &[150]), send(1, &[200]), send(2, &[0])].concat());
    let split = [writes(&[7000]), send(0, &[400])].concat();
    let messages = [send(0, &[1300, 900]), send(1, &[1200]), send(2, &[600, 1299, 5])].concat();
    let mixed = [
        send(0, &[1000, 37]),
        writes(&[2000, 5, 260]),
        send(1, &[900, 700]),
        vec![Ulpdu::Write { to: 9000, octets: 80 }],
    ]
    .concat();
    vec![
        Shape { name: "one FPDU each", ulpdus: single.clone(), cuts: aligned },
        Shape { name: "three FPDUs each", ulpdus: several.clone(), cuts: aligned },
        Shape { name: "several segments of a message", ulpdus: messages, cuts: aligned },
        Shape {
            name: "a part of an FPDU each",
            ulpdus: split,
            cuts: |run| (1..SEGMENTS).map(|n| n * run.octets.len() / SEGMENTS).collect(),
        },
        Shape {
            name: "cut 37 octets early",
            ulpdus: single,
            cuts: |run| aligned(run).iter().map(|cut| cut - 37).collect(),
        },
        Shape {
            name: "cut at odd places",
            ulpdus: several,
            cuts: |run| (1..SEGMENTS).map(|n| n * run.octets.len() / SEGMENTS + 11 * n).collect(),
        },
        Shape {
            name: "a mixture",
            ulpdus: mixed,
            cuts: |run| {
                let [a, b, c] = [1, 3, 5].map(|n| run.fpdus[n].start);
                vec![a, b - 800, b, c + 200, run.octets.len() - 300]
            },
        },
    ]
}

fn segments(run: &Run, cuts: &[usize]) -> Vec<(usize, usize)> {
    let mut ends = cuts.to_vec();
    ends.push(run.octets.len());
    let mut from = 0;
    let segments: Vec<_> = ends.iter().map(|to| (core::mem::replace(&mut from, *to), *to)).collect();
    assert!(segments.len() == SEGMENTS && segments.iter().all(|(from, to)| from < to && to - from <= 1460));
    segments
}

/// Calls `f` with every shape at some phases, with Markers and without.
fn for_each_shape(phases: &[usize], mut f: impl FnMut(&mut Receiver, &Shape, usize)) {
    for markers in [true, false] {
        for shape in shapes() {
            let mut receiver = Receiver::new(markers);
            // Without Markers all phases are equivalent.
            for phase in &phases[..if markers { phases.len() } else { 1 }] {
                println!("{}, Markers {markers}, phase {phase}", shape.name);
                f(&mut receiver, &shape, *phase);
            }
        }
    }
}

/// All 720 orders.
// Requirements: MPA-6-04, C00-5.2-06, C00-7.4-03, D08-A.3-01, DDP-5.3-01, RDMAP-5.5-01
#[test]
fn all_orders_of_six_segments() {
    for_each_shape(&[0, 8, 508], |receiver, shape, phase| {
        for order in orders() {
            receiver.go_to_phase(phase);
            let run = receiver.begin(&shape.ulpdus);
            let segments = segments(&run, &(shape.cuts)(&run));
            play(receiver, &run, &order.map(|n| segments[n]));
        }
    });
}

/// The same with one of the segments twice. The repeated segment and its position vary with the order.
// Requirements: MPA-A.3-02, C00-5.1-03, DDP-5.3-06
#[test]
fn all_orders_with_one_segment_twice() {
    for_each_shape(&[100], |receiver, shape, phase| {
        for (number, order) in orders().into_iter().enumerate() {
            receiver.go_to_phase(phase);
            let run = receiver.begin(&shape.ulpdus);
            let segments = segments(&run, &(shape.cuts)(&run));
            let mut arrivals = order.map(|n| segments[n]).to_vec();
            let (twice, when) = (number % SEGMENTS, number / SEGMENTS % (SEGMENTS + 1));
            arrivals.insert(when, segments[twice]);
            play(receiver, &run, &arrivals);
        }
    });
}

/// Buffers of a shared receive queue are assigned to the messages whose octets arrive, in any order of
/// arrival, and are used in the order of the messages.
#[test]
fn all_orders_into_shared_receives() {
    for markers in [true, false] {
        for shape in shapes() {
            let mut receiver = Receiver::sharing(markers);
            println!("{}, Markers {markers}", shape.name);
            for order in orders() {
                receiver.go_to_phase(100);
                let run = receiver.begin(&shape.ulpdus);
                let segments = segments(&run, &(shape.cuts)(&run));
                play(&mut receiver, &run, &order.map(|n| segments[n]));
            }
        }
    }
}

/// A stream cut at every octet, its parts in the opposite order and with the first part last.
// Requirements: MPA-A.4-01, MPA-5.1-05, C00-7.4.1-01
#[test]
fn cut_at_every_octet() {
    let ulpdus = [send(0, &[100, 520]), writes(&[0, 340, 21]), send(1, &[60])].concat();
    for markers in [true, false] {
        let mut receiver = Receiver::new(markers);
        for phase in [0, 60, 500] {
            receiver.go_to_phase(phase);
            let octets = receiver.framed(&ulpdus).octets.len();
            for cut in 1..octets {
                receiver.go_to_phase(phase);
                let run = receiver.begin(&ulpdus);
                play(&mut receiver, &run, &[(cut, octets), (0, cut)]);
                let second = cut + 1 + (octets - cut - 1) * (cut % 7) / 7;
                receiver.go_to_phase(phase);
                let run = receiver.begin(&ulpdus);
                let mut parts = vec![(cut, second), (second, octets), (0, cut)];
                parts.retain(|(from, to)| from < to);
                play(&mut receiver, &run, &parts);
            }
        }
    }
}
