//! Captures in the pcapng format (draft-ietf-opsawg-pcapng): blocks appended to a buffer, little-endian,
//! Ethernet, with timestamps in nanoseconds. Writing the buffer out is the caller's affair.

use core::ops::Range;

const SECTION_HEADER_BLOCK: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION_BLOCK: u32 = 1;
const ENHANCED_PACKET_BLOCK: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// Ten to the minus nine seconds.
const NANOSECONDS: u8 = 9;
/// Longest interface name written, in octets.
const MAX_NAME_OCTETS: usize = 255;

/// Which way a packet went, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    Inbound,
    /// Transmitted.
    Outbound,
}

/// The data that a capture holds about a packet besides its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// The interface: the number of [`interface_description`] blocks before its own in the section.
    pub interface: u32,
    /// When it passed, in nanoseconds since 1970-01-01 UTC.
    pub unix_ns: u64,
    /// Which way it went.
    pub direction: Direction,
    /// Octets to keep at most; 0 keeps all.
    pub snap_octets: u32,
}

/// Appends the block that opens a capture.
pub fn section_header(out: &mut Vec<u8>) {
    block(out, SECTION_HEADER_BLOCK, |out| {
        put32(out, BYTE_ORDER_MAGIC);
        put16(out, 1);
        put16(out, 0);
        // The length of the section is not known in advance: -1.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, SHB_USERAPPL, concat!("warpline ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// Appends the block that introduces an Ethernet interface; `snap_octets` is 0 where packets are kept whole.
/// A name over 255 octets is cut.
pub fn interface_description(out: &mut Vec<u8>, name: &str, snap_octets: u32) {
    let name = &name[..name.floor_char_boundary(MAX_NAME_OCTETS)];
    block(out, INTERFACE_DESCRIPTION_BLOCK, |out| {
        put16(out, LINKTYPE_ETHERNET);
        put16(out, 0);
        put32(out, snap_octets);
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_TSRESOL, &[NANOSECONDS]);
        option(out, OPTION_END, &[]);
    });
}

/// Appends a block that holds the packet in `pieces`. Returns where the octets kept of it lie in `out`.
pub fn enhanced_packet<'a>(
    out: &mut Vec<u8>,
    info: PacketInfo,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Range<usize> {
    let mut packet = 0..0;
    let snap_octets = if info.snap_octets == 0 { usize::MAX } else { info.snap_octets as usize };
    block(out, ENHANCED_PACKET_BLOCK, |out| {
        put32(out, info.interface);
        put32(out, (info.unix_ns >> 32) as u32);
        put32(out, info.unix_ns as u32);
        let lengths = out.len();
        out.extend_from_slice(&[0; 8]);
        let (mut kept, mut total) = (0, 0);
        for piece in pieces {
            let keep = piece.len().min(snap_octets - kept);
            out.extend_from_slice(&piece[..keep]);
            kept += keep;
            total += piece.len();
        }
        out[lengths..lengths + 4].copy_from_slice(&(kept as u32).to_le_bytes());
        out[lengths + 4..lengths + 8].copy_from_slice(&(total as u32).to_le_bytes());
        packet = lengths + 8..lengths + 8 + kept;
        pad(out, kept);
        let direction: u32 = match info.direction {
            Direction::Inbound => 0b01,
            Direction::Outbound => 0b10,
        };
        option(out, EPB_FLAGS, &direction.to_le_bytes());
        option(out, OPTION_END, &[]);
    });
    packet
}

/// Appends a block of type `kind` with the body that `body` appends, a multiple of four octets; the total
/// length is at both ends.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put32(out, kind);
    put32(out, 0);
    body(out);
    let total = (out.len() - start + 4) as u32;
    debug_assert!(total.is_multiple_of(4));
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    put32(out, total);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put16(out, code);
    put16(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Fills up with zeros what `octets` octets lack to a multiple of four.
fn pad(out: &mut Vec<u8>, octets: usize) {
    out.resize(out.len() + octets.next_multiple_of(4) - octets, 0);
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
pub(super) mod reader {
    //! Reads captures of the writer, for tests.

    use super::Direction;

    /// A block: its type and its body.
    pub(crate) struct Block<'a> {
        pub kind: u32,
        pub body: &'a [u8],
    }

    pub(crate) fn u16_at(octets: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(octets[at..at + 2].try_into().unwrap())
    }

    pub(crate) fn u32_at(octets: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(octets[at..at + 4].try_into().unwrap())
    }

    /// Returns every block of a capture; panics unless the lengths at both ends of a block agree and no
    /// octets remain.
    pub(crate) fn blocks(mut octets: &[u8]) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        while !octets.is_empty() {
            let total = u32_at(octets, 4) as usize;
            assert!(total >= 12 && total.is_multiple_of(4));
            assert_eq!(u32_at(octets, total - 4) as usize, total);
            blocks.push(Block { kind: u32_at(octets, 0), body: &octets[8..total - 4] });
            octets = &octets[total..];
        }
        blocks
    }

    /// Returns code and value of every option up to the end mark, which must be the last octets and the
    /// padding zero.
    pub(crate) fn options(mut octets: &[u8]) -> Vec<(u16, &[u8])> {
        let mut options = Vec::new();
        loop {
            let (code, length) = (u16_at(octets, 0), usize::from(u16_at(octets, 2)));
            if code == 0 {
                assert_eq!((length, octets.len()), (0, 4));
                return options;
            }
            let next = 4 + length.next_multiple_of(4);
            options.push((code, &octets[4..4 + length]));
            assert!(octets[4 + length..next].iter().all(|&octet| octet == 0));
            octets = &octets[next..];
        }
    }

    /// An enhanced packet block, field by field.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Packet<'a> {
        pub interface: u32,
        pub unix_ns: u64,
        pub direction: Direction,
        pub original_octets: u32,
        pub octets: &'a [u8],
    }

    pub(crate) fn packet<'a>(block: &Block<'a>) -> Packet<'a> {
        assert_eq!(block.kind, 6);
        let kept = u32_at(block.body, 12) as usize;
        let padded = 20 + kept.next_multiple_of(4);
        assert!(block.body[20 + kept..padded].iter().all(|&octet| octet == 0));
        let options = options(&block.body[padded..]);
        assert_eq!((options.len(), options[0].0), (1, 2));
        Packet {
            interface: u32_at(block.body, 0),
            unix_ns: u64::from(u32_at(block.body, 4)) << 32 | u64::from(u32_at(block.body, 8)),
            direction: match u32_at(options[0].1, 0) {
                1 => Direction::Inbound,
                2 => Direction::Outbound,
                other => panic!("direction {other}"),
            },
            original_octets: u32_at(block.body, 16),
            octets: &block.body[20..20 + kept],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reader::{blocks, options, packet, u16_at, u32_at};
    use super::*;

    #[test]
    fn opens_with_a_section_header() {
        let mut out = Vec::new();
        section_header(&mut out);
        let blocks = blocks(&out);
        assert_eq!((blocks.len(), blocks[0].kind), (1, 0x0a0d_0d0a));
        let body = blocks[0].body;
        assert_eq!(body[..4], [0x4d, 0x3c, 0x2b, 0x1a]);
        assert_eq!((u16_at(body, 4), u16_at(body, 6)), (1, 0));
        assert_eq!(body[8..16], [0xff; 8]);
        let options = options(&body[16..]);
        assert_eq!((options.len(), options[0].0), (1, 4));
        assert!(options[0].1.starts_with(b"warpline "));
    }

    #[test]
    fn describes_interfaces_whatever_the_length_of_the_name() {
        for name in ["", "a", "wl0", "warp", "ring0-rx"] {
            let mut out = Vec::new();
            interface_description(&mut out, name, 128);
            let blocks = blocks(&out);
            let body = blocks[0].body;
            assert_eq!((blocks[0].kind, u16_at(body, 0), u16_at(body, 2), u32_at(body, 4)), (1, 1, 0, 128));
            assert_eq!(options(&body[8..]), [(2, name.as_bytes()), (9, &[9][..])]);
        }
        let mut out = Vec::new();
        interface_description(&mut out, &"ü".repeat(200), 0);
        assert_eq!(options(&blocks(&out)[0].body[8..])[0].1, "ü".repeat(127).as_bytes());
    }

    #[test]
    fn holds_packets_of_every_length_in_pieces() {
        let unix_ns = 0x1122_3344_5566_7788;
        for octets in 0..20 {
            let data: Vec<u8> = (1..=octets).collect();
            let (left, right) = data.split_at(data.len() / 2);
            for direction in [Direction::Inbound, Direction::Outbound] {
                let mut out = Vec::new();
                let info = PacketInfo { interface: 3, unix_ns, direction, snap_octets: 0 };
                enhanced_packet(&mut out, info, [left, right].into_iter());
                let expected = reader::Packet {
                    interface: 3,
                    unix_ns,
                    direction,
                    original_octets: octets.into(),
                    octets: &data,
                };
                assert_eq!(packet(&blocks(&out)[0]), expected);
            }
        }
    }

    #[test]
    fn keeps_no_more_than_the_snap_length() {
        let info = PacketInfo { interface: 0, unix_ns: 1, direction: Direction::Inbound, snap_octets: 5 };
        for (pieces, kept) in [(["abc", "defg"], "abcde"), (["abcdef", "g"], "abcde"), (["abc", "d"], "abcd")]
        {
            let mut out = Vec::new();
            enhanced_packet(&mut out, info, pieces.iter().map(|piece| piece.as_bytes()));
            let blocks = blocks(&out);
            let packet = packet(&blocks[0]);
            assert_eq!(packet.octets, kept.as_bytes());
            assert_eq!(packet.original_octets as usize, pieces.concat().len());
        }
    }
}
