//! Tests of complete messages that are read before the octets in front of them have come
//! (draft-csapuntz-tcprdma-00, abstract).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::byte_streams::streams;
use crate::common::{PATIENCE, Pair, eventually};
use warpline::link::sim::{End, Impairments, Verdict};
use warpline::tcp_rdma::{HttpRid, Rid};
use warpline::{
    Annotation, ByteStream, ByteStreamConfig, ByteStreamError, ByteStreamReader, CloseReason, ReadItem,
    Region, Section, TransferBuffer,
};

const NOW: Duration = Duration::ZERO;
/// The message whose segment is lost.
const LOST: &[u8] = b"the message that is lost";

fn early(bytes: usize) -> ByteStreamConfig {
    ByteStreamConfig { early_message_bytes: bytes, ..ByteStreamConfig::default() }
}

/// A connection from near to far, and a switch: while it is set, no segment with [`LOST`] arrives.
fn lossy_streams(pair: &Pair, config: &ByteStreamConfig) -> (ByteStream, ByteStream, Arc<AtomicBool>) {
    let (near, far) = streams(&pair.near, &pair.far, true, config);
    let gap = Arc::new(AtomicBool::new(true));
    let loses = gap.clone();
    pair.network.set_filter(End::A, move |_, frame| {
        let is_lost = loses.load(Ordering::Acquire) && frame.windows(LOST.len()).any(|part| part == LOST);
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    });
    (near, far, gap)
}

fn write(stream: &mut ByteStream, message: &[u8]) {
    stream.writer.write_message(message, PATIENCE).unwrap();
}

/// A message of so many octets, different from those with other numbers.
fn message(number: usize, octets: usize) -> Vec<u8> {
    (0..octets).map(|octet| (number * 101 + octet % 251) as u8).collect()
}

fn next(stream: &mut ByteStream, out: &mut [u8]) -> ReadItem {
    stream.reader.read_item(out, PATIENCE).unwrap()
}

/// Reads an early message in pieces of 1000 octets.
fn next_early(stream: &mut ByteStream) -> (u64, Vec<u8>) {
    let item = next(stream, &mut []);
    let ReadItem::EarlyMessage { position, octets } = item else { panic!("{item:?}") };
    let (mut message, mut out) = (Vec::new(), [0; 1000]);
    while message.len() < octets as usize {
        let item = next(stream, &mut out);
        let ReadItem::EarlyOctets(read) = item else { panic!("{item:?}") };
        message.extend_from_slice(&out[..read]);
    }
    (position, message)
}

/// Reads a message in its turn.
#[track_caller]
fn expect_in_turn(stream: &mut ByteStream, message: &[u8]) {
    let mut out = vec![0; message.len() + 1];
    assert_eq!(next(stream, &mut out), ReadItem::MessageStart);
    let mut read = 0;
    while read < message.len() {
        let item = next(stream, &mut out[read..]);
        let ReadItem::Octets(octets) = item else { panic!("{item:?}") };
        read += octets;
    }
    assert!(out[..read] == *message);
}

/// Reads the turn of a message that was returned early.
#[track_caller]
fn expect_handed_out(stream: &mut ByteStream, position: u64, octets: usize) {
    let mut out = [0; 64];
    assert_eq!(next(stream, &mut out), ReadItem::MessageStart);
    let octets = octets as u32;
    assert_eq!(next(stream, &mut out), ReadItem::HandedOut { position, octets });
}

fn expect_nothing(stream: &mut ByteStream) {
    let item = stream.reader.read_item(&mut [0; 64], NOW);
    assert!(matches!(item, Err(ByteStreamError::TimedOut)), "{item:?}");
    assert!(stream.reader.arm(), "there is nothing to read");
}

/// While the first message is missing, all others arrive but the last, whose end is not known; in their turn
/// they are passed over. A reader that sleeps is woken for them.
// Requirements: TRO-3.1.6-03, A-43
#[test]
fn complete_messages_are_read_before_a_gap_closes() {
    let pair = Pair::new();
    let (mut near, mut far, gap) = lossy_streams(&pair, &early(64 << 10));
    // One has octets of several segments. They leave together: after a loss, TCP's window is small.
    near.writer.cork();
    write(&mut near, LOST);
    let messages: Vec<_> =
        [1, 100, 10_000, 7, 3000].into_iter().map(|octets| message(octets, octets)).collect();
    let (last, whole) = messages.split_last().unwrap();
    for message in &messages {
        write(&mut near, message);
    }
    near.writer.uncork();
    let mut positions = Vec::new();
    let mut expected = LOST.len() as u64;
    for message in whole {
        let (position, octets) = next_early(&mut far);
        assert!(position == expected && octets == *message, "{} octets at {position}", octets.len());
        positions.push(position);
        expected += octets.len() as u64;
    }
    expect_nothing(&mut far);
    gap.store(false, Ordering::Release);
    expect_in_turn(&mut far, LOST);
    for (message, position) in whole.iter().zip(positions) {
        expect_handed_out(&mut far, position, message.len());
    }
    expect_in_turn(&mut far, last);
    near.writer.finish();
    assert_eq!(next(&mut far, &mut []), ReadItem::Finished);
    let counters = far.reader.transfer_counters();
    assert_eq!((counters.messages_early, counters.messages_early_refused), (4, 0));
    let octets = LOST.len() + messages.iter().map(Vec::len).sum::<usize>();
    assert_eq!(far.reader.bytes_copied(), octets as u64, "each octet once");
}

/// A stream that was not configured for them waits for the gap to close.
#[test]
fn without_memory_for_them_messages_have_their_turn() {
    let pair = Pair::new();
    let config = ByteStreamConfig { message_starts: true, ..ByteStreamConfig::default() };
    let (mut near, mut far, gap) = lossy_streams(&pair, &config);
    write(&mut near, LOST);
    write(&mut near, b"first");
    write(&mut near, b"second");
    let item = far.reader.read_item(&mut [0; 64], Duration::from_millis(50));
    assert!(matches!(item, Err(ByteStreamError::TimedOut)), "{item:?}");
    gap.store(false, Ordering::Release);
    for message in [LOST, b"first", b"second"] {
        expect_in_turn(&mut far, message);
    }
    let counters = far.reader.transfer_counters();
    assert_eq!((counters.messages_early, counters.messages_early_refused), (0, 0));
}

/// A message that is too long, and one for which others leave no room, are read in their turn; what was read
/// makes room for another.
// Requirements: TRO-3.1.6-03, A-43
#[test]
fn a_message_without_room_has_its_turn() {
    let pair = Pair::new();
    let (mut near, mut far, gap) = lossy_streams(&pair, &early(100));
    let [fits, too_long, no_room, later, last] = [100, 101, 60, 80, 1].map(|octets| message(octets, octets));
    write(&mut near, LOST);
    for message in [&fits, &too_long, &no_room, &later] {
        write(&mut near, message);
    }
    let counted = |far: &ByteStream| {
        let counters = far.reader.transfer_counters();
        (counters.messages_early, counters.messages_early_refused)
    };
    eventually("two are refused", || counted(&far) == (1, 2));
    let (at, octets) = next_early(&mut far);
    assert!((at, &octets) == (LOST.len() as u64, &fits));
    write(&mut near, &last);
    let (later_at, octets) = next_early(&mut far);
    assert!((later_at, &octets) == (at + 100 + 101 + 60, &later));
    expect_nothing(&mut far);
    gap.store(false, Ordering::Release);
    expect_in_turn(&mut far, LOST);
    expect_handed_out(&mut far, at, fits.len());
    expect_in_turn(&mut far, &too_long);
    expect_in_turn(&mut far, &no_room);
    expect_handed_out(&mut far, later_at, later.len());
    expect_in_turn(&mut far, &last);
    assert_eq!(counted(&far), (2, 2));
}

/// How the stream is read after a message of it was read early.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    Items,
    Octets,
    Section,
}

/// A message is a section, which is placed beyond the gap and copied to the early reader. A reader of plain
/// octets, and one of sections, get the whole stream after that, past messages that nobody has read early.
// Requirements: TRO-3.1.6-03, A-43, A-25
#[test]
fn a_stream_is_whole_after_a_message_was_read_early() {
    let rid = Rid::from(HttpRid { request_index: 0 });
    let body = message(3, 10_000);
    for reading in [Reading::Items, Reading::Octets, Reading::Section] {
        let pair = Pair::new();
        let (mut near, mut far, gap) = lossy_streams(&pair, &early(64 << 10));
        let memory = Region::heap(body.len()).unwrap();
        far.reader.expect(rid, &memory, 0..body.len()).unwrap();
        far.writer.write_all(b"GET", PATIENCE).unwrap();
        near.reader.read_exact(&mut [0; 3], PATIENCE).unwrap();
        near.writer.cork();
        write(&mut near, LOST);
        let section = Section::solicited(rid, Some(body.len() as u32));
        let annotation = Annotation { starts_message: true, section: Some((section, 0)) };
        near.writer.write_annotated(annotation, &body, PATIENCE).unwrap();
        write(&mut near, b"trailer");
        write(&mut near, b"end");
        near.writer.uncork();
        let (position, octets) = next_early(&mut far);
        assert!(position == LOST.len() as u64 && octets == body, "{reading:?}");
        eventually("another is whole", || far.reader.transfer_counters().messages_early == 2);
        gap.store(false, Ordering::Release);
        match reading {
            Reading::Items => {
                let trailer_at = position + body.len() as u64;
                assert_eq!(next_early(&mut far), (trailer_at, b"trailer".to_vec()));
                expect_in_turn(&mut far, LOST);
                expect_handed_out(&mut far, position, body.len());
                // What was placed is reported, and nothing of it is copied.
                let (buffer, mut placed) = (TransferBuffer::Expected, 0);
                while placed < body.len() as u32 {
                    let item = next(&mut far, &mut []);
                    let ReadItem::Placed { offset, octets, .. } = item else { panic!("{item:?}") };
                    assert_eq!(offset, placed);
                    placed += octets;
                }
                let complete = ReadItem::Complete { rid, buffer, total_octets: placed };
                assert_eq!(next(&mut far, &mut []), complete);
                expect_handed_out(&mut far, trailer_at, 7);
                expect_in_turn(&mut far, b"end");
            }
            Reading::Octets => {
                let expected = [LOST, &body, b"trailerend"].concat();
                let mut read = vec![0; expected.len()];
                far.reader.read_exact(&mut read, PATIENCE).unwrap();
                assert!(read == expected);
            }
            Reading::Section => {
                let mut lost = [0; LOST.len()];
                far.reader.read_exact(&mut lost, PATIENCE).unwrap();
                assert_eq!(lost, LOST);
                assert_eq!(
                    far.reader.read_section(rid, &memory, 0..body.len(), PATIENCE).unwrap(),
                    body.len()
                );
                let mut read = [0; 10];
                far.reader.read_exact(&mut read, PATIENCE).unwrap();
                assert_eq!(&read, b"trailerend");
            }
        }
        let mut placed = vec![0; body.len()];
        assert!(memory.read(0, &mut placed));
        assert!(placed == body, "{reading:?}: the section is in its buffer");
        near.writer.finish();
        let mut item = next(&mut far, &mut []);
        if matches!(item, ReadItem::Complete { .. }) {
            item = next(&mut far, &mut []);
        }
        assert_eq!(item, ReadItem::Finished, "{reading:?}");
    }
}

/// What has come whole is returned, also if the gap never closes.
#[test]
fn early_messages_survive_a_reset() {
    let pair = Pair::new();
    let (mut near, mut far, _gap) = lossy_streams(&pair, &early(4096));
    for message in [LOST, b"whole", b"not whole"] {
        write(&mut near, message);
    }
    eventually("it is whole", || far.reader.transfer_counters().messages_early == 1);
    far.abort();
    eventually("it has ended", || far.tcp().unwrap().is_none());
    assert_eq!(next_early(&mut far), (LOST.len() as u64, b"whole".to_vec()));
    let end = far.reader.read_item(&mut [0; 64], PATIENCE);
    assert!(matches!(end, Err(ByteStreamError::Closed(CloseReason::Aborted))), "{end:?}");
}

/// Calls `process` with each message, as the example of [`ByteStreamReader`] does; true for an early one.
fn messages(reader: &mut ByteStreamReader, mut process: impl FnMut(Vec<u8>, bool)) {
    let (mut early, mut early_left, mut in_order) = (Vec::new(), 0, Vec::new());
    let mut out = [0; 4096];
    loop {
        match reader.read_item(&mut out, PATIENCE).unwrap() {
            ReadItem::EarlyMessage { octets, .. } => early_left = octets as usize,
            ReadItem::EarlyOctets(read) => {
                early.extend_from_slice(&out[..read]);
                early_left -= read;
                if early_left == 0 {
                    process(std::mem::take(&mut early), true);
                }
            }
            ReadItem::Octets(read) => in_order.extend_from_slice(&out[..read]),
            ReadItem::MessageStart if !in_order.is_empty() => process(std::mem::take(&mut in_order), false),
            ReadItem::Finished => break,
            _ => {}
        }
    }
    if !in_order.is_empty() {
        process(in_order, false);
    }
}

/// Over a path that loses and reorders segments, each message is read once, early or in its turn.
// Requirements: TRO-3.1.6-03, A-43
#[test]
fn each_message_is_read_once() {
    const MESSAGES: usize = 600;
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &early(32 << 10));
    let impaired = Impairments { loss: 0.02, reorder: 0.05, ..Impairments::default() };
    pair.network.set_impairments(End::A, impaired);
    let numbered = |number: usize| {
        let mut octets = message(number, 4 + number * 977 % 12_000);
        octets[..4].copy_from_slice(&(number as u32).to_be_bytes());
        octets
    };
    let mut times = vec![0; MESSAGES];
    let mut before_their_turn = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                write(&mut near, &numbered(number));
            }
            near.writer.finish();
        });
        messages(&mut far.reader, |octets, is_early| {
            let number = u32::from_be_bytes(octets[..4].try_into().unwrap()) as usize;
            assert!(octets == numbered(number), "message {number}");
            times[number] += 1;
            before_their_turn += u64::from(is_early);
        });
    });
    assert!(times.iter().all(|times| *times == 1), "{times:?}");
    assert_eq!(far.reader.transfer_counters().messages_early, before_their_turn);
    assert!(before_their_turn > 0);
}
