//! Local addresses, as a C program chooses and learns them.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::thread;

use super::ends::*;
use super::handles::*;
use crate::address::*;
use crate::cm::channel::*;
use crate::cm::id::*;
use crate::connection::*;
use crate::device::*;
use crate::pointer::WARPLINE_MAX_ADDRESS;
use crate::stream::*;

type Place = (String, u16);

/// What a call wrote to the places for an address and a port.
fn one(call: impl FnOnce(*mut c_char, *mut u16) -> c_int) -> Result<Place, c_int> {
    let (mut address, mut port) = ([0_u8; WARPLINE_MAX_ADDRESS as usize], 0);
    match call(address.as_mut_ptr().cast(), &raw mut port) {
        0 => Ok((CStr::from_bytes_until_nul(&address).unwrap().to_str().unwrap().into(), port)),
        error => Err(error),
    }
}

/// The same for two of each.
fn both(
    call: impl FnOnce(*mut c_char, *mut u16, *mut c_char, *mut u16) -> c_int,
) -> Result<(Place, Place), c_int> {
    let mut peer = None;
    let local = one(|local, local_port| {
        let mut result = 0;
        peer = Some(one(|address, port| {
            result = call(local, local_port, address, port);
            result
        }));
        result
    })?;
    Ok((local, peer.unwrap()?))
}

fn listen_at(
    device: &Handle<Device>,
    address: &CStr,
    port: u16,
    reuse: bool,
) -> Result<Handle<Listener>, i32> {
    let attr = ListenAttr { reuse_address: reuse.into(), ..LISTEN_ATTR };
    Handle::made(warpline_listener_destroy, |listener| {
        // SAFETY: the handle and the string are good, and the place may be written.
        unsafe { warpline_listen_at(device.raw(), address.as_ptr(), port, &raw const attr, listener) }
    })
}

fn address_of(listener: &Handle<Listener>) -> Place {
    // SAFETY: the handle is good, and the places may be written.
    one(|address, port| unsafe { warpline_listener_address(listener.raw(), address, port) }).unwrap()
}

fn place(address: &str, port: u16) -> Place {
    (address.into(), port)
}

#[test]
fn a_listener_is_at_an_address_and_tells_its_port() {
    let (_near, far) =
        Handle::open_pair(NEAR_DEVICE, None, c"ring,mtu=9000,address=198.18.0.2,address=198.18.0.12", None)
            .unwrap();
    let listener = listen_at(&far, c"198.18.0.12", 0, false).unwrap();
    let (address, port) = address_of(&listener);
    assert!(address == "198.18.0.12" && port >= 49_152, "{address} {port}");
    assert_eq!(address_of(&listen_at(&far, FAR, port, false).unwrap()), place("198.18.0.2", port));
    for everywhere in [c"0.0.0.0", c"::"] {
        assert_eq!(listen_at(&far, everywhere, port, true).unwrap_err(), -libc::EADDRINUSE);
    }
    assert_eq!(listen_at(&far, c"198.18.0.1", PORT, false).unwrap_err(), -libc::EADDRNOTAVAIL);
    assert_eq!(listen_at(&far, c"nowhere", PORT, false).unwrap_err(), -libc::EINVAL);
    let everywhere = listen_at(&far, c"::", PORT, true).unwrap();
    assert_eq!(address_of(&everywhere), place("::", PORT));
    listen_at(&far, FAR, PORT, true).unwrap();
    // SAFETY: all null.
    assert_eq!(unsafe { warpline_listener_address(null(), null_mut(), null_mut()) }, -libc::EINVAL);
}

#[test]
fn both_ends_of_a_connection_are_known() {
    let (near_device, far_device) = devices();
    let (near, far) = (End::new(&near_device), End::new(&far_device));
    // SAFETY: the handle is good, and the places may be written.
    let of = |end: &End| both(|a, b, c, d| unsafe { warpline_qp_addresses(end.qp.raw(), a, b, c, d) });
    assert_eq!(of(&near).unwrap_err(), -libc::ENOTCONN);
    let listener = far_device.listen(PORT).unwrap();
    let (here, there) = (place("198.18.0.1", 5000), place("198.18.0.2", PORT));
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let from = ConnParam { local_address: c"198.18.0.1".as_ptr(), local_port: 5000, ..param(b"") };
            assert_eq!(near.qp.connect(FAR, PORT, Some(&from)).0, 0, "{}", last_error());
        });
        let asked = listener.request(PATIENCE).unwrap();
        // SAFETY: as above.
        let seen = both(|a, b, c, d| unsafe { warpline_request_addresses(asked.raw(), a, b, c, d) });
        assert_eq!(seen, Ok((there.clone(), here.clone())));
        assert_eq!(asked.accept(&far.qp, &param(b"")), 0, "{}", last_error());
        connecting.join().unwrap();
    });
    assert_eq!(of(&near), Ok((here.clone(), there.clone())));
    assert_eq!(of(&far), Ok((there, here)));
}

#[test]
fn streams_and_ids_know_their_addresses() {
    let (near_device, far_device) = devices();
    let listener: Handle<StreamListener> = Handle::made(warpline_stream_listener_destroy, |listener| {
        // SAFETY: the handle and the string are good, and the place may be written.
        unsafe { warpline_stream_listen_at(far_device.raw(), FAR.as_ptr(), 0, 0, listener) }
    })
    .unwrap();
    // SAFETY: as above.
    let at = one(|a, b| unsafe { warpline_stream_listener_address(listener.raw(), a, b) }).unwrap();
    let near = near_device.connect_stream(FAR, at.1).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    let of = |stream: &Handle<Stream>| {
        // SAFETY: as above.
        both(|a, b, c, d| unsafe { warpline_stream_addresses(stream.raw(), a, b, c, d) }).unwrap()
    };
    let (here, there) = of(&near);
    assert_eq!((here.0.as_str(), &there), ("198.18.0.1", &at));
    assert_eq!(of(&far), (there, here));

    let channel: Handle<CmChannel> = Handle::on(&[&far_device]);
    let id = channel.id(1);
    // SAFETY: as above.
    let local = |id: &Handle<CmId>| one(|a, b| unsafe { warpline_cm_local(id.raw(), a, b) });
    assert_eq!(local(&id).unwrap_err(), -libc::ENOTCONN);
    assert_eq!((id.bind_addr(FAR, 0), id.listen()), (0, 0), "{}", last_error());
    let (address, port) = local(&id).unwrap();
    assert!(address == "198.18.0.2" && port >= 49_152 && port != at.1, "{address} {port}");
}
