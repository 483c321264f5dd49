//! Tests of all engines that this processor supports.

use proptest::prelude::*;

use super::*;

/// Returns the engines of this processor, and names the others.
fn engines() -> impl Iterator<Item = Engine> {
    EngineKind::ALL.into_iter().filter_map(|kind| {
        let engine = Engine::new(kind);
        if engine.is_none() {
            eprintln!("not tested, because this processor does not support it: {kind:?}");
        }
        engine
    })
}

/// Returns the CRC by the definition: bit by bit.
fn by_definition(crc: u32, bytes: &[u8]) -> u32 {
    let mut remainder = !crc;
    for byte in bytes {
        remainder ^= u32::from(*byte);
        for _ in 0..8 {
            remainder = if remainder & 1 == 1 { remainder >> 1 ^ 0x82f6_3b78 } else { remainder >> 1 };
        }
    }
    !remainder
}

fn some_bytes(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(len as u64);
    (0..len).map(|_| random.u8(..)).collect()
}

/// The customary check value, and the order on the wire.
// Requirements: MPA-4.4-11, C00-7.2-02
#[test]
fn the_check_value() {
    for engine in engines() {
        assert_eq!(engine.append(0, b"123456789"), 0xe306_9283, "{engine:?}");
        assert_eq!(engine.append(0, b""), 0);
    }
    assert_eq!(checksum(b"123456789").to_le_bytes(), [0x83, 0x92, 0x06, 0xe3]);
}

#[test]
fn the_choice_is_supported_and_lasting() {
    assert!(Engine::new(Engine::best().kind()).is_some());
    assert!(Engine::new(EngineKind::Portable).is_some());
    assert_eq!(Engine::best(), Engine::best());
}

/// An earlier piece whose CRC happens to be 0 is continued like any other.
#[test]
fn a_crc_of_zero_is_continued() {
    // All ones cancel the initial value, and their final XOR leaves the remainder of nothing.
    let zero_crc = [0xff; 4];
    for engine in engines() {
        let crc = engine.append(0, &zero_crc);
        let whole = crc32c::crc32c(b"\xff\xff\xff\xff and more");
        assert_eq!(engine.append(crc, b" and more"), whole, "{engine:?}");
    }
}

/// Every length up to several steps of the widest loops, begun and continued.
#[test]
fn engines_agree_at_every_length() {
    let bytes = some_bytes(4200);
    let engines: Vec<_> = engines().collect();
    // By the definition, a byte at a time.
    let (mut begun, mut continued) = (0, 0x1234_5678);
    for len in 0..=bytes.len() {
        // The reference crate, at another alignment each time.
        let from = len * 13 % 64 % (bytes.len() - len + 1);
        let elsewhere = crc32c::crc32c_append(0xffff_ffff, &bytes[from..from + len]);
        for engine in &engines {
            assert_eq!(engine.append(0, &bytes[..len]), begun, "{engine:?}: {len} bytes");
            assert_eq!(engine.append(0x1234_5678, &bytes[..len]), continued, "{engine:?}: {len} more bytes");
            let crc = engine.append(0xffff_ffff, &bytes[from..from + len]);
            assert_eq!(crc, elsewhere, "{engine:?}: {len} bytes from {from}");
        }
        if let Some(next) = bytes.get(len..=len) {
            begun = by_definition(begun, next);
            continued = by_definition(continued, next);
        }
    }
}

#[test]
fn engines_agree_at_every_alignment() {
    let bytes = some_bytes(9100);
    for from in 0..64 {
        for len in (0..200).chain([255, 256, 257, 320, 511, 512, 576, 1428, 2048, 4096, 8928]) {
            let bytes = &bytes[from..from + len];
            let expected = crc32c::crc32c_append(7, bytes);
            for engine in engines() {
                assert_eq!(engine.append(7, bytes), expected, "{engine:?}: {len} bytes from {from}");
            }
        }
    }
}

/// Lengths around one and several rounds of the engines that have rounds.
#[test]
fn engines_agree_on_long_inputs() {
    let bytes = some_bytes(70_100);
    for len in (9300..9500).chain(18_700..18_950).chain([40_001, 65_535, 65_536, 69_999]) {
        let bytes = &bytes[len % 64..][..len];
        let expected = crc32c::crc32c_append(7, bytes);
        for engine in engines() {
            assert_eq!(engine.append(7, bytes), expected, "{engine:?}: {len} bytes");
        }
    }
}

/// Returns a copy in an allocation of exactly its length, where a memory checker notices a read beyond it.
fn exactly(bytes: &[u8]) -> Box<[u8]> {
    bytes.into()
}

type Append = fn(Engine, u32, &[u8], &mut [u8]) -> u32;

fn copies_what_it_sums(copy: Append) {
    const AROUND: usize = 80;
    let bytes = some_bytes(4300);
    let mut target = vec![0; 4300 + 2 * AROUND];
    let engines: Vec<_> = engines().collect();
    for len in 0..4200 {
        let (from, to) = (len * 7 % 64, AROUND + len * 11 % 64);
        let source = exactly(&bytes[from..from + len]);
        let expected = crc32c::crc32c_append(99, &source);
        for engine in &engines {
            target[to - AROUND..to + len + AROUND].fill(0xee);
            let crc = copy(*engine, 99, &source, &mut target[to..to + len]);
            assert_eq!(crc, expected, "{engine:?}: {len} bytes");
            assert_eq!(target[to..to + len], source[..], "{engine:?}: {len} bytes");
            let mut beside = target[to - AROUND..to].iter().chain(&target[to + len..to + len + AROUND]);
            assert!(beside.all(|&byte| byte == 0xee), "{engine:?}: {len} bytes: more are written");
            let mut exact = exactly(&bytes[..len]);
            assert_eq!(copy(*engine, 99, &source, &mut exact), expected, "{engine:?}: {len} bytes");
            assert_eq!(exact, source, "{engine:?}: {len} bytes");
        }
    }
}

#[test]
fn copies_have_the_crc_of_their_source() {
    copies_what_it_sums(Engine::copy_and_append);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
#[allow(unsafe_code)]
fn copies_of_shared_memory_have_the_crc_of_their_source() {
    copies_what_it_sums(|engine, crc, source, target| {
        // SAFETY: two slices of one length, and this thread alone has them.
        let appended = unsafe { engine.copy_shared_and_append(crc, source.as_ptr(), target) };
        appended.unwrap_or_else(|| engine.copy_and_append(crc, source, target))
    });
}

proptest! {
    /// Every engine agrees with the reference at every length and cut.
    // Requirements: MPA-4.4-11
    #[test]
    fn engines_agree(
        bytes in proptest::collection::vec(any::<u8>(), 0..10_000),
        cuts in proptest::collection::vec(0usize..10_000, 0..6),
    ) {
        let expected = crc32c::crc32c(&bytes);
        prop_assert_eq!(checksum(&bytes), expected);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        for engine in engines() {
            prop_assert_eq!(engine.append(0, &bytes), expected);
            let mut digest = Digest::with_engine(engine);
            let mut copying = digest;
            let mut copy = vec![0; bytes.len()];
            for cut in cuts.windows(2) {
                let piece = cut[0]..cut[1];
                digest.update(&bytes[piece.clone()]);
                copying.copy(&bytes[piece.clone()], &mut copy[piece]);
            }
            prop_assert_eq!(digest.finish(), expected);
            prop_assert_eq!(copying.finish(), expected);
            prop_assert_eq!(&copy, &bytes);
        }
    }

    #[test]
    fn engines_agree_on_short_pieces(crc: u32, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let expected = by_definition(crc, &bytes);
        for engine in engines() {
            prop_assert_eq!(engine.append(crc, &bytes), expected);
        }
    }
}
