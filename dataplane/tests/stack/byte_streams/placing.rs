//! Transfers between two ends over a faithful path: one test per rule of the receiver's and the sender's.

use super::wire::{Capture, fields};
use super::{MESSAGE, PLAIN, attach_host, config, connect, of_section, rid, with_option};
use crate::common::{Pair, pattern};
use warpline_dataplane::byte_stream::{Buffer, ByteReader, ByteWriter, ReadItem, Section};
use warpline_dataplane::device::sim::{End, EndConfig, Verdict};
use warpline_dataplane::memory::Region;
use warpline_dataplane::wire::tcp_rdma::Rid;

struct Ends {
    pair: Pair,
    writer: ByteWriter,
    reader: ByteReader,
    _others: (ByteWriter, ByteReader),
}

fn ends() -> Ends {
    let mut pair = Pair::new(1, EndConfig::a(), EndConfig::b());
    connect(&mut pair, [with_option(); 2]);
    let (writer, other_reader) = attach_host(&pair.a, config(1 << 20, 64));
    let (other_writer, reader) = attach_host(&pair.b, config(64, 1 << 20));
    Ends { pair, writer, reader, _others: (other_writer, other_reader) }
}

fn section(name: Rid, total: u32) -> Section {
    Section { rid: name, unsolicited: false, total_octets: Some(total) }
}

impl Ends {
    fn expect(&mut self, name: Rid, memory: &Region) {
        assert!(self.reader.expect(name, memory, 0, memory.len()));
        assert!(self.pair.run_until(1, |_| self.reader.has_settled()));
    }

    /// Reads until `octets` octets of the stream were told, and returns how.
    fn read(&mut self, octets: usize) -> Vec<ReadItem> {
        let (mut items, mut told, mut out) = (Vec::new(), 0, vec![0; 1 << 20]);
        let arrived = self.pair.run_until(60, |_| {
            loop {
                let item = self.reader.read(&mut out, usize::MAX);
                told += match item {
                    ReadItem::Octets(octets) => octets,
                    ReadItem::Placed { octets, .. } => octets as usize,
                    ReadItem::Nothing | ReadItem::Finished => break,
                    _ => 0,
                };
                items.push(item);
            }
            told >= octets
        });
        assert!(arrived, "{told} of {octets} octets");
        items
    }
}

fn complete(name: Rid, total_octets: u32) -> ReadItem {
    ReadItem::Complete { rid: name, buffer: Buffer::Expected, total_octets }
}

/// A long transfer with more gaps than there may be intervals, one after the other: each gap is closed before
/// the next is there, so all octets are placed.
#[test]
fn gaps_that_are_closed_count_no_more() {
    const OCTETS: usize = 600_000;
    let mut ends = ends();
    let memory = Region::heap(OCTETS).unwrap();
    ends.expect(rid(1), &memory);
    // Every twentieth segment is lost once.
    let (mut segments, mut most) = (0, None::<u32>);
    let _capture = Capture::start(&ends.pair.network, End::A, move |segment, _| {
        let is_new = most.is_none_or(|most| segment.seq.wrapping_sub(most).cast_signed() > 0);
        if segment.payload.is_empty() || !is_new {
            return Verdict::Pass;
        }
        most = Some(segment.seq);
        segments += 1;
        if segments % 20 == 0 { Verdict::Drop } else { Verdict::Pass }
    });
    let octets = pattern(5, OCTETS);
    assert_eq!(ends.writer.write_annotated(of_section(section(rid(1), OCTETS as u32), 0), &octets), OCTETS);
    ends.writer.commit();
    let items = ends.read(OCTETS);
    let counters = ends.pair.b.core.transfer_counters();
    assert!(counters.segments_placed_out_of_order > 100, "{counters:?}");
    assert_eq!((counters.too_scattered, counters.octets_placed), (0, OCTETS as u64), "{counters:?}");
    assert_eq!(items.last(), Some(&complete(rid(1), OCTETS as u32)));
    assert!(crate::common::holds(&memory, 0, &octets));
}

/// A transfer of nothing that was taken is never lost, whatever is around it: sections of other transfers,
/// other transfers of nothing, or the end of the stream. One that no octet can go with is not taken.
// Requirements: TRO-3.1.3-03, TRO-5.1.2-02
#[test]
fn transfers_of_nothing_are_not_lost() {
    let mut ends = ends();
    let memory = Region::heap(100).unwrap();
    for name in 1..9 {
        ends.expect(rid(name), &memory);
    }
    let nothing = |name| section(rid(name), 0);
    assert!(!ends.writer.write_nothing(nothing(1), 0), "at the beginning");
    assert_eq!(ends.writer.write_annotated(of_section(section(rid(7), 100), 0), &[7; 100]), 100);
    assert!(!ends.writer.write_nothing(nothing(1), 0), "octets of a section");
    // One octet between two sections, two after one another, and the last octet of the stream.
    assert_eq!(ends.writer.write(&[1]), 1);
    assert!(ends.writer.write_nothing(nothing(1), 0));
    assert!(!ends.writer.write_nothing(nothing(2), 0), "this octet has one");
    assert_eq!(ends.writer.write_annotated(of_section(section(rid(8), 100), 0), &[8; 100]), 100);
    for name in 2..4 {
        assert_eq!(ends.writer.write(&[name]), 1);
        assert!(ends.writer.write_nothing(nothing(name.into()), 0));
    }
    ends.writer.commit();
    assert!(!ends.writer.write_nothing(nothing(4), 0), "all was handed over");
    assert_eq!(ends.writer.write(&[4; 3000]), 3000);
    assert!(ends.writer.write_nothing(nothing(4), 0));
    ends.writer.finish();
    let mut items = ends.read(3203);
    items.retain(|item| matches!(item, ReadItem::Complete { .. }));
    let expected = [(7, 100), (1, 0), (8, 100), (2, 0), (3, 0), (4, 0)];
    assert_eq!(items, expected.map(|(name, total)| complete(rid(name), total)));
    let acknowledged = ends.pair.run_until(10, |_| ends.writer.is_acknowledged());
    assert!(acknowledged, "all pieces are released");
}

/// A failed READ of NFS: the reply's header, a transfer of nothing, and the next reply.
// Requirements: TRO-5.1.2-02, TRO-3.1.3-02, TRO-3.1.4-03
#[test]
fn a_transfer_of_nothing_is_complete() {
    let mut ends = ends();
    let memory = Region::heap(1).unwrap();
    ends.expect(rid(1), &memory);
    let capture = Capture::start(&ends.pair.network, End::A, |_, _| Verdict::Pass);
    assert_eq!(ends.writer.write_annotated(MESSAGE, &[1; 40]), 40);
    assert!(ends.writer.write_nothing(section(rid(1), 0), 0));
    assert_eq!(ends.writer.write_annotated(MESSAGE, &[2; 40]), 40);
    ends.writer.commit();
    let items = ends.read(80);
    assert_eq!(items, [ReadItem::Octets(40), complete(rid(1), 0), ReadItem::Octets(40)]);
    let segments = capture.segments();
    let first = segments.iter().find(|segment| !segment.payload.is_empty()).expect("data");
    let option = fields(&first.rdma[0].1).expect("a transfer");
    assert_eq!((option.aligned, option.data_offset, option.data_len, option.total), (true, 40, 0, Some(0)));
}

/// The end of a cancelled transfer, which was complete before, is not the end of the next of its name.
#[test]
fn a_name_cancelled_after_its_end_is_free() {
    let mut ends = ends();
    let [first, second] = [100, 100].map(|octets| Region::heap(octets).unwrap());
    ends.expect(rid(1), &first);
    assert_eq!(ends.writer.write_annotated(of_section(section(rid(1), 100), 0), &[1; 100]), 100);
    ends.writer.commit();
    assert!(ends.pair.run_until(1, |pair| pair.b.core.transfer_counters().octets_placed == 100));
    // Complete, and nothing of it was read.
    assert!(ends.reader.cancel(rid(1)));
    assert!(ends.pair.run_until(1, |_| ends.reader.has_settled()));
    ends.reader.save_placed(rid(1));
    ends.expect(rid(1), &second);
    assert_eq!(ends.writer.write_annotated(of_section(section(rid(1), 100), 0), &[2; 100]), 100);
    ends.writer.commit();
    let mut out = [0; 300];
    assert_eq!(ends.reader.read(&mut out, usize::MAX), ReadItem::Octets(100), "copied aside");
    assert_eq!(out[..100], [1; 100]);
    let placed = ReadItem::Placed { rid: rid(1), buffer: Buffer::Expected, offset: 0, octets: 100 };
    assert_eq!(ends.read(100), [placed, complete(rid(1), 100)]);
    let (memory, at) = (&second, 0);
    let mut octets = [0; 100];
    assert!(memory.read(at, &mut octets));
    assert_eq!(octets, [2; 100]);
}

/// A section whose offsets leave what the option can say is cut there: its rest goes without annotation.
// Requirements: TRO-3.1.5-01
#[test]
fn offsets_beyond_the_field_are_not_sent() {
    let mut ends = ends();
    let capture = Capture::start(&ends.pair.network, End::A, |_, _| Verdict::Pass);
    let far = Section { rid: rid(1), unsolicited: false, total_octets: None };
    assert_eq!(ends.writer.write_annotated(of_section(far, u32::MAX - 2000), &[1; 3000]), 3000);
    assert_eq!(ends.writer.write_annotated(PLAIN, &[2; 10]), 10);
    ends.writer.commit();
    ends.read(3010);
    for segment in capture.segments() {
        for (_, option) in &segment.rdma {
            if let Some(option) = fields(option) {
                let end = u64::from(option.buffer_offset) + option.data_len as u64;
                assert!(option.buffer_offset >= u32::MAX - 2000 && end <= 1 << 32, "{option:?}");
            }
        }
    }
}
