//! Tests of Reads that are outstanding: Responses that arrive before their turn, and streams that end before
//! the Responses of this end are acknowledged.

use warpline_dataplane::memory::{RemoveError, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::rdmap::RdmapError;
use warpline_dataplane::ring::{Command, Event, FullOperation};
use warpline_dataplane::wire::tcp::Flags;

use super::target::{BASE_TO, INBOX, READABLE, Target, WRITABLE, fpdu, tagged, untagged, write};
use crate::common::holds;
use crate::common::raw::PEER_ISS;
use crate::reference::mpa::{Sender, Stream};

const DEPTHS: ReadDepths = ReadDepths { ird: 2, ord: 2 };
/// Octets of a Read, and of each of the two segments of its Response.
const READ_OCTETS: u32 = 48;
const HALF: usize = 24;

/// A core that receives Markers and has posted a Read into the first octets of the inbox. What comes next is
/// framed by the sender that is returned; the FPDU after the next one contains a Marker.
fn reading() -> (Target, Sender) {
    let operation = FullOperation { depths: DEPTHS, markers_received: true, ..FullOperation::new(false) };
    let mut target = Target::with(operation);
    let mut sender = Sender::new(Stream { start: (PEER_ISS + 1).0, markers: true, crc: true });
    // 24 octets with the Marker that the stream begins with, then 20 each: up to 444.
    for _ in 0..22 {
        target.send(&framed(&mut sender, &write(STag(0), 0, b"")));
    }
    assert_eq!(target.qp.state(), QpState::ReadyToSend);
    target.peer.sent.clear();
    let local = Slice { stag: INBOX, to: 0, len: READ_OCTETS };
    target.qp.post_send(SendRequest::new(5, Operation::Read { stag: STag(0x77), to: 70 }, local)).unwrap();
    target.peer.settle();
    let request = target.sent().0;
    target.ack += request.len() as u32;
    (target, sender)
}

fn framed(sender: &mut Sender, ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    sender.frame(ulpdu, &mut octets);
    octets
}

/// The first half of the Response, and `second`, which has a Marker, framed one after the other.
fn response(sender: &mut Sender, second: &[u8]) -> [Vec<u8>; 2] {
    let first = tagged(INBOX, 0, [0x81, 0x42], &[1; HALF]);
    let both = [framed(sender, &first), framed(sender, second)];
    assert_eq!(both[1].len(), second.len().next_multiple_of(2) + 2 + 4 + 4, "with a Marker");
    both
}

/// `second` arrives before `first`, which comes with the returned function.
fn arrive_swapped(target: &mut Target, [first, second]: &[Vec<u8>; 2]) {
    let seq = target.seq;
    target.seq += first.len() as u32;
    target.send(second);
    target.seq = seq;
}

/// A segment of a Response beyond a gap is placed at once, in the sink of its Read, and the Read completes
/// when all before it has come.
// Requirements: RDMAP-5.5-10, DDP-4.1-07
#[test]
fn a_response_beyond_a_gap_is_placed() {
    let (mut target, mut sender) = reading();
    let both = response(&mut sender, &tagged(INBOX, HALF as u64, [0xc1, 0x42], &[2; HALF]));
    arrive_swapped(&mut target, &both);
    let inbox = target.regions[3].0.clone();
    assert!(holds(&inbox, HALF, &[2; HALF]), "it is in its place");
    assert!(holds(&inbox, 0, &[0xa5; HALF]));
    assert_eq!(target.peer.core.statistics().fpdus_placed_out_of_order, 1);
    assert_eq!(target.completions.poll(), None, "not its turn");
    target.send(&both[0]);
    let done = target.completions.poll().unwrap();
    assert_eq!((done.id, done.status, done.byte_len), (5, Status::Success, READ_OCTETS));
    assert!(holds(&inbox, 0, &[[1; HALF], [2; HALF]].concat()));
}

/// What is no part of the sink of a Read is not placed before its turn, and ends the stream in its turn.
// Requirements: RDMAP-8.1.1-01
#[test]
fn a_response_outside_the_sink_is_not_placed() {
    let end = u64::from(READ_OCTETS);
    let cases = [(INBOX, end), (INBOX, end - HALF as u64 + 1), (INBOX, 100), (WRITABLE, BASE_TO)];
    for (stag, to) in cases {
        let (mut target, mut sender) = reading();
        let both = response(&mut sender, &tagged(stag, to, [0xc1, 0x42], &[2; HALF]));
        arrive_swapped(&mut target, &both);
        target.expect_untouched();
        assert_eq!(target.peer.core.statistics().fpdus_placed_out_of_order, 0);
        assert_eq!(target.qp.error(), None);
        target.send(&both[0]);
        assert_eq!(target.qp.error(), Some(StreamError::Rdmap(RdmapError::UnspecifiedOperation)));
        target.expect_untouched_but_inbox();
        assert!(holds(&target.regions[3].0, HALF, &[0xa5; 256 - HALF]), "only the first half is in place");
    }
}

/// The result of a deregistration of the memory that the peer reads.
fn deregister(target: &mut Target) -> Result<(), RemoveError> {
    target.peer.events.clear();
    target.peer.command(Command::Deregister { stag: READABLE });
    target.peer.settle();
    let result = target.peer.events.iter().find_map(|event| match event {
        Event::Deregistered { stag: READABLE, result } => Some(*result),
        _ => None,
    });
    result.expect("an answer")
}

/// Memory that the peer has asked for stays registered while its Responses may be sent again. When the stream
/// has ended it is its owner's.
fn ends_with_reads_outstanding(end: impl FnOnce(&mut Target)) {
    let mut target = Target::with(FullOperation { depths: DEPTHS, ..FullOperation::new(false) });
    target.open();
    for msn in 1..=2 {
        let header = [
            &0xabcd_ef01_u32.to_be_bytes()[..],
            &7_u64.to_be_bytes(),
            &16_u32.to_be_bytes(),
            &READABLE.0.to_be_bytes(),
            &BASE_TO.to_be_bytes(),
        ]
        .concat();
        target.send(&fpdu(&untagged([0x41, 0x41], 1, msn, 0, &header)));
    }
    let answer = fpdu(&tagged(STag(0xabcd_ef01), 7, [0xc1, 0x42], &[0xa5; 16]));
    assert_eq!(target.sent().0, answer.repeat(2), "both are answered, and not acknowledged");
    assert_eq!(deregister(&mut target), Err(RemoveError::InUse));
    end(&mut target);
    assert_eq!(deregister(&mut target), Ok(()));
}

#[test]
fn a_reset_frees_what_the_peer_reads() {
    ends_with_reads_outstanding(|target| target.peer.send(Flags::RST, target.seq, target.ack, &[]));
}

#[test]
fn the_end_of_the_queue_pair_frees_what_the_peer_reads() {
    ends_with_reads_outstanding(|target| {
        target.peer.command(Command::DestroyQp(target.qp.clone()));
        target.peer.settle();
    });
}
