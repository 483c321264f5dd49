//! What C may do wrong, and what happens to it: a number and a sentence, and nothing else.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::thread;

use warpline::{PollThreadError, StartError, limits};

use super::ends::*;
use super::handles::*;
use crate::advertisement::*;
use crate::completion::*;
use crate::connection::*;
use crate::device::*;
use crate::error::{Failure, guard, guard_or};
use crate::event::*;
use crate::memory::*;
use crate::queue_pair::*;
use crate::window::*;
use crate::work::*;

/// A panic becomes a number and words; it does not reach C.
#[test]
fn a_panic_stays_inside() {
    // Its report on stderr is wanted: it is a bug that is found there.
    assert_eq!(guard(|| panic!("a test of {}", "panics")), -libc::ENOTRECOVERABLE);
    assert_eq!(last_error(), "warpline has a bug, please report it: a test of panics");
    assert_eq!(guard_or(3, || panic!("fixed")), 3);
    assert_eq!(last_error(), "warpline has a bug, please report it: fixed");
}

/// Each thread has its own last failure.
#[test]
fn failures_are_those_of_the_thread() {
    // SAFETY: null is what the header tells of.
    assert_eq!(unsafe { warpline_disconnect(null_mut()) }, -libc::EINVAL);
    assert_eq!(last_error(), "a pointer that must not be null is null");
    assert_eq!(thread::spawn(last_error).join().unwrap(), "");
}

/// What may keep a device from working is told before it is opened, in as many bytes as there is room for;
/// what does keep it from working is a failure.
#[cfg(feature = "dpdk")]
#[test]
fn a_device_is_inspected_before_it_is_opened() {
    const WARNING: &str = "memif is for processes that trust each other: if the peer leaves during a \
                           transfer, DPDK's driver may end this process (SIGSEGV); vhost and virtio_user \
                           survive that\n";
    let inspect = |name: &CStr, text: &mut [u8]| {
        // SAFETY: the name ends with a zero byte, and there is as much room.
        let result = unsafe { warpline_device_inspect(name.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
        usize::try_from(result).map_err(|_| -result)
    };
    let memif = c"memif:/tmp/none.sock,address=198.18.0.1/24";
    let mut text = [0x55; 256];
    assert_eq!(inspect(memif, &mut text), Ok(WARNING.len()));
    assert_eq!(CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap(), WARNING);
    for room in [0, 1, 10, WARNING.len(), WARNING.len() + 1] {
        let mut text = [0x55; 256];
        assert_eq!(inspect(memif, &mut text[..room]), Ok(WARNING.len()));
        if let Some(most) = room.checked_sub(1) {
            assert_eq!((&text[..most], text[most]), (&WARNING.as_bytes()[..most], 0));
        }
        assert!(text[room..].iter().all(|byte| *byte == 0x55), "{room}");
    }
    let mut text = [0x55; 8];
    assert_eq!(inspect(c"vhost:/tmp/none.sock,address=198.18.0.1/24", &mut text), Ok(0));
    assert_eq!(text, [0, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55]);
    assert_eq!(inspect(c"af_packet:none,address=198.18.0.1/24", &mut text), Err(libc::ENODEV));
    assert!(last_error().contains("there is no interface 'none'"), "{}", last_error());
}

/// Null where the header does not allow it is an error in each call, and null is given back as nothing.
#[test]
fn null_is_told() {
    let ring = NEAR_DEVICE.as_ptr();
    let (mut device, mut other) = (null_mut(), null_mut());
    let (mut pd, mut mr, mut qp) = (null_mut(), null_mut(), null_mut());
    let (mut srq, mut listener, mut asked) = (null_mut(), null_mut(), null_mut());
    let mut wc = Wc::default();
    let mut event = Event::default();
    let (mut mw, mut grant, mut advertisement) = (null_mut(), Grant::default(), Advertisement::default());
    // SAFETY: what is not null is good, and null is what the header tells of.
    let results = unsafe {
        [
            warpline_device_open(null(), null(), &raw mut device),
            warpline_device_open(c"none".as_ptr(), null(), &raw mut device),
            warpline_device_open(c"tap:tap0".as_ptr(), null(), null_mut()),
            warpline_device_inspect(c"none".as_ptr(), null_mut(), 0),
            warpline_device_inspect(c"memif:/x,address=198.18.0.1/24".as_ptr(), null_mut(), 1),
            warpline_device_warnings(null(), (&raw mut wc).cast(), 1),
            warpline_device_open_pair(null(), null(), ring, null(), &raw mut device, &raw mut other),
            warpline_device_open_pair(ring, null(), null(), null(), &raw mut device, &raw mut other),
            warpline_device_open_pair(ring, null(), ring, null(), null_mut(), &raw mut other),
            warpline_device_open_pair(ring, null(), ring, null(), &raw mut device, null_mut()),
            warpline_pd_create(null_mut(), &raw mut pd),
            warpline_mr_register(null_mut(), null_mut(), (&raw mut wc).cast(), 1, 0, &raw mut mr),
            warpline_mr_register_at(null_mut(), null_mut(), (&raw mut wc).cast(), 1, 0, 0, &raw mut mr),
            warpline_mr_allocate(null_mut(), null_mut(), 1, 0, &raw mut mr),
            warpline_mr_deregister(null_mut(), 0),
            warpline_mr_revoke(null_mut(), 0),
            warpline_mr_fast_registration(null_mut(), 0, 1, 0, false, &raw mut grant),
            warpline_mw_allocate(null_mut(), &raw mut mw),
            warpline_mw_binding(null_mut(), null(), 0, 1, 0, &raw mut grant),
            warpline_mw_binding_with_key(null_mut(), null(), 1, 0, 1, 0, &raw mut grant),
            warpline_mw_deallocate(null_mut(), 0),
            warpline_mr_advertisement(null(), 0, 1, &raw mut advertisement),
            warpline_mw_advertisement(null(), 0, 1, &raw mut advertisement),
            warpline_advertisement_encode(null(), (&raw mut wc).cast()),
            warpline_advertisement_encode(&raw const advertisement, null_mut()),
            warpline_advertisement_decode(null(), 16, &raw mut advertisement),
            warpline_advertisement_decode((&raw const wc).cast(), 16, null_mut()),
            warpline_cq_create(1, false, null_mut()),
            warpline_cq_poll(null_mut(), 1, &raw mut wc),
            warpline_cq_wait(null_mut(), &raw mut wc, 0),
            warpline_cq_arm(null_mut(), false),
            warpline_cq_fd(null()),
            warpline_cq_clear(null_mut()),
            warpline_qp_create(null_mut(), null_mut(), null_mut(), null_mut(), null(), &raw mut qp),
            warpline_qp_state(null()),
            warpline_disconnect(null_mut()),
            warpline_abort(null_mut()),
            warpline_wait_closed(null_mut(), 0),
            warpline_wait_peer_closed(null_mut(), 0),
            warpline_srq_create(null_mut(), 1, &raw mut srq),
            warpline_srq_arm_limit(null_mut(), 1),
            warpline_srq_post(null_mut(), null(), null_mut()),
            warpline_post_send(null_mut(), null(), null_mut()),
            warpline_post_recv(null_mut(), null(), null_mut()),
            warpline_connect(null_mut(), FAR.as_ptr(), PORT, null(), null_mut()),
            warpline_listen(null_mut(), PORT, null(), &raw mut listener),
            warpline_get_request(null_mut(), 0, &raw mut asked),
            warpline_accept(null_mut(), null_mut(), null()),
            warpline_reject(null_mut(), null(), 0),
            warpline_get_event(null_mut(), &raw mut event, 0),
            warpline_event_fd(null()),
        ]
    };
    assert!(results.iter().all(|&result| result == -libc::EINVAL), "{results:?}");
    assert!(device.is_null() && other.is_null() && pd.is_null() && mr.is_null() && qp.is_null());
    // SAFETY: as above.
    unsafe {
        assert!(warpline_mr_address(null()).is_null() && !warpline_mr_is_copied(null()));
        assert_eq!(
            (warpline_mr_length(null()), warpline_mr_stag(null()), warpline_mw_stag(null())),
            (0, 0, 0)
        );
        assert_eq!(
            (warpline_qp_number(null()), warpline_srq_number(null()), warpline_cq_number(null())),
            (0, 0, 0)
        );
        let mut bytes = 1;
        assert!(warpline_request_private_data(null(), &raw mut bytes).is_null());
        assert_eq!(bytes, 0);
        warpline_device_close(null_mut());
        warpline_pd_destroy(null_mut());
        warpline_mr_destroy(null_mut());
        warpline_mw_destroy(null_mut());
        warpline_cq_destroy(null_mut());
        warpline_qp_destroy(null_mut());
        warpline_srq_destroy(null_mut());
        warpline_listener_destroy(null_mut());
        let cq = Handle::new(1, false);
        assert_eq!(warpline_cq_poll(cq.raw(), 1, null_mut()), -libc::EINVAL);
        assert_eq!(warpline_cq_wait(cq.raw(), null_mut(), 0), -libc::EINVAL);
    }
}

/// A device that cannot be is refused, with the reason.
#[test]
fn attributes_that_make_no_sense() {
    let open = |name: &CStr, attr: &DeviceAttr| {
        let far = c"ring,address=198.18.0.2/24,address=fd00::2/64";
        let opened = Handle::open_pair(name, Some(attr), far, None);
        (opened.err().unwrap_or(0), last_error())
    };
    let all = c"ring,mtu=9000,address=198.18.0.1/24,vlan=7,route=10.0.0.0/8@198.18.0.9,gateway=198.18.0.8";
    let attr = DeviceAttr { window: 1 << 20, flags: WARPLINE_DEVICE_SPIN, ..ATTR };
    assert_eq!(open(all, &attr).0, 0);
    let unknown_flag = DeviceAttr { flags: 8, ..ATTR };
    let reserved = DeviceAttr { reserved: 1, ..ATTR };
    for (name, attr, words) in [
        (c"ring", &ATTR, "0 addresses"),
        (c"ring,address=198.18.0", &ATTR, "198.18.0"),
        (c"ring,address=198.18.0.1/33", &ATTR, "prefix"),
        (c"ring,address=\xff/24", &ATTR, "UTF-8"),
        (c"ring,address=198.18.0.1,route=10.0.0.0/8", &ATTR, "route"),
        (c"ring,address=198.18.0.1,route=10.0.0.0/8@10.0.0.1", &ATTR, "gateway"),
        (c"ring,address=198.18.0.1,vlan=4095", &ATTR, "vlan"),
        (c"rong", &ATTR, "the kinds are ring, packet:INTERFACE"),
        (c"tap:tap0,address=198.18.0.1", &ATTR, "two devices of the kind ring"),
        (NEAR_DEVICE, &unknown_flag, "WARPLINE_DEVICE_"),
        (NEAR_DEVICE, &reserved, "reserved"),
    ] {
        let (result, error) = open(name, attr);
        assert!(result == -libc::EINVAL && error.contains(words), "{result} {error}, not {words}");
    }
}

/// Of a list, what stands before the first wrong request is posted, and that one is named.
#[test]
fn the_bad_request_is_named() {
    let (near, far) = connected();
    for wr_id in 0..3 {
        far.post_recv(wr_id, 0, 64);
    }
    let sge = near.sge(0, 1);
    let five = [sge; 5];
    let wrongs: [(i32, SendWr); 6] = [
        (libc::EINVAL, request(99, &sge)),
        (libc::EINVAL, SendWr { flags: 1 << 20, ..request(WARPLINE_WR_SEND, &sge) }),
        (libc::EINVAL, SendWr { num_sge: 5, ..request(WARPLINE_WR_SEND, &five[0]) }),
        (libc::EINVAL, SendWr { sg_list: null(), ..request(WARPLINE_WR_SEND, &sge) }),
        (libc::EINVAL, request(WARPLINE_WR_FETCH_ADD, &sge)),
        (libc::EINVAL, SendWr { num_sge: 1, ..request(WARPLINE_WR_IMMEDIATE, &sge) }),
    ];
    for (code, wrong) in &wrongs {
        assert_eq!(near.qp.post_send(wrong), (-code, &raw const *wrong), "{}", wrong.opcode);
    }
    let (_, wrong) = &wrongs[0];
    let after = SendWr { next: &raw const *wrong, wr_id: 12, ..request(WARPLINE_WR_SEND, &sge) };
    let first = SendWr { next: &raw const after, wr_id: 11, ..request(WARPLINE_WR_SEND, &sge) };
    assert_eq!(near.qp.post_send(&first), (-libc::EINVAL, &raw const *wrong));
    assert_eq!([near.completed().wr_id, near.completed().wr_id], [11, 12]);
    let long = [0_u8; 65];
    let range = Sge { addr: long.as_ptr() as u64, length: 65, stag: 0 };
    let inline = SendWr { flags: WARPLINE_SEND_INLINE, ..request(WARPLINE_WR_SEND, &range) };
    assert_eq!(near.qp.post_send(&inline).0, -libc::EINVAL);
    assert_eq!(last_error(), "more bytes than WARPLINE_MAX_INLINE");
}

/// Queues that are too long are refused with the longest length, and nothing is allocated for them.
#[test]
fn queues_that_are_too_long() {
    let (near_device, _far_device) = devices();
    let end = End::new(&near_device);
    let (mut cq, mut srq, mut qp) = (null_mut(), null_mut(), null_mut());
    for depth in [u32::MAX, 1 << 21] {
        let deep = |send_depth, recv_depth| QpAttr { send_depth, recv_depth, ..QP_ATTR };
        let (own_cq, own_pd) = (end.cq.raw(), end.pd.raw());
        let mut create = |attr: &QpAttr| {
            // SAFETY: the handles are good, and the place may be written.
            let result = unsafe { warpline_qp_create(own_pd, own_cq, own_cq, null_mut(), attr, &raw mut qp) };
            assert!(result == -libc::EINVAL && last_error().contains("32768"), "{result} {}", last_error());
        };
        create(&deep(depth, 0));
        create(&deep(0, depth));
        // SAFETY: as above.
        assert_eq!(unsafe { warpline_cq_create(depth, false, &raw mut cq) }, -libc::EINVAL);
        assert!(last_error().contains(&limits::COMPLETIONS_PER_QUEUE.to_string()));
        // SAFETY: as above.
        assert_eq!(unsafe { warpline_srq_create(own_pd, depth, &raw mut srq) }, -libc::EINVAL);
        assert!(last_error().contains(&limits::RECEIVES_PER_SHARED_QUEUE.to_string()));
    }
    assert!(cq.is_null() && srq.is_null() && qp.is_null());
    end.pd.qp(&end.cq, Some(&end.pd.srq(1)), None);
}

/// A queue takes as many receives as it was made for, over the lists of many batches.
#[test]
fn a_full_queue_names_the_first_that_had_no_room() {
    let (near_device, _far_device) = devices();
    let end = End::new(&near_device);
    let attr = QpAttr { recv_depth: 100, ..QP_ATTR };
    let qp = end.pd.qp(&end.cq, None, Some(&attr));
    let sge = end.sge(0, 8);
    let mut list: Vec<RecvWr> = (0..150).map(|wr_id| receive(wr_id, &sge)).collect();
    for at in 0..list.len() - 1 {
        list[at].next = &raw const list[at + 1];
    }
    assert_eq!(qp.post_recv(&list[0]), (-libc::EAGAIN, &raw const list[100]));
    assert_eq!(last_error(), "the queue is full: poll completions first");
}

/// The peer's reason arrives; who is not there is told apart from who does not want.
#[test]
fn connections_that_do_not_come() {
    let (near_device, far_device) = devices();
    let near = End::new(&near_device);
    let try_to = |address, param| near.qp.connect(address, PORT, param).0;
    assert_eq!(try_to(FAR, None), -libc::ECONNREFUSED, "{}", last_error());
    assert_eq!(try_to(c"192.0.2.1", None), -libc::ENETUNREACH);
    assert_eq!(try_to(c"far", None), -libc::EINVAL);
    assert_eq!(try_to(FAR, Some(&param(&[0; 513]))), -libc::EINVAL);

    let listener = far_device.listen(PORT).unwrap();
    assert_eq!(far_device.listen(PORT).unwrap_err(), -libc::EADDRINUSE);
    assert_eq!(listener.request(1).unwrap_err(), -libc::ETIMEDOUT);
    let (result, reply) = thread::scope(|scope| {
        let connecting = scope.spawn(|| near.qp.connect(FAR, PORT, None));
        assert_eq!(listener.request(PATIENCE).unwrap().reject(b"full up"), 0);
        connecting.join().unwrap()
    });
    assert_eq!(result, -libc::EACCES);
    assert_eq!(&reply.private_data[..reply.private_data_len as usize], b"full up");
}

/// Memory that a send still reads is not given back; once that is complete, it is. The end that accepts sends
/// nothing before the peer's first message (MPA-7.1.2-15), so its send stays for as long.
#[test]
fn memory_in_use_stays() {
    let (near, far) = connected();
    let mut own = vec![b'x'; 64];
    let start = own.as_mut_ptr();
    // SAFETY: it stays until it is deregistered.
    let mr = unsafe { far.pd.register(start, own.len(), 0) }.unwrap();
    let sge = Sge { addr: start as u64, length: 64, stag: mr.stag() };
    near.post_recv(1, 0, 64);
    far.post_recv(2, 0, 64);
    far.post_send(&request(WARPLINE_WR_SEND, &sge));
    let (mr, words) = mr.deregister_in_vain();
    assert!(words.contains("poll their completions"), "{words}");
    near.post_send(&request(WARPLINE_WR_SEND, &near.sge(64, 1)));
    let mut seen = [far.completed().opcode, far.completed().opcode];
    seen.sort_unstable();
    assert_eq!(seen, [WARPLINE_WC_SEND, WARPLINE_WC_RECEIVE]);
    mr.deregister(PATIENCE).unwrap();
    while near.completed().opcode != WARPLINE_WC_RECEIVE {}
    assert_eq!(near.get(0, 64), own);
}

/// What cannot be registered is refused.
#[test]
fn memory_that_makes_no_sense() {
    let (near_device, _far_device) = devices();
    let end = End::new(&near_device);
    let mut own = [0_u8; 64];
    for (bytes, access) in [(0, 0), (64, 1 << 20), (usize::MAX, 0)] {
        // SAFETY: nothing of it is registered.
        let refused = unsafe { end.pd.register(own.as_mut_ptr(), bytes, access) };
        assert_eq!(refused.unwrap_err(), -libc::EINVAL);
    }
    for (to, access) in [(u64::MAX - 63, 0), (0, WARPLINE_ACCESS_ZERO_BASED)] {
        // SAFETY: as above.
        let refused = unsafe { end.pd.register_at(own.as_mut_ptr(), 64, to, access) };
        assert_eq!(refused.unwrap_err(), -libc::EINVAL);
    }
    assert_eq!(end.pd.allocate(None, 0, 0).unwrap_err(), -libc::ENOMEM);
    let stranger = near_device.pd();
    let refused = stranger.allocate(Some(&end.qp), 64, 0);
    assert_eq!(refused.unwrap_err(), -libc::EINVAL, "the queue pair is of another domain");
}

/// A CPU that a thread cannot run on is a wrong argument; no thread is a lack.
#[test]
fn a_cpu_that_is_not_there_is_a_wrong_argument() {
    let attr = DeviceAttr { flags: WARPLINE_DEVICE_PIN, lcore: 100_000, ..ATTR };
    let refused = Handle::open_pair(NEAR_DEVICE, Some(&attr), FAR_DEVICE, None);
    assert_eq!(refused.err(), Some(-libc::EINVAL));
    assert!(last_error().starts_with("CPU 100000 cannot be used"), "{}", last_error());
    let lack = PollThreadError::Spawn(std::io::Error::from_raw_os_error(libc::EAGAIN));
    assert_eq!(Failure::from(StartError::PollThread(lack)).report(), -libc::ENOMEM);
}

/// Every status that there is has words of its own, and others have none.
#[test]
fn statuses_have_words() {
    let known: Vec<u32> = (0..64).filter(|&status| status_text(status) != c"unknown status").collect();
    assert_eq!(known, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 20, 21]);
    let words: HashSet<_> = known.iter().map(|&status| status_text(status)).collect();
    assert_eq!(words.len(), known.len());
    let events: HashSet<_> = (0..9).map(event_text).collect();
    assert_eq!(events.len(), 9, "eight events, and what is none");
}
