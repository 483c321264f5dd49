//! A packet socket, and how frames get from its ring to buffers and from buffers to the kernel.

use std::os::fd::{AsFd, BorrowedFd};

use ::packet::{Burst, Checksum, NotPushed, PacketSocket, Stopped};

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
    inner: PacketSocket,
    /// Frames dropped because the interface was down or gone.
    lost_frames: u64,
    /// Frames received that fitted no buffer.
    unfit_frames: u64,
}

impl Socket {
    pub(super) const fn new(inner: PacketSocket) -> Self {
        Self { inner, lost_frames: 0, unfit_frames: 0 }
    }

    /// Returns the number of the group that the socket has joined.
    pub(super) fn fanout_group(&self) -> Option<u16> {
        self.inner.fanout_group()
    }

    /// Returns true if a frame has arrived.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.inner.has_frames()
    }

    /// Takes up to `limit` frames. The destination of each becomes `destination` if that is given.
    pub(super) fn receive<B: Buffers>(
        &mut self,
        buffers: &mut B,
        frames: &mut Vec<B::Frame>,
        limit: usize,
        destination: Option<MacAddress>,
    ) -> usize {
        let before = frames.len();
        for _ in 0..limit {
            if !self.inner.has_frames() {
                break;
            }
            let Some(mut frame) = buffers.allocate() else { break };
            let Some(received) = self.inner.receive() else { break };
            if copy_received(received.octets(), received.vlan_tci(), destination, &mut frame).is_none() {
                self.unfit_frames += 1;
                continue;
            }
            if received.checksum() != Checksum::Unknown {
                B::set_intact(&mut frame);
            }
            frames.push(frame);
        }
        frames.len() - before
    }

    /// Takes frames from the front of `frames`, and sends them with the destination and source `addresses` if
    /// they are given. Returns how many; those after them find room later. Frames that cannot be sent at all
    /// are lost, as on a cable that is unplugged.
    pub(super) fn send<B: Buffers>(
        &mut self,
        frames: &[B::Frame],
        addresses: Option<(MacAddress, MacAddress)>,
    ) -> usize {
        let mut taken = 0;
        while taken < frames.len() {
            let mut burst = self.inner.burst();
            let pushed = frames[taken..].iter().try_for_each(|frame| push::<B>(&mut burst, frame, addresses));
            let sent = burst.send();
            taken += sent.frames;
            match sent.stopped {
                Some(Stopped::Busy) => return taken,
                Some(Stopped::Down | Stopped::Gone) => {
                    self.lost_frames += (frames.len() - taken) as u64;
                    return frames.len();
                }
                None if pushed == Err(NotPushed::Refused) => taken += 1,
                None => (),
            }
        }
        taken
    }

    /// Returns how many frames were dropped: by the kernel, most of them because the ring was full, or
    /// because they fitted no buffer.
    pub(super) fn missed_frames(&self) -> u64 {
        self.inner.statistics().dropped_frames + self.unfit_frames
    }

    /// Returns how many frames were not sent.
    pub(super) fn unsent_frames(&self) -> u64 {
        self.lost_frames + self.inner.statistics().refused_frames
    }

    /// Clears an error of the interface, such as that it is down.
    pub(super) fn clear_error(&mut self) {
        let _ = self.inner.take_error();
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
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

/// Adds a frame to a burst, with the destination and source `addresses` if they are given. The kernel takes
/// the sum of a super-frame's pseudo-header with its length, which is not in it yet.
#[inline]
fn push<'f, B: Buffers>(
    burst: &mut Burst<'_, 'f>,
    frame: &'f B::Frame,
    addresses: Option<(MacAddress, MacAddress)>,
) -> Result<(), NotPushed> {
    let request = B::request(frame);
    let offload = request.as_ref().map(TransmitRequest::offload);
    let pieces = (0..).map_while(|index| frame.piece(index));
    let head = burst.push(pieces, offload.as_ref())?;
    if let Some((destination, source)) = addresses
        && let Some(target) = head.first_chunk_mut::<ADDRESSES_OCTETS>()
    {
        target[..ADDRESS_OCTETS].copy_from_slice(&destination.0);
        target[ADDRESS_OCTETS..].copy_from_slice(&source.0);
    }
    if let Some(TransmitRequest { headers, segment_octets: Some(_) }) = request {
        let transport = usize::from(headers.l2_octets) + usize::from(headers.l3_octets);
        add_length(head, transport, frame.len());
    }
    Ok(())
}

/// Adds the length of a TCP segment, which begins at `transport` of a frame of so many octets, to the sum of
/// its pseudo-header. A frame whose headers end before the sum is refused as it is sent.
#[inline]
fn add_length(head: &mut [u8], transport: usize, frame_octets: usize) {
    let field = transport + usize::from(TCP_CHECKSUM);
    if let Some(field) = head.get_mut(field..).and_then(<[u8]>::first_chunk_mut) {
        let length = frame_octets.saturating_sub(transport) as u16;
        *field = checksum::add(u16::from_be_bytes(*field), length).to_be_bytes();
    }
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

    /// The kernel goes on with a sum that has the length of what it cuts.
    #[test]
    fn a_super_frame_has_the_length_in_its_sum() {
        let mut head = [0; 128];
        head[50..52].copy_from_slice(&[0xff, 0xf0]);
        add_length(&mut head, 34, 34 + 20 + 3000);
        // 0xfff0 + 3020, with the carry added.
        assert_eq!(u16::from_be_bytes([head[50], head[51]]), 0x0bbd);
        assert!(head[..50] == [0; 50] && head[52..] == [0; 76]);
        // Headers that end before the sum have none.
        add_length(&mut head[..51], 34, 3054);
        add_length(&mut [], usize::from(u8::MAX) * 2, 0);
        assert_eq!(head[50], 0x0b);
    }

    /// What the kernel is asked for follows from where the headers are.
    #[test]
    fn a_request_names_the_headers() {
        let joined = TransmitRequest { headers: HEADERS, segment_octets: Some(1460) }.offload();
        let expected = Segmentation { segment_octets: 1460, header_octets: 54, ipv6: false };
        assert_eq!((joined.checksum_start, joined.checksum_offset), (34, 16));
        assert_eq!(joined.segmentation, Some(expected));
        let headers = ChecksumRequest { ip: IpVersion::V6, l3_octets: 40, ..HEADERS };
        let single = TransmitRequest { headers, segment_octets: None }.offload();
        assert_eq!((single.checksum_start, single.checksum_offset, single.segmentation), (54, 16, None));
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
