//! Tests of rings that are replaced by longer ones while octets go through them.

use std::sync::Arc;

use proptest::prelude::*;

use super::{ByteReader, ByteStreamConfig, ByteWriter, Inbound, Outbound, RingGrowth, SharedByteStream};
use crate::memory::{Region, RegionPool};
use crate::ring::Rings;
use crate::wire::tcp::SeqNumber;

const FIRST_OCTETS: usize = 60;
const LONGEST_OCTETS: usize = 5000;
const START: SeqNumber = SeqNumber(0xffff_f000);
/// What those before have left in the memory.
const STALE: u8 = 0xee;

/// Never [`STALE`].
fn octet(position: u64) -> u8 {
    (position % 229) as u8
}

fn octets(from: u64, octets: usize) -> Vec<u8> {
    (from..from + octets as u64).map(octet).collect()
}

/// A pool whose memory was used before.
fn used_pool() -> RegionPool {
    let pool = RegionPool::new(2 << 20, Region::heap);
    let all = pool.take(2 << 20).expect("it has as much");
    assert!(all.write(0, &vec![STALE; all.len()]));
    pool
}

fn growing(pool: &RegionPool) -> Arc<SharedByteStream> {
    let ring = || pool.take(FIRST_OCTETS).expect("memory");
    let (send_octets, receive_octets) = (LONGEST_OCTETS, LONGEST_OCTETS);
    let growth = Some(RingGrowth { pool: pool.clone(), send_octets, receive_octets });
    let config = ByteStreamConfig { growth, ..ByteStreamConfig::new(ring(), ring()) };
    Arc::new(SharedByteStream::new(0, Rings::new().doorbells, config))
}

proptest! {
    #[test]
    fn what_is_received_is_read(
        steps in proptest::collection::vec((0_usize..400, 0_usize..400, any::<bool>()), 1..300),
    ) {
        let pool = used_pool();
        let shared = growing(&pool);
        let (mut inbound, mut reader) = (Inbound::new(shared.clone()), ByteReader::new(shared));
        let mut read = 0;
        for (arriving, reading, looks) in steps {
            let room = inbound.room_octets() as usize;
            let begin = inbound.position();
            let handed = inbound.hand_over(arriving, true, |skip, len, write| {
                // In two pieces, as of two frames.
                let all = octets(begin + skip as u64, len);
                let (first, second) = all.split_at(len / 3);
                write(first);
                write(second);
            });
            prop_assert_eq!(handed, arriving.min(room));
            let mut out = vec![0; reading];
            let peeked = reader.peek(&mut out);
            prop_assert_eq!(&out[..peeked], &octets(read, peeked)[..]);
            let got = reader.read_octets(&mut out);
            prop_assert_eq!((got, &out[..got]), (peeked, &octets(read, got)[..]));
            read += got as u64;
            if looks {
                let before = inbound.room_octets();
                inbound.receive_commands();
                prop_assert!(inbound.room_octets() >= before, "what was offered has room");
            }
        }
        if read > 4 * LONGEST_OCTETS as u64 {
            prop_assert!(!inbound.may_grow(), "as much was read as the rings before the longest have");
        }
        drop((inbound, reader));
        prop_assert_eq!(pool.report().used_bytes, 0);
    }

    #[test]
    fn what_is_written_is_sent(
        steps in proptest::collection::vec((0_usize..900, 1_u32..300, 0_usize..900), 1..300),
        is_short in any::<bool>(),
    ) {
        let pool = used_pool();
        // All that is left is for those who have nothing yet.
        let most = [1 << 20, 1 << 19];
        let others = is_short.then(|| most.map(|bytes| pool.take(bytes).expect("three fourths")));
        let shared = growing(&pool);
        let mut outbound = Outbound::new(shared.clone(), START, false);
        let mut writer = ByteWriter::new(shared);
        // Written, given to TCP, and acknowledged.
        let (mut written, mut queued, mut una) = (0_u64, 0_u64, 0_u64);
        let seq = |position: u64| START + position as u32;
        for (writing, segment, acknowledged) in steps {
            let kept = (written - una) as usize;
            let room = writer.room();
            prop_assert!(room <= LONGEST_OCTETS.saturating_sub(kept) || is_short);
            let took = writer.write(&octets(written, writing));
            if !is_short {
                prop_assert_eq!(took, writing.min(room), "there is memory for all");
            }
            prop_assert!(took > 0 || writing == 0 || writer.room() == 0, "or nobody would sleep");
            written += took as u64;
            writer.commit();
            outbound.accept_pieces();
            while let Some(next) = outbound.next_run(segment) {
                queued += u64::from(next.run.octets);
                outbound.on_queued(&next);
            }
            prop_assert_eq!(queued, written);
            // Sent again, whatever was not acknowledged.
            for from in (una..queued).step_by(segment as usize) {
                let mut out = vec![0; (segment as usize).min((queued - from) as usize)];
                prop_assert!(outbound.copy(seq(from), &mut out));
                prop_assert_eq!(&out, &octets(from, out.len()));
            }
            una = queued.min(una + acknowledged as u64);
            outbound.on_acknowledged(seq(una));
            outbound.release(seq(una));
        }
        drop((writer, outbound, others));
        prop_assert_eq!(pool.report().used_bytes, 0);
    }
}
