//! A packet socket with what waits in its transmit ring, and the copies between its rings and buffers.

use std::os::fd::{AsFd, BorrowedFd};

use ::packet::{Checksum, Flushed, PacketSocket};

use super::{Buffers, TCP_CHECKSUM, TransmitRequest};
use crate::device::Frame;
use crate::wire::checksum;
use crate::wire::ethernet::{self, MacAddress};

/// Octets of the two addresses, after which a tag stands.
const ADDRESSES_OCTETS: usize = 12;
/// Octets of each.
const ADDRESS_OCTETS: usize = 6;
/// The number of the VLAN in a tag (IEEE 802.1Q).
const VLAN_ID: u16 = 0x0fff;

/// A packet socket.
pub(super) struct Socket {
    rings: PacketSocket,
    /// Frames wait in the ring for which the interface was busy: they are offered again by the next poll.
    is_waiting: bool,
    /// The interface was down when frames were sent last. They wait for others to be sent, of which there
    /// will be some, for nobody acknowledges them.
    is_down: bool,
}

impl Socket {
    pub(super) const fn new(socket: PacketSocket) -> Self {
        Self { rings: socket, is_waiting: false, is_down: false }
    }

    /// Returns the number of the group that the socket has joined.
    pub(super) fn fanout_group(&self) -> Option<u16> {
        self.rings.fanout_group()
    }

    /// Returns true if a frame has arrived, or some to send wait.
    #[inline]
    pub(super) fn may_have_frames(&self) -> bool {
        self.is_waiting || self.rings.has_frames()
    }

    /// Returns true if frames to send wait for the next poll.
    pub(super) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Has the kernel send what is in the ring.
    pub(super) fn flush(&mut self) {
        match self.rings.flush() {
            Flushed::All => (self.is_waiting, self.is_down) = (false, false),
            Flushed::Waiting => self.is_waiting = !self.is_down,
            Flushed::Down | Flushed::Gone => (self.is_waiting, self.is_down) = (false, true),
        }
    }

    /// Takes up to `limit` frames, and offers those to send again that wait. The destination of each becomes
    /// `destination` if that is given.
    pub(super) fn receive<B: Buffers>(
        &mut self,
        buffers: &mut B,
        frames: &mut Vec<B::Frame>,
        limit: usize,
        destination: Option<MacAddress>,
    ) -> usize {
        if self.is_waiting {
            self.flush();
        }
        let before = frames.len();
        for _ in 0..limit {
            if !self.rings.has_frames() {
                break;
            }
            let Some(mut frame) = buffers.allocate() else { break };
            let Some(received) = self.rings.receive() else { break };
            if copy_received(received.octets(), received.vlan_tci(), destination, &mut frame).is_none() {
                continue;
            }
            if received.checksum() != Checksum::Unknown {
                B::set_intact(&mut frame);
            }
            frames.push(frame);
        }
        frames.len() - before
    }

    /// Puts a frame into the ring, with the destination and source `addresses` if they are given. Returns
    /// false if there is no room; a frame that no room is large enough for is dropped.
    #[inline]
    pub(super) fn put(
        &mut self,
        frame: &impl Frame,
        request: Option<&TransmitRequest>,
        addresses: Option<(MacAddress, MacAddress)>,
    ) -> bool {
        let Some(mut slot) = self.rings.slot() else { return false };
        let room = slot.room();
        if let Some(octets) = copy_to_send(frame, request, room) {
            if let Some((destination, source)) = addresses
                && let Some(target) = room.first_chunk_mut::<ADDRESSES_OCTETS>()
            {
                target[..ADDRESS_OCTETS].copy_from_slice(&destination.0);
                target[ADDRESS_OCTETS..].copy_from_slice(&source.0);
            }
            slot.send(octets, request.map(TransmitRequest::offload));
        }
        true
    }

    /// Returns how many frames the kernel has dropped, most of them because the ring was full.
    pub(super) fn missed_frames(&self) -> u64 {
        self.rings.statistics().dropped_frames
    }

    /// Clears an error of the interface, such as that it is down.
    pub(super) fn clear_error(&mut self) {
        let _ = self.rings.take_error();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

/// Copies a frame out of the ring, with its tag, which the kernel keeps beside it: a tag of no VLAN, for a
/// priority alone, is left out. `None` if the frame has no room for it, or there is no frame.
#[inline]
fn copy_received(
    octets: &[u8],
    vlan_tci: Option<u16>,
    destination: Option<MacAddress>,
    frame: &mut impl Frame,
) -> Option<()> {
    let room = match vlan_tci.filter(|tci| tci & VLAN_ID != 0) {
        None => {
            let room = frame.append(octets.len())?;
            room.copy_from_slice(octets);
            room
        }
        Some(tci) => {
            let (addresses, rest) = octets.split_at_checked(ADDRESSES_OCTETS)?;
            let room = frame.append(octets.len() + ethernet::Tag::LEN)?;
            room[..ADDRESSES_OCTETS].copy_from_slice(addresses);
            let tag = &mut room[ADDRESSES_OCTETS..][..ethernet::Tag::LEN];
            tag[..2].copy_from_slice(&ethernet::EtherType::VLAN.0.to_be_bytes());
            tag[2..].copy_from_slice(&tci.to_be_bytes());
            room[ADDRESSES_OCTETS + ethernet::Tag::LEN..].copy_from_slice(rest);
            room
        }
    };
    if let Some(destination) = destination {
        room.get_mut(..ADDRESS_OCTETS)?.copy_from_slice(&destination.0);
    }
    Some(())
}

/// Copies a frame to `room`, and returns its octets; `None` if there is no room for it. The kernel takes the
/// sum of a super-frame's pseudo-header with its length, which is not in it yet.
#[inline]
fn copy_to_send(frame: &impl Frame, request: Option<&TransmitRequest>, room: &mut [u8]) -> Option<usize> {
    let mut octets = 0;
    let mut index = 0;
    while let Some(piece) = frame.piece(index) {
        room.get_mut(octets..octets + piece.len())?.copy_from_slice(piece);
        octets += piece.len();
        index += 1;
    }
    if let Some(TransmitRequest { headers, segment_octets: Some(_) }) = request {
        let transport = usize::from(headers.l2_octets) + usize::from(headers.l3_octets);
        let field = transport + usize::from(TCP_CHECKSUM);
        let length = octets.checked_sub(transport)? as u16;
        let field = room.get_mut(field..field + 2)?.first_chunk_mut()?;
        *field = checksum::add(u16::from_be_bytes(*field), length).to_be_bytes();
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use ::packet::Segmentation;

    use super::super::frame::FrameBuffers;
    use super::*;
    use crate::device::{ChecksumRequest, IpVersion};

    const HEADERS: ChecksumRequest = ChecksumRequest {
        ip: IpVersion::V4,
        ip_checksum: false,
        l2_octets: 14,
        l3_octets: 20,
        l4_octets: 20,
    };

    /// The kernel goes on with a sum that has the length of what it cuts; what fits no slot is not sent.
    #[test]
    fn a_super_frame_has_the_length_in_its_sum() {
        let mut buffers = FrameBuffers::new(1, 4096);
        let mut frame = buffers.allocate().unwrap();
        frame.append(14 + 20 + 20 + 3000).unwrap().fill(0);
        frame.first_mut()[50..52].copy_from_slice(&[0xff, 0xf0]);
        frame.request_segmentation(HEADERS, 1460);
        let request = frame.request();
        let mut room = [0; 4096];
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room), Some(3054));
        // 0xfff0 + 3020, with the carry added.
        assert_eq!(u16::from_be_bytes([room[50], room[51]]), 0x0bbd);
        assert!(room[..50] == frame.piece(0).unwrap()[..50] && room[52..3054] == [0; 3002]);
        let expected = Segmentation { segment_octets: 1460, header_octets: 54, ipv6: false };
        let offload = request.unwrap().offload();
        assert_eq!((offload.checksum_start, offload.checksum_offset), (34, 16));
        assert_eq!(offload.segmentation, Some(expected));
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room[..3053]), None);
        // One segment's sum has its length already.
        frame.request_checksums(ChecksumRequest { ip: IpVersion::V6, l3_octets: 40, ..HEADERS });
        let request = frame.request();
        assert_eq!(copy_to_send(&frame, request.as_ref(), &mut room), Some(3054));
        assert_eq!(room[50..52], [0xff, 0xf0]);
        let offload = request.unwrap().offload();
        assert_eq!((offload.checksum_start, offload.segmentation), (54, None));
    }

    /// A tag goes back to where the kernel has taken it from, unless it names no VLAN.
    #[test]
    fn tags_are_put_back() {
        let received: Vec<u8> = (0..60).collect();
        for (tci, expected) in [(None, 60), (Some(0xe000), 60), (Some(0), 60), (Some(0xe007), 64)] {
            let mut buffers = FrameBuffers::new(1, 64);
            let mut frame = buffers.allocate().unwrap();
            assert_eq!(copy_received(&received, tci, None, &mut frame), Some(()));
            let octets = frame.piece(0).unwrap();
            assert_eq!((octets.len(), &octets[..12]), (expected, &received[..12]), "{tci:?}");
            assert_eq!(octets[octets.len() - 48..], received[12..]);
            assert!(expected == 60 || octets[12..16] == [0x81, 0, 0xe0, 7]);
        }
        // What fits no buffer, or has no addresses, is no frame.
        let mut buffers = FrameBuffers::new(1, 63);
        let mut frame = buffers.allocate().unwrap();
        assert_eq!(copy_received(&received, Some(7), None, &mut frame), None);
        assert_eq!(copy_received(&received[..11], Some(7), None, &mut frame), None);
    }

    /// What comes from a program of this machine is for the device.
    #[test]
    fn the_destination_is_the_device() {
        let received: Vec<u8> = (0..60).collect();
        let mut buffers = FrameBuffers::new(1, 64);
        let mut frame = buffers.allocate().unwrap();
        let mac = MacAddress([9; 6]);
        assert_eq!(copy_received(&received, None, Some(mac), &mut frame), Some(()));
        let octets = frame.piece(0).unwrap();
        assert_eq!((&octets[..6], &octets[6..]), (&[9; 6][..], &received[6..]));
        let mut frame = FrameBuffers::new(1, 64).allocate().unwrap();
        assert_eq!(copy_received(&received[..5], None, Some(mac), &mut frame), None);
    }
}
