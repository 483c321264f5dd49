//! What work does that C posts.

use std::ptr::null;

use super::ends::*;
use super::handles::*;
use crate::completion::*;
use crate::extensible::Flag;
use crate::memory::*;
use crate::queue_pair::*;
use crate::work::*;

/// From the first call to the last, Private Data both ways, and the orderly end.
#[test]
fn a_connection_from_its_begin_to_its_end() {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(&near_device), End::new(&far_device));
    assert_eq!(near.qp.state(), WARPLINE_QP_IDLE);
    let reply = connect(&far_device, &near, &far);
    assert_eq!(&reply.private_data[..reply.private_data_len as usize], b"come in");
    assert!(reply.ird > 0 && reply.ord > 0 && reply.ird < u16::MAX);
    assert_eq!(near.qp.state(), WARPLINE_QP_READY_TO_SEND);

    far.post_recv(7, 100, 64);
    near.put(0, b"hello, rust");
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, 11)));
    let wc = near.completed();
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len, wc.flags), (1000, WARPLINE_WC_SEND, 11, 0));
    assert_eq!(wc.qp_number, near.qp.number());
    let wc = far.completed();
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len, wc.flags), (7, WARPLINE_WC_RECEIVE, 11, 0));
    assert_eq!(far.get(100, 12), b"hello, rust\0");

    assert_eq!(near.qp.wait_closed(0), -libc::ETIMEDOUT);
    assert_eq!(near.qp.disconnect(), 0);
    for end in [&near, &far] {
        assert_eq!(end.qp.wait_closed(PATIENCE), 0, "{}", last_error());
        assert_eq!(end.qp.state(), WARPLINE_QP_ERROR);
    }
}

/// A queue pair that is to stay open still sends when its peer has closed, until it closes too.
#[test]
fn halves_close_one_by_one() {
    let (near_device, far_device) = devices();
    let (near, mut far) = (End::new(&near_device), End::new(&far_device));
    let attr = QpAttr { keep_open: Flag::SET, ..QP_ATTR };
    far.qp = far.pd.qp(&far.cq, None, Some(&attr));
    connect(&far_device, &near, &far);
    near.post_recv(1, 100, 64);
    far.post_recv(2, 100, 64);
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, 1)));
    far.completed();
    assert_eq!(far.qp.wait_peer_closed(0), -libc::ETIMEDOUT);
    assert_eq!((near.qp.disconnect(), far.qp.wait_peer_closed(PATIENCE)), (0, 0));
    far.put(0, b"still here");
    far.post_send(&request(WARPLINE_WR_SEND, &far.sge(0, 10)));
    let mut seen = [near.completed().opcode, near.completed().opcode];
    seen.sort_unstable();
    assert_eq!(seen, [WARPLINE_WC_SEND, WARPLINE_WC_RECEIVE]);
    assert_eq!(near.get(100, 11), b"still here\0");
    assert_eq!(near.qp.wait_closed(0), -libc::ETIMEDOUT);
    assert_eq!(far.qp.disconnect(), 0);
    for end in [&near, &far] {
        assert_eq!(end.qp.wait_closed(PATIENCE), 0, "{}", last_error());
    }
}

/// A queue pair and completion queues that one thread uses at a time do the same without a lock, on another
/// thread too.
#[test]
fn one_thread_needs_no_lock() {
    let (near_device, far_device) = devices();
    let (mut near, far) = (End::new(&near_device), End::new(&far_device));
    near.cq = Handle::with(&CqAttr { sleepable: Flag::SET, single_threaded: Flag::SET, ..CQ_ATTR }).unwrap();
    near.qp = near.pd.qp(&near.cq, None, Some(&QpAttr { single_threaded: Flag::SET, ..QP_ATTR }));
    connect(&far_device, &near, &far);
    far.post_recv(7, 0, 64);
    far.post_recv(8, 64, 64);
    let send = |near: &End, text: &[u8]| {
        near.put(0, text);
        near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, text.len() as u32)));
        assert_eq!(near.completed().opcode, WARPLINE_WC_SEND);
    };
    send(&near, b"from here");
    std::thread::scope(|scope| scope.spawn(|| send(&near, b"and there")).join().unwrap());
    assert_eq!([far.completed().wr_id, far.completed().wr_id], [7, 8]);
    assert_eq!((far.get(0, 9), far.get(64, 9)), (b"from here".to_vec(), b"and there".to_vec()));
    let mut none = [Wc::default()];
    assert_eq!((near.cq.poll(&mut none), near.cq.arm(false)), (0, 0));
}

/// Every opcode does what the header says, and the bytes show it.
#[test]
fn every_operation() {
    let (near, far) = connected();
    let peer = far.sge(0, 0);
    let to = |offset, mut wr: SendWr| {
        (wr.remote_stag, wr.remote_addr) = (peer.stag, far.addr(offset));
        wr
    };
    let run = |wr: &SendWr, opcode, bytes| {
        near.post_send(wr);
        let wc = near.completed();
        assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (wr.wr_id, opcode, bytes));
    };

    near.put(0, b"abcdefgh");
    let two = [near.sge(0, 3), near.sge(5, 3)];
    let write = SendWr { num_sge: 2, ..to(8, request(WARPLINE_WR_WRITE, &two[0])) };
    run(&write, WARPLINE_WC_WRITE, 6);
    // A Read comes after the Write: what it brings shows that the Write is done.
    let sink = near.sge(64, 8);
    run(&to(7, request(WARPLINE_WR_READ, &sink)), WARPLINE_WC_READ, 8);
    assert_eq!(near.get(64, 8), b"\0abcfgh\0");

    let value = |number: u64| far.put(512, &number.to_ne_bytes());
    let result = |end: &End, offset| u64::from_ne_bytes(end.get(offset, 8).try_into().unwrap());
    let old = near.sge(256, 8);
    let atomic = |opcode, compare_add, swap, masks: (u64, u64), before, after| {
        value(before);
        let (compare_add_mask, swap_mask) = masks;
        let wr = SendWr { compare_add, swap, compare_add_mask, swap_mask, ..to(512, request(opcode, &old)) };
        let kind = match opcode {
            WARPLINE_WR_FETCH_ADD | WARPLINE_WR_MASKED_FETCH_ADD => WARPLINE_WC_FETCH_ADD,
            _ => WARPLINE_WC_COMPARE_SWAP,
        };
        run(&wr, kind, 8);
        assert_eq!((result(&near, 256), result(&far, 512)), (before, after), "opcode {opcode}");
    };
    atomic(WARPLINE_WR_FETCH_ADD, 5, 0, (0, 0), 40, 45);
    atomic(WARPLINE_WR_MASKED_FETCH_ADD, 0x01, 0, (0x80, 0), 0xff, 0x00);
    atomic(WARPLINE_WR_COMPARE_SWAP, 40, 41, (0, 0), 40, 41);
    atomic(WARPLINE_WR_COMPARE_SWAP, 40, 41, (0, 0), 42, 42);
    atomic(WARPLINE_WR_MASKED_COMPARE_SWAP, 0x0f, 0xffff, (0x0f, 0xf0), 0x3f, 0xff);
    atomic(WARPLINE_WR_SWAP, 0, 77, (0, 0), 6, 77);
}

/// Immediate Data alone and after a Write; a fenced Send; flags as asked for.
#[test]
fn immediate_data() {
    let (near, far) = connected();
    for wr_id in 1..=3 {
        far.post_recv(wr_id, 0, 64);
    }
    near.put(0, b"xyz");
    let sge = near.sge(0, 3);
    let alone = SendWr {
        num_sge: 0,
        sg_list: null(),
        immediate: 0x0123_4567_89ab_cdef,
        flags: WARPLINE_SEND_SIGNALED | WARPLINE_SEND_SOLICITED,
        ..request(WARPLINE_WR_IMMEDIATE, &sge)
    };
    let after_write = SendWr {
        next: &raw const alone,
        immediate: 9,
        remote_stag: far.sge(0, 0).stag,
        remote_addr: far.addr(2000),
        ..request(WARPLINE_WR_WRITE_WITH_IMMEDIATE, &sge)
    };
    near.post_send(&after_write);
    let fenced = WARPLINE_SEND_SIGNALED | WARPLINE_SEND_FENCE;
    near.post_send(&SendWr { flags: fenced, ..request(WARPLINE_WR_SEND, &sge) });
    let seen = |wc: Wc| (wc.wr_id, wc.byte_len, wc.flags, wc.immediate);
    let with = WARPLINE_WC_WITH_IMMEDIATE;
    let first = far.completed();
    assert_eq!((first.wr_id, first.flags, first.immediate), (1, with, 9));
    assert_eq!(far.get(1999, 5), b"\0xyz\0", "the Write came before its Immediate Data");
    let second = far.completed();
    assert_eq!(
        (second.wr_id, second.flags, second.immediate),
        (2, with | WARPLINE_WC_SOLICITED, 0x0123_4567_89ab_cdef)
    );
    assert_eq!(seen(far.completed()), (3, 3, 0, 0));
    let kinds: Vec<u32> = (0..3).map(|_| near.completed().opcode).collect();
    assert_eq!(kinds, [WARPLINE_WC_WRITE, WARPLINE_WC_SEND, WARPLINE_WC_SEND]);
}

/// What is inline is copied when it is posted, from memory that nobody registered.
#[test]
fn inline_bytes_are_those_of_the_time_of_posting() {
    let (near, far) = connected();
    far.post_recv(1, 0, 64);
    far.post_recv(2, 0, 64);
    let mut bytes = *b"as posted";
    let range = |bytes: &[u8]| Sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, stag: 0 };
    let two = [range(&bytes[..3]), range(&bytes[3..])];
    let flags = WARPLINE_SEND_INLINE;
    near.post_send(&SendWr { num_sge: 2, flags, ..request(WARPLINE_WR_SEND, &two[0]) });
    bytes.fill(b'!');
    assert_eq!(far.completed().byte_len, 9);
    assert_eq!(far.get(0, 9), b"as posted");
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, 1)));
    assert_eq!(near.completed().wr_id, 1000, "the first was not signaled");
}

/// Memory for one queue pair can be invalidated by its peer, and is deregistered all the same.
// Requirements: RDMAP-8.1.1-02
#[test]
fn a_peer_invalidates_what_is_for_it_alone() {
    let (near, far) = connected();
    let mr = far.pd.allocate(Some(&far.qp), 64, WARPLINE_ACCESS_REMOTE_READ).unwrap();
    let stag = mr.stag();
    far.post_recv(1, 0, 64);
    let sge = near.sge(0, 3);
    let remote_addr = mr.address() as u64;
    let read = SendWr { remote_stag: stag, remote_addr, ..request(WARPLINE_WR_READ, &sge) };
    near.post_send(&read);
    assert_eq!(near.completed().opcode, WARPLINE_WC_READ, "it may be read before");
    near.post_send(&SendWr { remote_stag: stag, ..request(WARPLINE_WR_SEND_WITH_INVALIDATE, &sge) });
    let wc = far.completed();
    assert_eq!((wc.flags, wc.invalidated_stag), (WARPLINE_WC_WITH_INVALIDATE, stag));
    assert_eq!(near.completed().opcode, WARPLINE_WC_SEND);
    near.post_send(&read);
    assert_eq!(near.wc().status, 10, "remote access");
    mr.deregister(PATIENCE).unwrap();
}

/// What this end takes back itself is out of reach too.
#[test]
fn local_invalidate() {
    let (near, far) = connected();
    let mr = near.pd.allocate(None, 64, 0).unwrap();
    let stag = mr.stag();
    let range = Sge { addr: mr.address() as u64, length: 4, stag };
    far.post_recv(1, 0, 64);
    near.post_send(&request(WARPLINE_WR_SEND, &range));
    near.completed();
    let invalidate = SendWr {
        num_sge: 0,
        sg_list: null(),
        remote_stag: stag,
        ..request(WARPLINE_WR_LOCAL_INVALIDATE, &range)
    };
    near.post_send(&invalidate);
    assert_eq!(near.completed().opcode, WARPLINE_WC_LOCAL_INVALIDATE);
    near.post_send(&request(WARPLINE_WR_SEND, &range));
    assert_eq!(near.wc().status, 4, "local protection");
    mr.deregister(PATIENCE).unwrap();
}

/// Memory of the caller's own is reached where it lies, by the Tagged Offsets that it was given, and by
/// nobody once it is deregistered.
#[test]
fn the_callers_own_memory() {
    let (near, far) = connected();
    let mut own = vec![0_u8; 256];
    let (start, bytes) = (own.as_mut_ptr(), own.len());
    let access = WARPLINE_ACCESS_REMOTE_WRITE;
    // SAFETY: it stays until it is deregistered.
    let memories = unsafe {
        [
            (far.pd.register(start, bytes, access | WARPLINE_ACCESS_ZERO_BASED), 0),
            (far.pd.register_at(start, bytes, 1 << 50, access), 1 << 50),
            (far.pd.register(start, bytes, access), start as u64),
        ]
    };
    near.put(0, b"there");
    let sge = near.sge(0, 5);
    for (place, (mr, to)) in (10..).step_by(20).zip(memories) {
        let mr = mr.unwrap();
        assert_eq!((mr.address(), mr.len(), mr.is_copied()), (start, 256, true));
        let (remote_stag, remote_addr) = (mr.stag(), to + place);
        near.post_send(&SendWr { remote_stag, remote_addr, ..request(WARPLINE_WR_WRITE, &sge) });
        near.completed();
        // The Send after the Write says that it is placed.
        far.post_recv(1, 0, 64);
        near.post_send(&request(WARPLINE_WR_SEND, &sge));
        far.completed();
        mr.deregister(PATIENCE).unwrap();
    }
    for place in [10, 30, 50] {
        assert_eq!(&own[place - 1..place + 6], b"\0there\0");
    }
}

/// A shared receive queue serves the queue pair, and says when it runs short.
#[test]
fn shared_receives() {
    use crate::event::*;

    let (near_device, far_device) = devices();
    let near = End::new(&near_device);
    let pd = far_device.pd();
    let srq = pd.srq(16);
    let far = End::of(pd, Some(&srq));
    let (first, second) = (far.sge(0, 64), far.sge(64, 64));
    let last = receive(6, &second);
    let list = RecvWr { next: &raw const last, ..receive(5, &first) };
    let refused = (-libc::EINVAL, &raw const list);
    assert_eq!(far.qp.post_recv(&list), refused, "they are posted to the shared queue");
    assert_eq!((srq.post(&list), srq.arm_limit(2)), (0, 0));
    connect(&far_device, &near, &far);
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(0, 1)));
    let wc = far.completed();
    assert_eq!((wc.wr_id, wc.qp_number), (5, far.qp.number()));
    let event = loop {
        let event = far_device.event(PATIENCE).expect("the event");
        if event.event == WARPLINE_EVENT_SRQ_LIMIT {
            break event;
        }
    };
    assert_eq!(event.number, srq.number());
}
