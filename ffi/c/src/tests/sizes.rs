//! Structures of callers whose header is older or newer than the library.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::{from_ref, null, null_mut};

use super::ends::*;
use super::handles::last_error;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::extensible::{Extensible, extensible};
use crate::queue_pair::*;
use crate::work::*;

/// The second version of a structure, whose first had no `added`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Grown {
    size: usize,
    first: u64,
    added: u64,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for Grown {
    const FIRST_SIZE: usize = offset_of!(Grown, added);
}

/// Reads words as C has them in memory.
fn read(words: &[u64]) -> Result<Grown, c_int> {
    // SAFETY: there are as many bytes as the first word says, or it is refused before they are read.
    unsafe { extensible(words.as_ptr().cast::<Grown>()) }.map_err(crate::error::Failure::report)
}

#[test]
fn an_older_structure_lacks_fields_and_a_newer_one_has_more() {
    assert_eq!(read(&[16, 1, 99]), Ok(Grown { size: 16, first: 1, added: 0 }), "an older caller");
    assert_eq!(read(&[24, 1, 2, 99]), Ok(Grown { size: 24, first: 1, added: 2 }), "the same version");
    assert_eq!(read(&[32, 1, 2, 0]), Ok(Grown { size: 32, first: 1, added: 2 }), "a newer caller");
    assert_eq!(read(&[32, 1, 2, 3]), Err(-libc::E2BIG), "a newer caller that uses what is new");
    assert!(last_error().contains("does not know"));
    assert_eq!(read(&[40, 1, 2, 0, 1 << 63]), Err(-libc::E2BIG), "up to the last byte");
    for never_set in [0, 8, 15] {
        assert_eq!(read(&[never_set, 1, 2]), Err(-libc::EINVAL));
        assert!(last_error().contains("sizeof"));
    }
    for never_set in [4097, u64::MAX] {
        assert_eq!(read(&[never_set, 1, 2]), Err(-libc::E2BIG));
    }
    // SAFETY: null is the defaults.
    assert_eq!(unsafe { extensible::<Grown>(null()) }.map_err(|_| ()), Ok(Grown::default()));
}

/// No padding follows the last field: it would become part of the next field that is added.
#[test]
fn structures_end_with_their_last_field() {
    assert_eq!(offset_of!(DeviceAttr, reserved) + 4, size_of::<DeviceAttr>());
    assert_eq!(offset_of!(QpAttr, rate_limit) + 8, size_of::<QpAttr>());
    assert_eq!(offset_of!(ListenAttr, reserved) + 5, size_of::<ListenAttr>());
    assert_eq!(offset_of!(ConnParam, local_address) + 8, size_of::<ConnParam>());
    assert_eq!(offset_of!(SendWr, grant) + 8, size_of::<SendWr>());
    assert_eq!(offset_of!(RecvWr, reserved) + 4, size_of::<RecvWr>());
    let first = [
        offset_of!(DeviceAttr, size),
        offset_of!(CqAttr, size),
        offset_of!(QpAttr, size),
        offset_of!(ListenAttr, size),
        offset_of!(ConnParam, size),
        offset_of!(SendWr, size),
        offset_of!(RecvWr, size),
    ];
    assert_eq!(first, [0; 7]);
}

/// Each call that takes a structure looks at its size, and at what must be zero.
#[test]
fn every_call_looks_at_the_size() {
    let (near_device, _far_device) = devices();
    let near = End::new(&near_device);
    let (device, pd, cq, qp) = (near_device.raw(), near.pd.raw(), near.cq.raw(), near.qp.raw());
    let (mut made, mut made_cq, mut listener, mut opened) = (null_mut(), null_mut(), null_mut(), null_mut());
    let (name, address) = (c"tap:tap0,address=198.18.0.1".as_ptr(), FAR.as_ptr());
    for (size, code) in [(7, libc::EINVAL), (8, libc::EINVAL), (4097, libc::E2BIG)] {
        let attr = DeviceAttr { size, ..ATTR };
        let cq_attr = CqAttr { size, ..CQ_ATTR };
        let qp_attr = QpAttr { size, ..QP_ATTR };
        let listen_attr = ListenAttr { size, ..LISTEN_ATTR };
        let param = ConnParam { size, ..param(b"") };
        // SAFETY: the handles are good and the places may be written; of the structures only the size is
        // read.
        let results = unsafe {
            [
                warpline_device_open(name, &raw const attr, &raw mut opened),
                warpline_cq_create_with(&raw const cq_attr, &raw mut made_cq),
                warpline_qp_create(pd, cq, cq, null_mut(), &raw const qp_attr, &raw mut made),
                warpline_listen(device, PORT, &raw const listen_attr, &raw mut listener),
                warpline_connect(qp, address, PORT, &raw const param, null_mut()),
            ]
        };
        assert_eq!(results, [-code; 5], "{size}: {}", last_error());
        let sge = near.sge(0, 8);
        let wrong = RecvWr { size, ..receive(2, &sge) };
        let first = RecvWr { next: &raw const wrong, ..receive(1, &sge) };
        assert_eq!(near.qp.post_recv(&first), (-code, from_ref(&wrong)));
        let wrong = SendWr { size, ..request(WARPLINE_WR_SEND, &sge) };
        assert_eq!(near.qp.post_send(&wrong), (-code, from_ref(&wrong)));
    }
    let cq_attr = CqAttr { reserved: [0, 1], ..CQ_ATTR };
    let qp_attr = QpAttr { reserved: [0, 0, 0, 0, 1], ..QP_ATTR };
    let listen_attr = ListenAttr { reserved: [0, 0, 0, 0, 1], ..LISTEN_ATTR };
    // SAFETY: as above.
    let results = unsafe {
        [
            warpline_cq_create_with(&raw const cq_attr, &raw mut made_cq),
            warpline_qp_create(pd, cq, cq, null_mut(), &raw const qp_attr, &raw mut made),
            warpline_listen(device, PORT, &raw const listen_attr, &raw mut listener),
        ]
    };
    assert_eq!(results, [-libc::EINVAL; 3], "{}", last_error());
    assert!(last_error().contains("reserved"));
    assert!(made.is_null() && made_cq.is_null() && listener.is_null() && opened.is_null());
}

/// The timeouts of a peer that is gone. A structure of the first version has none.
#[test]
fn a_queue_pair_has_timeouts_of_its_peer() {
    let ms = std::time::Duration::from_millis;
    let config = |attr: QpAttr| attr.config().map_err(|_| last_error());
    let usual = config(QP_ATTR).unwrap();
    assert_eq!((usual.user_timeout, usual.keepalive), (None, None));
    let attr = QpAttr { user_timeout_ms: 10_000, keepalive_idle_ms: 6_000, ..QP_ATTR };
    let probing = warpline::Keepalive { idle_ms: 6_000, interval_ms: 2_000, probes: 3 };
    let given = config(attr).unwrap();
    assert_eq!((given.user_timeout, given.keepalive), (Some(ms(10_000)), Some(probing)));
    let attr = QpAttr { keepalive_interval_ms: 7, keepalive_probes: 255, ..attr };
    let probing = warpline::Keepalive { interval_ms: 7, probes: 255, ..probing };
    assert_eq!(config(attr).unwrap().keepalive, Some(probing));
    assert!(config(QpAttr { keepalive_probes: 256, ..attr }).is_err());
    assert_eq!((usual.rate_limit, given.rate_limit), (None, None));
    assert_eq!(config(QpAttr { rate_limit: 125_000_000, ..attr }).unwrap().rate_limit, Some(125_000_000));

    let mut first = [0u64; 4];
    first[0] = 32;
    // SAFETY: aligned, and as long as its size says.
    let old = unsafe { extensible::<QpAttr>(first.as_ptr().cast()) };
    assert_eq!(old.ok().map(|attr| (attr.size, attr.user_timeout_ms)), Some((32, 0)));
}
