//! Tests of placement out of order, checked on the wire and in memory: with Markers, whole FPDUs are placed
//! in their buffers whatever is missing before them, Delivery follows the left edge of the stream, and
//! nothing else is ever written. RFC 5044 §6, appendices A.3, A.4 and B.

mod cases;
mod gaps;
mod hostile;
mod orders;
mod random;
mod receiver;
mod work;

use receiver::{Fpdu, Receiver, Run, Ulpdu};
use warpline_dataplane::qp::work::{CompletionKind, Status};

/// Which octets of a run have arrived.
struct Arrived(Vec<bool>);

impl Arrived {
    fn nothing_of(run: &Run) -> Self {
        Self(vec![false; run.octets.len()])
    }

    fn add(&mut self, from: usize, to: usize) {
        self.0[from..to].fill(true);
    }

    fn has(&self, from: usize, to: usize) -> bool {
        self.0[from..to].iter().all(|arrived| *arrived)
    }

    /// Octets from the beginning on without a gap.
    fn in_order(&self) -> usize {
        self.0.iter().position(|arrived| !arrived).unwrap_or(self.0.len())
    }
}

/// Returns true if `fpdu` contains a Marker.
fn has_marker(run: &Run, fpdu: &Fpdu) -> bool {
    let start = run.position + fpdu.start;
    start.next_multiple_of(512) + 4 <= run.position + fpdu.end
}

/// Takes the pending completions: each must be the Send whose turn it is, with its length. Returns the number
/// of Sends delivered so far.
#[track_caller]
fn take_deliveries(receiver: &Receiver, run: &Run, mut delivered: usize) -> usize {
    for completion in receiver.polled() {
        let of_message =
            |fpdu: &&Fpdu| matches!(fpdu.ulpdu, Ulpdu::Send { message, .. } if message == delivered);
        let octets: usize = run.fpdus.iter().filter(of_message).map(|fpdu| fpdu.ulpdu.payload_octets()).sum();
        assert_eq!((completion.kind, completion.status), (CompletionKind::Receive, Status::Success));
        assert_eq!(completion.byte_len as usize, octets, "Send {delivered}");
        delivered += 1;
    }
    delivered
}

/// Lets the segments of a run arrive, and after each looks at memory and completions. DDP-1-02, DDP-4.1-07,
/// DDP-5.2-04, DDP-5.4-01, RDMAP-5.5-02: a Send is delivered when all before it has come, and not before.
#[track_caller]
fn play(receiver: &mut Receiver, run: &Run, segments: &[(usize, usize)]) {
    let before = receiver.statistics();
    let mut arrived = Arrived::nothing_of(run);
    let mut delivered = 0;
    for &(from, to) in segments {
        arrived.add(from, to);
        receiver.arrive(run, from, to);
        delivered = take_deliveries(receiver, run, delivered);
        let in_order = arrived.in_order();
        let due = |fpdu: &&Fpdu| fpdu.end <= in_order && matches!(fpdu.ulpdu, Ulpdu::Send { last: true, .. });
        assert_eq!(
            delivered,
            run.fpdus.iter().filter(due).count(),
            "Sends delivered, {in_order} octets in order"
        );
        for fpdu in run.fpdus.iter().filter(|fpdu| fpdu.ulpdu.payload_octets() > 0) {
            let whole = arrived.has(fpdu.start, fpdu.end);
            let holds = receiver.holds(run, fpdu);
            assert!(holds || fpdu.end > in_order, "{fpdu:?} is in order");
            // An FPDU in the middle of one frame stays there until its neighbours come.
            let middle = segments.iter().any(|(from, to)| *from < fpdu.start && fpdu.end < *to);
            if receiver.stream.markers {
                assert!(!holds || whole, "{fpdu:?} is not there");
                assert!(holds || !whole || middle || !has_marker(run, fpdu), "{fpdu:?} is there");
            } else {
                assert!(!holds || fpdu.end <= in_order, "A-21: {fpdu:?} is beyond a gap");
            }
        }
    }
    receiver.expect_memory(run, |_| true);
    let after = receiver.statistics();
    let payload: usize = run.fpdus.iter().map(|fpdu| fpdu.ulpdu.payload_octets()).sum();
    assert_eq!(after.bytes_copied_rx - before.bytes_copied_rx, payload as u64, "each octet is copied once");
    assert_eq!(after.fpdus_received - before.fpdus_received, run.fpdus.len() as u64);
    let usage = receiver.usage();
    assert_eq!((usage.held_frames, usage.placed_runs, usage.placed_sends), (0, 0, 0));
    assert_eq!(receiver.error(), None);
    receiver.finish(run);
}
