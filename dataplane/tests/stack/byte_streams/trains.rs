//! Segments of a byte stream that one turn sends are a burst, and share super-frames: the wire is the same as
//! when each leaves alone.

use std::sync::{Arc, Mutex};

use super::{attach_host, config, connect, of_section, rid, with_option};
use crate::common::{Pair, pattern};
use warpline_dataplane::byte_stream::Section;
use warpline_dataplane::device::sim::{End, EndConfig, Verdict};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::tcp::Behaviour;

const OCTETS: usize = 300_000;
/// Those of the first octets that are a transfer, if the ends have the option.
const TRANSFER_OCTETS: usize = 100_000;

/// Sends a stream over a device that takes super-frames of so many octets. Returns the frames on the wire and
/// the counters of the end that sends.
fn run(behaviour: Behaviour, super_frame_bytes: usize) -> (Vec<Vec<u8>>, Statistics) {
    let end = |config: EndConfig| EndConfig {
        transmit_checksums: true,
        transmit_ip_checksums: true,
        super_frame_bytes,
        ..config
    };
    let mut pair = Pair::new(3, end(EndConfig::a()), end(EndConfig::b()));
    connect(&mut pair, [behaviour, behaviour]);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let kept = frames.clone();
    pair.network.set_filter(End::A, move |_, frame| {
        kept.lock().unwrap().push(frame.to_vec());
        Verdict::Pass
    });
    let (mut writer, _reader) = attach_host(&pair.a, config(OCTETS, 4096));
    let (_writer, mut reader) = attach_host(&pair.b, config(4096, OCTETS));
    let stream = pattern(5, OCTETS);
    let (transfer, plain) = stream.split_at(TRANSFER_OCTETS);
    let section = Section { rid: rid(1), unsolicited: false, total_octets: Some(TRANSFER_OCTETS as u32) };
    assert_eq!(writer.write_annotated(of_section(section, 0), transfer), transfer.len());
    assert_eq!(writer.write(plain), plain.len());
    writer.commit();
    let (mut read, mut out) = (0, vec![0; OCTETS]);
    let done = pair.run_until(20_000, |_| {
        read += reader.read_octets(&mut out[read..]);
        read == OCTETS
    });
    assert!(done && out == stream, "{read} octets");
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    (frames, pair.a.statistics())
}

/// Nearly all frames are filled by several segments, except those of segments with an option, whose headers
/// differ.
#[test]
fn segments_share_super_frames_unless_they_have_an_option() {
    for (behaviour, alone_octets) in [(Behaviour::default(), 0), (with_option(), TRANSFER_OCTETS)] {
        let (expected, _) = run(behaviour, 0);
        let (frames, statistics) = run(behaviour, 65_024);
        assert!(frames == expected, "{} frames and {}", frames.len(), expected.len());
        let (segments, alone) = (frames.len(), alone_octets / 1448);
        let handed_over = statistics.frames_sent as usize;
        let shared = alone + (segments - alone) / 2;
        assert!((alone..shared).contains(&handed_over), "{handed_over} frames of {segments} segments");
    }
}
