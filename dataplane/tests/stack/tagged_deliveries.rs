//! Tests of the data that DDP passes to RDMAP at the Delivery of a Tagged message (RFC 5041 §4.2): RsvdULP,
//! which distinguishes a Write from a Read Response, and the STag, which identifies the Read it answers. In
//! stream order and after placement beyond a gap.

use warpline_dataplane::memory::{Access, Grant, Region, STag};
use warpline_dataplane::mpa::enhanced::ReadDepths;
use warpline_dataplane::qp::work::{Operation, SendRequest, Slice, Status};
use warpline_dataplane::ring::{Command, FullOperation};
use warpline_dataplane::wire::tcp::Flags;

use crate::common::raw::PEER_ISS;
use crate::common::{PD, holds, region_of};
use crate::errors::target::{Target, tagged};
use crate::reference::mpa::{Sender, Stream};

/// The sinks of two Reads, which the peer may also write.
const SINKS: [STag; 2] = [STag::new(7, 0x7777), STag::new(8, 0x8888)];
const OCTETS: usize = 600;
const WRITE: u8 = 0x40;
const RESPONSE: u8 = 0x42;

/// Returns a target with a Read outstanding into each sink, the framer of its peer, and the sinks.
fn reading() -> (Target, Sender, Vec<Region>) {
    let depths = ReadDepths { ird: 0, ord: 2 };
    let operation = FullOperation { depths, markers_received: true, ..FullOperation::new(false) };
    let mut target = Target::with(operation);
    let mut sinks = Vec::new();
    for stag in SINKS {
        let region = region_of(&[0; OCTETS]);
        let grant = Grant::new(region.clone(), PD, 0, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
        target.peer.command(Command::Register { stag, grant });
        sinks.push(region);
    }
    let mut sender = Sender::new(Stream { start: (PEER_ISS + 1).0, markers: true, crc: true });
    let mut first = Vec::new();
    sender.frame(&tagged(STag(0), 0, [0xc1, WRITE], b""), &mut first);
    target.send(&first);
    for (id, stag) in SINKS.into_iter().enumerate() {
        let local = Slice { stag, to: 0, len: OCTETS as u32 };
        let read = Operation::Read { stag: STag(0x99), to: 0 };
        target.qp.post_send(SendRequest::new(id as u64, read, local)).unwrap();
    }
    target.peer.settle();
    let asked = target.sent().0.len();
    assert!(asked > 0);
    target.ack += asked as u32;
    target.peer.send(Flags::ACK, target.seq, target.ack, &[]);
    (target, sender, sinks)
}

/// Delivers the FPDUs of `ulpdus`, a segment each, in `order`.
fn arrive(target: &mut Target, sender: &mut Sender, ulpdus: &[Vec<u8>], order: &[usize]) {
    let mut segments = Vec::new();
    let mut offset = 0;
    for ulpdu in ulpdus {
        let mut octets = Vec::new();
        sender.frame(ulpdu, &mut octets);
        segments.push((offset, octets));
        offset += segments[segments.len() - 1].1.len() as u32;
    }
    for n in order {
        target.peer.send(Flags::ACK, target.seq + segments[*n].0, target.ack, &segments[*n].1);
    }
    target.seq += offset;
}

fn message(stag: STag, opcode: u8, octet: u8) -> Vec<u8> {
    tagged(stag, 0, [0xc1, opcode], &[octet; OCTETS])
}

/// A Write into the sink of a Read does not complete the Read, though it has the same STag and TO.
// Requirements: DDP-4.2-03, DDP-5.4-03, RDMAP-5.1-02
#[test]
fn the_octet_for_rdmap_comes_with_the_delivery() {
    for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
        let (mut target, mut sender, sinks) = reading();
        let first = [message(SINKS[0], WRITE, 1), message(SINKS[1], WRITE, 2), message(SINKS[0], WRITE, 3)];
        arrive(&mut target, &mut sender, &first, &order);
        assert_eq!((target.qp.error(), target.completions.poll()), (None, None), "nobody is told of a Write");
        assert!(holds(&sinks[1], 0, &[2; OCTETS]));
        let answers =
            [message(SINKS[0], RESPONSE, 4), message(SINKS[1], WRITE, 5), message(SINKS[1], RESPONSE, 6)];
        arrive(&mut target, &mut sender, &answers, &order);
        for (id, octet) in [(0, 4), (1, 6)] {
            let done = target.completions.poll().unwrap();
            assert_eq!((done.id, done.status, done.byte_len as usize), (id, Status::Success, OCTETS));
            assert!(order[2] == 0 || holds(&sinks[id as usize], 0, &[octet; OCTETS]));
        }
        assert_eq!((target.qp.error(), target.completions.poll()), (None, None));
    }
}

/// The peer answers the second Read first: the payload fits a sink, so that only the STag shows RDMAP the
/// error.
// Requirements: DDP-4.2-07
#[test]
fn the_stag_comes_with_the_delivery() {
    for order in [[0, 1], [1, 0]] {
        let (mut target, mut sender, _) = reading();
        let answers = [message(SINKS[1], RESPONSE, 1), message(SINKS[0], RESPONSE, 2)];
        arrive(&mut target, &mut sender, &answers, &order);
        assert!(target.qp.error().is_some(), "{order:?}");
        while let Some(completion) = target.completions.poll() {
            assert!(completion.status != Status::Success, "{completion:?}");
        }
        // In the order of the requests the answers are right.
        let (mut target, mut sender, sinks) = reading();
        let answers = [message(SINKS[0], RESPONSE, 1), message(SINKS[1], RESPONSE, 2)];
        arrive(&mut target, &mut sender, &answers, &order);
        assert_eq!(target.qp.error(), None);
        for (id, sink) in sinks.iter().enumerate() {
            assert_eq!(
                target.completions.poll().map(|done| (done.id, done.status)),
                Some((id as u64, Status::Success))
            );
            assert!(holds(sink, 0, &[1 + id as u8; OCTETS]));
        }
    }
}
