//! The segments of draft-csapuntz-tcprdma-00 §4, octet for octet as the golden vectors have them: the stream
//! of the draft's figure, sent in segments with room for 1000 octets of payload after the options.

use super::wire::{Capture, SYN, Segment};
use super::{MESSAGE, PLAIN, attach_host, config, connect, of_section, with_option};
use crate::common::{Pair, pattern, region_of};
use crate::vectors::{Record, load};
use warpline_dataplane::byte_stream::{Annotation, ByteWriter, Section};
use warpline_dataplane::device::sim::{End, EndConfig, Verdict};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::wire::tcp_rdma::NfsRid;

const STREAM_OCTETS: usize = 4300;

/// The parts of the figure: how they are annotated, and how long they are.
fn parts(second_header: Annotation) -> [(Annotation, usize); 5] {
    let section = Section {
        rid: NfsRid::of_one_operation(0x1234_5678).into(),
        unsolicited: false,
        total_octets: Some(4000),
    };
    [
        (MESSAGE, 100),
        (of_section(section, 0), 2000),
        (PLAIN, 100),
        (second_header, 100),
        (of_section(section, 2000), 2000),
    ]
}

/// Sends the figure's stream, written by `write`, and returns its segments.
fn segments(
    timestamps: bool,
    second_header: Annotation,
    write: impl Fn(&mut ByteWriter, Annotation, &[u8]),
) -> Vec<Segment> {
    // Room for 1000 octets beside an option of 20.
    let mtu_bytes = 1060 + if timestamps { 12 } else { 0 };
    let end = |config: EndConfig| EndConfig { mtu_bytes, ..config };
    let mut pair = Pair::new(1, end(EndConfig::a()), end(EndConfig::b()));
    let capture = Capture::start(&pair.network, End::A, |_, _| Verdict::Pass);
    connect(&mut pair, [Behaviour { timestamps, ..with_option() }; 2]);
    let (mut writer, _reader) = attach_host(&pair.a, config(8192, 64));
    let (_writer, mut reader) = attach_host(&pair.b, config(64, 8192));
    let octets = pattern(7, STREAM_OCTETS);
    let mut at = 0;
    for (annotation, len) in parts(second_header) {
        write(&mut writer, annotation, &octets[at..at + len]);
        at += len;
    }
    writer.commit();
    let (mut read, mut out) = (0, vec![0; STREAM_OCTETS]);
    let arrived = pair.run_until(10, |_| {
        read += reader.read_octets(&mut out[read..]);
        read == STREAM_OCTETS
    });
    assert!(arrived, "{read} octets");
    assert!(out == octets);
    let segments = capture.segments();
    let syn = segments.iter().find(|segment| segment.flags & SYN != 0).expect("a SYN");
    let first = syn.seq.wrapping_add(1);
    let data = segments.iter().filter(|segment| !segment.payload.is_empty());
    data.map(|segment| Segment { seq: segment.seq.wrapping_sub(first), ..segment.clone() }).collect()
}

/// The segments are those of the vectors: place in the stream, payload, octets of the option.
fn follow<const ROWS: usize>(file: &str, second_header: Annotation) {
    let octets = pattern(7, STREAM_OCTETS);
    let copied = |writer: &mut ByteWriter, annotation, octets: &[u8]| {
        assert_eq!(writer.write_annotated(annotation, octets), octets.len());
    };
    let lent = |writer: &mut ByteWriter, annotation, octets: &[u8]| {
        assert!(writer.write_memory(annotation, &region_of(octets), 0, octets.len()).is_some());
    };
    for timestamps in [false, true] {
        for segments in
            [segments(timestamps, second_header, copied), segments(timestamps, second_header, lent)]
        {
            let records = load::<ROWS>(file);
            assert_eq!(segments.len(), ROWS, "{file}: {segments:?}");
            for (segment, Record { label, octets: option }) in segments.iter().zip(&records) {
                let (seq, len) = (segment.seq as usize, segment.payload.len());
                assert!(label.contains(&format!("seq {seq}, payload {len},")), "{label}: {seq}, {len}");
                assert_eq!(segment.payload, octets[seq..seq + len], "{label}");
                assert_eq!(segment.rdma.len(), 1, "{label}");
                let (place, on_the_wire) = &segment.rdma[0];
                assert_eq!((on_the_wire, place % 4), (option, 0), "{label}");
            }
        }
    }
}

/// Both headers begin messages: six segments.
// Requirements: TRO-4-01, TRO-4-03, TRO-3.1.5-01, TRO-3.1.6-01, TRO-3.1.8-02
#[test]
fn six_segments_if_headers_begin_messages() {
    follow::<6>("tro-table1", MESSAGE);
}

/// The header of the second section goes with the trailer of the first: five segments.
// Requirements: TRO-4-02, TRO-4-03
#[test]
fn five_segments_if_the_second_header_does_not() {
    follow::<5>("tro-table2", PLAIN);
}
