//! The Internet checksum (RFC 1071).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A ones' complement sum of 16-bit words, growing piece by piece as if the pieces were joined.
///
/// The words are added in the machine's octet order, which RFC 1071 §2 shows to be as good as any, and turned
/// into network order once at the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Up to carries, which have been added back in.
    total: u64,
    /// Whether an odd number of octets was added, so that the next octet is the low half of a word.
    odd: bool,
}

/// Octets added per step, without a branch, and of what is left after such steps.
const STEP: usize = 128;
const SHORT_STEP: usize = 32;

impl Sum {
    /// Adds the octets that follow those added before.
    #[inline]
    pub fn add(&mut self, octets: &[u8]) {
        let sum = sum_of_words(octets);
        // A piece that starts in the middle of a word has all its words turned around (RFC 1071 §2 (B)).
        let sum = if self.odd { u64::from(fold(sum).swap_bytes()) } else { sum };
        self.total = add_around(self.total, sum);
        self.odd ^= !octets.len().is_multiple_of(2);
    }

    /// The sum that has been [folded](Self::folded).
    #[inline]
    pub const fn from_folded(folded: u16) -> Self {
        Self { total: folded.to_be() as u64, odd: false }
    }

    /// The sum itself, not complemented: a device needs it in the checksum field if it is to complete it.
    #[inline]
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.total))
    }

    /// The checksum: 0 when the octets added contain a checksum and it holds.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }
}

/// The sum of `octets`.
#[inline]
pub fn sum(octets: &[u8]) -> Sum {
    let mut sum = Sum::default();
    sum.add(octets);
    sum
}

/// A [folded](Sum::folded) sum with one more word.
#[inline]
pub const fn add(folded: u16, word: u16) -> u16 {
    let (sum, carry) = folded.overflowing_add(word);
    sum + carry as u16
}

/// The sum of the pseudo-header that TCP and UDP checksums cover: `length` octets of `protocol` from `src` to
/// `dst`.
#[inline]
pub fn ipv4_pseudo_header(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, length: u16) -> Sum {
    let word = |octets: [u8; 4]| u64::from(u32::from_ne_bytes(octets));
    let [high, low] = length.to_be_bytes();
    Sum { total: word(src.octets()) + word(dst.octets()) + word([0, protocol, high, low]), odd: false }
}

/// As [`ipv4_pseudo_header`], for IPv6; ICMPv6 checksums cover it too (RFC 8200 §8.1).
#[inline]
pub fn ipv6_pseudo_header(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, length: u32) -> Sum {
    let mut sum = sum(&src.octets());
    sum.add(&dst.octets());
    sum.add(&length.to_be_bytes());
    sum.add(&[0, 0, 0, protocol]);
    sum
}

/// The pseudo-header of either family; both addresses are of one.
#[inline]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, length: u16) -> Sum {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ipv4_pseudo_header(src, dst, protocol, length),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6_pseudo_header(src, dst, protocol, u32::from(length)),
        _ => {
            debug_assert!(false, "addresses of two families: {src} and {dst}");
            Sum::default()
        }
    }
}

/// The sum of the words of `octets` in machine order, an odd last octet filled up with zero, up to carries:
/// [`fold`] makes it that of the 16-bit words.
///
/// RFC 1071 §2 (C): words of 64 bits are added in one chain of carries, one instruction each. On x86-64
/// without AVX2 no vectors take fewer, for their lanes have to be widened first.
// Not inlined: its instructions are counted apart from the protocols', as those of CRCs and copies are.
#[inline(never)]
fn sum_of_words(octets: &[u8]) -> u64 {
    let (steps, rest) = octets.as_chunks::<STEP>();
    let (mut sum, mut carries) = (0, 0);
    for step in steps {
        add_chain(&mut sum, &mut carries, step);
    }
    let (steps, rest) = rest.as_chunks::<SHORT_STEP>();
    for step in steps {
        add_chain(&mut sum, &mut carries, step);
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        add_chain(&mut sum, &mut carries, word);
    }
    // Up to seven octets: of four, two and one.
    let (four, tail) = tail.as_chunks::<4>();
    let (two, tail) = tail.as_chunks::<2>();
    let four = four.first().map_or(0, |word| u32::from_ne_bytes(*word));
    let two = two.first().map_or(0, |word| u16::from_ne_bytes(*word));
    let one = tail.first().map_or(0, |last| u16::from_ne_bytes([*last, 0]));
    // A carry out of 64 bits is worth one.
    add_around(sum, carries + u64::from(four) + u64::from(two) + u64::from(one))
}

/// Adds the words of 64 bits in `octets` to `sum`, in one chain of carries, and its last carry to `carries`.
#[inline]
fn add_chain(sum: &mut u64, carries: &mut u64, octets: &[u8]) {
    let mut carry = false;
    for word in octets.as_chunks::<8>().0 {
        (*sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
    }
    *carries += u64::from(carry);
}

/// The sum of two sums, with its carry added back in.
#[inline]
const fn add_around(one: u64, other: u64) -> u64 {
    // The second addition has no carry: a sum that has just made one is less than what was added.
    let (sum, carry) = one.overflowing_add(other);
    sum + carry as u64
}

/// Adds one half of the bits to the other, and carries back in, until 16 bits remain.
#[inline]
const fn fold(sum: u64) -> u16 {
    // With the halves in both orders, the carry out of the lower half is that of the upper one.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 §3 as written: one word after the other, in network order.
    fn word_by_word(octets: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in octets.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).folded(), 0xddf2);
    }

    #[test]
    fn folding_loses_no_carry() {
        assert_eq!(sum(&vec![0xff; 65536]).folded(), 0xffff);
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0xffff_0001_ffff_ffff), 0x0001);
        assert_eq!(sum(&[]).finish(), 0xffff);
    }

    /// The sum of 64-bit words is that of 16-bit words, whatever is left after the last and wherever a carry
    /// comes from.
    #[test]
    fn every_length_keeps_every_carry() {
        for len in 0..=3 * STEP {
            let ones = vec![0xff; len];
            assert_eq!(sum(&ones).finish(), word_by_word(&ones), "{len}");
            for carry_at in (0..len).step_by(7) {
                let mut octets = ones.clone();
                octets[carry_at] = 0x01;
                assert_eq!(sum(&octets).finish(), word_by_word(&octets), "{len}, {carry_at}");
            }
        }
    }

    #[test]
    fn the_pseudo_header_is_twelve_octets() {
        let sum = ipv4_pseudo_header(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, 0x1234);
        assert_eq!(sum.finish(), word_by_word(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0x12, 0x34]));
    }

    #[test]
    fn the_pseudo_header_of_ipv6_is_forty_octets() {
        let (src, dst) = (Ipv6Addr::from([0x11; 16]), Ipv6Addr::from([0xfd; 16]));
        let mut octets = [[0x11; 16], [0xfd; 16]].concat();
        octets.extend([0, 1, 0x12, 0x34, 0, 0, 0, 58]);
        assert_eq!(ipv6_pseudo_header(src, dst, 58, 0x1_1234).finish(), word_by_word(&octets));
    }

    proptest! {
        #[test]
        fn pieces_sum_up_to_their_concatenation(
            octets in proptest::collection::vec(any::<u8>(), 0..3000),
            cuts in proptest::collection::vec(0usize..3000, 0..5),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(octets.len())).collect();
            cuts.extend([0, octets.len()]);
            cuts.sort_unstable();
            let mut pieces = Sum::default();
            for cut in cuts.windows(2) {
                pieces.add(&octets[cut[0]..cut[1]]);
            }
            prop_assert_eq!(pieces.finish(), word_by_word(&octets));
        }
    }
}
