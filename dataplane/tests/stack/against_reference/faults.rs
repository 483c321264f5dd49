//! Segments with a field that is wrong, or right in another way: the reference says which.

use fastrand::Rng;

use super::subject::{COUNTERS, FOREIGN, KEYS, OTHERS, READABLE, SINK};
use crate::reference::fields::{AtomicRequest, Model, ReadRequest, Segment, opcode};
use crate::reference::target::Target;

/// STags that name something, or nothing.
fn any_stag(rng: &mut Rng) -> u32 {
    match rng.u32(..8) {
        0 => SINK.0,
        1 => READABLE.0,
        2 => COUNTERS.0,
        3..=4 => KEYS[rng.usize(..KEYS.len())].0,
        5 => FOREIGN.0,
        6 => OTHERS.0,
        _ => SINK.0 ^ rng.u32(1..),
    }
}

/// An offset for `octets` octets: below, above or beyond memory, or such that it ends at 2^64.
fn any_offset(rng: &mut Rng, offset: u64, octets: u64) -> u64 {
    match rng.u32(..6) {
        5 => octets.wrapping_neg(),
        0 => offset.wrapping_add(rng.u64(1..40)),
        1 => offset.wrapping_sub(rng.u64(1..40)),
        2 => u64::MAX - rng.u64(..2000),
        3 => rng.u64(..0x2000),
        _ => offset.wrapping_add(0x10_0000),
    }
}

fn any_number(rng: &mut Rng, number: u32) -> u32 {
    match rng.u32(..4) {
        0 => number.wrapping_add(rng.u32(1..4)),
        1 => number.wrapping_sub(rng.u32(1..4)),
        2 => number ^ 1 << rng.u32(..32),
        _ => rng.u32(..6),
    }
}

/// Returns `ulpdu` with one or two of its fields changed: with two, the order of the checks shows.
pub(super) fn change(rng: &mut Rng, ulpdu: &[u8]) -> Vec<u8> {
    let changed = change_one(rng, ulpdu);
    if rng.u32(..3) == 0 && Segment::parse(&changed).is_some() { change_one(rng, &changed) } else { changed }
}

fn change_one(rng: &mut Rng, ulpdu: &[u8]) -> Vec<u8> {
    if rng.u32(..16) == 0 {
        return ulpdu[..rng.usize(..ulpdu.len().min(20))].to_vec();
    }
    let mut segment = Segment::parse(ulpdu).expect("a segment");
    let asks = matches!(segment.opcode, opcode::READ_REQUEST | opcode::ATOMIC_REQUEST);
    if asks && rng.bool() {
        change_request(rng, &mut segment);
        return segment.ulpdu();
    }
    match rng.u32(..9) {
        0 => segment.version = rng.u8(..4),
        1 => segment.rdmap_version = rng.u8(..4),
        2 => segment.opcode = rng.u8(..16),
        3 => segment.last = !segment.last,
        4 => change_length(rng, &mut segment.payload),
        5 if !segment.payload.is_empty() => change_request(rng, &mut segment),
        _ => change_model(rng, &mut segment.model, segment.payload.len()),
    }
    segment.ulpdu()
}

/// Returns a message that nobody waits for: a Send, perhaps without a buffer, a request for any memory, a
/// response, perhaps without a request, a Write, or a Terminate.
pub(super) fn unasked(rng: &mut Rng, target: &Target) -> Vec<u8> {
    let (queue, opcode, payload) = match rng.u32(..10) {
        0..=1 => (0, rng.u8(opcode::SEND..=opcode::IMMEDIATE_SOLICITED), vec![0x66; 8]),
        2..=3 => (1, opcode::READ_REQUEST, any_read(rng).octets()),
        4..=5 => (1, opcode::ATOMIC_REQUEST, any_operation(rng).octets()),
        6 => (2, opcode::TERMINATE, vec![0x11; rng.usize(..20)]),
        7 => (3, opcode::ATOMIC_RESPONSE, vec![0x66; 12]),
        _ => return any_tagged(rng),
    };
    let (invalidate, msn) = (any_stag(rng), target.next_msn(queue as usize));
    let mo = if rng.u32(..8) == 0 { rng.u32(..12) } else { 0 };
    let model = Model::Untagged { invalidate, queue, msn, mo };
    Segment { last: true, reserved: 0, version: 1, rdmap_version: 1, opcode, model, payload }.ulpdu()
}

fn any_read(rng: &mut Rng) -> ReadRequest {
    let size = rng.u32(..300);
    let source_to = if rng.bool() { rng.u64(..200) } else { any_offset(rng, 0, size.into()) };
    ReadRequest { sink_stag: 1, sink_to: 0, size, source_stag: any_stag(rng), source_to }
}

fn any_operation(rng: &mut Rng) -> AtomicRequest {
    let to = if rng.u32(..3) > 0 { rng.u64(0x1000..0x1040) } else { any_offset(rng, 0, 8) };
    let stag = if rng.bool() { COUNTERS.0 } else { any_stag(rng) };
    let code = if rng.u32(..4) > 0 { 0 } else { rng.u8(..16) };
    AtomicRequest { code, identifier: 7, stag, to, data: 1, mask: 0, compare: 0, compare_mask: 0 }
}

/// A Tagged segment of which anything may be wrong.
fn any_tagged(rng: &mut Rng) -> Vec<u8> {
    let model = Model::Tagged { stag: any_stag(rng), to: rng.u64(..100) };
    let opcode = match rng.u32(..4) {
        0 => opcode::READ_RESPONSE,
        1 => rng.u8(..16),
        _ => opcode::WRITE,
    };
    let rdmap_version = if rng.u32(..4) == 0 { rng.u8(..4) } else { 1 };
    let (last, payload) = (rng.bool(), vec![0x66; rng.usize(..20)]);
    Segment { last, reserved: 0, version: 1, rdmap_version, opcode, model, payload }.ulpdu()
}

fn change_length(rng: &mut Rng, payload: &mut Vec<u8>) {
    let octets = match rng.u32(..3) {
        0 => payload.len().saturating_sub(rng.usize(1..30)),
        1 => payload.len() + rng.usize(1..30),
        _ => rng.usize(..3000),
    };
    payload.resize(octets, 0x77);
}

fn change_model(rng: &mut Rng, model: &mut Model, octets: usize) {
    match model {
        Model::Tagged { stag, .. } if rng.bool() => *stag = any_stag(rng),
        Model::Tagged { to, .. } => *to = any_offset(rng, *to, octets as u64),
        Model::Untagged { invalidate, queue, msn, mo } => match rng.u32(..4) {
            0 => *queue = any_number(rng, *queue),
            1 => *msn = any_number(rng, *msn),
            2 => *mo = any_number(rng, *mo),
            _ => *invalidate = any_stag(rng),
        },
    }
}

/// Changes the header of a request; of a Send, it becomes one that invalidates.
fn change_request(rng: &mut Rng, segment: &mut Segment) {
    match (segment.opcode, segment.payload.len()) {
        (opcode::READ_REQUEST, ReadRequest::OCTETS) => {
            let mut request = ReadRequest::parse(&segment.payload);
            match rng.u32(..3) {
                0 => request.source_stag = any_stag(rng),
                1 => request.source_to = any_offset(rng, request.source_to, request.size.into()),
                _ => request.size = rng.u32(..10_000),
            }
            segment.payload = request.octets();
        }
        (opcode::ATOMIC_REQUEST, AtomicRequest::OCTETS) => {
            let mut request = AtomicRequest::parse(&segment.payload);
            match rng.u32(..4) {
                0 => request.stag = any_stag(rng),
                1 => request.to = any_offset(rng, request.to, 8),
                2 => request.to += rng.u64(1..8),
                _ => request.code = rng.u8(..16),
            }
            segment.payload = request.octets();
        }
        (opcode::SEND..=opcode::SEND_SOLICITED_INVALIDATE, _) => {
            segment.opcode = opcode::SEND_INVALIDATE;
            if let Model::Untagged { invalidate, .. } = &mut segment.model {
                *invalidate = any_stag(rng);
            }
        }
        _ => change_length(rng, &mut segment.payload),
    }
}
