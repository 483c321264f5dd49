//! Tests of an end's grants, changed by work requests and by the peer's Sends.

use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Binding, FastRegistration, Grant, RemoveError, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{CompletionKind, Operation, Payload, Status};
use warpline_dataplane::ring::{Command, Event};

use super::bench::{Bench, OWN, SETUPS, SHARED, octets_of, own};
use crate::common::{PD, Pair, QP, holds, pattern};

const WINDOW: STag = STag::new(7, 0x7000);
const NARROW: STag = STag::new(8, 0x8000);

/// A bench whose `b` has a window of its own and memory for the peer of its queue pair alone.
fn bench() -> Bench {
    let bench = Bench::new(2, SETUPS[0]);
    let region = bench.b[0].clone();
    let access = Access::LOCAL_WRITE | Access::WINDOW_BIND | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let grant = Grant { stream: Some(QP.0), ..Grant::new(region, PD, 0, access) };
    bench.pair.b.command(Command::Register { stag: NARROW, grant });
    bench.pair.b.command(Command::AllocateWindow { stag: WINDOW, pd: PD });
    bench
}

/// A request that follows a change of grants is not examined before the change is carried out. The memory
/// that it may name stays: the memory is freed when the request is done.
#[test]
fn memory_stays_for_what_waits_behind_a_change() {
    let mut bench = bench();
    bench.pair.b.receive(1, own(0, 100_000));
    bench.pair.b.receive(2, own(100_000, 100));
    bench.pair.a.post(1, Operation::SEND, own(0, 100_000));
    let changed = Operation::LocalInvalidate { stag: SHARED };
    bench.pair.a.post(2, changed, Payload::EMPTY);
    bench.pair.a.post(3, Operation::SEND, own(50, 100));
    bench.pair.step();
    let stag = OWN;
    bench.pair.a.command(Command::Deregister { stag });
    bench.pair.step();
    let answers = |events: &[Event]| -> Vec<_> {
        let of = |event: &Event| match event {
            Event::Deregistered { result, .. } => Some(*result),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    assert_eq!(answers(&bench.pair.a.events), [Err(RemoveError::InUse)]);
    let statuses: Vec<_> = bench.completions_of_a(3).iter().map(|done| done.status).collect();
    assert_eq!(statuses, [Status::Success; 3]);
    bench.pair.a.command(Command::Deregister { stag });
    bench.pair.step();
    assert_eq!(answers(&bench.pair.a.events), [Err(RemoveError::InUse), Ok(())]);
}

/// Returns the answers to commands about memory that have come to `a`: its number, for a probe, and the
/// result.
fn answers(bench: &mut Bench) -> Vec<(Option<u32>, Result<(), RemoveError>)> {
    let answers = bench.pair.a.events.drain(..).filter_map(|event| match event {
        Event::Probed { stag: OWN, attempt, result } => Some((Some(attempt), result)),
        Event::Deregistered { stag: OWN, result } => Some((None, result)),
        _ => None,
    });
    answers.collect()
}

/// A probe says whether memory is used, also by requests that are not examined yet, and changes nothing.
#[test]
fn a_probe_finds_the_use_of_memory_and_leaves_it() {
    let mut bench = bench();
    for id in 1..=3 {
        bench.pair.b.receive(id, own(0, 100_000));
    }
    bench.pair.a.post(1, Operation::SEND, own(0, 100_000));
    bench.pair.a.post(2, Operation::LocalInvalidate { stag: SHARED }, Payload::EMPTY);
    bench.pair.a.post(3, Operation::SEND, own(50, 100));
    bench.pair.step();
    bench.pair.a.command(Command::Probe { stag: OWN, attempt: 7 });
    bench.pair.step();
    assert_eq!(answers(&mut bench), [(Some(7), Err(RemoveError::InUse))]);
    let statuses: Vec<_> = bench.completions_of_a(3).iter().map(|done| done.status).collect();
    assert_eq!(statuses, [Status::Success; 3], "what waited behind the invalidation, too");
    bench.pair.a.command(Command::Probe { stag: OWN, attempt: 8 });
    bench.pair.a.command(Command::Probe { stag: OWN.with_key(1), attempt: 9 });
    bench.pair.step();
    assert_eq!(answers(&mut bench), [(Some(8), Ok(()))], "the other one is of no memory");
    bench.pair.a.post(4, Operation::SEND, own(0, 100));
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success, "it may still be used");
}

/// Memory that is removed while a send reads it is lost for anything new at once. The send ends well, and no
/// work request brings the memory back before it is removed.
// Requirements: DDP-8.3-02, DDP-8.3.1-07
#[test]
fn memory_that_is_removed_in_use_cannot_be_registered_again() {
    let mut bench = bench();
    bench.pair.b.receive(1, own(0, 100_000));
    bench.pair.a.post(1, Operation::SEND, own(0, 100_000));
    bench.pair.step();
    bench.pair.a.command(Command::Remove { stag: OWN });
    bench.pair.step();
    assert_eq!(answers(&mut bench), [(None, Err(RemoveError::InUse))]);
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success, "it was accepted before");
    let stag = OWN.with_key(1);
    let (offset, len, base_to, access) = (0, 64, 0, Access::LOCAL_WRITE);
    let anew = FastRegistration { stag, offset, len, base_to, access, all_streams: false };
    bench.pair.a.post(2, Operation::Register(anew), Payload::EMPTY);
    let done = bench.completions_of_a(1)[0];
    assert_eq!((done.kind, done.status), (CompletionKind::Register, Status::LocalProtection));
    bench.pair.a.command(Command::Probe { stag: OWN, attempt: 1 });
    bench.pair.a.command(Command::Remove { stag: OWN });
    bench.pair.a.command(Command::Remove { stag: OWN });
    bench.pair.step();
    let expected = [(Some(1), Ok(())), (None, Ok(())), (None, Err(RemoveError::Unknown))];
    assert_eq!(answers(&mut bench), expected);
}

/// Memory that is revoked is read by nothing when that is answered, although the peer has acknowledged none
/// of what was sent from it: neither by a Send nor by a Read Response, and what was posted and had not begun
/// fails. Other memory stays.
// Requirements: DDP-8.3-02, DDP-8.3.1-07
#[test]
fn memory_is_revoked_from_what_reads_it() {
    for by_response in [false, true] {
        let mut bench = bench();
        let stag = if by_response { SHARED } else { OWN };
        let memory = if by_response { bench.a[0].clone() } else { bench.a[1].clone() };
        // RFC 5044 §7.1.2: the Responder sends once the Initiator's first FPDU is there.
        bench.pair.a.write(9, own(0, 4), SHARED, 0);
        assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
        if by_response {
            bench.pair.b.post(1, Operation::Read { stag, to: 0 }, own(0, 100_000));
        } else {
            bench.pair.b.receive(1, own(0, 100_000));
            bench.pair.a.post(1, Operation::SEND, own(0, 100_000));
        }
        let is_read = |pair: &mut Pair| {
            pair.a.command(Command::Probe { stag, attempt: 1 });
            pair.step();
            let probed =
                |event: Event| matches!(event, Event::Probed { result: Err(RemoveError::InUse), .. });
            pair.a.events.drain(..).any(probed)
        };
        assert!(bench.pair.run_until(1, is_read));
        bench.pair.a.command(Command::Revoke { stag });
        bench.pair.step();
        let result = bench.pair.a.events.drain(..).find_map(|event| match event {
            Event::Deregistered { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(result, Some(Ok(())));
        assert_eq!(bench.pair.a.qp.state(), QpState::Error);
        // What it holds from now on comes to nobody.
        let before = octets_of(&memory, 0, 100_000);
        assert!(memory.write(0, &vec![0xff; 100_000]));
        bench.pair.run_for(10);
        let arrived = octets_of(&bench.b[1], 0, 100_000);
        let untouched = pattern(4, 100_000);
        for ((arrived, sent), untouched) in arrived.iter().zip(&before).zip(&untouched) {
            assert!(arrived == sent || arrived == untouched);
        }
        assert!(bench.pair.a.poll_completions().iter().all(|done| done.status != Status::Success));
        let kept = if by_response { OWN } else { SHARED };
        bench.pair.a.command(Command::Deregister { stag: kept });
        bench.pair.a.command(Command::Revoke { stag });
        bench.pair.step();
        let answers: Vec<_> = bench.pair.a.events.drain(..).collect();
        assert!(
            matches!(
                answers[..],
                [
                    Event::Deregistered { result: Ok(()), .. },
                    Event::Deregistered { result: Err(RemoveError::Unknown), .. }
                ]
            ),
            "{answers:?}"
        );
    }
}

/// Memory to which a window is bound is not revoked, and its stream goes on.
#[test]
fn memory_below_a_window_is_not_revoked() {
    let mut bench = bench();
    bench.pair.b.post(1, Operation::Bind(binding(WINDOW.with_key(1))), Payload::EMPTY);
    assert_eq!(bench.completions_of_b(1)[0].status, Status::Success);
    bench.pair.b.command(Command::Revoke { stag: NARROW });
    bench.pair.step();
    let refused = |event: Event| {
        matches!(event, Event::Deregistered { stag: NARROW, result: Err(RemoveError::WindowsBound) })
    };
    assert!(bench.pair.b.events.drain(..).any(refused));
    bench.pair.a.write(1, own(0, 100), WINDOW.with_key(1), 0);
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
    let invalidate = Operation::LocalInvalidate { stag: WINDOW.with_key(1) };
    bench.pair.b.post(2, invalidate, Payload::EMPTY);
    assert_eq!(bench.completions_of_b(1)[0].status, Status::Success);
    bench.pair.b.command(Command::Revoke { stag: NARROW });
    bench.pair.step();
    let done = |event: Event| matches!(event, Event::Deregistered { stag: NARROW, result: Ok(()) });
    assert!(bench.pair.b.events.drain(..).any(done));
    assert_eq!(bench.pair.b.qp.state(), QpState::ReadyToSend, "nothing read from it");
}

fn binding(window: STag) -> Binding {
    let access = Access::REMOTE_WRITE;
    Binding { window, registration: NARROW, to: 1000, len: 100, access, zero_based: true }
}

/// A window opens its hundred octets and no other, until it is invalidated.
// Requirements: DDP-8.2-04, DDP-8.3-01, DDP-8.3-03, DDP-8.3.1-03, DDP-8.3.1-05
#[test]
fn a_window_is_as_narrow_as_it_was_bound() {
    for (to, octets, fails) in [(0, 100, None), (0, 101, Some(1)), (100, 1, Some(1)), (u64::MAX, 1, Some(3))]
    {
        let mut bench = bench();
        let window = WINDOW.with_key(1);
        bench.pair.b.post(1, Operation::Bind(binding(window)), Payload::EMPTY);
        let bound = bench.completions_of_b(1)[0];
        assert_eq!((bound.kind, bound.status), (CompletionKind::Bind, Status::Success));
        bench.pair.a.write(1, own(0, octets), window, to);
        let before = octets_of(&bench.b[0], 0, 2000);
        bench.pair.run_for(1);
        let mut expected = before.clone();
        if let Some(code) = fails {
            let told = StreamError::Terminated { layer: 1, error_type: 1, code };
            assert_eq!(bench.pair.a.qp.error(), Some(told));
        } else {
            expected[1000..1100].copy_from_slice(&octets_of(&bench.a[1], 0, 100));
            bench.pair.b.post(2, Operation::LocalInvalidate { stag: window }, Payload::EMPTY);
            assert_eq!(bench.completions_of_b(1)[0].status, Status::Success);
            bench.pair.a.write(2, own(0, 1), window, 0);
            bench.pair.run_for(1);
            let told = StreamError::Terminated { layer: 1, error_type: 1, code: 0 };
            assert_eq!(bench.pair.a.qp.error(), Some(told), "it is open no longer");
        }
        assert!(holds(&bench.b[0], 0, &expected));
    }
}

/// A window is bound again whatever has become of what it opened before, and closed as often as its owner
/// likes. Each is one request, whose completion is a binding's, and the stream goes on.
// Requirements: DDP-8.3-01, DDP-8.3-03
#[test]
fn a_window_is_bound_again_whether_it_is_bound_or_not() {
    let mut bench = bench();
    let [first, second, third] = [1, 2, 3].map(|key| WINDOW.with_key(key));
    let requests = [
        Operation::Unbind { window: WINDOW },
        Operation::Rebind(binding(first)),
        Operation::Rebind(binding(second)),
        Operation::Unbind { window: WINDOW },
        Operation::Unbind { window: second },
        Operation::Rebind(binding(first)),
        Operation::LocalInvalidate { stag: first },
        Operation::Rebind(binding(third)),
    ];
    for (id, operation) in requests.into_iter().enumerate() {
        bench.pair.b.post(id as u64, operation, Payload::EMPTY);
        let done = bench.completions_of_b(1)[0];
        assert_eq!((done.kind, done.status), (operation.kind(), Status::Success), "{operation:?}");
    }
    bench.pair.a.write(1, own(0, 100), third, 0);
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
    bench.pair.run_for(1);
    assert!(holds(&bench.b[0], 1000, &octets_of(&bench.a[1], 0, 100)));
    bench.pair.a.write(2, own(0, 1), first, 0);
    bench.pair.run_for(1);
    let told = StreamError::Terminated { layer: 1, error_type: 1, code: 0 };
    assert_eq!(bench.pair.a.qp.error(), Some(told), "under an earlier name it is closed");
}

/// A Send invalidates a grant to its stream, and the completion names the STag. The memory is then closed to
/// all, until it is registered again under another key.
// Requirements: RDMAP-5.3-08, RDMAP-7.2-04, DDP-8.3-02, DDP-8.3.1-07
#[test]
fn a_send_invalidates() {
    let mut bench = bench();
    bench.pair.b.receive(5, own(0, 64));
    bench.pair.a.write(1, own(0, 50), NARROW, 0);
    bench.pair.a.post(2, Operation::Send { invalidate: Some(NARROW), solicited: true }, own(0, 4));
    let received = bench.completions_of_b(1)[0];
    assert_eq!(
        (received.status, received.invalidated, received.solicited),
        (Status::Success, Some(NARROW), true)
    );
    bench.completions_of_a(2);
    // Under its next name, and a part of it only.
    let stag = NARROW.with_key(9);
    let (offset, octets, access) = (500, 64, Access::REMOTE_READ | Access::LOCAL_WRITE);
    let wanted = FastRegistration { stag, offset, len: octets, base_to: 1 << 40, access, all_streams: false };
    bench.pair.b.post(6, Operation::Register(wanted), Payload::EMPTY);
    let done = bench.completions_of_b(1)[0];
    assert_eq!((done.kind, done.status), (CompletionKind::Register, Status::Success));
    bench.pair.a.post(3, Operation::Read { stag, to: 1 << 40 }, own(100, 64));
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Success);
    assert!(holds(&bench.a[1], 100, &octets_of(&bench.b[0], 500, 64)));
    bench.pair.a.post(4, Operation::Read { stag: NARROW, to: 0 }, own(100, 64));
    let told = StreamError::Terminated { layer: 0, error_type: 1, code: 0 };
    assert_eq!(bench.completions_of_a(1)[0].status, Status::Failed(told), "the old name is stale");
}

/// A peer cannot invalidate a registration that is for all streams of the domain.
// Requirements: RDMAP-8.1.1-02, A-17
#[test]
fn a_shared_registration_is_not_a_peers_to_invalidate() {
    let mut bench = bench();
    bench.pair.b.receive(5, own(0, 64));
    bench.pair.a.post(2, Operation::Send { invalidate: Some(SHARED), solicited: false }, own(0, 4));
    let told = StreamError::Terminated { layer: 0, error_type: 1, code: 9 };
    assert!(bench.pair.run_until(5, |pair| pair.a.qp.error().is_some()));
    assert_eq!(bench.pair.a.qp.error(), Some(told));
    assert!(matches!(bench.completions_of_b(1)[0].status, Status::Failed(_)), "it is not delivered");
}

/// A Read in progress is answered completely, even if its STag is invalidated meanwhile.
#[test]
fn an_answer_outlives_the_name() {
    let mut bench = bench();
    bench.pair.b.receive(5, own(0, 64));
    bench.pair.a.post(1, Operation::Read { stag: NARROW, to: 0 }, own(0, 200_000));
    bench.pair.a.post(2, Operation::Send { invalidate: Some(NARROW), solicited: false }, own(0, 4));
    assert_eq!(bench.completions_of_b(1)[0].invalidated, Some(NARROW));
    let done = bench.completions_of_a(2);
    assert!(done.iter().all(|done| done.status == Status::Success), "{done:?}");
    assert!(holds(&bench.a[1], 0, &octets_of(&bench.b[0], 0, 200_000)));
}

/// An invalid grant is refused locally, and the stream ends, as with any request that cannot be done.
#[test]
fn what_cannot_be_granted() {
    let bound = |change: fn(&mut Binding)| {
        let mut binding = binding(WINDOW.with_key(1));
        change(&mut binding);
        Operation::Bind(binding)
    };
    let cases = [
        (bound(|binding| binding.registration = STag::new(99, 1)), Status::Bind),
        (bound(|binding| binding.len = 1 << 20), Status::Bind),
        (bound(|binding| binding.window = WINDOW), Status::Bind),
        (bound(|binding| binding.registration = SHARED), Status::Bind),
        (Operation::Unbind { window: SHARED }, Status::Bind),
        (Operation::Rebind(Binding { window: STag::new(99, 1), ..binding(WINDOW) }), Status::Bind),
        (Operation::LocalInvalidate { stag: STag::new(99, 1) }, Status::LocalProtection),
    ];
    for (operation, expected) in cases {
        let mut bench = bench();
        bench.pair.b.post(1, operation, Payload::EMPTY);
        bench.pair.b.post(2, Operation::SEND, own(0, 4));
        let statuses: Vec<_> = bench.completions_of_b(2).iter().map(|done| done.status).collect();
        assert_eq!(statuses, [expected, Status::Flushed], "{operation:?}");
    }
}

/// Requests that put nothing on the wire are carried out in the order of posting, and only so many in one
/// poll, however many are posted: frames that arrive meanwhile do not wait for them.
#[test]
fn changes_of_grants_do_not_hold_the_core() {
    let mut bench = bench();
    bench.pair.step();
    let (mut posted, mut done, mut polls) = (0, 0, 0);
    let total = 4000;
    while done < total {
        // An application that posts more whenever there is room.
        while posted < total && posted < done + 1000 {
            let window = WINDOW.with_key((posted / 2) as u16);
            let operation = match posted % 2 {
                0 => Operation::Bind(binding(window)),
                _ => Operation::LocalInvalidate { stag: window },
            };
            bench.pair.b.post(posted, operation, Payload::EMPTY);
            posted += 1;
        }
        bench.pair.b.core.poll_once(bench.pair.now);
        bench.pair.now += 1000;
        let completions = bench.pair.b.poll_completions();
        for (at, completion) in completions.iter().enumerate() {
            assert_eq!((completion.id, completion.status), (done + at as u64, Status::Success));
        }
        done += completions.len() as u64;
        polls += 1;
        assert!(completions.len() <= limits::LOCAL_OPERATIONS_PER_POLL + 1, "{}", completions.len());
        assert!(!completions.is_empty(), "{done} of {total}, nothing in poll {polls}");
    }
    assert_eq!(polls, total.div_ceil(limits::LOCAL_OPERATIONS_PER_POLL as u64 + 1));
}
