//! The calls that the others leave out: what an object says of itself, and shorter forms. They take no octets
//! of the input, so an input found earlier still makes the calls that it made.

use std::ffi::{CStr, c_char, c_int};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use warpline_c::address::*;
use warpline_c::advertisement::*;
use warpline_c::byte_stream::*;
use warpline_c::cm::channel::*;
use warpline_c::cm::id::*;
use warpline_c::completion::*;
use warpline_c::device::*;
use warpline_c::memory::*;
use warpline_c::queue_pair::*;
use warpline_c::statistics::*;
use warpline_c::stream::*;
use warpline_c::version::warpline_version;
use warpline_c::window::*;

use super::program::ADDRESS;
use super::world::World;

/// `WARPLINE_ADVERTISEMENT_BYTES`, which is in the header.
const ADVERTISEMENT: usize = 16;
/// No other call names them.
const PORTS: [u16; 2] = [5100, 5101];
const FAR: &CStr = c"198.18.0.2";
/// Milliseconds that a region may take to be out of use.
const PATIENCE: i32 = 1000;

/// Asks the newest object of each kind, or null.
pub fn ask(world: &mut World, number: u32) {
    numbers(world);
    addresses(world);
    byte_stream(world, number);
    manager(world);
    window(world, number);
    streams(world);
    register(world, number);
}

/// Opens and inspects a device that is none, by its name.
pub fn name_no_device(world: &mut World, name: &CStr, attr: *const DeviceAttr) {
    let (mut device, mut warnings) = (null_mut(), [1; 16]);
    // SAFETY: the structure is as long as it says or null, and there is as much room as is said.
    let results = unsafe {
        [
            warpline_device_open(name.as_ptr(), attr, &raw mut device),
            warpline_device_inspect(name.as_ptr(), warnings.as_mut_ptr(), warnings.len()),
        ]
    };
    assert!(results.iter().all(|result| *result < 0) && device.is_null(), "{name:?} is a device");
    assert_eq!(warnings, [1; 16], "nothing is written after a failure");
    world.record_all("device", results);
}

fn numbers(world: &mut World) {
    // SAFETY: the handles are good or null.
    let result = unsafe {
        assert!(!CStr::from_ptr(warpline_version()).is_empty());
        warpline_cq_number(world.cqs.newest());
        warpline_srq_number(world.srqs.newest());
        warpline_srq_arm_limit(world.srqs.newest(), 1)
    };
    world.record("srq-limit", result);
}

/// The addresses of each object that has some.
fn addresses(world: &mut World) {
    let (mut texts, mut ports) = ([[0 as c_char; ADDRESS]; 2], [0; 2]);
    let [local, peer] = texts.each_mut().map(|text| text.as_mut_ptr());
    let [local_port, peer_port] = ports.each_mut().map(|port| &raw mut *port);
    let (request, stream, id) = (world.requests.newest(), world.streams.newest(), world.ids.newest());
    // SAFETY: the handles are good or null, and there is room for an address and a port.
    let results = unsafe {
        [
            warpline_listener_address(world.listeners.newest(), local, local_port),
            warpline_stream_listener_address(world.stream_listeners.newest(), local, local_port),
            warpline_request_addresses(request, local, local_port, peer, peer_port),
            warpline_stream_addresses(stream, local, local_port, peer, peer_port),
            warpline_cm_local(id, local, local_port),
            warpline_cm_peer(id, peer, peer_port),
        ]
    };
    world.record_all("addresses", results);
}

fn byte_stream(world: &mut World, number: u32) {
    let stream = world.byte_streams.newest();
    // SAFETY: the counters are written before they are read.
    let mut counters: [Counter; 4] = unsafe { zeroed() };
    // SAFETY: the handle is good or null, and there is as much room as is said.
    let results = unsafe {
        warpline_byte_stream_has_rdma_option(stream);
        [
            warpline_byte_stream_counters(stream, counters.as_mut_ptr(), counters.len() as u32),
            warpline_byte_stream_end_transfer(stream, number.into()),
            warpline_byte_stream_read_fd(stream),
            warpline_byte_stream_write_fd(stream),
        ]
    };
    world.record_all("byte-stream", results);
}

fn manager(world: &mut World) {
    let (id, channel, mut device) = (world.ids.newest(), world.channels.newest(), null_mut());
    let context = FAR.as_ptr().cast_mut().cast();
    // SAFETY: the handles are good or null, the place may be written, and nothing reads what the context is.
    let results = unsafe {
        let set = warpline_cm_set_context(id, context);
        assert_eq!(warpline_cm_context(id), if set == 0 { context } else { null_mut() });
        [
            set,
            warpline_cm_fd(channel),
            warpline_cm_reject(id, null(), 0),
            warpline_cm_device(id, &raw mut device),
        ]
    };
    world.record_all("cm", results);
    world.devices.add(device);
}

/// What a window lets a peer reach, as it is told and as a message.
fn window(world: &mut World, number: u32) {
    let (mw, mut advertisement) = (world.mws.newest(), Advertisement::default());
    let mut message = [0_u8; ADVERTISEMENT];
    // SAFETY: the handle is good or null, the places may be written, the message has room for one.
    let results = unsafe {
        let advertised = warpline_mw_advertisement(mw, 0, number, &raw mut advertisement);
        let stag = warpline_mw_stag(mw);
        let encoded = warpline_advertisement_encode(&raw const advertisement, message.as_mut_ptr().cast());
        assert!(advertised != 0 || message[8..12] == stag.to_be_bytes(), "{message:x?}");
        [advertised, encoded]
    };
    world.record_all("advertisement", results);
}

/// Streams with the defaults.
fn streams(world: &mut World) {
    let device = world.devices.newest();
    let [port, port_at] = PORTS;
    let (mut listener, mut listener_at, mut stream) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the handle and the string are good or null, and the places may be written.
    let results = unsafe {
        [
            warpline_stream_listen(device, port, 1, &raw mut listener),
            warpline_stream_listen_at(device, FAR.as_ptr(), port_at, 1, &raw mut listener_at),
            warpline_stream_connect(device, FAR.as_ptr(), port, 1, &raw mut stream),
        ]
    };
    for (result, listener) in results.into_iter().zip([listener, listener_at]) {
        let listener = world.made("stream-listen", result, listener);
        world.stream_listeners.add(listener);
    }
    let stream = world.made("stream-open", results[2], stream);
    world.streams.add(stream);
}

fn register(world: &mut World, number: u32) {
    let (pd, mut mr) = (world.pds.newest(), null_mut());
    let mut memory = vec![0_u8; 4096];
    let (start, length, access) = (memory.as_mut_ptr().cast(), memory.len(), number & 15);
    // SAFETY: the handle is good or null, and the memory stays for as long as the region may be reached.
    let result = unsafe {
        if number & 16 == 0 {
            warpline_mr_register(pd, null_mut(), start, length, access, &raw mut mr)
        } else {
            let to = u64::from(number) << 40;
            warpline_mr_register_at(pd, null_mut(), start, length, to, access, &raw mut mr)
        }
    };
    let mr = world.made("mr", result, mr);
    // SAFETY: the handle is good or null, and nobody else's.
    let gone: c_int = unsafe { warpline_mr_deregister(mr, PATIENCE) };
    world.record("deregister", gone);
    assert_eq!(gone == 0, !mr.is_null(), "nothing uses it");
}
