//! Windows, and registrations made anew: what a peer reaches by them, and when no more.

use std::ptr::null;

use super::ends::*;
use super::handles::*;
use crate::advertisement::*;
use crate::completion::*;
use crate::memory::*;
use crate::window::*;
use crate::work::*;

const OPEN: u32 = WARPLINE_ACCESS_LOCAL_WRITE | WARPLINE_ACCESS_WINDOW_BIND;
const REMOTE_ACCESS_ERROR: u32 = 10;

/// Carries out a request with a grant; returns its status.
fn carry_out(end: &End, opcode: u32, grant: &Grant) -> u32 {
    end.post_send(&SendWr { grant, ..bare(opcode) });
    end.wc().status
}

fn invalidate(end: &End, stag: u32) {
    end.post_send(&SendWr { remote_stag: stag, ..bare(WARPLINE_WR_LOCAL_INVALIDATE) });
    assert_eq!(end.completed().opcode, WARPLINE_WC_LOCAL_INVALIDATE);
}

/// Has `near` write `bytes` to `offset` of what `far` has advertised, and waits until they are there.
fn write(near: &End, far: &End, target: &Advertisement, offset: u64, bytes: &[u8]) {
    near.put(0, bytes);
    let sge = near.sge(0, bytes.len() as u32);
    far.post_recv(1, 0, 64);
    let after = request(WARPLINE_WR_SEND, &sge);
    let (remote_stag, remote_addr) = (target.stag, target.to + offset);
    near.post_send(&SendWr {
        remote_stag,
        remote_addr,
        next: &raw const after,
        ..request(WARPLINE_WR_WRITE, &sge)
    });
    assert_eq!([near.completed().opcode, near.completed().opcode], [WARPLINE_WC_WRITE, WARPLINE_WC_SEND]);
    far.completed();
}

/// As above, but the peer refuses. Its Terminate comes after the Write, and the requests that wait for a
/// response fail.
fn write_in_vain(near: &End, target: &Advertisement, offset: u64, bytes: &[u8]) {
    near.put(0, bytes);
    let (sge, sink) = (near.sge(0, bytes.len() as u32), near.sge(64, 1));
    let to = |wr| SendWr { remote_stag: target.stag, remote_addr: target.to.wrapping_add(offset), ..wr };
    let read = to(request(WARPLINE_WR_READ, &sink));
    near.post_send(&SendWr { next: &raw const read, ..to(request(WARPLINE_WR_WRITE, &sge)) });
    let status = loop {
        let wc = near.wc();
        if wc.status != 0 {
            break wc.status;
        }
    };
    assert_eq!(status, REMOTE_ACCESS_ERROR);
}

/// A peer reaches by a window what it was bound to, byte for byte, and nothing beside it.
// Requirements: DDP-8.3-01, DDP-8.3-03
#[test]
fn a_window_opens_its_bytes_and_no_others() {
    for (zero_based, beside) in [(0, 1), (WARPLINE_ACCESS_ZERO_BASED, 1), (0, -1_i64), (0, 10)] {
        let (near, far) = connected();
        let (memory, window) = (far.pd.allocate(None, 4096, OPEN).unwrap(), far.pd.window());
        let access = WARPLINE_ACCESS_REMOTE_WRITE | zero_based;
        let grant = window.binding(&memory, (100, 10), access).unwrap();
        let registered = memory.advertisement(100, 10).unwrap();
        let to = if zero_based == 0 { registered.to } else { 0 };
        assert_eq!((grant.stag, grant.to, grant.length), (window.stag(), to, 10));
        assert_eq!(carry_out(&far, WARPLINE_WR_BIND, &grant), 0);
        let target = window.advertisement(0, 10).unwrap();
        assert_eq!(target, Advertisement { to, stag: window.stag(), length: 10 });
        assert_eq!(window.advertisement(1, 10), Err(-libc::EINVAL));

        write(&near, &far, &target, 0, b"0123456789");
        write(&near, &far, &target, 9, b"!");
        let mut expected = vec![0; 4096];
        expected[100..110].copy_from_slice(b"012345678!");
        assert_eq!(memory.bytes(), expected);
        write_in_vain(&near, &target, beside.cast_unsigned(), b"abcdefghij");
        assert_eq!(memory.bytes(), expected, "nothing of what was refused");
    }
}

/// Once a window is invalidated, by either end, its name is dead; bound anew, it has another.
// Requirements: DDP-8.3-02, RDMAP-5.3-08
#[test]
fn an_invalidated_window_is_dead() {
    for by_peer in [true, false] {
        let (near, far) = connected();
        let (memory, window) = (far.pd.allocate(None, 4096, OPEN).unwrap(), far.pd.window());
        let access = WARPLINE_ACCESS_REMOTE_WRITE;
        let grant = window.binding(&memory, (0, 8), access).unwrap();
        assert_eq!(carry_out(&far, WARPLINE_WR_BIND, &grant), 0);
        let first = window.advertisement(0, 8).unwrap();
        write(&near, &far, &first, 0, b"before");
        let (memory, words) = memory.deregister_in_vain();
        assert!(words.contains("windows are bound"), "{words}");

        if by_peer {
            far.post_recv(2, 0, 64);
            let sge = near.sge(0, 1);
            near.post_send(&SendWr {
                remote_stag: first.stag,
                ..request(WARPLINE_WR_SEND_WITH_INVALIDATE, &sge)
            });
            near.completed();
            let wc = far.completed();
            assert_eq!((wc.flags, wc.invalidated_stag), (WARPLINE_WC_WITH_INVALIDATE, first.stag));
        } else {
            invalidate(&far, first.stag);
        }
        let grant = window.binding(&memory, (8, 8), access).unwrap();
        assert_eq!(carry_out(&far, WARPLINE_WR_BIND, &grant), 0);
        let second = window.advertisement(0, 8).unwrap();
        assert_ne!(first.stag, second.stag);
        write(&near, &far, &second, 0, b"after");
        write_in_vain(&near, &first, 0, b"dead");
        assert_eq!(&memory.bytes()[..16], b"before\0\0after\0\0\0");
        window.deallocate(PATIENCE).unwrap();
        memory.deregister(PATIENCE).unwrap();
    }
}

/// A window is bound under the key that its owner counts, and not under the one that it has.
#[test]
fn a_window_is_bound_under_the_key_that_was_asked() {
    let (near, far) = connected();
    let (memory, window) = (far.pd.allocate(None, 4096, OPEN).unwrap(), far.pd.window());
    let access = WARPLINE_ACCESS_REMOTE_WRITE;
    let first = window.stag();
    let next = first & 0xffff_0000 | u32::from((first as u16).wrapping_add(1));
    let grant = window.binding_with_key(next as u16, &memory, (100, 8), access).unwrap();
    assert_eq!((grant.stag, window.stag()), (next, next));
    assert_eq!(carry_out(&far, WARPLINE_WR_BIND, &grant), 0);
    write(&near, &far, &window.advertisement(0, 8).unwrap(), 0, b"by count");
    assert_eq!(&memory.bytes()[100..108], b"by count");
    invalidate(&far, next);
    let refused = window.binding_with_key(0, &memory, (0, 8), WARPLINE_ACCESS_WINDOW_BIND << 8);
    assert_eq!((refused, window.stag()), (Err(-libc::EINVAL), next));
    let grant = window.binding_with_key(next as u16, &memory, (0, 8), access).unwrap();
    assert_eq!(carry_out(&far, WARPLINE_WR_BIND, &grant), WARPLINE_WC_MW_BIND_ERR);
}

/// Memory is registered anew under another key, and the one before names nothing.
// Requirements: DDP-8.3.1-05, RDMAP-8.1.1-03
#[test]
fn a_fast_registration_rolls_the_key() {
    let (near, far) = connected();
    let access = WARPLINE_ACCESS_LOCAL_WRITE | WARPLINE_ACCESS_REMOTE_WRITE;
    let memory = far.pd.allocate(None, 4096, access).unwrap();
    let first = memory.advertisement(0, 4096).unwrap();
    write(&near, &far, &first, 0, b"first");
    invalidate(&far, first.stag);

    let grant = memory.fast_registration((200, 10), access | WARPLINE_ACCESS_ZERO_BASED, true);
    assert_eq!((grant.stag, grant.to, grant.length), (memory.stag(), 0, 10));
    assert_ne!(grant.stag, first.stag);
    let index = |stag| warpline::STag(stag).index();
    assert_eq!(index(grant.stag), index(first.stag), "the same place, another key");
    assert_eq!(carry_out(&far, WARPLINE_WR_REGISTER, &grant), 0);
    let second = memory.advertisement(200, 10).unwrap();
    assert_eq!(second, Advertisement { to: 0, stag: grant.stag, length: 10 });
    assert_eq!(memory.advertisement(199, 10), Err(-libc::EINVAL));
    write(&near, &far, &second, 0, b"second");
    // It was made for this connection alone, so the peer may take it back.
    far.post_recv(2, 0, 64);
    let sge = near.sge(0, 1);
    near.post_send(&SendWr { remote_stag: second.stag, ..request(WARPLINE_WR_SEND_WITH_INVALIDATE, &sge) });
    near.completed();
    assert_eq!(far.completed().invalidated_stag, second.stag);

    let grant = memory.fast_registration((0, 4096), access, false);
    assert_eq!(carry_out(&far, WARPLINE_WR_REGISTER, &grant), 0);
    let third = memory.advertisement(100, 10).unwrap();
    write(&near, &far, &third, 0, b"third");
    write_in_vain(&near, &first, 0, b"old");
    let bytes = memory.bytes();
    let seen = [&bytes[..6], &bytes[100..106], &bytes[200..207]];
    assert_eq!(seen, [&b"first\0"[..], b"third\0", b"second\0"]);
    memory.deregister(PATIENCE).unwrap();
}

/// An opcode, its grant, and the memory that this is of.
type Attempt = (u32, Grant, Handle<Mr>);

/// What a registration does not allow is not opened: the work request says so.
#[test]
fn grants_that_are_refused() {
    let still_valid = |far: &End| {
        let memory = far.pd.allocate(None, 64, WARPLINE_ACCESS_REMOTE_WRITE).unwrap();
        (WARPLINE_WR_REGISTER, memory.fast_registration((0, 64), 0, false), memory)
    };
    let more_than_at_first = |far: &End| {
        let memory = far.pd.allocate(None, 64, WARPLINE_ACCESS_REMOTE_WRITE).unwrap();
        invalidate(far, memory.stag());
        let grant = memory.fast_registration((0, 64), WARPLINE_ACCESS_REMOTE_READ, false);
        (WARPLINE_WR_REGISTER, grant, memory)
    };
    let bound = |far: &End, registered, range, access| {
        let memory = far.pd.allocate(None, 64, registered).unwrap();
        (WARPLINE_WR_BIND, far.pd.window().binding(&memory, range, access).unwrap(), memory)
    };
    let closed = |far: &End| bound(far, WARPLINE_ACCESS_LOCAL_WRITE, (0, 64), WARPLINE_ACCESS_REMOTE_WRITE);
    let too_long = |far: &End| bound(far, OPEN, (1, 64), WARPLINE_ACCESS_REMOTE_READ);
    let local = |far: &End| bound(far, OPEN, (0, 64), WARPLINE_ACCESS_LOCAL_WRITE);
    let refused = |ask: &dyn Fn(&End) -> Attempt, status| {
        let (_near, far) = connected();
        let (opcode, grant, _memory) = ask(&far);
        assert_eq!(carry_out(&far, opcode, &grant), status);
    };
    refused(&still_valid, 4);
    refused(&more_than_at_first, 4);
    refused(&closed, 6);
    refused(&too_long, 6);
    refused(&local, 6);
}

/// What makes no sense is refused before anything of it is posted, or renamed.
#[test]
fn grants_that_make_no_sense() {
    let (_near, far) = connected();
    let (memory, window) = (far.pd.allocate(None, 64, OPEN).unwrap(), far.pd.window());
    let name = window.stag();
    assert_eq!(window.binding(&memory, (0, 64), 1 << 20), Err(-libc::EINVAL));
    assert_eq!(window.stag(), name);
    let wrong = Grant { access: 1 << 20, ..Grant::default() };
    for opcode in [WARPLINE_WR_BIND, WARPLINE_WR_REGISTER] {
        for grant in [null(), &raw const wrong] {
            assert_eq!(far.qp.post_send(&SendWr { grant, ..bare(opcode) }).0, -libc::EINVAL);
        }
        let sge = far.sge(0, 1);
        let grant = Grant::default();
        let with_memory = SendWr { grant: &raw const grant, ..request(opcode, &sge) };
        assert_eq!(far.qp.post_send(&with_memory).0, -libc::EINVAL);
    }
}

/// The message is rping's, and nothing else is one.
#[test]
fn advertisements_as_messages() {
    let (near, far) = connected();
    let memory = near.pd.allocate(None, 64, WARPLINE_ACCESS_REMOTE_READ).unwrap();
    let told = memory.advertisement(8, 16).unwrap();
    let message = encoded(&told);
    let expected = [&told.to.to_be_bytes()[..], &told.stag.to_be_bytes(), &[0, 0, 0, 16]].concat();
    assert_eq!(message[..], expected);
    near.put(0, &message);
    far.post_recv(1, 0, 64);
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, WARPLINE_ADVERTISEMENT_BYTES)));
    let bytes = far.completed().byte_len as usize;
    assert_eq!(decoded(&far.get(0, bytes)), Ok(told));
    assert_eq!(decoded(&far.get(0, bytes - 1)), Err(-libc::EINVAL));
    assert!(last_error().contains("15 bytes"), "{}", last_error());
}
