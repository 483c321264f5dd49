//! One call after the other, as the input says.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, zeroed};
use std::ptr::{null, null_mut};
use std::thread;

use warpline_c::address::*;
use warpline_c::advertisement::*;
use warpline_c::byte_stream::*;
use warpline_c::cm::channel::*;
use warpline_c::cm::id::*;
use warpline_c::completion::*;
use warpline_c::connection::*;
use warpline_c::device::*;
use warpline_c::event::*;
use warpline_c::memory::*;
use warpline_c::queue_pair::*;
use warpline_c::statistics::*;
use warpline_c::stream::*;
use warpline_c::window::*;
use warpline_c::work::*;

use super::input::Input;
use super::questions;
use super::structures::{Bytes, Sized, numbers, or_null};
use super::world::{NAMES, Shared, World};

/// Milliseconds that a connection may take.
const PATIENCE: i32 = 20;
/// The most bytes of a registration, and of a part of a work request.
const MEMORY: usize = 8192;
const PORTS: u16 = 2;
/// `WARPLINE_MAX_ADDRESS`, which is in the header.
pub const ADDRESS: usize = 46;

/// The names of addresses: of the devices, of nobody, and no addresses.
const ADDRESSES: [&CStr; 8] = [
    c"198.18.0.1",
    c"198.18.0.2",
    c"198.18.0.1",
    c"198.18.0.2",
    c"0.0.0.0",
    c"192.0.2.1",
    c"fd00::1",
    c"\xff1.2",
];

/// Makes the call that comes next.
pub fn call(world: &mut World, input: &mut Input<'_>) {
    match input.below(24) {
        0 => make_domain(world, input),
        1 => make_memory(world, input),
        2 => make_queues(world, input),
        3 | 4 => connect(world, input),
        5 => listen(world, input),
        6 | 7 => post_receive(world, input),
        8..=10 => post_send(world, input),
        11 | 12 => complete(world, input),
        13 => windows(world, input),
        14 => end(world, input),
        15 => open_stream(world, input),
        16 => stream(world, input),
        17 | 18 => byte_stream(world, input),
        19 | 20 => manager(world, input),
        21 => ask(world, input),
        22 => give_back(world, input),
        _ => open_device(world, input),
    }
}

fn address(input: &mut Input<'_>) -> *const c_char {
    let name = ADDRESSES[input.below(ADDRESSES.len())];
    or_null(input, name.as_ptr().cast_mut())
}

fn port(input: &mut Input<'_>) -> u16 {
    4711 + u16::from(input.octet()) % PORTS
}

/// A time to wait: never long.
fn soon(input: &mut Input<'_>) -> i32 {
    i32::from(input.octet() & 1)
}

fn cq_attr(capacity: u32, sleepable: bool, input: &mut Input<'_>) -> Sized<CqAttr> {
    // SAFETY: zeros are its defaults.
    let mut attr: CqAttr = unsafe { zeroed() };
    (attr.capacity, attr.sleepable) = (capacity, sleepable.into());
    let plain = [
        numbers(offset_of!(CqAttr, sleepable), 1),
        numbers(offset_of!(CqAttr, single_threaded), 1),
        numbers(offset_of!(CqAttr, reserved), 2),
    ];
    Sized::new(input, &attr, &plain)
}

fn qp_attr(input: &mut Input<'_>) -> Sized<QpAttr> {
    // SAFETY: zeros are its defaults.
    let mut attr: QpAttr = unsafe { zeroed() };
    attr.send_depth = u32::from(input.octet());
    let plain = [
        numbers(offset_of!(QpAttr, send_depth), 2),
        numbers(offset_of!(QpAttr, recv_depth), 2),
        numbers(offset_of!(QpAttr, rnr_timeout_ms), 1),
        numbers(offset_of!(QpAttr, disconnect_timeout_ms), 4),
        numbers(offset_of!(QpAttr, keep_open), 1),
        numbers(offset_of!(QpAttr, single_threaded), 1),
        numbers(offset_of!(QpAttr, reserved), 6),
    ];
    Sized::new(input, &attr, &plain)
}

fn listen_attr(input: &mut Input<'_>) -> Sized<ListenAttr> {
    // SAFETY: as above.
    let mut attr: ListenAttr = unsafe { zeroed() };
    attr.startup_timeout_ms = 2;
    let plain = [
        numbers(offset_of!(ListenAttr, backlog), 4),
        numbers(offset_of!(ListenAttr, first_message_timeout_ms), 4),
        numbers(offset_of!(ListenAttr, decision_timeout_ms), 4),
        numbers(offset_of!(ListenAttr, markers), 3),
        numbers(offset_of!(ListenAttr, reserved), 5),
    ];
    Sized::new(input, &attr, &plain)
}

/// Runs `call` with what a connection is opened with.
fn with_param<T>(input: &mut Input<'_>, timeout_ms: u32, call: impl FnOnce(*const ConnParam) -> T) -> T {
    let mut data = Bytes::new(input, 600);
    // SAFETY: as above.
    let mut param: ConnParam = unsafe { zeroed() };
    param.private_data = data.raw().cast();
    // Null is good for nothing but none.
    param.private_data_len = data.len() as u32;
    param.timeout_ms = timeout_ms;
    let plain = [
        numbers(offset_of!(ConnParam, ird), 2),
        numbers(offset_of!(ConnParam, ord), 2),
        numbers(offset_of!(ConnParam, revision), 1),
        numbers(offset_of!(ConnParam, no_reads), 4),
        numbers(offset_of!(ConnParam, local_port), 2),
    ];
    let param = Sized::new(input, &param, &plain);
    call(param.raw())
}

fn make_domain(world: &mut World, input: &mut Input<'_>) {
    let (device, mut pd) = (world.devices.any(input), null_mut());
    let target = or_null(input, &raw mut pd);
    // SAFETY: the handle is good or null, and so is the place.
    let result = unsafe { warpline_pd_create(device, target) };
    let pd = world.made("pd", result, pd);
    world.pds.add(pd);
}

fn make_memory(world: &mut World, input: &mut Input<'_>) {
    let (pd, qp, mut mr) = (world.pds.any(input), world.qps.any(input), null_mut());
    let qp = if input.octet() & 1 == 0 { null_mut() } else { qp };
    let (length, access) = (usize::from(input.u16()) % MEMORY, u32::from(input.octet()));
    // SAFETY: the handles are good or null, and the place may be written.
    let result = unsafe { warpline_mr_allocate(pd, qp, length, access, &raw mut mr) };
    let mr = world.made("mr", result, mr);
    if !mr.is_null() {
        // SAFETY: it is good.
        let known = unsafe { (warpline_mr_stag(mr), warpline_mr_address(mr) as u64) };
        world.stags.push(known);
    }
    world.mrs.add(mr);
}

fn make_queues(world: &mut World, input: &mut Input<'_>) {
    let (pd, cq, other_cq) = (world.pds.any(input), world.cqs.any(input), world.cqs.any(input));
    match input.below(4) {
        0 => {
            let (capacity, sleepable, mut cq) =
                (u32::from(input.octet()), input.octet() & 1 == 0, null_mut());
            // SAFETY: the place may be written, and the structure is as long as it says.
            let result = unsafe {
                if input.octet() & 1 == 0 {
                    warpline_cq_create(capacity, sleepable, &raw mut cq)
                } else {
                    let attr = cq_attr(capacity, sleepable, input);
                    warpline_cq_create_with(attr.raw(), &raw mut cq)
                }
            };
            let cq = world.made("cq", result, cq);
            world.cqs.add(cq);
        }
        1 => {
            let (depth, mut srq) = (u32::from(input.octet()), null_mut());
            // SAFETY: the handle is good or null, and the place may be written.
            let result = unsafe { warpline_srq_create(pd, depth, &raw mut srq) };
            let srq = world.made("srq", result, srq);
            world.srqs.add(srq);
        }
        _ => {
            let (srq, mut qp) = (world.srqs.any(input), null_mut());
            let srq = if input.octet() & 3 == 0 { srq } else { null_mut() };
            let attr = qp_attr(input);
            let target = or_null(input, &raw mut qp);
            // SAFETY: the handles are good or null, and the structure is as long as it says.
            let result = unsafe { warpline_qp_create(pd, cq, other_cq, srq, attr.raw(), target) };
            let qp = world.made("qp", result, qp);
            world.qps.add(qp);
        }
    }
}

/// Connects two queue pairs, or tries to: one thread connects while this one accepts.
fn connect(world: &mut World, input: &mut Input<'_>) {
    let (device, near, far) = (world.devices.any(input), world.qps.any(input), world.qps.any(input));
    let (to, port, mut listener) = (address(input), port(input), null_mut());
    // SAFETY: the handle is good or null, null is the defaults, and the place may be written.
    let result = unsafe { warpline_listen(device, port, null(), &raw mut listener) };
    let listener = world.made("listen", result, listener);
    let (near, to) = (Shared(near), Shared(to.cast_mut()));
    let mut request = null_mut();
    let (connected, accepted) = thread::scope(|scope| {
        with_param(input, PATIENCE as u32, |param| {
            let param = Shared(param.cast_mut());
            let connecting = scope.spawn(move || {
                // SAFETY: an empty reply is one.
                let mut reply: ConnReply = unsafe { zeroed() };
                let param = param.get().cast_const();
                let patient = patient(PATIENCE as u32);
                let param = if param.is_null() { &raw const patient } else { param };
                // SAFETY: the handle, the string and the structure are good or null.
                unsafe { warpline_connect(near.get(), to.get(), port, param, &raw mut reply) }
            });
            // SAFETY: as above.
            let asked = unsafe { warpline_get_request(listener, PATIENCE, &raw mut request) };
            // SAFETY: the handles are good or null; the request is gone with the call.
            let accepted = (asked == 0).then(|| unsafe { warpline_accept(request, far, null()) });
            (connecting.join().unwrap(), accepted.unwrap_or(asked))
        })
    });
    world.record("accept", accepted);
    world.record("connect", connected);
    world.listeners.add(listener);
}

/// The defaults but for the time that it may take.
fn patient(timeout_ms: u32) -> ConnParam {
    // SAFETY: zeros are its defaults.
    let mut param: ConnParam = unsafe { zeroed() };
    (param.size, param.timeout_ms) = (size_of::<ConnParam>(), timeout_ms);
    param
}

fn listen(world: &mut World, input: &mut Input<'_>) {
    let (device, port, attr) = (world.devices.any(input), port(input), listen_attr(input));
    let (at, mut listener, mut request) = (address(input), null_mut(), null_mut());
    let target = or_null(input, &raw mut listener);
    // SAFETY: the handle is good or null, the structure is as long as it says, and the place is good or null.
    let result = unsafe {
        match input.octet() & 1 {
            0 => warpline_listen(device, port, attr.raw(), target),
            _ => warpline_listen_at(device, at, port, attr.raw(), target),
        }
    };
    let listener = world.made("listen", result, listener);
    world.listeners.add(listener);
    let (listener, timeout) = (world.listeners.any(input), soon(input));
    // SAFETY: the handle is good or null, and the place may be written.
    let result = unsafe { warpline_get_request(listener, timeout, &raw mut request) };
    let request = world.made("get-request", result, request);
    world.requests.add(request);
    let request = world.requests.any(input);
    let mut length = 0;
    // SAFETY: the handle is good or null, and the place may be written.
    unsafe { warpline_request_private_data(request, or_null(input, &raw mut length)) };
    let (choice, qp, request) = (input.octet(), world.qps.any(input), world.requests.take(input));
    let mut data = Bytes::new(input, 600);
    let mut stream = null_mut();
    // SAFETY: the handles are good or null, the data is as long as it says; the request is gone.
    let result = unsafe {
        match choice & 3 {
            0 => warpline_reject(request, data.raw().cast(), data.len() as u32),
            1 => warpline_reject_to_stream(request, data.raw().cast(), data.len() as u32, &raw mut stream),
            _ => with_param(input, 2, |param| warpline_accept(request, qp, param)),
        }
    };
    world.record("answer", result);
    world.streams.add(stream);
}

/// Ranges of memory, and whether they may be anything.
fn ranges(world: &World, input: &mut Input<'_>, inline: Option<&mut [u8]>) -> Vec<Sge> {
    let mut inline = inline;
    (0..input.octet() & 3)
        .map(|_| {
            let choice = input.octet();
            let (stag, start) = world.stags[usize::from(choice) % world.stags.len()];
            let stag = if choice & 0xc0 == 0xc0 { input.u32() } else { stag };
            let (addr, length) = (start + u64::from(input.octet()), u32::from(input.octet()));
            match &mut inline {
                // Any memory of the program, of which so much is read at once.
                Some(memory) => Sge { addr: memory.as_mut_ptr() as u64, length, stag },
                None => Sge { addr, length, stag },
            }
        })
        .collect()
}

fn post_receive(world: &mut World, input: &mut Input<'_>) {
    let list = ranges(world, input, None);
    let wr = RecvWr {
        size: size_of::<RecvWr>(),
        wr_id: input.octet().into(),
        next: null(),
        sg_list: list.as_ptr(),
        num_sge: list.len() as u32,
        reserved: 0,
    };
    let wr = Sized::new(
        input,
        &wr,
        &[numbers(offset_of!(RecvWr, wr_id), 8), numbers(offset_of!(RecvWr, reserved), 4)],
    );
    let (qp, srq, mut bad) = (world.qps.any(input), world.srqs.any(input), null());
    let bad = or_null(input, &raw mut bad);
    // SAFETY: the handles are good or null, the request and its list are as long as they say.
    let result = unsafe {
        match input.octet() & 3 {
            0 => warpline_srq_post(srq, wr.raw(), bad),
            _ => warpline_post_recv(qp, wr.raw(), bad),
        }
    };
    world.record("post-recv", result);
}

fn post_send(world: &mut World, input: &mut Input<'_>) {
    let flags = u32::from(input.octet() & 0x1f);
    let mut memory = vec![7; 256];
    let inline = flags & WARPLINE_SEND_INLINE != 0;
    let list = ranges(world, input, inline.then_some(&mut memory));
    let (remote_stag, remote_addr) = world.stags[input.below(world.stags.len())];
    // SAFETY: zeros are a request.
    let mut wr: SendWr = unsafe { zeroed() };
    wr.sg_list = list.as_ptr();
    wr.num_sge = list.len() as u32;
    wr.opcode = u32::from(input.octet() % 16);
    (wr.flags, wr.remote_stag, wr.remote_addr) = (flags, remote_stag, remote_addr);
    wr.grant = or_null(input, (&raw const world.grant).cast_mut());
    let plain = [
        numbers(offset_of!(SendWr, wr_id), 8),
        numbers(offset_of!(SendWr, remote_stag), 4),
        numbers(offset_of!(SendWr, remote_addr), 8),
        numbers(offset_of!(SendWr, immediate), 8),
        numbers(offset_of!(SendWr, compare_add), 8),
        numbers(offset_of!(SendWr, swap), 8),
    ];
    let wr = Sized::new(input, &wr, &plain);
    let (qp, mut bad) = (world.qps.any(input), null());
    let bad = or_null(input, &raw mut bad);
    // SAFETY: the handle is good or null, the request, its list and its grant are as long as they say.
    let result = unsafe { warpline_post_send(qp, wr.raw(), bad) };
    world.record("post-send", result);
}

fn complete(world: &mut World, input: &mut Input<'_>) {
    let (cq, mut place) = (world.cqs.any(input), vec![Wc::default(); input.below(8) + 1]);
    let target = or_null(input, place.as_mut_ptr());
    // SAFETY: the handle is good or null, and there is room for as many.
    let result = unsafe {
        match input.octet() & 7 {
            0 => warpline_cq_arm(cq, input.octet() & 1 == 0),
            1 => warpline_cq_clear(cq),
            2 => warpline_cq_fd(cq).min(1),
            3 => warpline_cq_wait(cq, target, soon(input)),
            _ => {
                let polled = warpline_cq_poll(cq, place.len() as u32, target);
                assert!(polled <= place.len() as c_int, "{polled} completions in {} places", place.len());
                for completion in place.iter().take(usize::try_from(polled).unwrap_or(0)) {
                    world.completed(completion);
                }
                polled
            }
        }
    };
    world.record("completions", result);
}

fn windows(world: &mut World, input: &mut Input<'_>) {
    let (pd, mr, mut mw) = (world.pds.any(input), world.mrs.any(input), null_mut());
    // SAFETY: the handle is good or null, and the place may be written.
    let result = unsafe { warpline_mw_allocate(pd, &raw mut mw) };
    let mw = world.made("mw", result, mw);
    world.mws.add(mw);
    let (mw, offset, length) = (world.mws.any(input), usize::from(input.u16()), usize::from(input.octet()));
    let (access, choice) = (u32::from(input.octet()), input.octet());
    let mut grant = world.grant;
    let target = or_null(input, &raw mut grant);
    // SAFETY: the handles are good or null, and so is the place.
    let result = unsafe {
        match choice & 1 {
            0 if choice & 0x80 == 0 => warpline_mw_binding(mw, mr, offset, length, access, target),
            0 => {
                let key = choice.into();
                warpline_mw_binding_with_key(mw, mr, key, offset, length, access, target)
            }
            _ => warpline_mr_fast_registration(mr, offset, length, access, choice & 2 == 0, target),
        }
    };
    world.grant = grant;
    world.record("grant", result);
    let mut advertisement = Advertisement::default();
    // SAFETY: as above.
    let result = unsafe { warpline_mr_advertisement(mr, offset, length as u32, &raw mut advertisement) };
    world.record("advertisement", result);
    let mut message = Bytes::new(input, 64);
    // SAFETY: the message is as long as it says.
    let result =
        unsafe { warpline_advertisement_decode(message.raw().cast(), message.len(), &raw mut advertisement) };
    world.record("advertisement", result);
}

fn end(world: &mut World, input: &mut Input<'_>) {
    let (qp, timeout) = (world.qps.any(input), soon(input));
    // SAFETY: the handle is good or null.
    let result = unsafe {
        match input.below(4) {
            0 => warpline_disconnect(qp),
            1 => warpline_abort(qp),
            2 => warpline_wait_peer_closed(qp, timeout),
            _ => warpline_wait_closed(qp, timeout),
        }
    };
    world.record("end", result);
}

/// Opens a connection in streaming mode.
fn open_stream(world: &mut World, input: &mut Input<'_>) {
    let (near, far, port) = (world.devices.any(input), world.devices.any(input), port(input));
    // SAFETY: zeros are its defaults.
    let mut attr: StreamAttr = unsafe { zeroed() };
    (attr.timeout_ms, attr.rdma_option) = (PATIENCE as u32, u32::from(input.octet() & 1));
    let plain =
        [numbers(offset_of!(StreamAttr, rdma_option), 4), numbers(offset_of!(StreamAttr, backlog), 4)];
    let attr = Sized::new(input, &attr, &[plain[0], plain[1], numbers(offset_of!(StreamAttr, reserved), 4)]);
    let (to, mut listener, mut one, mut other) = (address(input), null_mut(), null_mut(), null_mut());
    // SAFETY: the handles are good or null, the structure is as long as it says, the places may be written.
    let results = unsafe {
        [
            warpline_stream_listen_with(far, port, attr.raw(), &raw mut listener),
            warpline_stream_open(near, to, port, attr.raw(), &raw mut one),
        ]
    };
    let listener = world.made("stream-listen", results[0], listener);
    let one = world.made("stream-open", results[1], one);
    world.stream_listeners.add(listener);
    world.streams.add(one);
    let (listener, timeout) = (world.stream_listeners.any(input), soon(input) * 20);
    // SAFETY: the handle is good or null, and the place may be written.
    let result = unsafe { warpline_stream_accept(listener, timeout, &raw mut other) };
    let other = world.made("stream-accept", result, other);
    world.streams.add(other);
    // SAFETY: the handle is good or null.
    let results = unsafe { [warpline_stream_listener_fd(listener), warpline_stream_listener_arm(listener)] };
    world.record_all("stream-listener", results.map(|result| result.min(0)));
}

fn stream(world: &mut World, input: &mut Input<'_>) {
    let (stream, qp, timeout) = (world.streams.any(input), world.qps.any(input), soon(input));
    let (choice, mut bytes) = (input.below(8), Bytes::new(input, 4096));
    let (place, length) = (bytes.raw().cast::<c_void>(), bytes.len());
    // SAFETY: the handles are good or null, the memory and the structures are as long as they say.
    let result = unsafe {
        match choice {
            0 => warpline_stream_finish(stream),
            1 => warpline_stream_abort(stream),
            2 => warpline_stream_wait_closed(stream, timeout),
            3 => {
                let (ird, ord) = (input.octet().into(), input.octet().into());
                let directions = input.octet().into();
                warpline_stream_start_unnegotiated(stream, qp, directions, input.octet() & 1, ird, ord)
            }
            4 => {
                let (attr, mut request) = (listen_attr(input), null_mut());
                // Without attributes it would wait for ten seconds.
                if attr.raw().is_null() {
                    return;
                }
                let result = warpline_stream_respond(stream, place, length, attr.raw(), &raw mut request);
                world.requests.add(request);
                result
            }
            5 => with_param(input, 2, |param| {
                let patient = patient(2);
                let param = if param.is_null() { &raw const patient } else { param };
                warpline_stream_initiate(stream, qp, param, null_mut())
            }),
            6 => warpline_stream_read(stream, place, length, timeout),
            _ => warpline_stream_write(stream, place, length, timeout),
        }
    };
    world.record("stream", result);
}

fn byte_stream(world: &mut World, input: &mut Input<'_>) {
    if input.octet() & 3 == 0 {
        // SAFETY: zeros are its defaults.
        let mut attr: ByteStreamAttr = unsafe { zeroed() };
        (attr.send_bytes, attr.receive_bytes) = (usize::from(input.u16()), usize::from(input.u16()));
        (attr.unsolicited_count, attr.unsolicited_bytes) = (input.below(4), input.below(256));
        // Takes no input of its own, so that seeds stay what they are.
        attr.early_message_bytes = attr.unsolicited_bytes;
        let attr = Sized::new(input, &attr, &[numbers(offset_of!(ByteStreamAttr, send_bytes), 2)]);
        let (stream, mut made) = (world.streams.take(input), null_mut());
        // SAFETY: the handle is good or null, and gone with the call; the structure is as long as it says.
        let result = unsafe { warpline_byte_stream_create(stream, attr.raw(), &raw mut made) };
        let made = world.made("byte-stream-create", result, made);
        world.byte_streams.add(made);
    }
    let (stream, mr, timeout) = (world.byte_streams.any(input), world.mrs.any(input), soon(input));
    let (choice, mut bytes) = (input.below(16), Bytes::new(input, 4096));
    let (rid, buffer) = (u64::from(input.octet()) << (input.octet() & 63), u32::from(input.octet()));
    let (offset, len) = (usize::from(input.u16()), usize::from(input.u16()));
    let (place, length) = (bytes.raw().cast::<c_void>(), bytes.len());
    // SAFETY: the handles are good or null, the memory and the structures are as long as they say.
    let result = unsafe {
        match choice {
            0 => warpline_byte_stream_read(stream, place, length, timeout),
            1 | 2 => {
                // SAFETY: an empty part is one.
                let mut part: ReadPart = zeroed();
                let target = or_null(input, &raw mut part);
                warpline_byte_stream_read_part(stream, place, length, timeout, target)
            }
            3 => warpline_byte_stream_expect(stream, rid, mr, offset, len),
            4 => warpline_byte_stream_read_section(stream, rid, mr, offset, len, timeout),
            5 => warpline_byte_stream_copy_unsolicited(stream, buffer, offset, place, length),
            6 => warpline_byte_stream_release(stream, buffer),
            7 => warpline_byte_stream_cancel(stream, rid, timeout),
            8 => warpline_byte_stream_write(stream, place, length, timeout),
            9 | 10 => {
                let mut annotated: Annotated = zeroed();
                annotated.rid = rid;
                let plain = [
                    numbers(offset_of!(Annotated, buffer_offset), 4),
                    numbers(offset_of!(Annotated, total_bytes), 4),
                    numbers(offset_of!(Annotated, starts_message), 4),
                    numbers(offset_of!(Annotated, reserved), 4),
                ];
                let annotated = Sized::new(input, &annotated, &plain);
                warpline_byte_stream_write_annotated(stream, annotated.raw(), place, length, timeout)
            }
            11 => warpline_byte_stream_cork(stream, buffer & 1 == 0),
            12 => warpline_byte_stream_finish(stream),
            13 => warpline_byte_stream_abort(stream),
            14 => warpline_byte_stream_arm_read(stream).min(warpline_byte_stream_arm_write(stream)),
            _ => warpline_byte_stream_wait_closed(stream, timeout),
        }
    };
    world.record("byte-stream", result);
}

/// The connection manager.
fn manager(world: &mut World, input: &mut Input<'_>) {
    let (channel, id, qp) = (world.channels.any(input), world.ids.any(input), world.qps.any(input));
    let (to, port) = (address(input), port(input));
    // SAFETY: the handles are good or null, the structures are as long as they say, and the places may be
    // written.
    let result = unsafe {
        match input.below(10) {
            0 => {
                let devices = [world.devices.any(input), world.devices.any(input)];
                let (count, mut channel) = (u32::from(input.octet() % 3), null_mut());
                let result = warpline_cm_channel_create(devices.as_ptr(), count, &raw mut channel);
                world.channels.add(channel);
                result
            }
            1 => {
                let mut id = null_mut();
                let result = warpline_cm_create_id(channel, null_mut(), &raw mut id);
                world.ids.add(id);
                result
            }
            2 => warpline_cm_bind_addr(id, to, port),
            3 => warpline_cm_resolve_addr(id, to, port),
            4 => warpline_cm_resolve_route(id),
            5 => warpline_cm_listen(id, listen_attr(input).raw()),
            6 => with_param(input, 2, |param| warpline_cm_connect(id, qp, param)),
            7 => with_param(input, 2, |param| warpline_cm_accept(id, qp, param)),
            8 => warpline_cm_disconnect(id),
            _ => {
                let mut event: CmEvent = zeroed();
                let result = warpline_cm_get_event(channel, &raw mut event, soon(input));
                if result == 1 && event.event == WARPLINE_CM_EVENT_CONNECT_REQUEST {
                    // It is the program's from here on.
                    world.ids.add(event.id);
                }
                result
            }
        }
    };
    world.record("cm", result);
}

/// What never changes anything.
fn ask(world: &mut World, input: &mut Input<'_>) {
    let (qp, mr, device) = (world.qps.any(input), world.mrs.any(input), world.devices.any(input));
    let (stream, number) = (world.streams.any(input), input.u32());
    let mut names = [[0; ADDRESS]; 2];
    let [local, peer] = &mut names;
    let (local, mut port) = (or_null(input, local.as_mut_ptr()), 0);
    // SAFETY: the counters are written before they are read.
    let mut counters: Vec<Counter> = vec![unsafe { zeroed() }; input.below(128)];
    let (place, room) = (counters.as_mut_ptr(), counters.len() as u32);
    // SAFETY: zeros are an event.
    let mut event = unsafe { zeroed() };
    // SAFETY: the handles are good or null, and there is as much room as is said.
    let results = unsafe {
        warpline_qp_number(qp);
        warpline_mr_address(mr);
        warpline_mr_length(mr);
        warpline_mr_is_copied(mr);
        warpline_stream_available(stream);
        for text in [
            warpline_wc_status_text(number),
            warpline_wc_status_name(number & 31),
            warpline_event_text(number),
            warpline_cm_event_text(number),
        ] {
            assert!(!CStr::from_ptr(text).is_empty());
        }
        [
            warpline_qp_state(qp),
            warpline_qp_addresses(qp, local, &raw mut port, peer.as_mut_ptr(), null_mut()),
            warpline_device_counters(device, place, room),
            warpline_qp_counters(qp, place, room),
            warpline_stream_counters(stream, place, room),
            warpline_get_event(device, &raw mut event, 0),
            warpline_event_fd(device).min(0),
            warpline_device_warnings(device, null_mut(), 0),
        ]
    };
    for result in results {
        world.record("ask", result);
    }
    questions::ask(world, number);
}

/// Handles go in any order; some calls take them only if nothing needs them any more.
fn give_back(world: &mut World, input: &mut Input<'_>) {
    match input.below(16) {
        0 => world.devices.give_back(input),
        1 => world.pds.give_back(input),
        2 => world.cqs.give_back(input),
        3 => world.mrs.give_back(input),
        4 => world.mws.give_back(input),
        5 => world.qps.give_back(input),
        6 => world.srqs.give_back(input),
        7 => world.listeners.give_back(input),
        8 => world.requests.give_back(input),
        9 => world.streams.give_back(input),
        10 => world.stream_listeners.give_back(input),
        11 => world.byte_streams.give_back(input),
        12 => world.channels.give_back(input),
        13 => world.ids.give_back(input),
        14 => {
            let (mr, timeout) = (world.mrs.take(input), soon(input));
            // SAFETY: the handle is good or null; after a failure it still is.
            let result = unsafe {
                match timeout & 1 {
                    0 => warpline_mr_deregister(mr, timeout),
                    _ => warpline_mr_revoke(mr, timeout),
                }
            };
            world.record("deregister", result);
            world.mrs.add(if result == 0 { null_mut() } else { mr });
        }
        _ => {
            let (mw, timeout) = (world.mws.take(input), soon(input));
            // SAFETY: as above.
            let result = unsafe { warpline_mw_deallocate(mw, timeout) };
            world.record("deallocate", result);
            world.mws.add(if result == 0 { null_mut() } else { mw });
        }
    }
}

/// Opens a device that is none, or with attributes of any size.
fn open_device(world: &mut World, input: &mut Input<'_>) {
    // SAFETY: zeros are its defaults.
    let attr: DeviceAttr = unsafe { zeroed() };
    let plain = [numbers(offset_of!(DeviceAttr, window), 4), numbers(offset_of!(DeviceAttr, reserved), 4)];
    let attr = Sized::new(input, &attr, &plain);
    let mut text = input.octets(40).to_vec();
    text.retain(|byte| *byte != 0);
    // Never a device that there is: its kind is unknown.
    text.insert(0, b'x');
    text.push(0);
    let mut device = null_mut();
    let name = or_null(input, text.as_mut_ptr().cast::<c_char>());
    // SAFETY: the string ends with a zero byte, the structure is as long as it says, and the place may be
    // written.
    let result = unsafe {
        warpline_device_open_pair(name, attr.raw(), NAMES[1].as_ptr(), null(), &raw mut device, null_mut())
    };
    world.record("device", result);
    questions::name_no_device(world, CStr::from_bytes_until_nul(&text).unwrap(), attr.raw());
}
