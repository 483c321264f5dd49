//! Tests of gaps as DDP sees them (RFC 5044 §1.2 and §3): each ULPDU has its place in the sender's order, and
//! one signal reports that a gap has closed.

use warpline_dataplane::qp::work::Status;
use warpline_dataplane::statistics::DropCause;

use super::receiver::{Receiver, Run, Ulpdu};

/// Octets of each message: each FPDU contains a Marker, by which the receiver finds it beyond a gap.
const OCTETS: usize = 700;
const MESSAGES: usize = 4;

fn messages() -> Vec<Ulpdu> {
    let send = |message| Ulpdu::Send { message, mo: 0, octets: OCTETS, last: true };
    (0..MESSAGES).map(send).collect()
}

fn arrive(receiver: &mut Receiver, run: &Run, n: usize) {
    receiver.arrive(run, run.fpdus[n].start, run.fpdus[n].end);
}

/// Returns how many messages, from the first on, have arrived without a gap.
fn in_order(arrived: &[bool]) -> usize {
    arrived.iter().position(|arrived| !arrived).unwrap_or(arrived.len())
}

/// Four segments arrive in every order, each also a second time. After each arrival the messages up to the
/// first gap, and no others, have been delivered: once, in the order of the sender, intact.
// Requirements: MPA-1.2-01, MPA-3-09, MPA-3-10, DDP-4.1-07, DDP-5.4-01
#[test]
fn a_gap_that_closes_is_told_once() {
    for code in 0..MESSAGES.pow(MESSAGES as u32) {
        let order: [usize; MESSAGES] = core::array::from_fn(|n| code / MESSAGES.pow(n as u32) % MESSAGES);
        if (0..MESSAGES).any(|n| !order.contains(&n)) {
            continue;
        }
        let mut receiver = Receiver::new(true);
        let run = receiver.begin(&messages());
        let mut arrived = [false; MESSAGES];
        let mut delivered = 0;
        let mut expect = |receiver: &mut Receiver, n: usize| {
            arrived[n] = true;
            let closed = in_order(&arrived);
            let completions = receiver.polled();
            let ids: Vec<_> = completions.iter().map(|completion| completion.id as usize).collect();
            assert_eq!(ids, (delivered..closed).collect::<Vec<_>>(), "{order:?}, after {n}");
            for completion in completions {
                assert_eq!((completion.status, completion.byte_len as usize), (Status::Success, OCTETS));
            }
            delivered = closed;
            // Messages beyond the gap are in place already.
            receiver.expect_memory(&run, |fpdu| match fpdu.ulpdu {
                Ulpdu::Send { message, .. } => arrived[message],
                _ => false,
            });
        };
        for (number, n) in order.into_iter().enumerate() {
            arrive(&mut receiver, &run, n);
            expect(&mut receiver, n);
            let again = order[number / 2];
            arrive(&mut receiver, &run, again);
            expect(&mut receiver, again);
        }
        assert_eq!(delivered, MESSAGES);
        assert_eq!((receiver.error(), receiver.statistics().dropped(DropCause::FpduCrc)), (None, 0));
        receiver.finish(&run);
    }
}
