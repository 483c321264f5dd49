//! The stream of a connection: RDMA Writes of one size, one after another to the same place, in FPDUs that
//! begin segments.

use warpline::Advertisement;
use warpline_dataplane::mpa::{Framing, fpdu};
use warpline_dataplane::wire::ddp::{DDP_VERSION, Tagged};
use warpline_dataplane::wire::rdmap::{Control, Opcode, RDMAP_VERSION};
use warpline_tools::segments::write_fpdu;

/// What all connections send.
#[derive(Clone, Debug)]
pub struct Messages {
    /// What each message carries.
    pub content: Vec<u8>,
    pub framing: Framing,
    /// Octets of a segment.
    pub emss: usize,
    /// Whether a segment may have several FPDUs.
    pub packing: bool,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Octets of the stream so far.
    pub octets: u64,
    /// Octets of the message so far.
    message: usize,
    /// FPDUs so far.
    pub fpdus: u64,
}

impl Messages {
    /// Writes the next segment into `out`, which has room for `emss` octets. Returns the octets it has.
    pub fn next_segment(&self, position: &mut Position, sink: Advertisement, out: &mut [u8]) -> usize {
        let mut len = 0;
        while let Some(octets) = self.next_fpdu(position, sink, &mut out[len..self.emss]) {
            len += octets;
            if !self.packing {
                break;
            }
        }
        len
    }

    /// Writes the next FPDU if it fits. Only the first of a segment may be as long as fits.
    fn next_fpdu(&self, position: &mut Position, sink: Advertisement, out: &mut [u8]) -> Option<usize> {
        let most = fpdu::mulpdu(self.emss, self.framing.markers) - Tagged::LEN;
        let begin = position.message;
        let payload = &self.content[begin..self.content.len().min(begin + most)];
        let end = begin + payload.len();
        let control = Control { version: RDMAP_VERSION, opcode: Opcode::Write };
        let last = end == self.content.len();
        let tagged = Tagged {
            last,
            version: DDP_VERSION,
            rsvd_ulp: control.to_octet(),
            stag: sink.stag,
            to: sink.to + begin as u64,
        };
        let octets = write_fpdu(out, position.octets, self.framing, tagged, payload)?;
        position.octets += octets as u64;
        position.message = if last { 0 } else { end };
        position.fpdus += 1;
        Some(octets)
    }
}

#[cfg(test)]
mod tests {
    use warpline::STag;

    use super::*;

    fn segments(size: usize, packing: bool, markers: bool, count: usize) -> (Vec<usize>, Position) {
        let messages =
            Messages { content: vec![7; size], framing: Framing { markers, crc: true }, emss: 1448, packing };
        let sink = Advertisement { to: 0, stag: STag(1), len: size as u32 };
        let mut position = Position::default();
        let mut out = [0; 1448];
        let lens = (0..count).map(|_| messages.next_segment(&mut position, sink, &mut out)).collect();
        (lens, position)
    }

    /// An FPDU has 2 bytes of length, 14 of headers and 4 of CRC around its payload.
    #[test]
    fn segments_hold_what_fits() {
        // 64 KiB: 45 segments of 1428 bytes of payload, and one of the 1276 that are left.
        let (lens, position) = segments(65_536, false, false, 46);
        assert!(lens[..45].iter().all(|len| *len == 1448));
        assert_eq!((lens[45], position.message, position.fpdus), (1276 + 20, 0, 46));
        // 84 bytes a message: 17 share a segment.
        assert_eq!(segments(64, true, false, 3).0, [17 * 84; 3]);
        assert_eq!(segments(64, false, false, 3).0, [84; 3]);
    }

    /// A Marker of 4 bytes in every 512 of the stream.
    #[test]
    fn markers_take_room() {
        let (lens, position) = segments(65_536, false, true, 100);
        let all: usize = lens.iter().sum();
        assert_eq!(position.octets, all as u64);
        assert!(lens.iter().all(|len| *len <= 1448));
        let markers = all.div_ceil(512) * 4;
        let (whole, rest) = (position.octets as usize, 20 * 100 + markers);
        let payload = whole - rest;
        assert_eq!(payload % 65_536, position.message);
    }
}
