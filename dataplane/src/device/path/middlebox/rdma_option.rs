//! What a middlebox does to the TCP RDMA option (draft-csapuntz-tcprdma-00 §3.1) of a segment: it takes the
//! option away, puts that of another segment in its place, or changes a field. The checksums are right again
//! afterwards.

use core::ops::Range;

use super::{ETHERNET_OCTETS, Segment, TCP_MIN_OCTETS};

const END: u8 = 0;
const NOP: u8 = 1;
const KIND: u8 = 25;
/// Octets of the longest form.
const MAX_OCTETS: usize = 20;
/// Octets of the longest TCP header.
const TCP_MAX_OCTETS: usize = 60;

/// An option that was on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Copied {
    octets: [u8; MAX_OCTETS],
    len: usize,
}

/// Returns where the first RDMA option of a segment with data lies in `frame`; `None` if it has none, or one
/// of a length that the draft does not define.
pub(in super::super) fn locate(frame: &[u8], segment: Segment) -> Option<Range<usize>> {
    if !segment.resegmentable(frame) {
        return None;
    }
    let mut at = segment.tcp + TCP_MIN_OCTETS;
    while at < segment.payload {
        let octets = match frame[at] {
            END => return None,
            NOP => 1,
            _ if at + 1 < segment.payload => usize::from(frame[at + 1]),
            _ => return None,
        };
        if frame[at] != NOP && (octets < 2 || at + octets > segment.payload) {
            return None;
        }
        if frame[at] == KIND {
            return matches!(octets, 4 | 16 | 20).then_some(at..at + octets);
        }
        at += octets;
    }
    None
}

/// Copies the option, to be put on another segment.
pub(in super::super) fn copy(frame: &[u8], option: Range<usize>) -> Copied {
    let mut octets = [0; MAX_OCTETS];
    let len = option.len();
    octets[..len].copy_from_slice(&frame[option]);
    Copied { octets, len }
}

/// Overwrites the option with NOPs.
pub(in super::super) fn strip(frame: &mut [u8], segment: Segment, option: Range<usize>) {
    frame[option].fill(NOP);
    segment.seal(frame);
}

/// Changes one field of the option to something else, picked by `pick` (given a bound, it returns a number
/// below it): a near value, or any.
pub(in super::super) fn alter(
    frame: &mut [u8],
    segment: Segment,
    option: Range<usize>,
    mut pick: impl FnMut(usize) -> usize,
) {
    let octets = &mut frame[option];
    let field = match (octets.len(), pick(7)) {
        // A, or U.
        (_, 0) => {
            octets[2] ^= if pick(2) == 0 { 0x80 } else { 0x40 };
            return segment.seal(frame);
        }
        // A length that the draft does not define, or that of another form.
        (_, 1) => {
            octets[1] = [2, 3, 4, 16, 17, octets[1] - 1][pick(6)];
            return segment.seal(frame);
        }
        (4, _) => 2..4,
        (_, 2) => 4..8,
        (_, 3) => 8..12,
        (_, 4) => 12..14,
        (_, 5) => 14..16,
        (20, _) => 16..20,
        _ => 8..12,
    };
    if pick(2) == 0 {
        // A few more, or less: carried through the field.
        let mut carry = (pick(5) + 1) as u16;
        let subtracts = pick(2) == 0;
        for octet in octets[field].iter_mut().rev() {
            let sum =
                if subtracts { u16::from(*octet).wrapping_sub(carry) } else { u16::from(*octet) + carry };
            *octet = sum as u8;
            carry = u16::from(sum > 0xff);
        }
    } else {
        let place = field.start + pick(field.len());
        octets[place] ^= 1 << pick(8);
    }
    segment.seal(frame);
}

/// Puts `copied` on the segment in `buffer`, in the place of its own option, or as a new one if it has none
/// and both the header and an IP packet of `mtu_octets` have room for it. Returns the length of the frame;
/// `None`, and nothing is changed, if there is no room.
pub(in super::super) fn put(
    buffer: &mut [u8],
    segment: Segment,
    copied: &Copied,
    mtu_octets: usize,
) -> Option<usize> {
    let octets = &copied.octets[..copied.len];
    if let Some(option) = locate(&buffer[..segment.end], segment) {
        if option.len() != copied.len {
            return None;
        }
        buffer[option].copy_from_slice(octets);
        segment.seal(buffer);
        return Some(segment.end);
    }
    let longer = Segment { payload: segment.payload + copied.len, end: segment.end + copied.len, ..segment };
    let fits = longer.payload - longer.tcp <= TCP_MAX_OCTETS
        && longer.end <= buffer.len()
        && longer.end - ETHERNET_OCTETS <= mtu_octets;
    if !fits || !segment.resegmentable(buffer) {
        return None;
    }
    buffer.copy_within(segment.payload..segment.end, longer.payload);
    buffer[segment.payload..longer.payload].copy_from_slice(octets);
    let words = (longer.payload - longer.tcp) / 4;
    buffer[longer.tcp + 12] = (words as u8) << 4 | buffer[longer.tcp + 12] & 0x0f;
    longer.seal(buffer);
    Some(longer.end)
}
