//! Tests of registered memory: which peers can access it, and when it may be deregistered.

use std::thread;
use std::time::Duration;

use crate::common::{End, PATIENCE, PORT, Pair, eventually, eventually_unused};
use warpline::{
    Access, Addressing, Advertisement, CloseError, CloseReason, CompletionQueue, DeregisterError,
    ListenConfig, MemoryError, MemoryRegion, MemoryWindow, Operation, QpConfig, Region, STag, SendRequest,
    Sharing, Slice, Status, StreamError, WindowAddressing,
};
use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::device::sim::{End as LinkEnd, Impairments};

/// Tries in vain to take memory back while something needs it, whatever time the core needs to say so.
fn deregister_in_vain(mut memory: MemoryRegion) -> DeregisterError {
    let mut patience = Duration::from_millis(5);
    loop {
        match memory.deregister(patience).expect_err("it is needed") {
            DeregisterError::Unanswered { region, .. } => memory = region,
            error => return error,
        }
        patience *= 2;
    }
}

/// Memory that a send reads is not taken back under it; once the send is done it is.
// Requirements: DDP-8.3.1-07
#[test]
fn memory_stays_while_sends_read_from_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let source = near.domain.allocate(100_000, Access::empty()).unwrap();
    source.fill(1);
    // Acknowledgements are lost for a while, so the Write stays outstanding.
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let target = far.memory.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    let error = deregister_in_vain(source);
    assert!(matches!(error, DeregisterError::InUse(_)), "{error}");
    let source = error.into_region();
    assert_eq!(source.to_vec(0, 1).unwrap(), [1], "it is still there");

    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    source.deregister(PATIENCE).unwrap();
    let completion = near.completion();
    assert_eq!((completion.id, completion.status), (1, Status::Success));
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![1; 100_000]);
}

/// Memory that is revoked is read no more, although the peer has acknowledged nothing. The stream that read
/// it ends; another of the same domain goes on.
// Requirements: DDP-8.3-02, DDP-8.3.1-07
#[test]
fn revoked_memory_ends_the_streams_that_read_it_and_no_others() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let (sends, receives) = (CompletionQueue::new(64), CompletionQueue::new(64));
    let other = near.domain.queue_pair(&QpConfig::default(), &sends, &receives).unwrap();
    let other_far = pair.accept(&other);
    let source = near.domain.allocate(100_000, Access::empty()).unwrap();
    source.fill(1);
    let memory = source.region().clone();
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let target = far.memory.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    // It has work under way too, in other memory.
    near.memory.fill(3);
    let other_target = other_far.memory.advertisement(0, 100).unwrap();
    other.post_write(2, near.memory.slice(0, 100), &other_target, 0).unwrap();
    source.revoke(Duration::from_millis(20)).unwrap();
    assert!(memory.write(0, &vec![9; 100_000]));

    assert_eq!(near.completion().status, Status::Failed(StreamError::Tcp(CloseReason::Aborted)));
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    let done = sends.wait(PATIENCE).unwrap();
    assert_eq!((done.id, done.status), (2, Status::Success));
    assert_eq!(other_far.memory.to_vec(0, 100).unwrap(), vec![3; 100]);
    other.post_write(3, near.memory.slice(0, 100), &other_target, 0).unwrap();
    assert_eq!(sends.wait(PATIENCE).unwrap().status, Status::Success);
    assert!(far.memory.to_vec(0, 100_000).unwrap().iter().all(|octet| [0, 1].contains(octet)));

    // Nothing reads this one: it goes at once, and no stream with it.
    let unused = near.domain.allocate(100, Access::REMOTE_READ).unwrap();
    unused.revoke(PATIENCE).unwrap();
    other.post_write(4, near.memory.slice(0, 100), &other_target, 0).unwrap();
    assert_eq!(sends.wait(PATIENCE).unwrap().status, Status::Success);
}

/// As above, but dropped: the drop returns soon, and the Write completes nevertheless.
#[test]
fn memory_may_be_dropped_while_sends_read_from_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let source = near.domain.allocate(100_000, Access::empty()).unwrap();
    source.fill(2);
    pair.network.set_impairments(LinkEnd::B, Impairments { loss: 1.0, ..Impairments::default() });
    let target = far.memory.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    drop(source);
    pair.network.set_impairments(LinkEnd::B, Impairments::default());
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.memory.to_vec(0, 100_000).unwrap(), vec![2; 100_000]);
    drop((near, far));
    eventually_unused(&pair.near);
}

/// A name that was taken back names nothing, however soon it is used.
// Requirements: DDP-7.1-10, DDP-8.3.1-07
#[test]
fn a_deregistered_name_is_dead() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let target = far.domain.allocate(4096, Access::REMOTE_WRITE).unwrap();
    let (advertisement, memory) = (target.advertisement(0, 4096).unwrap(), target.region().clone());
    near.memory.fill(7);
    near.qp.post_write(1, near.memory.slice(0, 100), &advertisement, 0).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    target.deregister(PATIENCE).unwrap();
    near.qp.post_write(2, near.memory.slice(0, 100), &advertisement, 200).unwrap();
    let Err(CloseError::Failed(error)) = near.qp.wait_closed(PATIENCE) else { panic!("accepted") };
    assert_eq!(error, StreamError::Terminated { layer: 1, error_type: 1, code: 0 });
    let mut octets = [0; 300];
    assert!(memory.read(0, &mut octets));
    assert_eq!((octets[..100].to_vec(), octets[100..].to_vec()), (vec![7; 100], vec![0; 200]));
}

/// Another domain's memory, and memory without the right, are out of reach.
// Requirements: DDP-8.2-01, DDP-8.3.1-02, DDP-8.3.1-06, DDP-8.3.2-04
#[test]
fn domains_and_rights_hold() {
    let cases = [
        (Access::REMOTE_WRITE, true, StreamError::Ddp(DdpError::NotAssociated)),
        (Access::LOCAL_WRITE, false, StreamError::Ddp(DdpError::AccessRights)),
    ];
    for (access, other_domain, error) in cases {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        let domain = if other_domain { pair.far.protection_domain() } else { far.domain.clone() };
        let target = domain.allocate(4096, access).unwrap();
        let advertisement = target.advertisement(0, 4096).unwrap();
        near.qp.post_write(1, near.memory.slice(0, 100), &advertisement, 0).unwrap();
        assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
        assert_eq!(target.to_vec(0, 4096).unwrap(), vec![0; 4096]);
    }
}

/// Memory for one stream is out of reach for others of the same domain, and its owner receives an event for
/// the attempt.
// Requirements: DDP-8.2-02, DDP-8.2-03, DDP-8.3-03, DDP-8.3-05, DDP-8.3.1-03, RDMAP-8.1.1-01
#[test]
fn memory_for_one_stream_is_out_of_reach_for_others() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    // A second connection, to a queue pair of the same domain.
    let listener = pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    let completions = CompletionQueue::new(256);
    let sibling = far.domain.queue_pair(&QpConfig::default(), &completions, &completions).unwrap();
    let other = End::new(&pair.near);
    thread::scope(|scope| {
        let connecting = scope.spawn(other.connecting(b""));
        listener.accept(PATIENCE).unwrap().accept(&sibling, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });

    let region = Region::heap(4096).unwrap();
    let access = Access::REMOTE_WRITE;
    let target = far.domain.register_for(&far.qp, region, access, Addressing::Address).unwrap();
    let advertisement = target.advertisement(0, 4096).unwrap();
    near.memory.fill(1);
    other.memory.fill(2);
    near.qp.post_write(1, near.memory.slice(0, 100), &advertisement, 0).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    other.qp.post_write(2, other.memory.slice(0, 100), &advertisement, 50).unwrap();
    let error = StreamError::Ddp(DdpError::NotAssociated);
    assert_eq!(sibling.wait_closed(PATIENCE), Err(CloseError::Failed(error)));
    let told = StreamError::Terminated { layer: 1, error_type: 1, code: 2 };
    assert_eq!(other.qp.wait_closed(PATIENCE), Err(CloseError::Failed(told)));

    // The stream it is for continues, and no data of the other stream was placed.
    near.qp.post_write(3, near.memory.slice(0, 1), &advertisement, 4095).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    let expected = [vec![1; 100], vec![0; 3995], vec![1]].concat();
    assert_eq!(target.to_vec(0, 4096).unwrap(), expected);
}

/// A queue pair of another domain, or of another device, is no stream of this one.
#[test]
fn memory_is_registered_only_for_streams_of_its_domain() {
    let pair = Pair::new();
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    let foreign = End::new(&pair.near);
    for stranger in [&foreign, &far] {
        let region = Region::heap(64).unwrap();
        let error =
            near.domain.register_for(&stranger.qp, region, Access::empty(), Addressing::Address).unwrap_err();
        assert_eq!(error, MemoryError::OtherDomain);
    }
}

/// The caller's own memory takes part in every operation, by copy.
#[test]
fn memory_of_the_application_is_registered_where_it_lies() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let octets: Vec<u8> = (0..100_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let given = octets.clone();
    let address = given.as_ptr() as u64;
    let region = Region::owned(given).unwrap();
    assert_eq!(region.address(), address);
    let source = near.domain.register(region, Access::empty(), Addressing::Address).unwrap();
    let sink = Region::owned(vec![0; 100_000]).unwrap();
    let sink = far.domain.register(sink, Access::REMOTE_WRITE, Addressing::Address).unwrap();
    assert!(source.is_copied() && sink.is_copied());
    let target = sink.advertisement(0, 100_000).unwrap();
    near.qp.post_write(1, source.slice(0, 100_000), &target, 0).unwrap();
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(sink.to_vec(0, 100_000).unwrap(), octets);
}

/// Work requests renew a window and a registration, under the names that their handles return. Both keep the
/// memory they refer to alive.
// Requirements: DDP-8.3-01, DDP-8.3-02, DDP-8.3.1-05
#[test]
fn windows_and_registrations_are_made_anew_by_work_requests() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND | Access::REMOTE_WRITE;
    let mut memory = far.domain.allocate(4096, access).unwrap();
    let mut window = far.domain.allocate_window().unwrap();
    let carry_out = |id, operation| {
        far.qp.post(SendRequest::new(id, operation, Slice::default())).unwrap();
        let completion = far.completion();
        assert_eq!((completion.id, completion.status), (id, Status::Success));
    };
    let write = |id, octet, target| {
        near.memory.fill(octet);
        near.qp.post_write(id, near.memory.slice(0, 10), &target, 0).unwrap();
        assert_eq!(near.completion().status, Status::Success);
    };
    let binding = window.binding(&memory, 100, 10, Access::REMOTE_WRITE, WindowAddressing::ZeroBased);
    carry_out(1, Operation::Bind(binding));
    write(2, 7, window.advertisement(0, 10).unwrap());
    assert_eq!(memory.to_vec(99, 12).unwrap(), [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);

    let error = deregister_in_vain(memory);
    assert!(matches!(error, DeregisterError::WindowsBound(_)), "{error}");
    memory = error.into_region();
    carry_out(3, Operation::LocalInvalidate { stag: window.stag() });
    carry_out(4, Operation::LocalInvalidate { stag: memory.stag() });
    let anew =
        memory.fast_registration(200, 10, Access::REMOTE_WRITE, Addressing::Address, Sharing::AllStreams);
    carry_out(5, Operation::Register(anew));
    write(6, 8, memory.advertisement(200, 10).unwrap());
    assert_eq!(memory.to_vec(199, 12).unwrap(), [0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0]);
    window.deallocate(PATIENCE).unwrap();
    memory.deregister(PATIENCE).unwrap();
}

/// A window is bound under the keys that its owner counts, so the peer can tell the next STag from the one
/// before. It must have been invalidated, and a key is not used twice in a row.
// Requirements: DDP-8.3-01, DDP-8.3-02
#[test]
fn a_window_is_bound_under_the_key_that_its_owner_chooses() {
    for key_is_the_same in [true, false] {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        let memory = far.domain.allocate(4096, access).unwrap();
        let mut window = far.domain.allocate_window().unwrap();
        let first = window.stag();
        let bind = |window: &mut MemoryWindow, key, offset, status| {
            let (access, addressing) = (Access::REMOTE_WRITE, WindowAddressing::ZeroBased);
            let binding = window.binding_with_key(key, &memory, offset, 10, access, addressing);
            assert_eq!((binding.window, window.stag()), (first.with_key(key), first.with_key(key)));
            far.qp.post(SendRequest::new(1, Operation::Bind(binding), Slice::default())).unwrap();
            assert_eq!(far.completion().status, status);
        };
        let key = |more| first.key().wrapping_add(more);
        for (more, octet) in [(1, 7), (2, 8)] {
            let (stag, offset) =
                (STag(first.0 & 0xffff_0000 | u32::from(key(more))), 100 * usize::from(more));
            bind(&mut window, key(more), offset, Status::Success);
            near.memory.fill(octet);
            let target = Advertisement { to: 0, stag, len: 10 };
            near.qp.post_write(2, near.memory.slice(0, 10), &target, 0).unwrap();
            assert_eq!(near.completion().status, Status::Success);
            assert_eq!(memory.to_vec(offset - 1, 12).unwrap(), [&[0][..], &[octet; 10], &[0]].concat());
            let invalidate = Operation::LocalInvalidate { stag };
            far.qp.post(SendRequest::new(3, invalidate, Slice::default())).unwrap();
            assert_eq!(far.completion().status, Status::Success);
        }
        if key_is_the_same {
            bind(&mut window, key(2), 300, Status::Bind);
        } else {
            bind(&mut window, key(3), 300, Status::Success);
            bind(&mut window, key(4), 400, Status::Bind);
        }
    }
}

/// A window that is bound to nothing opens nothing, and goes when it is asked to.
#[test]
fn windows_come_and_go() {
    let pair = Pair::new();
    let near = End::new(&pair.near);
    let window = near.domain.allocate_window().unwrap();
    assert!(window.advertisement(0, 1).is_none());
    assert_eq!(pair.near.usage().unwrap().regions, 2, "the end's own region and the window");
    window.deallocate(PATIENCE).unwrap();
    drop(near.domain.allocate_window().unwrap());
    eventually("windows gone", || pair.near.usage().unwrap().regions == 1);
}

/// A binding or fast registration has a new name each time, and the Tagged Offsets and ranges that were
/// requested.
#[test]
fn work_requests_on_names_say_what_was_meant() {
    let pair = Pair::new();
    let near = End::new(&pair.near);
    let mut window = near.domain.allocate_window().unwrap();
    let before = window.stag();
    let region = &near.memory;
    let binding = window.binding(region, 100, 50, Access::REMOTE_READ, WindowAddressing::AsRegistered);
    assert_eq!((binding.window, binding.registration), (window.stag(), region.stag()));
    assert_eq!((binding.to, binding.len, binding.zero_based), (region.to(100), 50, false));
    assert_eq!((window.stag().index(), window.stag().key() == before.key()), (before.index(), false));
    assert_eq!(window.advertisement(10, 40).unwrap().to, region.to(110));
    assert!(window.advertisement(10, 41).is_none());
    let binding = window.binding(region, 100, 50, Access::REMOTE_READ, WindowAddressing::ZeroBased);
    assert_eq!((binding.to, binding.zero_based, window.to(1)), (region.to(100), true, 1));

    let mut memory = near.domain.allocate(4096, Access::REMOTE_READ).unwrap();
    let before = memory.stag();
    for (addressing, to) in [
        (Addressing::ZeroBased, 0),
        (Addressing::At(1 << 40), 1 << 40),
        (Addressing::Address, memory.region().address() + 96),
    ] {
        let wanted = memory.fast_registration(96, 1000, Access::REMOTE_READ, addressing, Sharing::OneStream);
        assert_eq!((wanted.stag, wanted.base_to, memory.to(96)), (memory.stag(), to, to));
        assert_eq!((wanted.offset, wanted.len, wanted.all_streams), (96, 1000, false));
        assert_eq!((wanted.stag.index(), wanted.stag.key() == before.key()), (before.index(), false));
    }
    assert_eq!(memory.advertisement(96, 1000).unwrap().to, memory.region().address() + 96);
    assert!(memory.advertisement(95, 1).is_none() && memory.advertisement(1096, 1).is_none());
    // A range that no registration contains: the core refuses it, and there is no advertisement.
    let wanted = memory.fast_registration(
        usize::MAX,
        5,
        Access::REMOTE_READ,
        Addressing::ZeroBased,
        Sharing::OneStream,
    );
    assert_eq!((wanted.offset, wanted.len), (u64::MAX, 5));
    assert!(memory.advertisement(usize::MAX, 0).is_none() && memory.advertisement(0, 1).is_none());
    memory.deregister(PATIENCE).unwrap();
}

/// A work request on unregistered local memory fails, and with it the stream (RDMAP-7.1-01): earlier requests
/// are done, later requests are flushed, as with any queue pair.
#[test]
fn a_local_range_that_is_not_registered_ends_the_stream() {
    for (offset, octets, other_key) in [(End::OCTETS - 10, 11, 0), (0, 1, 0x1_0000)] {
        let pair = Pair::new();
        let (near, far) = pair.connect();
        let target = far.memory.advertisement(0, 4096).unwrap();
        near.write(1, &far, 100);
        let slice = near.memory.slice(offset, octets);
        let bad = Slice { stag: STag(slice.stag.0 ^ other_key), ..slice };
        near.qp.post_write(2, bad, &target, 0).unwrap();
        let late = near.qp.post_write(3, near.memory.slice(0, 100), &target, 0);
        let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
        // The third may come too late to be posted.
        let count = if late.is_ok() { 3 } else { 2 };
        let ends: Vec<_> = (0..count).map(|_| near.completion()).map(|end| (end.id, end.status)).collect();
        assert_eq!(ends, expected[..count]);
        let told = StreamError::Terminated { layer: 0, error_type: 0, code: 0 };
        assert_eq!(far.qp.wait_closed(PATIENCE), Err(CloseError::Failed(told)));
    }
}

/// Tagged Offsets count from the address, from zero, or from what the caller says, up to the last there is.
// Requirements: A-14
#[test]
fn tagged_offsets_count_from_what_was_asked() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = Region::heap(4096).unwrap();
    let by_address = far.domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::Address).unwrap();
    let zero_based =
        far.domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::ZeroBased).unwrap();
    let register = |at| far.domain.register(region.clone(), Access::REMOTE_WRITE, Addressing::At(at));
    let last = u64::MAX - 4096;
    let (somewhere, last_of_all) = (register(0x1234_5678_9abc).unwrap(), register(last).unwrap());
    for wrapping in [last + 1, u64::MAX] {
        assert_eq!(register(wrapping).unwrap_err(), MemoryError::Wrap);
    }
    assert_eq!((by_address.to(5), zero_based.to(5)), (region.address() + 5, 5));
    assert_eq!((somewhere.to(5), last_of_all.to(4095)), (0x1234_5678_9ac1, u64::MAX - 1));
    assert!(by_address.advertisement(0, 4097).is_none() && last_of_all.advertisement(0, 4097).is_none());
    assert!(near.memory.write(0, b"abcd"));
    for (id, target) in (0..).zip([&by_address, &zero_based, &somewhere, &last_of_all]) {
        let advertisement = target.advertisement(100, 4).unwrap();
        near.qp.post_write(id, near.memory.slice(id as usize, 1), &advertisement, id).unwrap();
        assert_eq!(near.completion().status, Status::Success);
    }
    assert_eq!(zero_based.to_vec(100, 4).unwrap(), b"abcd", "all name the same memory");
    // A Tagged Offset that is that of the same byte under another name is none here.
    let elsewhere = Advertisement { to: by_address.to(0), ..somewhere.advertisement(0, 1).unwrap() };
    near.qp.post_write(9, near.memory.slice(0, 1), &elsewhere, 0).unwrap();
    let told = StreamError::Terminated { layer: 1, error_type: 1, code: 1 };
    assert_eq!(near.qp.wait_closed(PATIENCE), Err(CloseError::Failed(told)));
}

#[test]
fn no_memory_is_an_error() {
    let pair = Pair::new();
    let domain = pair.near.protection_domain();
    for octets in [0, usize::MAX] {
        let error = domain.allocate(octets, Access::empty()).unwrap_err();
        assert_eq!(error, MemoryError::OutOfMemory { len: octets });
    }
}
