//! Tests of the accesses that the table grants and refuses, case by case. `model_tests` shows that nothing
//! else is reachable after any sequence of operations.

use super::*;
use crate::memory::{Binding, FastRegistration, Invalidation, Reach};
use crate::tally;

const PD: ProtectionDomainId = ProtectionDomainId(1);
const OTHER_PD: ProtectionDomainId = ProtectionDomainId(2);
const WHO: Accessor = Accessor { pd: PD, stream: 0 };
/// Another stream of the same domain.
const SIBLING: Accessor = Accessor { pd: PD, stream: 1 };
const STRANGER: Accessor = Accessor { pd: OTHER_PD, stream: 2 };
const STAG: STag = STag::new(3, 0xbeef);
const WINDOW: STag = STag::new(4, 0x1111);
const OCTETS: usize = 4096;

fn grant(base_to: u64, access: Access) -> Grant {
    Grant::new(Region::heap(OCTETS).unwrap(), PD, base_to, access)
}

fn table_of(grant: Grant) -> StagTable {
    let mut table = StagTable::new();
    table.insert(STAG, grant).unwrap();
    table
}

fn table(base_to: u64, access: Access) -> StagTable {
    table_of(grant(base_to, access))
}

fn check(table: &StagTable, to: u64, octets: usize) -> Result<(), AccessError> {
    table.check(STAG, WHO, Access::REMOTE_WRITE, to, octets).map(drop)
}

/// Bounds hold to the octet.
// Requirements: DDP-7.1-12, DDP-7.1-13, DDP-8.1-01, DDP-8.3.1-04, RDMAP-8.1.1-01
#[test]
fn bounds_hold_to_the_octet() {
    let table = table(1000, Access::REMOTE_WRITE);
    assert_eq!(check(&table, 1000, 4096), Ok(()));
    assert_eq!(check(&table, 1000, 4097), Err(AccessError::Bounds));
    assert_eq!(check(&table, 999, 1), Err(AccessError::Bounds));
    assert_eq!(check(&table, 5095, 1), Ok(()));
    assert_eq!(check(&table, 5096, 1), Err(AccessError::Bounds));
    assert_eq!(check(&table, 5096, 0), Ok(()), "an empty range at the end is inside");
}

/// The sum must not reach 2^64.
// Requirements: DDP-7.1-14, A-14
#[test]
fn the_sum_does_not_wrap() {
    let table = table(u64::MAX - 4096, Access::REMOTE_WRITE);
    assert_eq!(check(&table, u64::MAX - 4096, 4096), Ok(()));
    assert_eq!(check(&table, u64::MAX - 4096, 4097), Err(AccessError::Wrap));
    assert_eq!(check(&table, u64::MAX, 2), Err(AccessError::Wrap));
}

/// A range that a peer could never address whole is not registered.
// Requirements: A-14
#[test]
fn offsets_that_would_wrap_are_refused_at_registration() {
    let mut table = StagTable::new();
    for base_to in [u64::MAX - 4095, u64::MAX] {
        assert_eq!(table.insert(STAG, grant(base_to, Access::REMOTE_WRITE)), Err(InsertError::Wrap));
        assert_eq!(table.remove(STAG), Err(RemoveError::Unknown));
    }
    assert_eq!(table.insert(STAG, grant(u64::MAX - 4096, Access::REMOTE_WRITE)), Ok(()));
}

// Requirements: DDP-4.2-05, DDP-7.1-10, DDP-8.2-01, DDP-8.3.1-02, DDP-8.3.1-06, RDMAP-8.1.1-01
#[test]
fn stag_domain_and_rights_must_match() {
    let access = Access::REMOTE_READ;
    let table = table(0, access);
    for refused in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::LOCAL_WRITE, Access::REMOTE] {
        assert_eq!(table.check(STAG, WHO, refused, 0, 1).err(), Some(AccessError::Rights), "{refused:?}");
    }
    assert!(
        table.check(STAG, WHO, access, 0, 1).is_ok() && table.check(STAG, WHO, Access::empty(), 0, 1).is_ok()
    );
    for stale in [STag::new(3, 0xbeee), STag::new(2, 0xbeef), STag(0)] {
        assert_eq!(table.check(stale, WHO, access, 0, 1).err(), Some(AccessError::InvalidStag));
    }
    // Of several things that are wrong, the first in the order of A-30.
    assert_eq!(
        table.check(STAG, STRANGER, Access::REMOTE_WRITE, u64::MAX, 9).err(),
        Some(AccessError::NotAssociated)
    );
}

/// A registration for one stream is for no other, not even of its domain, and neither from outside nor from
/// inside.
// Requirements: DDP-8.2-02, DDP-8.2-04, DDP-8.3-03, DDP-8.3.1-03, RDMAP-8.1.1-01
#[test]
fn a_registration_may_be_for_one_stream_alone() {
    let table = table_of(Grant { stream: Some(WHO.stream), ..grant(0, Access::REMOTE_WRITE) });
    for access in [Access::REMOTE_WRITE, Access::empty()] {
        assert!(table.check(STAG, WHO, access, 0, 1).is_ok());
        let same_number = Accessor { stream: WHO.stream, ..STRANGER };
        for other in [SIBLING, STRANGER, same_number] {
            assert_eq!(
                table.check(STAG, other, access, 0, 1).err(),
                Some(AccessError::NotAssociated),
                "{other:?}"
            );
        }
    }
}

/// After revocation nothing is reachable, and memory that a send reads is not revoked under it.
// Requirements: DDP-8.3-02, DDP-8.3.1-05, DDP-8.3.1-07
#[test]
fn revocation_waits_for_readers() {
    let mut table = table(0, Access::REMOTE_WRITE);
    table.retain(STAG);
    assert_eq!(table.remove(STAG), Err(RemoveError::InUse));
    assert_eq!(check(&table, 0, 1), Ok(()), "nothing has changed");
    table.release(STAG);
    assert_eq!(table.remove(STAG), Ok(()));
    assert_eq!(check(&table, 0, 1), Err(AccessError::InvalidStag));
    assert_eq!(table.remove(STAG), Err(RemoveError::Unknown));
}

#[test]
fn a_slot_has_one_name_at_a_time() {
    let mut table = StagTable::with_slots(8);
    table.insert(STAG, grant(0, Access::empty())).unwrap();
    let same_slot = STAG.with_key(7);
    assert_eq!(table.insert(same_slot, grant(0, Access::empty())), Err(InsertError::NoSlot));
    assert_eq!(table.allocate_window(same_slot, PD), Err(InsertError::NoSlot));
    assert_eq!(table.insert(STag::new(8, 1), grant(0, Access::empty())), Err(InsertError::NoSlot));
    assert_eq!(table.allocate_window(STag(0), PD), Err(InsertError::NoSlot), "zero is no STag");
    assert_eq!(table.remove(same_slot), Err(RemoveError::Unknown));
}

/// An invalid STag reaches nothing, and its slot is still its owner's.
// Requirements: DDP-8.3-02
#[test]
fn an_invalidated_stag_reaches_nothing() {
    let mut table = table(0, Access::REMOTE_WRITE);
    assert_eq!(table.invalidate(STAG, WHO, Invalidation::Local), Ok(Reach::ThisCore));
    assert_eq!(check(&table, 0, 1), Err(AccessError::InvalidStag));
    assert_eq!(table.check(STAG, WHO, Access::empty(), 0, 1).err(), Some(AccessError::InvalidStag));
    assert_eq!(table.invalidate(STAG, WHO, Invalidation::Local), Err(InvalidationError::InvalidStag), "once");
    assert_eq!(table.insert(STAG.with_key(1), grant(0, Access::empty())), Err(InsertError::NoSlot));
    assert_eq!(table.remove(STAG), Ok(()));
}

/// The owner invalidates on any stream of the domain, and on no stream of another.
#[test]
fn owners_invalidate_what_is_of_their_domain() {
    for stream in [None, Some(WHO.stream)] {
        let mut table = table_of(Grant { stream, ..grant(0, Access::empty()) });
        let stranger = table.invalidate(STAG, STRANGER, Invalidation::Local);
        assert_eq!(stranger, Err(InvalidationError::NotAssociated));
        assert_eq!(table.invalidate(STAG, SIBLING, Invalidation::Local), Ok(Reach::ThisCore));
    }
}

/// A peer can invalidate only registrations that are for its stream alone.
// Requirements: RDMAP-5.3-08, RDMAP-7.2-04, RDMAP-8.1.1-02
#[test]
fn peers_invalidate_only_what_is_theirs_alone() {
    let by = Invalidation::Remote;
    let mut shared = table(0, Access::REMOTE);
    assert_eq!(shared.invalidate(STAG, WHO, by), Err(InvalidationError::Shared));
    assert_eq!(check(&shared, 0, 1), Ok(()), "it stays as it was");

    let mut exclusive = table_of(Grant { stream: Some(WHO.stream), ..grant(0, Access::REMOTE_READ) });
    assert_eq!(exclusive.invalidate(STAG, SIBLING, by), Err(InvalidationError::NotAssociated));
    assert_eq!(exclusive.invalidate(STAG, STRANGER, by), Err(InvalidationError::NotAssociated));
    assert_eq!(exclusive.invalidate(STAG.with_key(1), WHO, by), Err(InvalidationError::InvalidStag));
    assert_eq!(exclusive.invalidate(STAG, WHO, by), Ok(Reach::ThisCore));
    assert_eq!(exclusive.invalidate(STAG, WHO, by), Err(InvalidationError::InvalidStag));

    let mut private = table_of(Grant { stream: Some(WHO.stream), ..grant(0, Access::LOCAL_WRITE) });
    assert_eq!(private.invalidate(STAG, WHO, by), Err(InvalidationError::Rights));
    assert_eq!(private.invalidate(STAG, WHO, Invalidation::Local), Ok(Reach::ThisCore));
}

/// An invalidation takes effect at once, even while Sends read. Their remaining octets are still read, and
/// the slot is not reused before they are done.
// Requirements: DDP-8.3.1-07
#[test]
fn readers_outlive_an_invalidation() {
    let mut table = table(100, Access::REMOTE_READ);
    assert!(table.retained(STAG, 100, 8).is_none(), "nobody reads yet");
    table.retain(STAG);
    assert_eq!(table.invalidate(STAG, WHO, Invalidation::Local), Ok(Reach::ThisCore));
    assert_eq!(table.check(STAG, WHO, Access::REMOTE_READ, 100, 8).err(), Some(AccessError::InvalidStag));
    assert!(table.retained(STAG, 100, 8).is_some());
    assert!(table.retained(STAG, 99, 8).is_none() && table.retained(STAG, 100, OCTETS + 1).is_none());
    assert!(table.retained(STAG.with_key(1), 100, 8).is_none());
    let anew = FastRegistration {
        stag: STAG.with_key(1),
        offset: 0,
        len: 1,
        base_to: 0,
        access: Access::empty(),
        all_streams: true,
    };
    assert_eq!(table.register(&anew, WHO), Err(BindError::InUse));
    assert_eq!(table.remove(STAG), Err(RemoveError::InUse));
    table.retain(STAG);
    table.release(STAG);
    assert!(table.retained(STAG, 100, 8).is_none(), "nobody begins to read by an invalid name");
    assert_eq!(table.register(&anew, WHO), Ok(Reach::ThisCore));
}

/// The number of a queue pair that is gone will be another's.
// Requirements: DDP-8.3.1-03
#[test]
fn what_was_for_a_stream_ends_with_it() {
    let mut table = table_of(Grant { stream: Some(WHO.stream), ..grant(0, Access::REMOTE_WRITE) });
    let (common, siblings) = (STag::new(9, 9), STag::new(65_535, 1));
    table.insert(common, grant(0, Access::REMOTE_WRITE)).unwrap();
    let for_sibling = Grant { stream: Some(SIBLING.stream), ..grant(0, Access::REMOTE_WRITE) };
    table.insert(siblings, for_sibling).unwrap();
    table.end_stream(WHO.stream);
    assert_eq!(check(&table, 0, 1), Err(AccessError::InvalidStag), "the next stream of that number");
    assert!(table.check(common, WHO, Access::REMOTE_WRITE, 0, 1).is_ok());
    assert!(table.check(siblings, SIBLING, Access::REMOTE_WRITE, 0, 1).is_ok());
    table.end_stream(SIBLING.stream);
    assert!(table.check(siblings, SIBLING, Access::REMOTE_WRITE, 0, 1).is_err());
    for stag in [STAG, common, siblings] {
        assert_eq!(table.remove(stag), Ok(()));
    }
}

const OWN: Access = Access::LOCAL_WRITE.union(Access::WINDOW_BIND);

fn table_with_window(access: Access) -> StagTable {
    let mut table = table(1000, access);
    table.allocate_window(WINDOW, PD).unwrap();
    table
}

fn binding(key: u16, to: u64, octets: u64) -> Binding {
    let window = WINDOW.with_key(key);
    Binding { window, registration: STAG, to, len: octets, access: Access::REMOTE, zero_based: false }
}

/// A window opens its range to its own stream, even if the registration is open to no peer.
// Requirements: DDP-8.2-03, DDP-8.3-01, DDP-8.3.1-03, DDP-8.3.1-04
#[test]
fn a_window_opens_what_it_was_bound_to() {
    let mut table = table_with_window(OWN);
    let allocated = table.check(WINDOW, WHO, Access::REMOTE_READ, 0, 0).err();
    assert_eq!(allocated, Some(AccessError::InvalidStag), "bound to nothing");
    table.bind(&binding(2, 1100, 50), WHO).unwrap();
    let window = WINDOW.with_key(2);
    for access in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert!(table.check(window, WHO, access, 1100, 50).is_ok());
        assert_eq!(table.check(STAG, WHO, access, 1100, 50).err(), Some(AccessError::Rights));
        assert_eq!(table.check(WINDOW, WHO, access, 1100, 50).err(), Some(AccessError::InvalidStag));
        assert_eq!(table.check(window, SIBLING, access, 1100, 50).err(), Some(AccessError::NotAssociated));
        for (to, octets) in [(1099, 1), (1100, 51), (1150, 1), (0, 1), (1099, 52)] {
            assert_eq!(table.check(window, WHO, access, to, octets).err(), Some(AccessError::Bounds));
        }
    }
    // It is for peers.
    for access in [Access::empty(), Access::LOCAL_WRITE] {
        assert_eq!(table.check(window, WHO, access, 1100, 50).err(), Some(AccessError::Rights));
    }
    assert!(table.check(window, WHO, Access::REMOTE_WRITE, 1100, 50).unwrap().write(0, b"seen"));
    let mut seen = [0; 4];
    assert!(table.check(STAG, WHO, Access::empty(), 1100, 4).unwrap().read(0, &mut seen));
    assert_eq!(&seen, b"seen");
}

#[test]
fn a_window_may_count_from_zero() {
    let mut table = table_with_window(OWN);
    table.bind(&Binding { zero_based: true, ..binding(2, 1100, 50) }, WHO).unwrap();
    let window = WINDOW.with_key(2);
    assert!(table.check(window, WHO, Access::REMOTE_WRITE, 0, 50).unwrap().write(49, b"!"));
    assert_eq!(table.check(window, WHO, Access::REMOTE_WRITE, 0, 51).err(), Some(AccessError::Bounds));
    let mut seen = [0];
    assert!(table.check(STAG, WHO, Access::empty(), 1149, 1).unwrap().read(0, &mut seen));
    assert_eq!(&seen, b"!");
}

/// A binding cannot grant more than its owner has, and a refused window opens nothing.
// Requirements: DDP-8.3-04, DDP-8.3.1-06, DDP-8.3.2-05
#[test]
fn bindings_that_reach_too_far_are_refused() {
    let mut table = table_with_window(OWN);
    let good = binding(2, 1000, 4096);
    let write = Access::REMOTE_WRITE;
    let read_only = STag::new(5, 5);
    table.insert(read_only, grant(0, Access::WINDOW_BIND)).unwrap();
    let closed = STag::new(6, 6);
    table.insert(closed, grant(0, Access::LOCAL_WRITE | Access::REMOTE)).unwrap();
    let foreign = STag::new(7, 7);
    table.insert(foreign, Grant { pd: OTHER_PD, ..grant(1000, OWN) }).unwrap();
    let of_sibling = STag::new(8, 8);
    table.insert(of_sibling, Grant { stream: Some(SIBLING.stream), ..grant(1000, OWN) }).unwrap();
    for (binding, error) in [
        (Binding { to: 999, ..good }, BindError::Bounds),
        (Binding { len: 4097, ..good }, BindError::Bounds),
        (Binding { len: 0, ..good }, BindError::Bounds),
        (Binding { to: u64::MAX, ..good }, BindError::Wrap),
        (Binding { len: u64::MAX, ..good }, BindError::Wrap),
        (Binding { access: Access::LOCAL_WRITE | write, ..good }, BindError::Rights),
        (Binding { access: Access::WINDOW_BIND, ..good }, BindError::Rights),
        (Binding { registration: read_only, to: 0, len: 1, access: write, ..good }, BindError::Rights),
        (Binding { registration: closed, to: 0, len: 1, ..good }, BindError::Rights),
        (Binding { registration: foreign, ..good }, BindError::NotAssociated),
        (Binding { registration: of_sibling, ..good }, BindError::NotAssociated),
        (Binding { registration: STAG.with_key(1), ..good }, BindError::InvalidStag),
        (Binding { registration: WINDOW, ..good }, BindError::InvalidStag),
        (Binding { window: STAG.with_key(1), ..good }, BindError::InvalidStag),
        (Binding { window: STag::new(40, 1), ..good }, BindError::InvalidStag),
        (Binding { window: WINDOW, ..good }, BindError::KeyReused),
    ] {
        let refused = table.bind(&binding, WHO);
        let refused_as_expected = match error {
            // A slot of the other kind that is valid is known by that already.
            BindError::InvalidStag => matches!(refused, Err(BindError::InvalidStag | BindError::StillValid)),
            _ => refused == Err(error),
        };
        assert!(refused_as_expected, "{binding:?}: {refused:?} instead of {error:?}");
        assert!(
            table.check(binding.window, WHO, Access::empty(), 1000, 1).is_err() || binding.window == STAG
        );
    }
    assert_eq!(table.bind(&good, STRANGER), Err(BindError::NotAssociated));
    let read = Binding { registration: read_only, to: 0, len: 1, access: Access::REMOTE_READ, ..good };
    assert_eq!(table.bind(&read, WHO), Ok(()), "reading changes nothing");
}

/// The keys of a window are its owner's choice: the next, one that it had before the last, and 0. Only the
/// last is refused, for a peer may still have it.
#[test]
fn a_window_may_have_any_key_but_its_last() {
    let mut table = table_with_window(OWN);
    let last = WINDOW.key();
    for key in [last + 1, last, 0, u16::MAX, 0] {
        table.bind(&binding(key, 1000, 8), WHO).unwrap();
        for other in [last + 1, last, 0, u16::MAX] {
            let reached = table.check(WINDOW.with_key(other), WHO, Access::REMOTE_READ, 1000, 8);
            assert_eq!(reached.is_ok(), other == key);
        }
        assert_eq!(table.bind(&binding(key, 1000, 8), WHO), Err(BindError::KeyReused));
        assert_eq!(table.bind(&binding(key ^ 1, 1000, 8), WHO), Err(BindError::StillValid));
        let by_peer = table.invalidate(WINDOW.with_key(key), WHO, Invalidation::Remote);
        assert_eq!(by_peer, Ok(Reach::ThisCore));
        assert_eq!(table.bind(&binding(key, 1000, 8), WHO), Err(BindError::KeyReused));
    }
}

/// The owner closes a window by any of its keys, bound or not, and no other domain does.
#[test]
fn a_window_is_closed_whatever_its_key_is() {
    let mut table = table_with_window(OWN);
    for key in [WINDOW.key() + 1, 7] {
        assert_eq!(table.unbind(WINDOW, WHO), Ok(Reach::ThisCore), "it is not bound");
        table.bind(&binding(key, 1000, 8), WHO).unwrap();
        assert_eq!(table.unbind(WINDOW, STRANGER), Err(InvalidationError::NotAssociated));
        assert!(table.check(WINDOW.with_key(key), WHO, Access::REMOTE_READ, 1000, 8).is_ok());
        assert_eq!(table.unbind(WINDOW.with_key(9), SIBLING), Ok(Reach::ThisCore));
        let reached = table.check(WINDOW.with_key(key), WHO, Access::REMOTE_READ, 1000, 8);
        assert_eq!(reached.map(drop), Err(AccessError::InvalidStag));
    }
    for no_window in [STAG, STag::new(WINDOW.index() as u16 + 1, 1)] {
        assert_eq!(table.unbind(no_window, WHO), Err(InvalidationError::InvalidStag));
    }
    assert!(table.check(STAG, WHO, Access::empty(), 1000, 8).is_ok(), "the registration is as it was");
}

/// A registration stays as long as windows reach it, and a bound window is not moved.
#[test]
fn windows_hold_their_registration() {
    let mut table = table_with_window(OWN);
    table.bind(&binding(2, 1100, 50), WHO).unwrap();
    assert_eq!(table.remove(STAG), Err(RemoveError::WindowsBound));
    let by = Invalidation::Local;
    assert_eq!(table.invalidate(STAG, WHO, by), Err(InvalidationError::WindowsBound));
    assert_eq!(table.bind(&binding(3, 1000, 1), WHO), Err(BindError::StillValid));
    // Unbound by the peer, while a Read Response of the window is under way.
    table.retain(WINDOW.with_key(2));
    assert_eq!(table.invalidate(WINDOW.with_key(2), WHO, Invalidation::Remote), Ok(Reach::ThisCore));
    assert_eq!(table.remove(STAG), Err(RemoveError::WindowsBound), "still read from");
    assert_eq!(table.bind(&binding(3, 1000, 1), WHO), Err(BindError::InUse));
    assert_eq!(table.remove(WINDOW), Err(RemoveError::InUse));
    table.release(WINDOW.with_key(2));
    assert_eq!(table.bind(&binding(2, 1000, 1), WHO), Err(BindError::KeyReused));
    assert_eq!(table.bind(&binding(3, 1000, 1), WHO), Ok(()));
    assert_eq!(table.remove(WINDOW), Ok(()), "by the name it was allocated by");
    assert_eq!(table.remove(STAG), Ok(()));
}

/// A window of a stream that is gone holds nothing any more; one of another stream stays.
#[test]
fn windows_end_with_their_stream() {
    let mut table = table_with_window(OWN);
    let second = STag::new(5, 1);
    table.allocate_window(second, PD).unwrap();
    table.bind(&binding(2, 1100, 50), WHO).unwrap();
    table.bind(&Binding { window: second.with_key(2), ..binding(0, 1000, 8) }, SIBLING).unwrap();
    table.end_stream(WHO.stream);
    let reach =
        |table: &StagTable, stag: STag, who| table.check(stag, who, Access::REMOTE_READ, 1000, 1).err();
    assert_eq!(reach(&table, WINDOW.with_key(2), WHO), Some(AccessError::InvalidStag));
    assert_eq!(reach(&table, second.with_key(2), SIBLING), None);
    assert_eq!(table.remove(STAG), Err(RemoveError::WindowsBound));
    table.end_stream(SIBLING.stream);
    assert_eq!(table.remove(STAG), Ok(()));
}

/// A registration gets a new range, rights and stream under a name that was never used before.
// Requirements: DDP-8.3-01, DDP-8.3.1-05, DDP-8.3.1-06
#[test]
fn a_registration_is_made_anew_under_another_key() {
    let mut table = table(0, Access::LOCAL_WRITE | Access::REMOTE_READ);
    let next = STAG.with_key(1);
    let wanted = FastRegistration {
        stag: next,
        offset: 96,
        len: 4000,
        base_to: 7,
        access: Access::REMOTE_READ,
        all_streams: false,
    };
    assert_eq!(table.register(&wanted, WHO), Err(BindError::StillValid));
    assert_eq!(table.invalidate(STAG, WHO, Invalidation::Local), Ok(Reach::ThisCore));
    for (refused, error) in [
        (FastRegistration { stag: STAG, ..wanted }, BindError::KeyReused),
        (FastRegistration { stag: STag::new(30, 1), ..wanted }, BindError::InvalidStag),
        (FastRegistration { access: Access::REMOTE_WRITE, ..wanted }, BindError::Rights),
        (FastRegistration { len: 4001, ..wanted }, BindError::Bounds),
        (FastRegistration { len: 0, ..wanted }, BindError::Bounds),
        (FastRegistration { offset: 4097, len: 1, ..wanted }, BindError::Bounds),
        (FastRegistration { offset: u64::MAX, ..wanted }, BindError::Bounds),
        (FastRegistration { len: u64::MAX, ..wanted }, BindError::Wrap),
        (FastRegistration { base_to: u64::MAX - 3999, ..wanted }, BindError::Wrap),
    ] {
        assert_eq!(table.register(&refused, WHO), Err(error), "{refused:?}");
        assert!(table.check(refused.stag, WHO, Access::empty(), 0, 0).is_err());
    }
    assert_eq!(table.register(&wanted, STRANGER), Err(BindError::NotAssociated));
    assert_eq!(table.register(&wanted, WHO), Ok(Reach::ThisCore));
    let read = |table: &StagTable, stag, who, to, octets| {
        table.check(stag, who, Access::REMOTE_READ, to, octets).map(|target| target.region().1)
    };
    assert_eq!(read(&table, next, WHO, 7, 4000), Ok(96));
    assert_eq!(read(&table, next, WHO, 6, 1), Err(AccessError::Bounds));
    assert_eq!(read(&table, next, WHO, 4007, 1), Err(AccessError::Bounds));
    assert_eq!(read(&table, STAG, WHO, 7, 1), Err(AccessError::InvalidStag));
    assert_eq!(read(&table, next, SIBLING, 7, 1), Err(AccessError::NotAssociated));
    assert_eq!(
        table.check(next, WHO, Access::LOCAL_WRITE, 7, 1).err(),
        Some(AccessError::Rights),
        "narrower than at first"
    );
    // The peer it is for may take it back; its owner may make it as wide again as it was.
    assert_eq!(table.invalidate(next, WHO, Invalidation::Remote), Ok(Reach::ThisCore));
    let whole = FastRegistration {
        stag: STAG,
        offset: 0,
        len: OCTETS as u64,
        base_to: 0,
        access: Access::LOCAL_WRITE | Access::REMOTE_READ,
        all_streams: true,
    };
    assert_eq!(table.register(&whole, SIBLING), Ok(Reach::ThisCore));
    assert_eq!(read(&table, STAG, WHO, 0, OCTETS), Ok(0));
    assert_eq!(table.remove(STAG), Ok(()));
}

/// Control frees a slot by the name it returned at registration, whatever the current name is.
#[test]
fn a_slot_is_taken_back_by_its_first_name() {
    let mut table = table(0, Access::empty());
    assert_eq!(table.invalidate(STAG, WHO, Invalidation::Local), Ok(Reach::ThisCore));
    let next = STAG.with_key(1);
    let access = Access::empty();
    let all = FastRegistration { stag: next, offset: 0, len: 1, base_to: 0, access, all_streams: true };
    assert_eq!(table.register(&all, WHO), Ok(Reach::ThisCore));
    assert_eq!(table.remove(next), Err(RemoveError::Unknown));
    assert_eq!(table.remove(STAG), Ok(()));
    assert_eq!(table.check(next, WHO, access, 0, 0).err(), Some(AccessError::InvalidStag));
}

/// What control takes back while sends still read is free for no work request, until it is removed: neither
/// a registration nor a window, with one core or with several.
// Requirements: DDP-8.3-02, DDP-8.3.1-07
#[test]
fn a_revoked_slot_does_not_become_valid_again() {
    let claims = Arc::new(Claims::new(32));
    for mut table in [StagTable::with_slots(32), StagTable::with_claims(32, claims.clone(), 0)] {
        let access = Access::LOCAL_WRITE | Access::WINDOW_BIND;
        table.insert(STAG, grant(0, access)).unwrap();
        table.allocate_window(WINDOW, PD).unwrap();
        table.retain(STAG);
        for stag in [STAG, WINDOW] {
            table.revoke(stag);
        }
        assert_eq!(table.remove(STAG), Err(RemoveError::InUse));
        table.release(STAG);
        let (offset, len, base_to) = (0, 8, 0);
        for all_streams in [false, true] {
            let stag = STAG.with_key(1);
            let anew = FastRegistration { stag, offset, len, base_to, access, all_streams };
            assert_eq!(table.register(&anew, WHO), Err(BindError::InvalidStag));
            assert_eq!(table.check(stag, WHO, Access::empty(), 0, 8).err(), Some(AccessError::InvalidStag));
        }
        let other = STag::new(9, 1);
        table.insert(other, grant(0, access)).unwrap();
        let bound = table.bind(&Binding { registration: other, ..binding(2, 0, 8) }, WHO);
        assert_eq!(bound, Err(BindError::InvalidStag));
        assert_eq!([STAG, WINDOW, other].map(|stag| table.remove(stag)), [Ok(()); 3]);
        // The slot is as good as new, once all cores have removed it.
        claims.forget(STAG);
        table.insert(STAG.with_key(3), grant(0, access)).unwrap();
        assert!(table.check(STAG.with_key(3), WHO, Access::empty(), 0, 8).is_ok());
    }
}

/// The end of a stream looks once at the slots of its bucket, however many of them are another stream's.
#[test]
fn the_end_of_a_stream_is_one_pass() {
    let mut table = StagTable::with_slots(64);
    let region = Region::heap(OCTETS).unwrap();
    let access = Access::REMOTE_WRITE;
    // With 64 buckets these two have one.
    let streams = [(3, 0..20), (67, 20..40)];
    for (stream, slots) in streams.clone() {
        for slot in slots {
            let grant = Grant { stream: Some(stream), ..Grant::new(region.clone(), PD, 0, access) };
            table.insert(STag::new(slot, 1), grant).unwrap();
        }
    }
    let valid = |table: &StagTable| {
        streams.clone().map(|(stream, slots)| {
            let who = Accessor { pd: PD, stream };
            slots.filter(|slot| table.check(STag::new(*slot, 1), who, access, 0, 8).is_ok()).count()
        })
    };
    assert_eq!(valid(&table), [20, 20]);
    let before = tally::visits();
    table.end_stream(3);
    let visits = tally::visits() - before;
    assert!(visits <= 60, "{visits} visits to 40 slots");
    assert_eq!(valid(&table), [0, 20]);
}
