//! Tests of the Message Sequence Numbers of the Untagged queues (RFC 5041 §4.3), on the wire: each queue
//! counts its messages by one, from 1 on, and 0 follows 0xFFFFFFFF.

use warpline_dataplane::memory::{Access, Grant, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::work::{Operation, ReceiveRequest, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::wire::tcp::Flags;

use crate::common::raw::PEER_ISS;
use crate::common::{PD, QP, holds, region_of};
use crate::errors::target::{BASE_TO, COUNTERS, INBOX, Target, fpdu, send, tagged, untagged};
use crate::reference::mpa::{Sender, Stream};

/// Two numbers before the wrap and two after it.
const ACROSS: [u32; 4] = [0xffff_fffe, 0xffff_ffff, 0, 1];
const SENDS: u32 = 0;
const READ_REQUESTS: u32 = 1;
const ATOMIC_RESPONSES: u32 = 3;

fn target(markers_received: bool) -> Target {
    let depths = ReadDepths { ird: 8, ord: 8 };
    let mut target = Target::with(FullOperation { depths, markers_received, ..FullOperation::new(false) });
    if !markers_received {
        target.open();
    }
    target
}

/// Posts three buffers of four bytes after the one of sixteen that the target has: one for each number of
/// [`ACROSS`].
fn post_receives(target: &Target) {
    for n in 1..4 {
        let local = Slice { stag: INBOX, to: 16 + 4 * n, len: 4 };
        target.qp.post_receive(ReceiveRequest::new(1 + n, local)).unwrap();
    }
}

/// The message that carries number `ACROSS[n]`.
fn text(n: usize) -> [u8; 4] {
    [b'#', b'0' + n as u8, b'#', b'.']
}

/// Expects the completions of all four messages, in the order of their numbers, and each message in its
/// buffer.
#[track_caller]
fn expect_all_received(target: &Target) {
    for n in 0..4 {
        let done = target.completions.poll().unwrap();
        assert_eq!((done.id, done.status, done.byte_len), (1 + n as u64, Status::Success, 4));
        let at = if n == 0 { 0 } else { 16 + 4 * n };
        assert!(holds(&target.regions[3].0, at, &text(n)), "message {n}");
    }
    assert_eq!(target.completions.poll(), None);
}

/// Parses the FPDUs in `octets` and checks their CRC and PAD. Returns queue, MSN, MO, Last flag and payload
/// of each Untagged one.
fn untagged_in(octets: &[u8]) -> Vec<(u32, u32, u32, bool, Vec<u8>)> {
    let word = |ulpdu: &[u8], at: usize| u32::from_be_bytes(ulpdu[at..at + 4].try_into().unwrap());
    let mut found = Vec::new();
    let mut rest = octets;
    while !rest.is_empty() {
        let ulpdu = &rest[2..2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]))];
        let framed = fpdu(ulpdu);
        assert_eq!(rest[..framed.len()], framed, "framing");
        if ulpdu[0] & 0x80 == 0 {
            let header = (word(ulpdu, 6), word(ulpdu, 10), word(ulpdu, 14));
            found.push((header.0, header.1, header.2, ulpdu[0] & 0x40 != 0, ulpdu[18..].to_vec()));
        }
        rest = &rest[framed.len()..];
    }
    found
}

/// Returns the Untagged segments that the core has sent since the last call, and acknowledges them.
fn sent(target: &mut Target) -> Vec<(u32, u32, u32, bool, Vec<u8>)> {
    target.peer.settle();
    let octets = target.sent().0;
    target.ack += octets.len() as u32;
    target.peer.send(Flags::ACK, target.seq, target.ack, &[]);
    untagged_in(&octets)
}

/// Posts a Send, a Read and a Fetch and Add.
fn post_one_of_each(target: &Target, id: u64, send_octets: u32) {
    let remote = (STag(0x77), 0x1000);
    let eight = Slice { stag: INBOX, to: 0, len: 8 };
    for (operation, local) in [
        (Operation::SEND, Slice { len: send_octets, ..eight }),
        (Operation::Read { stag: remote.0, to: remote.1 }, eight),
        (Operation::FetchAdd { stag: remote.0, to: remote.1, add: 1, mask: 0 }, eight),
    ] {
        target.qp.post_send(SendRequest::new(id, operation, local)).unwrap();
    }
}

/// Answers the Read and the Fetch and Add of [`post_one_of_each`]. The Atomic Response has number `msn` on
/// its queue.
fn answer(target: &mut Target, identifier: &[u8], msn: u32) {
    let original = [identifier, &7_u64.to_be_bytes()].concat();
    target.send(&fpdu(&tagged(INBOX, 0, [0xc1, 0x42], b"answered")));
    target.send(&fpdu(&untagged([0x41, 0x4b], ATOMIC_RESPONSES, msn, 0, &original)));
}

/// Plays [`post_one_of_each`] and [`answer`]: the Send must carry number `send`, the two requests the numbers
/// `request`.
#[track_caller]
fn one_round(target: &mut Target, send: u32, request: [u32; 2], response: u32) {
    post_one_of_each(target, 9, 8);
    let messages = sent(target);
    let numbers: Vec<_> = messages.iter().map(|message| (message.0, message.1)).collect();
    assert_eq!(numbers, [(SENDS, send), (READ_REQUESTS, request[0]), (READ_REQUESTS, request[1])]);
    // RFC 7306 §5.2.1: the identifier follows the operation.
    answer(target, &messages[2].4[4..8], response);
    assert_eq!(target.qp.error(), None);
    for _ in 0..3 {
        assert_eq!(target.completions.poll().unwrap().status, Status::Success);
    }
}

/// Every segment of a message carries its number, and the next message of that queue the next number,
/// independently of the other queues.
// Requirements: DDP-4.3-07, DDP-4.3-08, DDP-4.3-10
#[test]
fn each_queue_counts_its_messages_from_one() {
    let mut target = target(false);
    let source = region_of(&[3; 4000]);
    let large = STag::new(7, 0x7777);
    let grant = Grant::new(source, PD, 0, Access::empty());
    target.peer.command(Command::Register { stag: large, grant });
    target.peer.settle();
    for number in 1..4 {
        let local = Slice { stag: large, to: 0, len: 4000 };
        target.qp.post_send(SendRequest::new(1, Operation::SEND, local)).unwrap();
        let segments = sent(&mut target);
        assert!(segments.len() > 2, "several segments");
        assert!(segments.iter().all(|segment| (segment.0, segment.1) == (SENDS, number)));
        let lasts: Vec<_> = segments.iter().map(|segment| segment.3).collect();
        assert!(lasts[segments.len() - 1] && lasts.iter().filter(|last| **last).count() == 1);
        assert_eq!(target.completions.poll().unwrap().status, Status::Success);
    }
    one_round(&mut target, 4, [1, 2], 1);
    one_round(&mut target, 5, [3, 4], 2);
}

// Requirements: DDP-4.3-07, DDP-4.3-09
#[test]
fn sent_messages_are_numbered_across_the_wrap() {
    let mut target = target(false);
    target.peer.core.continue_message_numbers(QP, ACROSS[0]);
    one_round(&mut target, ACROSS[0], [ACROSS[0], ACROSS[1]], ACROSS[0]);
    one_round(&mut target, ACROSS[1], [ACROSS[2], ACROSS[3]], ACROSS[1]);
    one_round(&mut target, ACROSS[2], [2, 3], ACROSS[2]);
    one_round(&mut target, ACROSS[3], [4, 5], ACROSS[3]);
}

// Requirements: DDP-4.3-07, DDP-4.3-09
#[test]
fn received_messages_are_numbered_across_the_wrap() {
    let mut target = target(false);
    target.peer.core.continue_message_numbers(QP, ACROSS[0]);
    post_receives(&target);
    for (n, msn) in ACROSS.into_iter().enumerate() {
        target.send(&fpdu(&send(msn, 0, &text(n))));
        assert_eq!(target.qp.error(), None, "number {msn:#x}");
    }
    expect_all_received(&target);
    // Four Fetch and Adds; the Atomic Responses count on their own queue.
    for (n, msn) in ACROSS.into_iter().enumerate() {
        let request = [
            &[0; 4][..],
            &(n as u32).to_be_bytes(),
            &COUNTERS.0.to_be_bytes(),
            &BASE_TO.to_be_bytes(),
            &1_u64.to_be_bytes(),
            &[0; 16],
            &[0xff; 8],
        ]
        .concat();
        target.send(&fpdu(&untagged([0x41, 0x4a], READ_REQUESTS, msn, 0, &request)));
        let answers = sent(&mut target);
        assert_eq!((answers.len(), answers[0].0, answers[0].1), (1, ATOMIC_RESPONSES, msn));
    }
    // The number has been used: the Send is out of range.
    target.send(&fpdu(&send(ACROSS[3], 0, b"")));
    assert!(target.qp.error().is_some());
}

/// The receiver identifies the buffer of a Send beyond a gap by its number, also across the wrap.
// Requirements: DDP-4.3-09, DDP-5.3-04, MPA-3-08
#[test]
fn messages_are_placed_early_across_the_wrap() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut target = target(true);
        target.peer.core.continue_message_numbers(QP, ACROSS[0]);
        post_receives(&target);
        let mut sender = Sender::new(Stream { start: (PEER_ISS + 1).0, markers: true, crc: true });
        // Each segment holds a Marker, by which the receiver finds the FPDUs beyond the gap.
        let mut frames = Vec::new();
        for (n, msn) in ACROSS.into_iter().enumerate() {
            let at = sender.seq;
            let mut octets = Vec::new();
            let empty_write = tagged(STag(0), 0, [0xc1, 0x40], b"");
            for _ in 0..25 {
                sender.frame(&empty_write, &mut octets);
            }
            sender.frame(&send(msn, 0, &text(n)), &mut octets);
            frames.push((at, octets));
        }
        let arrive = |target: &mut Target, n: usize| {
            let offset = frames[n].0.wrapping_sub(frames[0].0);
            target.peer.send(Flags::ACK, target.seq + offset, target.ack, &frames[n].1);
        };
        for n in order {
            arrive(&mut target, n);
            assert!(holds(&target.regions[3].0, 16 + 4 * n, &text(n)), "message {n} waits for the gap");
        }
        assert_eq!(target.completions.poll(), None, "Delivery waits for the gap");
        arrive(&mut target, 0);
        assert_eq!(target.qp.error(), None);
        expect_all_received(&target);
    }
}
