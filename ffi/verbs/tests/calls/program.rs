//! One call after the other, as the input says.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use warpline_verbs::abi::*;

use super::built;
use super::connections;
use super::input::Input;
use super::structures::{changed, number};
use super::world::{Kind, Posted, Window, World, do_not_wait};

/// Makes the call that comes next.
pub fn call(world: &mut World, input: &mut Input<'_>) {
    match input.below(32) {
        0 => make_domain(world, input),
        1 => make_memory(world, input),
        2 => make_queue(world, input),
        3 => make_shared_queue(world, input),
        4 => make_queue_pair(world, input),
        5..=12 => post_send(world, input),
        13..=16 => post_receive(world, input),
        17 | 18 => complete(world, input),
        19 => windows(world, input),
        20 => modify(world, input),
        21 => shared_queue(world, input),
        22 | 23 => connections::ids(world, input),
        24 => connections::endpoints(world, input),
        25 => ask(world, input),
        26 => unsupported(world, input),
        27 => end(world, input),
        28 | 29 => destroy(world, input),
        30 => connections::connect(world, Some(input)),
        _ => match input.below(3) {
            0 => names(input),
            1 => built::build(world, input),
            _ => built::poll(world, input),
        },
    }
}

/// Returns the functions behind the pointers of contexts.
fn ops(world: &World) -> ibv_context_ops {
    // SAFETY: there is always a context, which is good.
    unsafe { (*world.all::<ibv_context>(Kind::Context)[0]).ops }
}

/// Returns those of the larger structure, which begins in front of a context.
pub fn larger(world: &World) -> verbs_context {
    let context = world.all::<ibv_context>(Kind::Context)[0];
    let start = context.wrapping_byte_sub(std::mem::offset_of!(verbs_context, context));
    // SAFETY: as the header says of contexts whose `abi_compat` is all ones.
    unsafe { start.cast::<verbs_context>().read() }
}

fn make_domain(world: &mut World, input: &mut Input<'_>) {
    if input.octet() & 3 == 3 && world.has_room(Kind::Context) {
        // SAFETY: the list is the library's, and given back.
        unsafe {
            let list = ibv_get_device_list(null_mut());
            let context = world.record_pointer("ibv_open_device", ibv_open_device(*list));
            ibv_free_device_list(list);
            do_not_wait((*context).async_fd);
            world.add(Kind::Context, context);
        }
    }
    if world.has_room(Kind::Pd) {
        let context = world.any(Kind::Context, input);
        // SAFETY: the handle is good, or such that the library knows it for none.
        let pd = world.record_pointer("ibv_alloc_pd", unsafe { ibv_alloc_pd(context) });
        if !pd.is_null() {
            world.below.insert(pd.addr(), context.cast::<c_void>());
            world.add(Kind::Pd, pd);
        }
    }
}

/// Returns a Protection Domain: mostly that of a connection, which is the library's.
fn domain(world: &World, input: &mut Input<'_>) -> *mut ibv_pd {
    if input.octet() & 3 == 3 {
        return world.any(Kind::Pd, input);
    }
    let id: *mut rdma_cm_id = world.good(Kind::Id, input);
    // SAFETY: the handle is good.
    if id.is_null() { null_mut() } else { unsafe { (*id).pd } }
}

fn make_memory(world: &mut World, input: &mut Input<'_>) {
    if !world.has_room(Kind::Mr) {
        return;
    }
    let pd = domain(world, input);
    let len = usize::from(input.u16()) % 8192;
    let iova = match input.octet() & 3 {
        0 => Some(u64::from(input.u32()) << (input.octet() & 31)),
        _ => None,
    };
    let access = match input.octet() {
        choice if choice & 3 == 0 => number(input, choice.into()),
        choice if choice & 3 == 1 => IBV_ACCESS_LOCAL_WRITE | u32::from(choice >> 2),
        _ => connections::ALL_RIGHTS,
    };
    connections::register(world, pd, len, iova, access);
}

fn make_queue(world: &mut World, input: &mut Input<'_>) {
    let context = world.any(Kind::Context, input);
    if input.octet() & 3 == 0 && world.has_room(Kind::Channel) {
        // SAFETY: the handle is good, or such that the library knows it for none.
        let channel = unsafe { ibv_create_comp_channel(context) };
        if !world.record_pointer("ibv_create_comp_channel", channel).is_null() {
            // SAFETY: the handle is good.
            do_not_wait(unsafe { (*channel).fd });
            world.add(Kind::Channel, channel);
        }
    }
    if !world.has_room(Kind::Cq) {
        return;
    }
    let channel = match input.octet() & 3 {
        0 => null_mut(),
        _ => world.any(Kind::Channel, input),
    };
    let (cqe, vector) = (number(input, 64) as c_int, number(input, 0) as c_int);
    // SAFETY: the handles are good, or such that the library knows them for none.
    let cq = unsafe { ibv_create_cq(context, cqe.min(1 << 21), null_mut(), channel, vector) };
    if !world.record_pointer("ibv_create_cq", cq).is_null() {
        world.queues.insert(cq.addr(), (context, channel));
        world.add(Kind::Cq, cq);
    }
}

fn make_shared_queue(world: &mut World, input: &mut Input<'_>) {
    if !world.has_room(Kind::Srq) {
        return;
    }
    let pd = domain(world, input);
    // SAFETY: structures of numbers and pointers, which are set; the handle is good, or such that the library
    // knows it for none.
    let srq = unsafe {
        let mut attr: ibv_srq_init_attr = std::mem::zeroed();
        attr.attr.max_wr = number(input, 16).min(1 << 20);
        attr.attr.max_sge = number(input, 2);
        match input.octet() & 3 {
            0 => {
                let mut extended: ibv_srq_init_attr_ex = std::mem::zeroed();
                extended.attr = attr.attr;
                extended.pd = pd;
                extended.comp_mask = number(input, IBV_SRQ_INIT_ATTR_PD);
                extended.srq_type = number(input, IBV_SRQT_BASIC);
                let context = world.any(Kind::Context, input);
                let create = larger(world).create_srq_ex.expect("a function");
                world.record_pointer("ibv_create_srq_ex", create(context, &raw mut extended))
            }
            _ => world.record_pointer("ibv_create_srq", ibv_create_srq(pd, &raw mut attr)),
        }
    };
    if !srq.is_null() {
        world.below.insert(srq.addr(), pd.cast());
        world.shared_receives.insert(srq.addr(), std::collections::BTreeMap::new());
        world.add(Kind::Srq, srq);
        let mut number = 0;
        // SAFETY: the handle is good, and the place may be written.
        let result = unsafe { larger(world).get_srq_num.expect("a function")(srq, &raw mut number) };
        assert_eq!(world.record("ibv_get_srq_num", result), 0);
    }
}

fn make_queue_pair(world: &mut World, input: &mut Input<'_>) {
    if !world.has_room(Kind::Qp) {
        return;
    }
    let pd = domain(world, input);
    // SAFETY: structures of numbers and pointers, which are set; the handles are good, or such that the
    // library knows them for none.
    unsafe {
        let mut attr: ibv_qp_init_attr = std::mem::zeroed();
        attr.cap.max_send_wr = number(input, 8);
        attr.cap.max_recv_wr = number(input, 8);
        attr.cap.max_send_sge = number(input, 2);
        attr.cap.max_recv_sge = number(input, 2);
        attr.cap.max_inline_data = number(input, 200);
        attr.qp_type = number(input, IBV_QPT_RC);
        attr.sq_sig_all = number(input, 0) as c_int;
        (attr.send_cq, attr.recv_cq) = (world.any(Kind::Cq, input), world.any(Kind::Cq, input));
        if input.octet() & 3 == 3 {
            attr.srq = world.any(Kind::Srq, input);
        }
        let qp = if input.octet() & 1 == 0 {
            world.record_pointer("ibv_create_qp", ibv_create_qp(pd, &raw mut attr))
        } else {
            let plain: ibv_qp_init_attr_ex = std::mem::zeroed();
            let mut extended = plain;
            extended.comp_mask = number(input, IBV_QP_INIT_ATTR_PD);
            extended.send_ops_flags = number(input, 0).into();
            extended.create_flags = number(input, 0);
            (extended.cap, extended.qp_type, extended.sq_sig_all) = (attr.cap, attr.qp_type, attr.sq_sig_all);
            (extended.send_cq, extended.recv_cq, extended.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
            extended.pd = pd;
            let context = world.any(Kind::Context, input);
            let create = larger(world).create_qp_ex.expect("a function");
            world.record_pointer("ibv_create_qp_ex", create(context, &raw mut extended))
        };
        if !qp.is_null() {
            world.add_queue_pair(qp, null_mut(), attr.sq_sig_all != 0);
            ibv_qp_to_qp_ex(qp);
        }
    }
}

/// Returns a range of registered memory, by the key and the place that a peer uses; mostly a good one.
pub fn remote(world: &World, input: &mut Input<'_>) -> (u32, u64) {
    let choice = input.octet();
    if choice & 31 == 31 {
        return (input.u32(), input.u32().into());
    }
    if choice & 31 == 30 {
        let mw: *mut ibv_mw = world.good(Kind::Mw, input);
        // SAFETY: the handle is good.
        let key = if mw.is_null() { 0 } else { unsafe { (*mw).rkey } };
        return (key, near(world, input));
    }
    let mr: *mut ibv_mr = world.good(Kind::Mr, input);
    if mr.is_null() {
        return (0, 0);
    }
    let offset = u64::from(input.u16()) % 4096;
    // SAFETY: the handle is good.
    (unsafe { (*mr).rkey }, world.memory[&mr.addr()].to.wrapping_add(offset & !7))
}

/// Returns a place in memory of the program, or near to it.
pub fn near(world: &World, input: &mut Input<'_>) -> u64 {
    let mr: *mut ibv_mr = world.good(Kind::Mr, input);
    // SAFETY: the handle is good.
    let start = if mr.is_null() { 0 } else { unsafe { (*mr).addr.addr() } };
    start.wrapping_add_signed(input.i16().into()) as u64
}

/// Returns a local range; mostly a good one.
pub fn element(world: &World, input: &mut Input<'_>) -> ibv_sge {
    let mr: *mut ibv_mr = world.good(Kind::Mr, input);
    if mr.is_null() {
        return ibv_sge { addr: 0, length: input.u32(), lkey: 0 };
    }
    let memory = &world.memory[&mr.addr()];
    let len = memory.block.len() as u32;
    let offset = u32::from(input.u16()) % (len + 1);
    let most = u32::from(input.u16()) % 2048;
    // SAFETY: the handle is good.
    let lkey = unsafe { (*mr).lkey };
    let mut element =
        ibv_sge { addr: memory.to.wrapping_add(offset.into()), length: most.min(len - offset), lkey };
    match input.octet() {
        0 => element.length = number(input, len),
        1 => element.lkey = input.u32(),
        2 => element.addr = near(world, input),
        3 => element.length = 8,
        _ => {}
    }
    element
}

/// Returns elements, and how many the program says that there are: mostly as many, never more of those that
/// the library reads.
pub fn elements(world: &World, input: &mut Input<'_>) -> (Vec<ibv_sge>, c_int) {
    let count = match input.octet() {
        choice @ 0..=250 => usize::from(choice) % 5,
        _ => return (Vec::new(), [-1, c_int::MIN, 5, 64, c_int::MAX][input.below(5)]),
    };
    let list: Vec<_> = (0..count).map(|_| element(world, input)).collect();
    (list, count as c_int)
}

/// Data that is sent inline.
pub static INLINE: [u8; 512] = [0x3c; 512];

/// Posts a list of sends, of which any may be bad.
fn post_send(world: &mut World, input: &mut Input<'_>) {
    let qp: *mut ibv_qp = world.any(Kind::Qp, input);
    let count = match input.octet() {
        choice @ 0..=250 => 1 + usize::from(choice) % 3,
        choice => usize::from(choice - 250) * 12,
    };
    let mut lists = Vec::new();
    let mut requests: Vec<ibv_send_wr> = Vec::new();
    for _ in 0..count {
        let (request, list) = send_request(world, input);
        requests.push(request);
        lists.push(list);
    }
    for (request, list) in requests.iter_mut().zip(&mut lists) {
        request.sg_list = if list.is_empty() { null_mut() } else { list.as_mut_ptr() };
    }
    let first = requests.as_mut_ptr();
    for place in 1..count {
        requests[place - 1].next = first.wrapping_add(place);
    }
    let mut bad = null_mut();
    // SAFETY: the handle is good, or such that the library knows it for none; the list is whole.
    let result = unsafe { ops(world).post_send.expect("a function")(qp, first, &raw mut bad) };
    world.record("ibv_post_send", result);
    let posted = match result {
        0 => count,
        // SAFETY: both are in the list.
        _ => unsafe { usize::try_from(bad.offset_from(first)).expect("it is in the list") },
    };
    assert!(posted < count || result == 0, "one that was not posted is named");
    let Some(model) = world.queue_pairs.get_mut(&qp.addr()) else {
        return assert_eq!((result, posted), (libc::EINVAL, 0), "posted on no queue pair");
    };
    for request in &requests[..posted] {
        let signaled = model.signals_all || request.send_flags & IBV_SEND_SIGNALED != 0;
        model.sends.insert(request.wr_id, Posted { signaled, is_bind: false });
    }
}

fn send_request(world: &mut World, input: &mut Input<'_>) -> (ibv_send_wr, Vec<ibv_sge>) {
    let usual = [
        IBV_WR_SEND,
        IBV_WR_SEND,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_READ,
        IBV_WR_RDMA_READ,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_LOCAL_INV,
    ];
    let usual = usual[input.below(usual.len())];
    let opcode = if input.octet() & 31 == 31 { number(input, IBV_WR_BIND_MW) } else { usual };
    let flags = input.octet();
    let mut send_flags = u32::from(flags) & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    if flags & 0xf0 == 0xf0 {
        send_flags = number(input, send_flags);
    }
    let is_atomic = matches!(opcode, IBV_WR_ATOMIC_FETCH_AND_ADD | IBV_WR_ATOMIC_CMP_AND_SWP);
    let (mut list, mut num_sge) = match opcode {
        IBV_WR_RDMA_READ if flags & 0x30 != 0 => (vec![element(world, input)], 1),
        _ if is_atomic && flags & 0x30 != 0 => {
            let element = ibv_sge { length: 8, ..element(world, input) };
            (vec![element], 1)
        }
        IBV_WR_SEND_WITH_IMM | IBV_WR_LOCAL_INV if flags & 0x30 != 0 => (Vec::new(), 0),
        _ => elements(world, input),
    };
    if flags & 0x60 == 0x60 {
        send_flags |= IBV_SEND_INLINE;
    }
    if send_flags & IBV_SEND_INLINE != 0 {
        // It is read at once: from memory that is there, unless it is more than fits.
        for element in &mut list {
            let place = input.below(INLINE.len() - 255);
            let (start, len) = (INLINE[place..].as_ptr(), u32::from(input.octet()));
            (element.addr, element.length) = (start.expose_provenance() as u64, len);
            if len == 0xff {
                (element.addr, element.length) = (8, u32::MAX - u32::from(input.octet()));
            }
        }
        num_sge = list.len() as c_int;
    }
    let (key, to) = remote(world, input);
    // SAFETY: a structure of numbers and pointers.
    let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
    (request.wr_id, request.num_sge) = (world.wr_id(), num_sge);
    (request.opcode, request.send_flags) = (opcode, send_flags);
    if is_atomic {
        request.wr.atomic.remote_addr = to;
        request.wr.atomic.rkey = key;
        request.wr.atomic.compare_add = input.octet().into();
        request.wr.atomic.swap = input.octet().into();
    } else {
        request.wr.rdma.remote_addr = to;
        request.wr.rdma.rkey = key;
        request.__bindgen_anon_1.invalidate_rkey = key;
    }
    (request, list)
}

/// Posts a list of receives, on a queue pair or a shared queue.
fn post_receive(world: &mut World, input: &mut Input<'_>) {
    let count = match input.octet() {
        choice @ 0..=250 => 1 + usize::from(choice) % 4,
        choice => usize::from(choice - 250) * 12,
    };
    let mut lists = Vec::new();
    // SAFETY: a structure of numbers and pointers.
    let mut requests: Vec<ibv_recv_wr> = vec![unsafe { std::mem::zeroed() }; count];
    let first = requests.as_mut_ptr();
    for (place, request) in requests.iter_mut().enumerate() {
        let (mut list, num_sge) = elements(world, input);
        (request.wr_id, request.num_sge) = (world.wr_id(), num_sge);
        request.sg_list = if list.is_empty() { null_mut() } else { list.as_mut_ptr() };
        request.next = if place + 1 < count { first.wrapping_add(place + 1) } else { null_mut() };
        lists.push(list);
    }
    let mut bad = null_mut();
    let is_shared = input.octet() & 3 == 3;
    let (qp, srq): (*mut ibv_qp, *mut ibv_srq) = (world.any(Kind::Qp, input), world.any(Kind::Srq, input));
    // SAFETY: the handle is good, or such that the library knows it for none; the list is whole.
    let (name, result) = unsafe {
        if is_shared {
            let post = ops(world).post_srq_recv.expect("a function");
            ("ibv_post_srq_recv", post(srq, first, &raw mut bad))
        } else {
            ("ibv_post_recv", ops(world).post_recv.expect("a function")(qp, first, &raw mut bad))
        }
    };
    world.record(name, result);
    let posted = match result {
        0 => count,
        // SAFETY: both are in the list.
        _ => unsafe { usize::try_from(bad.offset_from(first)).expect("it is in the list") },
    };
    assert!(posted < count || result == 0, "one that was not posted is named");
    let receives = if is_shared {
        world.shared_receives.get_mut(&srq.addr())
    } else {
        world.queue_pairs.get_mut(&qp.addr()).map(|model| &mut model.receives)
    };
    let Some(receives) = receives else {
        return assert_eq!((result, posted), (libc::EINVAL, 0), "posted on no queue");
    };
    for (request, list) in requests.iter().zip(&lists).take(posted) {
        receives.insert(request.wr_id, list.iter().map(|element| u64::from(element.length)).sum());
    }
}

/// Polls, arms, and takes events.
fn complete(world: &mut World, input: &mut Input<'_>) {
    let cq: *mut ibv_cq = world.any(Kind::Cq, input);
    // SAFETY: the handles are good, or such that the library knows them for none; the places may be written.
    unsafe {
        match input.below(6) {
            0 => {
                let mut place: ibv_wc = std::mem::zeroed();
                let room = c_int::from(!world.is(Kind::Cq, cq));
                let polled = ops(world).poll_cq.expect("a function")(cq, room, &raw mut place);
                assert_eq!(polled, if room == 0 { 0 } else { -1 });
            }
            1 => {
                let arm = ops(world).req_notify_cq.expect("a function");
                world.record("ibv_req_notify_cq", arm(cq, number(input, 0) as c_int));
            }
            2 => {
                world.record("ibv_resize_cq", ibv_resize_cq(cq, number(input, 64) as c_int));
            }
            3 => {
                let channel = world.any(Kind::Channel, input);
                let (mut cq, mut context) = (null_mut(), null_mut());
                let result = ibv_get_cq_event(channel, &raw mut cq, &raw mut context);
                if world.record_minus_one("ibv_get_cq_event", result) == 0 {
                    assert!(world.is(Kind::Cq, cq));
                    ibv_ack_cq_events(cq, 1);
                }
            }
            4 => {
                let context = world.any(Kind::Context, input);
                let mut event = std::mem::zeroed();
                let result = ibv_get_async_event(context, &raw mut event);
                if world.record_minus_one("ibv_get_async_event", result) == 0 {
                    ibv_ack_async_event(&raw mut event);
                }
            }
            _ => _ = world.poll_all(),
        }
    }
}

fn windows(world: &mut World, input: &mut Input<'_>) {
    if input.octet() & 3 == 0 && world.has_room(Kind::Mw) {
        let pd = domain(world, input);
        let kind = number(input, IBV_MW_TYPE_1);
        // SAFETY: the handle is good, or such that the library knows it for none.
        let mw = unsafe { ops(world).alloc_mw.expect("a function")(pd, kind) };
        if !world.record_pointer("ibv_alloc_mw", mw).is_null() {
            world.windows.insert(mw.addr(), Window { pd, mr: null_mut() });
            world.add(Kind::Mw, mw);
        }
    }
    let (qp, mw, mr): (*mut ibv_qp, *mut ibv_mw, *mut ibv_mr) =
        (world.any(Kind::Qp, input), world.any(Kind::Mw, input), world.any(Kind::Mr, input));
    // SAFETY: structures of numbers and pointers, which are set; the handles are good, or such that the
    // library knows them for none.
    unsafe {
        let mut bind: ibv_mw_bind = std::mem::zeroed();
        bind.wr_id = world.wr_id();
        bind.send_flags = number(input, IBV_SEND_SIGNALED);
        bind.bind_info.mr = mr;
        bind.bind_info.addr = near(world, input);
        if let Some(memory) = world.memory.get(&mr.addr()).filter(|_| input.octet() & 3 != 0) {
            bind.bind_info.addr = memory.to;
        }
        let length = u32::from(input.octet());
        bind.bind_info.length = number(input, length).into();
        bind.bind_info.mw_access_flags = number(input, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        let result = ops(world).bind_mw.expect("a function")(qp, mw, &raw mut bind);
        world.record("ibv_bind_mw", result);
        if let (0, Some(window)) = (result, world.windows.get_mut(&mw.addr())) {
            window.mr = mr;
        }
        if let (0, Some(model)) = (result, world.queue_pairs.get_mut(&qp.addr())) {
            let signaled = model.signals_all || bind.send_flags & IBV_SEND_SIGNALED != 0;
            model.sends.insert(bind.wr_id, Posted { signaled, is_bind: true });
        }
    }
}

fn modify(world: &mut World, input: &mut Input<'_>) {
    let qp = world.any(Kind::Qp, input);
    // SAFETY: structures of numbers and pointers; the handle is good, or such that the library knows it for
    // none.
    unsafe {
        let mut attr: ibv_qp_attr = changed(input, std::mem::zeroed());
        let state = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_RESET][input.below(4)];
        // Few end the connection.
        attr.qp_state = if input.octet() & 15 == 15 { number(input, IBV_QPS_SQD) } else { state };
        let mask = number(input, IBV_QP_STATE) as c_int;
        let place = if input.octet() & 15 == 15 { null_mut() } else { &raw mut attr };
        world.record("ibv_modify_qp", ibv_modify_qp(qp, place, mask));
        let mut init_attr = std::mem::zeroed();
        world.record("ibv_query_qp", ibv_query_qp(qp, &raw mut attr, mask, &raw mut init_attr));
        ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0);
    }
}

fn shared_queue(world: &mut World, input: &mut Input<'_>) {
    let srq = world.any(Kind::Srq, input);
    // SAFETY: a structure of numbers; the handle is good, or such that the library knows it for none.
    unsafe {
        let mut attr: ibv_srq_attr = std::mem::zeroed();
        attr.srq_limit = number(input, 3);
        let mask = number(input, IBV_SRQ_LIMIT) as c_int;
        let place = if input.octet() & 15 == 15 { null_mut() } else { &raw mut attr };
        world.record("ibv_modify_srq", ibv_modify_srq(srq, place, mask));
        world.record("ibv_query_srq", ibv_query_srq(srq, &raw mut attr));
    }
}

/// Asks about the device.
fn ask(world: &mut World, input: &mut Input<'_>) {
    let context: *mut ibv_context = world.any(Kind::Context, input);
    let (port, index) = (number(input, 1) as u8, number(input, 0) as c_int);
    // SAFETY: the handle is good, or such that the library knows it for none; the places may be written.
    unsafe {
        match input.below(8) {
            0 => {
                let mut attr = std::mem::zeroed();
                world.record("ibv_query_device", ibv_query_device(context, &raw mut attr));
            }
            1 => {
                let mut attr: ibv_port_attr = std::mem::zeroed();
                world.record("ibv_query_port", ibv_query_port(context, port, (&raw mut attr).cast()));
            }
            2 => {
                let mut attr: ibv_device_attr_ex = std::mem::zeroed();
                let size = usize::from(input.u16()) % (size_of::<ibv_device_attr_ex>() + 1);
                let query = larger(world).query_device_ex.expect("a function");
                let result = query(context, std::ptr::null(), &raw mut attr, size);
                world.record("ibv_query_device_ex", result);
            }
            3 => {
                let mut gid = std::mem::zeroed();
                let result = ibv_query_gid(context, port, index, &raw mut gid);
                world.record_minus_one("ibv_query_gid", result);
            }
            4 => {
                let mut pkey = 0;
                let result = ibv_query_pkey(context, port, index, &raw mut pkey);
                world.record_minus_one("ibv_query_pkey", result);
                ibv_get_pkey_index(context, port, pkey);
            }
            5 => {
                let mut entry: ibv_gid_entry = std::mem::zeroed();
                let size = usize::from(input.octet()) % (size_of::<ibv_gid_entry>() + 1);
                let result = _ibv_query_gid_ex(context, port.into(), index as u32, &raw mut entry, 0, size);
                world.record("ibv_query_gid_ex", result);
                let table = _ibv_query_gid_table(context, &raw mut entry, input.below(2), 0, size);
                assert!(table == 1 || table == -(libc::EINVAL as isize));
            }
            6 => {
                let mut count = 0;
                let list = rdma_get_devices(&raw mut count);
                assert_eq!(count, 1);
                rdma_free_devices(list);
            }
            _ => {
                let list = ibv_get_device_list(null_mut());
                let device = *list;
                assert!(!ibv_get_device_name(device).is_null() && ibv_get_device_name(null_mut()).is_null());
                ibv_get_device_guid(device);
                ibv_get_device_index(device);
                ibv_free_device_list(list);
            }
        }
    }
}

/// What iWARP has not: an error each.
fn unsupported(world: &mut World, input: &mut Input<'_>) {
    let qp: *mut ibv_qp = world.any(Kind::Qp, input);
    let (pd, mr): (*mut ibv_pd, *mut ibv_mr) = (world.any(Kind::Pd, input), world.any(Kind::Mr, input));
    let context: *mut ibv_context = world.any(Kind::Context, input);
    let id: *mut rdma_cm_id = world.any(Kind::Id, input);
    // SAFETY: the handles are good, or such that the library knows them for none; nothing else is read.
    unsafe {
        let results = [
            ibv_create_ah(pd, null_mut()).is_null(),
            ibv_create_ah_from_wc(pd, null_mut(), null_mut(), 1).is_null(),
            ibv_init_ah_from_wc(context, 1, null_mut(), null_mut(), null_mut()) == -1,
            ibv_destroy_ah(null_mut()) == libc::EINVAL,
            ibv_attach_mcast(qp, std::ptr::null(), 0) == libc::EOPNOTSUPP,
            ibv_detach_mcast(qp, std::ptr::null(), 0) == libc::EOPNOTSUPP,
            ibv_reg_dmabuf_mr(pd, 0, 1, 0, 0, 0).is_null(),
            ibv_rereg_mr(mr, 0, pd, null_mut(), 0, 0) == -1,
            ibv_import_device(0).is_null(),
            ibv_import_pd(context, 0).is_null(),
            ibv_import_mr(pd, 0).is_null(),
            ibv_import_dm(context, 0).is_null(),
            ibv_set_ece(qp, null_mut()) == libc::EOPNOTSUPP,
            ibv_query_ece(qp, null_mut()) == libc::EOPNOTSUPP,
            ibv_resolve_eth_l2_from_gid(context, null_mut(), null_mut(), null_mut()) == -1,
            rdma_join_multicast(id, null_mut(), null_mut()) == -1,
            rdma_join_multicast_ex(id, null_mut(), null_mut()) == -1,
            rdma_leave_multicast(id, null_mut()) == -1,
            rdma_set_local_ece(id, null_mut()) == -1,
            rdma_get_remote_ece(id, null_mut()) == -1,
            rdma_reject_ece(id, std::ptr::null(), 0) == -1,
        ];
        assert_eq!(results, [true; 21]);
        ibv_unimport_pd(pd);
        ibv_unimport_mr(mr);
        ibv_unimport_dm(null_mut());
        assert_eq!(ibv_fork_init(), 0);
        ibv_is_fork_initialized();
    }
}

/// Ends a connection, in one way or another.
fn end(world: &mut World, input: &mut Input<'_>) {
    let id: *mut rdma_cm_id = world.good(Kind::Id, input);
    if !id.is_null() && input.octet() & 1 == 0 {
        // SAFETY: the handle is good.
        let result = unsafe { rdma_disconnect(id) };
        world.record_minus_one("rdma_disconnect", result);
    }
    world.poll_all();
}

fn destroy(world: &mut World, input: &mut Input<'_>) {
    let kinds =
        [Kind::Context, Kind::Pd, Kind::Mr, Kind::Mw, Kind::Cq, Kind::Channel, Kind::Srq, Kind::Qp, Kind::Id];
    let kind = kinds[input.below(kinds.len())];
    let handle: *mut c_void = world.any(kind, input);
    // There is always one, for the functions behind its pointers.
    if kind != Kind::Context || world.all::<c_void>(kind).first() != Some(&handle) {
        world.destroy(kind, handle);
    }
}

/// Words for numbers, and numbers for numbers.
fn names(input: &mut Input<'_>) {
    let usual = u32::from(input.octet() & 31);
    let any = number(input, usual);
    // SAFETY: the functions take numbers, and return strings that stay.
    unsafe {
        for text in [
            ibv_wc_status_str(any),
            ibv_event_type_str(any),
            ibv_node_type_str(any as i32),
            ibv_port_state_str(any),
            rdma_event_str(any),
        ] {
            assert!(std::ffi::CStr::from_ptr(text).to_str().is_ok_and(|text| !text.is_empty()));
        }
        ibv_rate_to_mbps(any);
        ibv_rate_to_mult(any);
        mbps_to_ibv_rate(any as c_int);
        mult_to_ibv_rate(any as c_int);
    }
}
