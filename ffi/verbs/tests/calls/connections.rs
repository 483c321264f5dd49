//! Ids, and connections between queue pairs of the device.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use warpline_verbs::abi::*;

use super::input::Input;
use super::structures::{Address, Block, changed, number};
use super::world::{Kind, Memory, PATIENCE, World};

/// How long a connection with arbitrary parameters may take before the program gives up.
const SHORT_PATIENCE: Duration = Duration::from_millis(50);
const DEPTH: u32 = 16;

/// Returns the newest handle of a kind, which there is.
fn newest<T>(world: &World, kind: Kind) -> *mut T {
    world.all(kind).pop().unwrap_or(null_mut())
}

/// Makes what a queue pair of `id` needs, where the program has none of it yet, and the queue pair.
fn prepare(world: &mut World, id: *mut rdma_cm_id, input: Option<&mut Input<'_>>) {
    // SAFETY: the id is good, the structures are of numbers and pointers, and the places may be written.
    unsafe {
        // Regions of ids are made on their own Protection Domain, which is the library's.
        let pd = (*id).pd;
        if world.all::<ibv_cq>(Kind::Cq).is_empty() {
            let context = (*id).verbs;
            let cq = ibv_create_cq(context, 64, null_mut(), null_mut(), 0);
            assert!(!cq.is_null());
            world.queues.insert(cq.addr(), (context, null_mut()));
            world.add(Kind::Cq, cq);
        }
        let mut attr: ibv_qp_init_attr = std::mem::zeroed();
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (DEPTH, DEPTH);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data) = (4, 4, 256);
        attr.send_cq = newest(world, Kind::Cq);
        attr.recv_cq = attr.send_cq;
        let mut is_extended = false;
        if let Some(input) = input {
            let choice = input.octet();
            attr.sq_sig_all = (choice & 1).into();
            is_extended = choice & 2 != 0;
            if input.octet() & 7 == 7 {
                // Queues of the id's own.
                (attr.send_cq, attr.recv_cq) = (null_mut(), null_mut());
            }
            if input.octet() & 3 == 3 {
                attr.srq = world.good(Kind::Srq, input);
            }
        }
        let (name, made) = if is_extended {
            let mut extended: ibv_qp_init_attr_ex = std::mem::zeroed();
            (extended.cap, extended.sq_sig_all) = (attr.cap, attr.sq_sig_all);
            (extended.send_cq, extended.recv_cq, extended.srq) = (attr.send_cq, attr.recv_cq, attr.srq);
            (extended.comp_mask, extended.pd) = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, pd);
            extended.send_ops_flags = IBV_QP_EX_WITH_SEND.into();
            ("rdma_create_qp_ex", rdma_create_qp_ex(id, &raw mut extended))
        } else {
            ("rdma_create_qp", rdma_create_qp(id, null_mut(), &raw mut attr))
        };
        if world.record_minus_one(name, made) == 0 {
            world.add_queue_pair((*id).qp, id, attr.sq_sig_all != 0);
        }
        let is_new = !world.memory.values().any(|memory| memory.pd == pd);
        if is_new {
            register(world, pd, 4096, None, ALL_RIGHTS);
        }
    }
}

/// Every right that memory may have.
pub const ALL_RIGHTS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

/// Registers memory of `len` octets, by an `iova` if there is one.
pub fn register(world: &mut World, pd: *mut ibv_pd, len: usize, iova: Option<u64>, access: u32) {
    let mut block = Block::new(len);
    let start = block.start();
    // SAFETY: the memory is there until it is deregistered.
    let (name, mr) = unsafe {
        match iova {
            None => ("ibv_reg_mr", ibv_reg_mr(pd, start, len, access as c_int)),
            Some(iova) if iova & 1 == 0 => {
                ("ibv_reg_mr_iova", ibv_reg_mr_iova(pd, start, len, iova, access as c_int))
            }
            Some(iova) => ("ibv_reg_mr_iova2", ibv_reg_mr_iova2(pd, start, len, iova, access)),
        }
    };
    if world.record_pointer(name, mr).is_null() {
        return;
    }
    let writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    let to = match iova {
        _ if access & IBV_ACCESS_ZERO_BASED != 0 => 0,
        Some(iova) => iova,
        None => start.addr() as u64,
    };
    let memory = Memory { block, may_be_written: access & writes != 0, to, pd };
    world.memory.insert(mr.addr(), memory);
    world.add(Kind::Mr, mr);
}

fn conn_param(input: &mut Input<'_>, data: &[u8]) -> rdma_conn_param {
    // SAFETY: a structure of numbers and a pointer.
    let plain: rdma_conn_param = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the pointer and its length are set below.
    let mut param = unsafe { changed(input, plain) };
    param.private_data = data.as_ptr().cast();
    param.private_data_len = data.len() as u8;
    param
}

/// Takes the next event; null if there is none. The program holds it.
fn next_event(world: &mut World) -> *mut rdma_cm_event {
    let mut event = null_mut();
    // SAFETY: the channel is good, and does not wait.
    if unsafe { rdma_get_cm_event(world.events, &raw mut event) } == 0 {
        world.held_events.push(event);
        return event;
    }
    null_mut()
}

/// Connects a new id to the listener, and accepts: by default parameters, so that it must succeed, or by any.
pub fn connect(world: &mut World, mut input: Option<&mut Input<'_>>) {
    if world.all::<rdma_cm_id>(Kind::Id).len() > 4 {
        return;
    }
    let mut id = null_mut();
    let mut data = [7; 255];
    // SAFETY: the handles are good, and the places may be written.
    unsafe {
        let ps = rdma_port_space::from(RDMA_PS_TCP);
        let made = rdma_create_id(world.events, &raw mut id, null_mut(), ps);
        assert_eq!(world.record_minus_one("rdma_create_id", made), 0);
        world.add(Kind::Id, id);
        let port = u16::from_be(rdma_get_src_port(world.listener));
        let mut to = Address::of([198, 18, 0, 1], port);
        let found = rdma_resolve_addr(id, null_mut(), to.raw(), 1000);
        assert_eq!(world.record_minus_one("rdma_resolve_addr", found), 0);
        let found = rdma_resolve_route(id, 1000);
        assert_eq!(world.record_minus_one("rdma_resolve_route", found), 0);
        prepare(world, id, input.as_deref_mut());
        let connected = match input.as_deref_mut() {
            Some(input) => {
                let len = usize::from(input.octet());
                let mut param = conn_param(input, &data[..len]);
                rdma_connect(id, &raw mut param)
            }
            None => rdma_connect(id, null_mut()),
        };
        if world.record_minus_one("rdma_connect", connected) != 0 {
            assert!(input.is_some(), "a connection by default");
            return;
        }
    }
    let patience = if input.is_some() { SHORT_PATIENCE } else { PATIENCE };
    let start = Instant::now();
    let mut established = 0;
    while established < 2 && start.elapsed() < patience {
        let event = next_event(world);
        if event.is_null() {
            world.poll_all();
            thread::sleep(Duration::from_micros(20));
            continue;
        }
        // SAFETY: an event that was taken.
        let (kind, of) = unsafe { ((*event).event, (*event).id) };
        match kind {
            RDMA_CM_EVENT_CONNECT_REQUEST => {
                world.add(Kind::Id, of);
                data.fill(9);
                answer(world, of, input.as_deref_mut(), &data);
            }
            RDMA_CM_EVENT_ESTABLISHED => established += 1,
            RDMA_CM_EVENT_REJECTED | RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_UNREACHABLE if of == id => {
                break;
            }
            _ => {}
        }
    }
    assert!(established == 2 || input.is_some(), "a connection by default comes about");
}

/// Accepts or rejects a connection.
fn answer(world: &mut World, id: *mut rdma_cm_id, mut input: Option<&mut Input<'_>>, data: &[u8]) {
    prepare(world, id, input.as_deref_mut());
    // SAFETY: the id is good.
    let (name, result) = unsafe {
        match input {
            Some(input) => {
                let (choice, len) = (input.octet(), input.octet());
                if choice & 15 == 15 {
                    ("rdma_reject", rdma_reject(id, data.as_ptr().cast(), len))
                } else {
                    let mut param = conn_param(input, &data[..usize::from(len)]);
                    ("rdma_accept", rdma_accept(id, &raw mut param))
                }
            }
            None => ("rdma_accept", rdma_accept(id, null_mut())),
        }
    };
    world.record_minus_one(name, result);
}

/// One call about ids.
pub fn ids(world: &mut World, input: &mut Input<'_>) {
    let id: *mut rdma_cm_id = world.any(Kind::Id, input);
    // SAFETY: the listener is the world's own.
    let port = u16::from_be(unsafe { rdma_get_src_port(world.listener) });
    let (mut address, mut other) = (Address::any(input, port), Address::any(input, port));
    // SAFETY: the handles are good, or such that the library knows them for none; the places may be written.
    unsafe {
        let (name, result) = match input.below(18) {
            0 | 1 if world.has_room(Kind::Id) => {
                let mut new = null_mut();
                let channel = match input.octet() & 15 {
                    15 => world.any(Kind::EventChannel, input),
                    _ => world.events,
                };
                let ps = number(input, RDMA_PS_TCP) as rdma_port_space;
                let result = rdma_create_id(channel, &raw mut new, null_mut(), ps);
                if result == 0 {
                    world.add(Kind::Id, new);
                }
                ("rdma_create_id", result)
            }
            2 => ("rdma_bind_addr", rdma_bind_addr(id, address.raw())),
            3 => {
                let source = if input.octet() & 1 == 0 { null_mut() } else { other.raw() };
                ("rdma_resolve_addr", rdma_resolve_addr(id, source, address.raw(), input.octet().into()))
            }
            4 => ("rdma_resolve_route", rdma_resolve_route(id, input.octet().into())),
            5 => ("rdma_listen", rdma_listen(id, number(input, 4) as c_int)),
            6 if !waits(world, id) => {
                let data = [1; 255];
                let len = usize::from(input.octet());
                let mut param = conn_param(input, &data[..len]);
                param.qp_num = match input.octet() & 3 {
                    0 => input.u32(),
                    _ => match world.good::<ibv_qp>(Kind::Qp, input) {
                        qp if qp.is_null() => 0,
                        qp => (*qp).qp_num,
                    },
                };
                ("rdma_connect", rdma_connect(id, &raw mut param))
            }
            7 => {
                let mut param = conn_param(input, &[]);
                ("rdma_accept", rdma_accept(id, &raw mut param))
            }
            8 => ("rdma_reject", rdma_reject(id, null_mut(), input.octet())),
            9 if !waits(world, id) => ("rdma_disconnect", rdma_disconnect(id)),
            10 => {
                let mut value = number(input, 1);
                let len = if input.octet() & 3 == 3 { 0 } else { size_of::<u32>() };
                let (level, option) = (number(input, 0) as c_int, number(input, 1) as c_int);
                ("rdma_set_option", rdma_set_option(id, level, option, (&raw mut value).cast(), len))
            }
            11 => {
                let (mut attr, mut mask) = (std::mem::zeroed(), 0);
                ("rdma_init_qp_attr", rdma_init_qp_attr(id, &raw mut attr, &raw mut mask))
            }
            12 => {
                rdma_get_src_port(id);
                rdma_get_dst_port(id);
                ("rdma_establish", rdma_establish(id))
            }
            13 => {
                let to =
                    if input.octet() & 1 == 0 { world.events } else { world.any(Kind::EventChannel, input) };
                if to.is_null() {
                    return;
                }
                world.acknowledge_all();
                ("rdma_migrate_id", rdma_migrate_id(id, to))
            }
            14 if world.is(Kind::Id, id) && (*id).qp.is_null() && !(*id).verbs.is_null() => {
                return prepare(world, id, Some(input));
            }
            15 if !world.is(Kind::Id, id) || ((*id).srq.is_null() && !(*id).verbs.is_null()) => {
                return shared_queue(world, id, input);
            }
            16 => {
                rdma_notify(id, number(input, 0));
                // Of an id whose calls wait it would wait for a peer.
                let listener = if world.is(Kind::Id, id) { world.listener } else { id };
                let mut new = null_mut();
                ("rdma_get_request", rdma_get_request(listener, &raw mut new))
            }
            17 if world.has_room(Kind::EventChannel) => {
                let channel = rdma_create_event_channel();
                do_not_wait_at(channel);
                world.add(Kind::EventChannel, channel);
                return;
            }
            _ => {
                next_event(world);
                return;
            }
        };
        world.record_minus_one(name, result);
    }
}

/// Makes a shared receive queue of an id, and destroys it.
fn shared_queue(world: &mut World, id: *mut rdma_cm_id, input: &mut Input<'_>) {
    let pd = if input.octet() & 3 == 3 { world.any(Kind::Pd, input) } else { null_mut() };
    // SAFETY: structures of numbers and pointers, which are set; the handles are good, or such that the
    // library knows them for none.
    unsafe {
        let mut attr: ibv_srq_init_attr = std::mem::zeroed();
        attr.attr.max_wr = number(input, 4).min(1 << 20);
        let (name, made) = if input.octet() & 1 == 0 {
            ("rdma_create_srq", rdma_create_srq(id, pd, &raw mut attr))
        } else {
            let mut extended: ibv_srq_init_attr_ex = std::mem::zeroed();
            (extended.attr, extended.pd) = (attr.attr, pd);
            extended.comp_mask = number(input, 0);
            ("rdma_create_srq_ex", rdma_create_srq_ex(id, &raw mut extended))
        };
        world.record_minus_one(name, made);
        rdma_destroy_srq(id);
        assert!(made != 0 || (*id).srq.is_null(), "the shared receive queue of an id is destroyed");
    }
}

fn do_not_wait_at(channel: *mut rdma_event_channel) {
    assert!(!channel.is_null());
    // SAFETY: the channel is good.
    super::world::do_not_wait(unsafe { (*channel).fd });
}

/// Returns true if the calls of an id wait for a peer that may never answer.
fn waits(world: &World, id: *mut rdma_cm_id) -> bool {
    // SAFETY: the handle is good.
    world.is(Kind::Id, id) && unsafe { !(*id).event.is_null() }
}

/// Addresses by name, and endpoints made of them.
pub fn endpoints(world: &mut World, input: &mut Input<'_>) {
    // SAFETY: the listener is the world's own.
    let port = u16::from_be(unsafe { rdma_get_src_port(world.listener) });
    let (mut source, mut destination) = (Address::any(input, port), Address::any(input, port));
    let names = [c"198.18.0.1", c"fd00::1", c"127.0.0.1", c"198.18.0.9", c"0.0.0.0", c"x.1.2"];
    let node = match input.below(12) {
        // A name that is none would be asked of a server.
        5 => c"198.18.0.1".as_ptr(),
        choice if choice < names.len() => names[choice].as_ptr(),
        _ => std::ptr::null(),
    };
    let service = match input.below(3) {
        0 => c"0".as_ptr(),
        1 => c"99999".as_ptr(),
        _ => std::ptr::null(),
    };
    // SAFETY: structures of numbers and pointers; the pointers are set below, and the places may be written.
    unsafe {
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        let passive = u32::from(input.octet()) & RAI_PASSIVE;
        hints.ai_flags = number(input, passive) as c_int;
        hints.ai_family = number(input, 0) as c_int;
        hints.ai_qp_type = number(input, IBV_QPT_RC) as c_int;
        hints.ai_port_space = number(input, RDMA_PS_TCP) as c_int;
        if input.octet() & 1 == 0 {
            (hints.ai_src_addr, hints.ai_src_len) = (source.raw(), u32::from(input.octet()) % 129);
        }
        if input.octet() & 1 == 0 {
            (hints.ai_dst_addr, hints.ai_dst_len) = (destination.raw(), u32::from(input.octet()) % 129);
        }
        let hints = if input.octet() & 7 == 7 { std::ptr::null() } else { &raw const hints };
        let mut info = null_mut();
        let found = rdma_getaddrinfo(node, service, hints, &raw mut info);
        if world.record_minus_one("rdma_getaddrinfo", found) != 0 {
            return;
        }
        let pd = match input.octet() & 3 {
            3 => world.any(Kind::Pd, input),
            _ => null_mut(),
        };
        let mut attr: ibv_qp_init_attr = std::mem::zeroed();
        attr.cap.max_send_wr = number(input, 4);
        attr.cap.max_recv_wr = number(input, 4);
        attr.cap.max_inline_data = number(input, 64);
        let attr = if input.octet() & 3 == 3 { null_mut() } else { &raw mut attr };
        let mut id = null_mut();
        let made = rdma_create_ep(&raw mut id, info, pd, attr);
        rdma_freeaddrinfo(info);
        if world.record_minus_one("rdma_create_ep", made) == 0 {
            rdma_destroy_ep(id);
        }
    }
}
