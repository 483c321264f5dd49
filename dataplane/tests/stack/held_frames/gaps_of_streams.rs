//! Tests of byte streams that have all lost a segment, and hold as many frames beyond it as they may
//! together: the lost ones are taken when they come again.

use std::sync::Arc;

use warpline_dataplane::byte_stream::{ByteReader, ByteStreamConfig, SharedByteStream};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::memory::Region;
use warpline_dataplane::ring::Command;
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::wire::tcp::Flags;

use super::{Stranger, World};
use crate::common::raw::PEER_ISS;
use crate::common::{TABLES, pattern};

const SEGMENT: usize = 1400;
/// Octets of a stream, fewer than a peer may send at first.
const OCTETS: usize = 40 * SEGMENT;

struct Stream {
    peer: Stranger,
    reader: ByteReader,
    data: Vec<u8>,
    read: Vec<u8>,
}

impl Stream {
    fn open(world: &mut World, seed: u64) -> Self {
        let peer = world.accept();
        let [send, receive] = [64, 1 << 16].map(|octets| Region::heap(octets).unwrap());
        let config = ByteStreamConfig::new(send, receive);
        let doorbells = world.peer.rings.doorbells.clone();
        let stream = Arc::new(SharedByteStream::new(peer.connection.slot(), doorbells, config));
        let reader = ByteReader::new(stream.clone());
        world.peer.command(Command::AttachByteStream { connection: peer.connection, stream });
        world.peer.come_to_rest();
        Self { peer, reader, data: pattern(seed, OCTETS), read: Vec::new() }
    }

    /// The segment `number` comes.
    fn arrive(&self, world: &mut World, number: usize) {
        let at = number * SEGMENT;
        let seq = PEER_ISS + 1 + at as u32;
        world.inject(self.peer.port, Flags::ACK, seq, self.peer.ack, &self.data[at..][..SEGMENT]);
        world.peer.sent.clear();
    }

    fn read(&mut self) {
        let mut out = vec![0; OCTETS];
        let count = self.reader.read_octets(&mut out);
        self.read.extend(&out[..count]);
    }
}

/// The octets that fill a gap find room whatever lies beyond it, or their peer sends them for ever. An
/// application that reads has taken all octets in order, so those that are next are in a frame for a moment.
#[test]
fn gaps_are_filled_however_many_frames_lie_beyond_them() {
    for (streams, held_frames) in [(1, 8), (1, 64), (40, 1024)] {
        let mut world = World::new(Tables { held_frames, ..TABLES });
        let mut streams: Vec<_> = (0..streams).map(|seed| Stream::open(&mut world, seed)).collect();
        // The first segment of each is lost.
        for number in 1..OCTETS / SEGMENT {
            for stream in &streams {
                stream.arrive(&mut world, number);
            }
        }
        assert!(world.peer.core.statistics().dropped(DropCause::NoRoomForFrame) > 0, "{held_frames}");
        // Each segment comes again while it was not taken, as by a peer that has no blocks.
        for number in 0..OCTETS / SEGMENT {
            for stream in &mut streams {
                if stream.read.len() < (number + 1) * SEGMENT {
                    stream.arrive(&mut world, number);
                    stream.read();
                }
                let read = stream.read.len();
                assert!(read >= (number + 1) * SEGMENT, "{held_frames} frames, segment {number}: {read}");
            }
        }
        assert!(streams.iter().all(|stream| stream.read == stream.data));
        assert_eq!(world.peer.core.usage().held_frames, 0);
        assert_eq!(world.peer.core.statistics().dropped(DropCause::HeldTooLong), 0);
    }
}
