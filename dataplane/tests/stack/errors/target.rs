//! A core in Full Operation whose peer is played by the test, octet by octet.

use std::sync::Arc;

use warpline_dataplane::crc32c;
use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QpState, QueueDepths, SharedQp};
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::{ReceiveRequest, Slice, Status};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, Event, FullOperation};
use warpline_dataplane::wire::ddp::{Header as DdpHeader, Tagged, Untagged};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP, holds, region_of};

pub const WRITABLE: STag = STag::new(2, 0x2222);
pub const READABLE: STag = STag::new(3, 0x3333);
pub const FOREIGN: STag = STag::new(4, 0x4444);
pub const INBOX: STag = STag::new(5, 0x5555);
pub const COUNTERS: STag = STag::new(6, 0x6666);
pub const REGION_OCTETS: usize = 256;
pub const BASE_TO: u64 = 0x1000;
pub const INBOX_OCTETS: u32 = 16;

/// A core in Full Operation as Responder, with memory whose contents are known.
pub struct Target {
    pub peer: RawPeer,
    pub connection: ConnectionId,
    pub qp: Arc<SharedQp>,
    pub completions: Arc<CompletionRing>,
    pub regions: Vec<(Region, Vec<u8>)>,
    /// The position of the peer's next octet, and its acknowledgement.
    pub seq: SeqNumber,
    pub ack: SeqNumber,
}

impl Target {
    pub fn new() -> Self {
        Self::with(FullOperation::new(false))
    }

    /// Returns a target in Full Operation with `operation`.
    pub fn with(operation: FullOperation) -> Self {
        Self::sharing(operation, None)
    }

    /// The same, with receives from `receives` if that is a queue: then none is posted.
    pub fn sharing(operation: FullOperation, receives: Option<Arc<SharedReceiveQueue>>) -> Self {
        let mut peer = RawPeer::new();
        let next = peer.accept(Options::default());
        let completions = Arc::new(CompletionRing::new(64));
        let rings = CompletionRings::shared(completions.clone());
        let shares = receives.is_some();
        let mut qp =
            SharedQp::new(QP, PD, QueueDepths { send: 8, receive: 8 }, rings, peer.rings.doorbells.clone());
        if let Some(receives) = receives {
            qp = qp.with_shared_receives(receives);
        }
        let qp = Arc::new(qp);
        let mut regions = Vec::new();
        let grants = [
            (WRITABLE, PD, Access::REMOTE_WRITE, BASE_TO),
            (READABLE, PD, Access::REMOTE_READ, BASE_TO),
            (FOREIGN, ProtectionDomainId(9), Access::REMOTE_WRITE, BASE_TO),
            (INBOX, PD, Access::LOCAL_WRITE, 0),
            (COUNTERS, PD, Access::REMOTE_ATOMIC, BASE_TO),
        ];
        for (stag, pd, access, base_to) in grants {
            let octets = vec![0xa5; REGION_OCTETS];
            let region = region_of(&octets);
            peer.command(Command::Register { stag, grant: Grant::new(region.clone(), pd, base_to, access) });
            regions.push((region, octets));
        }
        if !shares {
            qp.post_receive(Self::receive(1)).unwrap();
        }
        let connection = peer.accepted.unwrap();
        peer.command(Command::Stream {
            connection,
            octets: Box::new([]),
            then: AfterStream::FullOperation { qp: qp.clone(), operation },
        });
        peer.settle();
        Self { peer, connection, qp, completions, regions, seq: PEER_ISS + 1, ack: next }
    }

    /// A receive into the inbox.
    pub fn receive(id: u64) -> ReceiveRequest {
        ReceiveRequest::new(id, Slice { stag: INBOX, to: 0, len: INBOX_OCTETS })
    }

    /// Sends `octets` in one segment that advertises `window`.
    pub fn send_with_window(&mut self, window: u16, octets: &[u8]) {
        let header = Header { window, ..self.peer.header(Flags::ACK, self.seq, self.ack) };
        self.peer.inject(&RawPeer::segment(&header, octets));
        self.peer.settle();
        self.seq += octets.len() as u32;
    }

    pub fn send(&mut self, octets: &[u8]) {
        for part in octets.chunks(1460) {
            self.peer.send(Flags::ACK, self.seq, self.ack, part);
            self.seq += part.len() as u32;
        }
    }

    /// A valid FPDU first, so that this end may send (MPA-7.1.2-15): an empty Write.
    pub fn open(&mut self) {
        self.send(&fpdu(&write(STag(0), 0, b"")));
        assert_eq!(self.qp.state(), QpState::ReadyToSend);
        self.peer.sent.clear();
    }

    /// The data the core has sent since the last look, and whether a FIN came with it.
    pub fn sent(&mut self) -> (Vec<u8>, bool) {
        let mut data = Vec::new();
        let mut fin = false;
        for sent in self.peer.sent.drain(..) {
            assert!(!sent.header.flags.contains(Flags::RST), "closed, not reset");
            fin |= sent.header.flags.contains(Flags::FIN);
            data.extend_from_slice(&sent.payload);
        }
        (data, fin)
    }

    /// Sends `octets`, which must end the stream with `error` and the Terminate whose control word is
    /// `control`; the Terminate quotes the faulty segment's header if `named`. The error is reported to the
    /// application, the one message that may still be sent is the Terminate, and RDMAP then closes the
    /// connection, whose only stream this was (`endings`).
    pub fn expect(mut self, octets: &[u8], error: StreamError, control: [u8; 4], named: Option<&[u8]>) {
        self.send(octets);
        assert_eq!(self.qp.error(), Some(error));
        assert_eq!(self.qp.state(), QpState::Terminate);
        let failed =
            self.peer.events.iter().any(
                |event| matches!(event, Event::StreamFailed { qp: QP, error: told, .. } if *told == error),
            );
        assert!(failed, "control was not told: {:?}", self.peer.events);
        let (data, fin) = self.sent();
        assert!(fin, "the connection closes");
        // A Terminate on queue 2 with MSN 1, and nothing after it (RDMAP-5.4-04). DDP-7.1-16: with the header
        // and length of the segment.
        // Requirements: RDMAP-5.4-01, RDMAP-4.8-01
        assert_eq!(data, terminate(control, named), "{error}");
        self.expect_untouched();
        // Octets after the error are discarded.
        // Requirements: MPA-8-09, C00-9-05, DDP-3-08, DDP-7.1-15, DDP-7.1-17, RDMAP-7-01
        let before = self.peer.core.statistics().fpdus_received;
        self.send(&fpdu(&write(WRITABLE, BASE_TO, b"too late")));
        assert_eq!(self.peer.core.statistics().fpdus_received, before);
        self.expect_untouched();
        let status = self.completions.poll().map(|completion| completion.status);
        assert_eq!(status, Some(Status::Flushed), "the posted receive is flushed");
    }

    /// Nothing but the inbox was written.
    pub fn expect_untouched_but_inbox(&self) {
        for (index, (region, octets)) in self.regions.iter().enumerate() {
            assert!(index == 3 || holds(region, 0, octets), "memory was written");
        }
    }

    pub fn expect_untouched(&self) {
        for (region, octets) in &self.regions {
            assert!(holds(region, 0, octets), "memory was written");
        }
    }
}

/// The FPDU of a Terminate whose control word is `control`, and which quotes the segment `named`.
pub fn terminate(control: [u8; 4], named: Option<&[u8]>) -> Vec<u8> {
    let mut terminate = vec![0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
    terminate.extend(control);
    if let Some(segment) = named {
        let mut header_octets = if segment[0] & 0x80 != 0 { 14 } else { 18 };
        // Of a Read Request its own header, too.
        // Requirements: RDMAP-4.8-04, RDMAP-4.8-08
        header_octets += if control[2] & 0x20 == 0 { 0 } else { 28 };
        terminate.extend((segment.len() as u16).to_be_bytes());
        terminate.extend(&segment[..header_octets]);
    }
    fpdu(&terminate)
}

/// Frames a ULPDU by the document alone: length, ULPDU, pad, CRC.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    let crc = crc32c::checksum(&octets);
    octets.extend(crc.to_le_bytes());
    octets
}

pub fn tagged(stag: STag, to: u64, control: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; Tagged::LEN];
    DdpHeader::Tagged(Tagged { last: true, version: 1, rsvd_ulp: control[1], stag, to }).emit(&mut ulpdu);
    ulpdu[0] = control[0];
    ulpdu.extend_from_slice(payload);
    ulpdu
}

pub fn write(stag: STag, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(stag, to, [0xc1, 0x40], payload)
}

pub fn untagged(control: [u8; 2], queue: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; Untagged::LEN];
    let header = Untagged { last: true, version: 1, rsvd_ulp: [control[1], 0, 0, 0, 0], queue, msn, mo };
    DdpHeader::Untagged(header).emit(&mut ulpdu);
    ulpdu[0] = control[0];
    ulpdu.extend_from_slice(payload);
    ulpdu
}

pub fn send(msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    untagged([0x41, 0x43], 0, msn, mo, payload)
}
