//! Completes the checksums that a received frame lacks although its device reports them as good. A sender
//! without a physical wire (the other end of a ring, virtio, a kernel's tap device) leaves them to hardware
//! that the frame never passes. A capture of such a frame as it is would show intact octets as damaged.

use crate::device::partial_checksum::{TCP_FIELD, TcpPacket};
use crate::device::{ChecksumStatus, Frame};
use crate::wire::checksum::{self, Sum};

/// Where the checksum of an IPv4 header lies in it.
const IPV4_FIELD: usize = 10;
/// Fills in, in `copy` of the first octets of `frame`, the checksums that were left to hardware, where the
/// device says that the octets are good: an IPv4 field of 0, and a TCP field with the sum of the
/// pseudo-header, in a super-frame without its length. The frame stays as it is.
pub(super) fn fill_in(copy: &mut [u8], frame: &impl Frame) {
    let vouched = frame.checksums();
    if vouched.ip != ChecksumStatus::Good && vouched.tcp != ChecksumStatus::Good {
        return;
    }
    let first = frame.piece(0).unwrap_or_default();
    let Some(packet) = TcpPacket::locate(first, frame.len()) else { return };
    let mut put = |at: usize, value: u16| {
        if let Some(field) = copy.get_mut(at..at + 2) {
            field.copy_from_slice(&value.to_be_bytes());
        }
    };
    let field = |at: usize| first.get(at..at + 2).map(|field| u16::from_be_bytes([field[0], field[1]]));
    let at = packet.network + IPV4_FIELD;
    if vouched.ip == ChecksumStatus::Good
        && packet.source.is_ipv4()
        && field(at) == Some(0)
        && let Some(header) = first.get(packet.network..packet.transport)
    {
        put(at, checksum::sum(header).finish());
    }
    let at = packet.transport + TCP_FIELD;
    if vouched.tcp == ChecksumStatus::Good
        && let Some(missing) = packet.partial_checksum(first).map(|partial| partial.missing_length)
    {
        // The field holds the rest of the pseudo-header's sum, so the segment's own is the whole.
        let mut sum = Sum::default();
        sum.add(&missing.to_be_bytes());
        add_octets(&mut sum, frame, packet.transport, packet.end);
        put(at, sum.finish());
    }
}

/// Adds `from..to` of the octets of `frame`.
fn add_octets(sum: &mut Sum, frame: &impl Frame, from: usize, to: usize) {
    let mut at = 0;
    for piece in (0..).map_while(|index| frame.piece(index)) {
        let (start, end) = (from.max(at), to.min(at + piece.len()));
        if start < end {
            sum.add(&piece[start - at..end - at]);
        }
        at += piece.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::path::sample::ones_complement_sum;
    use crate::device::{ChecksumRequest, ReceivedChecksums};

    /// A frame in two pieces, cut at `cut`, for which its device vouches.
    struct Vouched {
        octets: Vec<u8>,
        cut: usize,
        checksums: ReceivedChecksums,
    }

    impl Frame for Vouched {
        fn piece(&self, index: usize) -> Option<&[u8]> {
            match index {
                0 => Some(&self.octets[..self.cut]),
                1 => Some(&self.octets[self.cut..]),
                _ => None,
            }
        }

        fn first_mut(&mut self) -> &mut [u8] {
            &mut self.octets
        }

        fn append(&mut self, _: usize) -> Option<&mut [u8]> {
            None
        }

        fn checksums(&self) -> ReceivedChecksums {
            self.checksums
        }

        fn request_checksums(&mut self, _: ChecksumRequest) {}
    }

    const GOOD: ReceivedChecksums = ReceivedChecksums { ip: ChecksumStatus::Good, tcp: ChecksumStatus::Good };

    /// The headers of a segment with `payload`, by the figures of RFC 791, RFC 8200 and RFC 9293 alone, with
    /// its checksums where an offloading sender leaves them undone. Where the IP header begins, and the
    /// pseudo-header, come with it.
    fn unfilled(version: u8, tagged: bool, payload: &[u8]) -> (Vec<u8>, usize, Vec<u8>) {
        let mut octets = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tagged {
            octets.extend([0x81, 0, 0x20, 7]);
        }
        octets.extend(if version == 4 { [8, 0] } else { [0x86, 0xdd] });
        let network = octets.len();
        let segment_octets = 20 + payload.len();
        let length = (segment_octets as u16).to_be_bytes();
        let mut pseudo_header = Vec::new();
        if version == 4 {
            let addresses = [198, 18, 0, 1, 198, 18, 0, 2];
            octets.extend([0x45, 0]);
            octets.extend((20 + segment_octets as u16).to_be_bytes());
            octets.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            octets.extend(addresses);
            pseudo_header.extend(addresses);
            pseudo_header.extend([0, 6, length[0], length[1]]);
        } else {
            let mut addresses = [0; 32];
            (addresses[0], addresses[15], addresses[16], addresses[31]) = (0xfd, 1, 0xfd, 2);
            octets.extend([0x60, 0, 0, 0, length[0], length[1], 6, 64]);
            octets.extend(addresses);
            pseudo_header.extend(addresses);
            pseudo_header.extend([0, 0, length[0], length[1], 0, 0, 0, 6]);
        }
        octets.extend([0x9c, 0x40, 0x14, 0xeb, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 0x20, 0]);
        octets.extend(ones_complement_sum(&pseudo_header).to_be_bytes());
        octets.extend([0, 0]);
        octets.extend(payload);
        (octets, network, pseudo_header)
    }

    #[test]
    fn what_was_left_to_hardware_is_filled_in() {
        let cases =
            [(4, false, 0), (4, false, 1), (4, true, 1401), (6, false, 8), (6, true, 333), (4, false, 8940)];
        let super_frames = [false, true];
        for ((version, tagged, payload_octets), super_frame) in
            cases.into_iter().flat_map(|case| super_frames.map(|super_frame| (case, super_frame)))
        {
            let payload: Vec<u8> = (0..payload_octets).map(|n| (n * 7 + 3) as u8).collect();
            let (mut octets, network, pseudo_header) = unfilled(version, tagged, &payload);
            let end = octets.len();
            // Ethernet's padding belongs to nothing.
            octets.resize(end.max(60), 0xee);
            let transport = network + if version == 4 { 20 } else { 40 };
            if super_frame {
                // The device that cuts it adds the length of each segment.
                let mut without_length = pseudo_header.clone();
                without_length[if version == 4 { 10..12 } else { 34..36 }].fill(0);
                let sum = ones_complement_sum(&without_length);
                octets[transport + 16..transport + 18].copy_from_slice(&sum.to_be_bytes());
            }
            for cut in [octets.len(), transport + 20, transport + 20 + payload_octets / 2] {
                let frame = Vouched { octets: octets.clone(), cut, checksums: GOOD };
                let mut copy = octets.clone();
                fill_in(&mut copy, &frame);
                assert_eq!(frame.octets, octets, "the frame stays");
                let covered = [&pseudo_header[..], &copy[transport..end]].concat();
                assert_eq!(ones_complement_sum(&covered), 0xffff, "RFC 1071 §1: it holds");
                if version == 4 {
                    assert_eq!(ones_complement_sum(&copy[network..transport]), 0xffff);
                }
                let fields = [network + 10..network + 12, transport + 16..transport + 18];
                for at in (0..copy.len()).filter(|at| !fields.iter().any(|field| field.contains(at))) {
                    assert_eq!(copy[at], octets[at], "octet {at}");
                }
            }
        }
    }

    /// The capture shows frames as they are on the wire: a wrong checksum that the device has
    /// not verified, or one that is not the partial sum that a sender leaves to the device.
    #[test]
    fn what_is_wrong_stays_wrong() {
        let (octets, network, _) = unfilled(4, false, b"payload");
        let unknown = ReceivedChecksums::default();
        let bad = ReceivedChecksums { ip: ChecksumStatus::Bad, tcp: ChecksumStatus::Bad };
        for checksums in [unknown, bad] {
            let mut copy = octets.clone();
            fill_in(&mut copy, &Vouched { octets: octets.clone(), cut: octets.len(), checksums });
            assert_eq!(copy, octets);
        }
        let mut damaged = octets.clone();
        damaged[network + 10] = 1;
        damaged[network + 36] ^= 0x40;
        let mut copy = damaged.clone();
        fill_in(&mut copy, &Vouched { octets: damaged.clone(), cut: damaged.len(), checksums: GOOD });
        assert_eq!(copy, damaged);
    }

    /// A capture may keep fewer octets than the checksums cover, or than precede them. A frame that is no
    /// packet stays unchanged.
    #[test]
    fn short_copies_and_other_frames() {
        let (octets, network, _) = unfilled(4, false, &[9; 300]);
        let mut whole = octets.clone();
        let frame = Vouched { octets: octets.clone(), cut: octets.len(), checksums: GOOD };
        fill_in(&mut whole, &frame);
        for kept in 0..octets.len() {
            let mut copy = octets[..kept].to_vec();
            fill_in(&mut copy, &frame);
            for at in [network + 10, network + 36].into_iter().filter(|at| at + 2 <= kept) {
                assert_eq!(copy[at..at + 2], whole[at..at + 2], "{kept} octets kept");
            }
        }
        for len in 0..network + 40 {
            let mut copy = octets[..len].to_vec();
            fill_in(&mut copy, &Vouched { octets: octets[..len].to_vec(), cut: len, checksums: GOOD });
            assert_eq!(copy, octets[..len], "{len} octets are no packet");
        }
    }
}
