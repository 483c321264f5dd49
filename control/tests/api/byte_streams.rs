//! Tests of byte streams: ordinary TCP whose octets the application and the core share, with and without the
//! TCP RDMA option.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{FAR, NEAR, PATIENCE, PORT, Pair, config as device, eventually, link};
use warpline::tcp_rdma::{CifsRid, HttpRid, NfsRid, Rid};
use warpline::{
    Annotation, Behaviour, ByteStream, ByteStreamConfig, ByteStreamError, CloseReason, Device, Notify, Piece,
    ReadItem, Region, Section, SectionError, StreamConfig, SwitchError, TcpListenConfig, TransferBuffer,
    UnsolicitedConfig,
};

const NOW: Duration = Duration::ZERO;

/// Both halves of one stream wake their thread in a way of its own.
#[test]
fn an_application_is_woken_in_a_way_of_its_own() {
    let pair = Pair::new();
    let listener = pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let near = pair.near.connect_stream((FAR, PORT).into(), &StreamConfig::default()).unwrap();
    let config = ByteStreamConfig { send_bytes: 4096, ..ByteStreamConfig::default() };
    let mut near = near.into_byte_stream(&ByteStreamConfig::default()).unwrap();
    let woken = Arc::new(Woken::default());
    let notify: Arc<dyn Notify> = woken.clone();
    let far = listener.accept(PATIENCE).unwrap();
    let mut far = far.into_byte_stream_with_notify(&config, &notify).unwrap();
    assert!(far.reader.event_fd().is_none() && far.writer.event_fd().is_none());

    near.writer.write_all(b"something to read", PATIENCE).unwrap();
    let mut read = [0; 17];
    far.reader.read_exact(&mut read, PATIENCE).unwrap();
    let before = woken.0.load(Ordering::SeqCst);
    assert!(far.reader.arm(), "all is read");
    near.writer.write_all(b".", PATIENCE).unwrap();
    eventually("the reader's turn", || woken.0.load(Ordering::SeqCst) > before);

    // The peer reads nothing until its window is closed and the ring is full.
    let mut written = 0;
    let before = loop {
        match far.writer.write(&[7; 4096], Duration::from_millis(100)) {
            Ok(more) => written += more,
            Err(ByteStreamError::TimedOut) => {
                let before = woken.0.load(Ordering::SeqCst);
                if far.writer.arm() {
                    break before;
                }
            }
            Err(error) => panic!("{error}"),
        }
    };
    near.reader.read_exact(&mut vec![0; written], PATIENCE).unwrap();
    eventually("the writer's turn", || woken.0.load(Ordering::SeqCst) > before);
}

/// Counts how often it was notified.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Notify for Woken {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A connection as two byte streams, near opened it; with the option or without.
pub fn streams(
    near: &Device,
    far: &Device,
    option: bool,
    config: &ByteStreamConfig,
) -> (ByteStream, ByteStream) {
    let tcp = option.then(|| Behaviour { rdma_option: true, ..Behaviour::default() });
    let listener = far.listen_streams(PORT, &TcpListenConfig { tcp, ..TcpListenConfig::default() }).unwrap();
    let connect = StreamConfig { tcp, ..StreamConfig::default() };
    let near = near.connect_stream(SocketAddr::from((FAR, PORT)), &connect).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    (near.into_byte_stream(config).unwrap(), far.into_byte_stream(config).unwrap())
}

fn numbered(octets: u32) -> Vec<u8> {
    (0..octets).map(|octet| (octet % 251) as u8).collect()
}

fn rid(index: u32) -> Rid {
    HttpRid { request_index: index }.into()
}

fn solicited(index: u32, total: usize) -> Section {
    Section { rid: rid(index), unsolicited: false, total_octets: Some(total as u32) }
}

#[test]
fn octets_go_both_ways_and_each_half_closes() {
    for (option, events) in [(false, true), (true, true), (false, false)] {
        let pair = Pair::new();
        let config = ByteStreamConfig { events, ..ByteStreamConfig::default() };
        let (mut near, mut far) = streams(&pair.near, &pair.far, option, &config);
        let octets = numbered(3_000_000);
        thread::scope(|scope| {
            for stream in [&mut near, &mut far] {
                let ByteStream { reader, writer } = stream;
                scope.spawn(|| writer.write_all(&octets, PATIENCE).unwrap());
                scope.spawn(|| {
                    let mut read = vec![0; octets.len()];
                    reader.read_exact(&mut read, PATIENCE).unwrap();
                    assert!(read == octets);
                });
            }
        });
        assert_eq!(near.has_rdma_option(), option);
        near.writer.finish();
        assert!(matches!(near.writer.write(b"x", NOW), Err(ByteStreamError::Finished)));
        assert_eq!(far.reader.read(&mut [0; 8], PATIENCE).unwrap(), 0);
        // The other half is as open as before.
        far.writer.write_all(b"later", PATIENCE).unwrap();
        let mut read = [0; 5];
        near.reader.read_exact(&mut read, PATIENCE).unwrap();
        assert_eq!(&read, b"later");
        far.writer.finish();
        assert_eq!(near.reader.read(&mut [0; 8], PATIENCE).unwrap(), 0);
        near.wait_closed(PATIENCE).unwrap();
        far.wait_closed(PATIENCE).unwrap();
    }
}

/// Both halves are in use by threads that wait: a handle ends the connection.
#[test]
fn a_handle_aborts_what_waits() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let handle = near.handle();
    // Known when the first byte has come.
    far.writer.write_all(b"x", PATIENCE).unwrap();
    near.reader.read_exact(&mut [0], PATIENCE).unwrap();
    assert!(handle.has_rdma_option());
    assert_eq!((handle.local(), handle.remote()), (near.local(), near.remote()));
    let ByteStream { mut reader, mut writer } = near;
    let closed = |result| matches!(result, Err(ByteStreamError::Closed(CloseReason::Aborted)));
    thread::scope(|scope| {
        let reads = scope.spawn(move || closed(reader.read(&mut [0; 8], PATIENCE).map(drop)));
        let waits = scope.spawn(move || closed(writer.wait_closed(PATIENCE)));
        handle.abort();
        assert!(reads.join().unwrap() && waits.join().unwrap());
    });
    // Both halves are gone, and the handle does nothing.
    handle.abort();
    drop(far);
}

// Requirements: TRO-3.1.5-01, TRO-3.1.7-01, TRO-5.2.1-01
#[test]
fn a_transfer_is_not_copied_again() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let body = numbered(1_000_000);
    let memory = Region::heap(body.len()).unwrap();
    near.reader.expect(rid(0), &memory, 0..body.len()).unwrap();
    near.writer.write_all(b"GET", PATIENCE).unwrap();
    let mut request = [0; 3];
    far.reader.read_exact(&mut request, PATIENCE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            far.writer.write_message(b"header", PATIENCE).unwrap();
            far.writer.write_section(solicited(0, body.len()), 0, &body, PATIENCE).unwrap();
            far.writer.write_all(b"trailer", PATIENCE).unwrap();
            far.writer.finish();
        });
        let mut header = [0; 6];
        near.reader.read_exact(&mut header, PATIENCE).unwrap();
        assert_eq!(&header, b"header");
        let in_place = near.reader.read_section(rid(0), &memory, 0..body.len(), PATIENCE).unwrap();
        assert_eq!(in_place, body.len());
    });
    let mut read = vec![0; body.len()];
    assert!(memory.read(0, &mut read));
    assert!(read == body);
    let mut rest = Vec::new();
    near.reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"trailer");
    assert_eq!(near.reader.bytes_copied(), 13, "header and trailer alone");
}

#[test]
fn a_byte_stream_reports_on_its_connection() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    near.writer.write_all(&numbered(100_000), PATIENCE).unwrap();
    far.reader.read_exact(&mut vec![0; 100_000], PATIENCE).unwrap();
    near.writer.wait_acknowledged(PATIENCE).unwrap();
    let tcp = near.tcp().unwrap().unwrap();
    assert!(tcp.rdma_option && tcp.counters.data_segments_sent > 11, "{tcp:?}");
    assert_eq!((tcp.outstanding_bytes, tcp.unsent_bytes), (0, 0));
    near.abort();
    assert!(near.wait_closed(PATIENCE).is_err());
    assert_eq!(near.tcp(), Ok(None));
}

/// Reads the next part of the stream, which is not octets.
fn next_item(stream: &mut ByteStream) -> ReadItem {
    stream.reader.read_item(&mut [0; 64], PATIENCE).unwrap()
}

// Requirements: TRO-3.1.7-01, TRO-6.1-03
#[test]
fn unsolicited_transfers_get_buffers_until_there_are_none() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 2, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let unsolicited = |index, total| Section { unsolicited: true, ..solicited(index, total) };
    let mut send = |index, octets: &[u8]| {
        near.writer.write_section(unsolicited(index, octets.len()), 0, octets, PATIENCE).unwrap();
        near.writer.wait_acknowledged(PATIENCE).unwrap();
    };
    for (index, buffer) in [(0, 0), (1, 1)] {
        send(index, &numbered(90));
        let buffer = TransferBuffer::Unsolicited(buffer);
        assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(index), buffer, offset: 0, octets: 90 });
        assert_eq!(next_item(&mut far), ReadItem::Complete { rid: rid(index), buffer, total_octets: 90 });
        let (memory, at) = far.reader.buffer(rid(index), buffer).unwrap();
        let mut placed = [0; 90];
        assert!(memory.read(at, &mut placed));
        assert_eq!(placed[..], numbered(90));
    }
    // There is no other; these octets, and those that fit no buffer, are read as any.
    send(2, b"third");
    assert_eq!(next_item(&mut far), ReadItem::Octets(5));
    far.reader.release(1, PATIENCE).unwrap();
    send(3, &[7; 101]);
    far.reader.read_exact(&mut [0; 101], PATIENCE).unwrap();
    far.reader.release(1, PATIENCE).unwrap();
    send(4, b"fifth");
    let buffer = TransferBuffer::Unsolicited(1);
    assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(4), buffer, offset: 0, octets: 5 });
}

/// A reader that does not look at transfers gives their buffers back as it goes.
#[test]
fn plain_readers_do_not_use_unsolicited_buffers_up() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 1, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    for index in 0..3 {
        let section = Section { unsolicited: true, ..solicited(index, 4) };
        near.writer.write_section(section, 0, b"body", PATIENCE).unwrap();
        near.writer.wait_acknowledged(PATIENCE).unwrap();
        near.writer.write_all(b".", PATIENCE).unwrap();
        let mut read = [0; 5];
        far.reader.read_exact(&mut read, PATIENCE).unwrap();
        assert_eq!(&read, b"body.");
    }
    near.writer
        .write_section(Section { unsolicited: true, ..solicited(3, 4) }, 0, b"body", PATIENCE)
        .unwrap();
    let buffer = TransferBuffer::Unsolicited(0);
    assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(3), buffer, offset: 0, octets: 4 });
}

/// A buffer that the application was told of, and that plain reads gave back, is as any other later: a
/// section that it is not told of gives it back.
// Requirements: TRO-6.1-03
#[test]
fn a_plain_read_forgets_the_buffers_that_it_gives_back() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 1, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let unsolicited = |index, total| Section { unsolicited: true, ..solicited(index, total) };
    let buffer = TransferBuffer::Unsolicited(0);
    near.writer.write_section(unsolicited(1, 8), 0, b"told", PATIENCE).unwrap();
    assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(1), buffer, offset: 0, octets: 4 });
    near.writer.write_section(unsolicited(1, 8), 4, b"rest", PATIENCE).unwrap();
    near.writer.write_all(b".", PATIENCE).unwrap();
    let mut rest = [0; 5];
    far.reader.read_exact(&mut rest, PATIENCE).unwrap();
    assert_eq!(&rest, b"rest.");
    // The core has seen that the buffer was given back.
    far.reader.cancel(rid(9999), PATIENCE).unwrap();
    let endless = Section { unsolicited: true, total_octets: None, ..solicited(2, 8) };
    near.writer.write_section(endless, 0, b"sections", PATIENCE).unwrap();
    near.writer.end_transfer(rid(2));
    near.writer.wait_acknowledged(PATIENCE).unwrap();
    let memory = Region::heap(8).unwrap();
    assert_eq!(far.reader.read_section(rid(2), &memory, 0..8, PATIENCE).unwrap(), 0);
    far.reader.cancel(rid(9999), PATIENCE).unwrap();
    near.writer.write_section(unsolicited(8, 4), 0, b"last", PATIENCE).unwrap();
    assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(8), buffer, offset: 0, octets: 4 });
    assert_eq!(far.reader.transfer_counters().over_quota, 0);
}

/// A section that is read meets unsolicited transfers: what the application was told of it is told to the
/// end, and the buffers of all others are given back.
// Requirements: TRO-6.1-03
#[test]
fn a_section_does_not_use_unsolicited_buffers_up() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 2, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let unsolicited = |index, total| Section { unsolicited: true, ..solicited(index, total) };
    let memory = Region::heap(100).unwrap();
    for round in 0..5 {
        let names = 10 * round;
        // One that the application is told of, and whose end comes later.
        near.writer.write_section(unsolicited(names, 8), 0, b"told", PATIENCE).unwrap();
        let ReadItem::Placed { buffer, .. } = next_item(&mut far) else { panic!("it was not placed") };
        let end = ReadItem::Complete { rid: rid(names), buffer, total_octets: 8 };
        // Five that it is not told of, and its rest.
        for other in 1..6 {
            near.writer.write_section(unsolicited(names + other, 4), 0, b"none", PATIENCE).unwrap();
            near.writer.wait_acknowledged(PATIENCE).unwrap();
            if other == 5 {
                near.writer.write_section(unsolicited(names, 8), 4, b"told", PATIENCE).unwrap();
                near.writer.write_all(b"...", PATIENCE).unwrap();
                far.reader.read_section(rid(9999), &memory, 0..11, PATIENCE).unwrap();
            } else {
                near.writer.write_all(b"....", PATIENCE).unwrap();
                far.reader.read_section(rid(9999), &memory, 0..8, PATIENCE).unwrap();
            }
        }
        assert!(!far.reader.arm(), "there is something to be read");
        assert_eq!(next_item(&mut far), end);
        let TransferBuffer::Unsolicited(buffer) = buffer else { panic!("it was not expected") };
        far.reader.release(buffer, PATIENCE).unwrap();
    }
    // The core has seen all that was given back: both buffers are free.
    far.reader.cancel(rid(9999), PATIENCE).unwrap();
    for (index, buffer) in [(100, 0), (101, 1)] {
        near.writer.write_section(unsolicited(index, 4), 0, b"last", PATIENCE).unwrap();
        let ReadItem::Placed { buffer: placed, .. } = next_item(&mut far) else {
            panic!("no buffer {buffer}")
        };
        assert!(matches!(placed, TransferBuffer::Unsolicited(_)));
        assert!(matches!(next_item(&mut far), ReadItem::Complete { .. }));
    }
}

/// On a connection that has ended, nothing waits for the core: it takes no requests any more.
#[test]
fn requests_on_a_connection_that_has_ended_return() {
    let pair = Pair::new();
    let (mut near, far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    far.abort();
    let error = near.reader.read(&mut [0; 8], PATIENCE).unwrap_err();
    assert!(matches!(error, ByteStreamError::Closed(CloseReason::Reset)));
    let memory = Region::heap(10).unwrap();
    for name in 0..2000 {
        let refused = near.reader.expect(rid(name), &memory, 0..10);
        assert!(matches!(refused, Err(ByteStreamError::Closed(CloseReason::Reset))), "{refused:?}");
        near.reader.release(0, Duration::MAX).unwrap();
        near.reader.cancel(rid(name), Duration::MAX).unwrap();
    }
}

/// Records of ONC RPC, written together and in parts: the first octet of each mark begins a message, and no
/// other octet does, however they are cut into segments.
// Requirements: TRO-3.1.6-01, TRO-5.1.4-01, TRO-5.3.3-01
#[test]
fn messages_begin_with_their_marks() {
    const RECORDS: usize = 50;
    let pair = Pair::new();
    let config = ByteStreamConfig { message_starts: true, ..ByteStreamConfig::default() };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let record = |number: usize| vec![number as u8; 1 + number * 97 % 4000];
    near.writer.cork();
    for number in 0..RECORDS {
        let body = record(number);
        let mark = (1 << 31 | body.len() as u32).to_be_bytes();
        near.writer.write_message(&mark, PATIENCE).unwrap();
        near.writer.write_all(&body, PATIENCE).unwrap();
        if number % 3 == 0 {
            near.writer.uncork();
            near.writer.cork();
        }
    }
    near.writer.uncork();
    near.writer.finish();
    let (mut records, mut out) = (Vec::<Vec<u8>>::new(), vec![0; 64 << 10]);
    loop {
        match far.reader.read_item(&mut out, PATIENCE).unwrap() {
            ReadItem::MessageStart => records.push(Vec::new()),
            ReadItem::Octets(octets) => {
                records.last_mut().expect("a message").extend_from_slice(&out[..octets]);
            }
            ReadItem::Finished => break,
            item => panic!("{item:?}"),
        }
    }
    assert_eq!(records.len(), RECORDS);
    for (number, octets) in records.iter().enumerate() {
        let body = record(number);
        assert_eq!(octets[..4], (1 << 31 | body.len() as u32).to_be_bytes(), "the mark of {number}");
        assert_eq!(octets[4..], body, "{number}");
    }
}

/// A corked stream keeps what is written as far as there is room, and sends it when there is none: more
/// pieces of lent memory than wait at most are written, and arrive.
#[test]
fn a_corked_stream_sends_what_has_no_room() {
    const PIECES: usize = 1100;
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, false, &ByteStreamConfig::default());
    let memory = Region::heap(PIECES).unwrap();
    let octets: Vec<u8> = (0..PIECES).map(|number| number as u8).collect();
    assert!(memory.write(0, &octets));
    near.writer.cork();
    for number in 0..PIECES {
        let piece = Piece { memory: memory.clone(), range: number..number + 1 };
        near.writer.write_memory(Annotation::default(), &piece, PATIENCE).unwrap();
    }
    near.writer.uncork();
    let mut read = vec![0; PIECES];
    far.reader.read_exact(&mut read, PATIENCE).unwrap();
    assert!(read == octets);
}

/// A writer sleeps when a corked stream is full, in bytes or in pieces, and has room when it is woken: what
/// is corked goes first.
#[test]
fn a_corked_stream_that_is_full_wakes_its_writer() {
    for part in [2 << 20, 1] {
        let pair = Pair::new();
        let (mut near, mut far) = streams(&pair.near, &pair.far, false, &ByteStreamConfig::default());
        let octets = numbered(2 << 20);
        near.writer.cork();
        let mut written = 0;
        while near.writer.room() > 0 {
            written +=
                near.writer.write(&octets[written..][..part.min(octets.len() - written)], NOW).unwrap();
        }
        while near.writer.arm() {
            let event = near.writer.event_fd().expect("a descriptor");
            assert!(event.wait(PATIENCE), "{written} bytes, and nothing wakes the writer");
            event.clear();
        }
        assert!(near.writer.room() > 0);
        near.writer.write_all(&octets[written..], PATIENCE).unwrap();
        near.writer.uncork();
        let mut read = vec![0; octets.len()];
        far.reader.read_exact(&mut read, PATIENCE).unwrap();
        assert!(read == octets);
    }
}

// Requirements: TRO-3.1.4-03, TRO-5.1.2-02
#[test]
fn a_transfer_of_nothing_completes() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let memory = Region::heap(100).unwrap();
    near.reader.expect(rid(0), &memory, 0..100).unwrap();
    far.writer.cork();
    far.writer.write_message(b"failed", PATIENCE).unwrap();
    far.writer.write_section(solicited(0, 0), 0, b"", PATIENCE).unwrap();
    far.writer.uncork();
    let mut read = [0; 6];
    near.reader.read_exact(&mut read, PATIENCE).unwrap();
    assert_eq!(&read, b"failed");
    let expected = ReadItem::Complete { rid: rid(0), buffer: TransferBuffer::Expected, total_octets: 0 };
    assert_eq!(next_item(&mut near), expected);
    // The name is free again.
    near.reader.expect(rid(0), &memory, 0..100).unwrap();
}

/// A sender that contradicts itself is told so, and nothing of it is written.
// Requirements: TRO-3.1.4-01, TRO-3.1.5-01, TRO-5.1.2-02
#[test]
fn sections_that_contradict_are_refused() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let writer = &mut near.writer;
    let open = Section { total_octets: None, ..solicited(1, 0) };
    let mut refused = |section, offset, bytes: &[u8], error: SectionError| {
        let result = writer.write_section(section, offset, bytes, PATIENCE);
        assert!(matches!(result, Err(ByteStreamError::Section(other)) if other == error), "{result:?}");
        let memory = Region::heap(bytes.len().max(1)).unwrap();
        let piece = Piece { memory, range: 0..bytes.len() };
        let annotation = Annotation { starts_message: false, section: Some((section, offset)) };
        if !bytes.is_empty() {
            let result = writer.write_memory(annotation, &piece, PATIENCE);
            assert!(matches!(result, Err(ByteStreamError::Section(other)) if other == error), "{result:?}");
        }
    };
    refused(solicited(0, 4), 1, b"late", SectionError::BeyondTotal { end: 5, total: 4 });
    refused(open, u32::MAX, b"ab", SectionError::BeyondOffsets);
    refused(solicited(0, 0), 0, b"", SectionError::NothingToGoWith);
    writer.write_section(solicited(0, 8), 0, b"half", PATIENCE).unwrap();
    let mut refused = |section, offset, bytes: &[u8], error: SectionError| {
        let result = writer.write_section(section, offset, bytes, PATIENCE);
        assert!(matches!(result, Err(ByteStreamError::Section(other)) if other == error), "{result:?}");
    };
    refused(solicited(0, 9), 4, b"half", SectionError::TotalChanged { before: 8, total: 9 });
    refused(solicited(0, 8), 3, b"half", SectionError::Overlapping);
    refused(solicited(0, 8), 4, b"more than half", SectionError::BeyondTotal { end: 18, total: 8 });
    // The name is free after the last byte, or when the application says so.
    writer.write_section(solicited(0, 8), 4, b"half", PATIENCE).unwrap();
    for _ in 0..2 {
        writer.write_section(solicited(0, 5), 0, b"again", PATIENCE).unwrap();
        writer.write_section(open, 0, b"open", PATIENCE).unwrap();
        writer.end_transfer(rid(1));
    }
    // Without octets, and not a transfer of nothing: nothing is said.
    writer.write_section(solicited(7, 5), 0, b"", PATIENCE).unwrap();
    writer.finish();
    let mut read = Vec::new();
    far.reader.read_to_end(&mut read).unwrap();
    assert_eq!(read, b"halfhalfagainopenagainopen");
}

#[test]
fn without_the_option_sections_are_octets() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, false, &ByteStreamConfig::default());
    let memory = Region::heap(70_000).unwrap();
    near.reader.expect(rid(0), &memory, 0..70_000).unwrap();
    let body = numbered(70_000);
    far.writer.write_message(b"header", PATIENCE).unwrap();
    far.writer.write_section(solicited(0, body.len()), 0, &body, PATIENCE).unwrap();
    near.reader.read_exact(&mut [0; 6], PATIENCE).unwrap();
    let in_place = near.reader.read_section(rid(0), &memory, 0..70_000, PATIENCE).unwrap();
    assert_eq!(in_place, 0);
    let mut read = vec![0; body.len()];
    assert!(memory.read(0, &mut read));
    assert!(read == body);
}

/// The ends have agreed on the option, and the peer places little or nothing: reading a section takes no more
/// memory than the stream was given, however long the section is.
#[test]
fn memory_for_bytes_that_are_not_placed_is_bounded() {
    const RING_BYTES: usize = 64 << 10;
    let body = numbered(8 << 20);
    for annotated in [0, body.len() / 2] {
        let pair = Pair::new();
        let config = ByteStreamConfig { receive_bytes: RING_BYTES, ..ByteStreamConfig::default() };
        let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
        let memory = Region::heap(body.len()).unwrap();
        near.reader.expect(rid(0), &memory, 0..body.len()).unwrap();
        near.writer.write_all(b"GET", PATIENCE).unwrap();
        far.reader.read_exact(&mut [0; 3], PATIENCE).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (first, rest) = body.split_at(annotated);
                far.writer.write_section(solicited(0, body.len()), 0, first, PATIENCE).unwrap();
                far.writer.write_all(rest, PATIENCE).unwrap();
            });
            let mut in_place = 0;
            let allocated = allocation_counter::measure(|| {
                in_place = near.reader.read_section(rid(0), &memory, 0..body.len(), PATIENCE).unwrap();
            });
            assert_eq!(in_place, annotated);
            assert!(allocated.bytes_max < 4 * RING_BYTES as u64, "{allocated:?}");
        });
        let mut read = vec![0; body.len()];
        assert!(memory.read(0, &mut read));
        assert!(read == body);
        // Each byte that was not placed is copied once out of the ring.
        assert_eq!(near.reader.bytes_copied(), (body.len() - annotated) as u64);
        // The name is free.
        near.reader.expect(rid(0), &memory, 0..1).unwrap();
    }
}

/// What was placed elsewhere in the buffer than the section has it is brought to its place, and so is what
/// was not placed.
// Requirements: A-25
#[test]
fn a_section_that_was_placed_wrongly_is_put_right() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let memory = Region::heap(3000).unwrap();
    near.reader.expect(rid(0), &memory, 0..3000).unwrap();
    let body = numbered(3000);
    // The second third goes where the third one belongs, and the other way round; the first is not placed.
    far.writer.write_all(&body[..1000], PATIENCE).unwrap();
    far.writer.write_section(solicited(0, 3000), 2000, &body[1000..2000], PATIENCE).unwrap();
    far.writer.write_section(solicited(0, 3000), 1000, &body[2000..], PATIENCE).unwrap();
    // A later octet of the stream is placed where the first third belongs.
    far.writer.write_section(solicited(0, 3000), 0, b"later", PATIENCE).unwrap();
    far.writer.wait_acknowledged(PATIENCE).unwrap();
    let in_place = near.reader.read_section(rid(0), &memory, 0..3000, PATIENCE).unwrap();
    assert_eq!(in_place, 0);
    let mut read = vec![0; 3000];
    assert!(memory.read(0, &mut read));
    assert!(read == body);
    let mut later = [0; 5];
    near.reader.read_exact(&mut later, PATIENCE).unwrap();
    assert_eq!(&later, b"later", "it was kept, though its place was written");
}

#[test]
fn lent_memory_is_read_in_place_until_it_is_acknowledged() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let memory = Region::heap(200_000).unwrap();
    let octets = numbered(200_000);
    assert!(memory.write(0, &octets));
    let piece = Piece { memory: memory.clone(), range: 0..200_000 };
    let number = near.writer.write_memory(Annotation::default(), &piece, PATIENCE).unwrap();
    let mut read = vec![0; 200_000];
    far.reader.read_exact(&mut read, PATIENCE).unwrap();
    assert!(read == octets);
    near.writer.wait_acknowledged(PATIENCE).unwrap();
    assert!(near.writer.acknowledged() >= number);
    for range in [0..0, 0..200_001, 199_999..200_001] {
        let piece = Piece { memory: memory.clone(), range };
        let refused = near.writer.write_memory(Annotation::default(), &piece, NOW);
        assert!(matches!(refused, Err(ByteStreamError::OutsideMemory)));
    }
    let buffers = [io::IoSlice::new(b"one "), io::IoSlice::new(b""), io::IoSlice::new(b"two")];
    assert_eq!(near.writer.write_vectored(&buffers, PATIENCE).unwrap(), 7);
    far.reader.read_exact(&mut read[..7], PATIENCE).unwrap();
    assert_eq!(&read[..7], b"one two");
}

/// Octets that wait in the stream before it is a byte stream are its first; one that has finished becomes
/// none.
#[test]
fn what_came_before_is_read_first() {
    let pair = Pair::new();
    let listener = pair.far.listen_streams(PORT, &TcpListenConfig::default()).unwrap();
    let near = pair.near.connect_stream((FAR, PORT).into(), &StreamConfig::default()).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    near.write_all(b"read, and left", PATIENCE).unwrap();
    far.write_all(b"written before", PATIENCE).unwrap();
    let mut read = [0; 6];
    far.read_exact(&mut read, PATIENCE).unwrap();
    near.finish();
    let mut far = far.into_byte_stream(&ByteStreamConfig::default()).unwrap();
    let mut rest = Vec::new();
    far.reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"and left");
    far.writer.write_all(b", written after", PATIENCE).unwrap();
    far.writer.finish();
    let mut read = [0; 29];
    near.read_exact(&mut read, PATIENCE).unwrap();
    assert_eq!(&read, b"written before, written after");
    assert!(matches!(
        near.into_byte_stream(&ByteStreamConfig::default()),
        Err(ByteStreamError::Switch(SwitchError::NotStreaming))
    ));
}

#[test]
fn an_abort_and_a_drop_are_told_apart() {
    let config = ByteStreamConfig::default();
    let pair = Pair::new();
    let (near, mut far) = streams(&pair.near, &pair.far, false, &config);
    drop(near);
    assert_eq!(far.reader.read(&mut [0; 8], PATIENCE).unwrap(), 0, "closed in an orderly way");
    drop(far);
    let (near, mut far) = streams(&pair.near, &pair.far, false, &config);
    near.abort();
    let reset = |error| matches!(error, ByteStreamError::Closed(CloseReason::Reset));
    assert!(reset(far.reader.read(&mut [0; 8], PATIENCE).unwrap_err()));
    assert!(reset(far.writer.write(b"x", PATIENCE).unwrap_err()));
    assert!(reset(far.wait_closed(PATIENCE).unwrap_err()));
    drop(far);
    let (mut near, far) = streams(&pair.near, &pair.far, false, &config);
    assert!(matches!(near.reader.read(&mut [0; 8], NOW), Err(ByteStreamError::TimedOut)));
    assert!(near.reader.arm(), "there is nothing to read");
    drop(far);
    assert_eq!(near.reader.read(&mut [0; 8], PATIENCE).unwrap(), 0);
}

/// One thread polls both cores and uses both streams: nothing waits.
#[test]
fn an_application_that_polls_the_cores_itself() {
    let (near, far) = link();
    let (near, mut near_driver) = Device::start_manual(near, &device(NEAR)).unwrap();
    let (far, mut far_driver) = Device::start_manual(far, &device(FAR)).unwrap();
    let config = ByteStreamConfig { events: false, ..ByteStreamConfig::default() };
    let (mut near, mut far) = near_driver.run(|| far_driver.run(|| streams(&near, &far, true, &config)));
    let body = numbered(300_000);
    let memory = Region::heap(body.len()).unwrap();
    near.reader.expect(rid(9), &memory, 0..body.len()).unwrap();
    let (mut written, mut placed) = (0, 0);
    let begin = std::time::Instant::now();
    while placed < body.len() {
        assert!(begin.elapsed() < PATIENCE, "{placed} octets placed");
        near_driver.poll_once();
        far_driver.poll_once();
        let room = far.writer.room().min(body.len() - written);
        if room > 0 {
            let part = &body[written..written + room];
            far.writer.write_section(solicited(9, body.len()), written as u32, part, NOW).unwrap();
            written += room;
        }
        match near.reader.read_item(&mut [0; 64], NOW) {
            Ok(ReadItem::Placed { offset, octets, .. }) => {
                assert_eq!(offset as usize, placed);
                placed += octets as usize;
            }
            Err(ByteStreamError::TimedOut) => {}
            other => panic!("{other:?}"),
        }
    }
    let mut read = vec![0; body.len()];
    assert!(memory.read(0, &mut read));
    assert!(read == body);
}

/// A cancel that did not wait for the core is of the transfer that was expected then: the next one of its
/// name, expected when the first was read to its end, is cancelled by itself.
#[test]
fn a_cancel_that_timed_out_is_not_of_the_next_transfer() {
    let (near, far) = link();
    let (near, mut near_driver) = Device::start_manual(near, &device(NEAR)).unwrap();
    let (far, mut far_driver) = Device::start_manual(far, &device(FAR)).unwrap();
    let config = ByteStreamConfig { events: false, ..ByteStreamConfig::default() };
    let (mut near, mut far) = near_driver.run(|| far_driver.run(|| streams(&near, &far, true, &config)));
    let mut poll_until = |what: &str, condition: &mut dyn FnMut() -> bool| {
        let begin = std::time::Instant::now();
        while !condition() {
            assert!(begin.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
            near_driver.poll_once();
            far_driver.poll_once();
        }
    };
    let is_late = |result| matches!(result, Err(ByteStreamError::TimedOut));
    let memory = Region::heap(16).unwrap();
    near.reader.expect(rid(7), &memory, 0..8).unwrap();
    far.writer.write_all(b".", NOW).unwrap();
    poll_until("the core expects it", &mut || near.reader.read(&mut [0], NOW).is_ok());
    far.writer.write_section(solicited(7, 8), 0, b"received", NOW).unwrap();
    poll_until("placed", &mut || near.reader.transfer_counters().octets_placed == 8);
    assert!(is_late(near.reader.cancel(rid(7), NOW)), "the core is not polled");
    assert!(matches!(next_item(&mut near), ReadItem::Placed { octets: 8, .. }));
    assert!(matches!(next_item(&mut near), ReadItem::Complete { .. }));
    near.reader.expect(rid(7), &memory, 8..16).unwrap();
    assert!(is_late(near.reader.cancel(rid(7), NOW)), "the core is not polled");
    let mut cancelled = Err(ByteStreamError::TimedOut);
    poll_until("cancelled", &mut || {
        cancelled = near.reader.cancel(rid(7), NOW);
        !matches!(cancelled, Err(ByteStreamError::TimedOut))
    });
    cancelled.unwrap();
    far.writer.write_section(solicited(7, 8), 0, b"too late", NOW).unwrap();
    let mut item = None;
    poll_until("the bytes of nobody", &mut || {
        item = near.reader.read_item(&mut [0; 64], NOW).ok();
        item.is_some()
    });
    assert_eq!(item, Some(ReadItem::Octets(8)));
    let mut octets = [0; 16];
    assert!(memory.read(0, &mut octets));
    assert_eq!(&octets, b"received\0\0\0\0\0\0\0\0", "the second half is the application's");
}

/// An unsolicited transfer that has the name of a section ends with it, whatever its total: its buffer is
/// given back, and what the transfer has beyond the section is read from elsewhere.
// Requirements: TRO-6.1-03
#[test]
fn a_section_gives_the_buffer_of_its_own_transfer_back() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 1, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let memory = Region::heap(8).unwrap();
    for (octets, total_octets) in [(8, None), (8, Some(8)), (12, None), (12, Some(12)), (12, Some(20))] {
        let section = Section { rid: rid(7), unsolicited: true, total_octets };
        near.writer.write_section(section, 0, &b"sectionsrest"[..octets], PATIENCE).unwrap();
        near.writer.end_transfer(rid(7));
        near.writer.wait_acknowledged(PATIENCE).unwrap();
        far.reader.expect(rid(7), &memory, 0..8).unwrap();
        assert_eq!(far.reader.read_section(rid(7), &memory, 0..8, PATIENCE).unwrap(), 0);
        let mut read = [0; 8];
        assert!(memory.read(0, &mut read));
        assert_eq!(&read, b"sections");
        // The core has seen that the buffer was given back, and another transfer has it.
        far.reader.cancel(rid(9999), PATIENCE).unwrap();
        let next = Section { unsolicited: true, ..solicited(8, 12) };
        near.writer.write_section(next, 0, b"another, now", PATIENCE).unwrap();
        near.writer.wait_acknowledged(PATIENCE).unwrap();
        let mut rest = [0; 64];
        if octets > 8 {
            assert_eq!(far.reader.read_item(&mut rest, PATIENCE).unwrap(), ReadItem::Octets(4));
            assert_eq!(&rest[..4], b"rest", "{total_octets:?}");
        }
        let buffer = TransferBuffer::Unsolicited(0);
        let placed = ReadItem::Placed { rid: rid(8), buffer, offset: 0, octets: 12 };
        assert_eq!(next_item(&mut far), placed, "{octets} {total_octets:?}");
        assert!(matches!(next_item(&mut far), ReadItem::Complete { .. }));
        far.reader.release(0, PATIENCE).unwrap();
    }
}

/// The application that was told of bytes of an unsolicited transfer has its buffer until the end of the
/// transfer was returned, also if a section of that name reads the rest.
// Requirements: TRO-6.1-03
#[test]
fn a_section_leaves_a_buffer_that_was_told_of() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 1, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let unsolicited = |index, total| Section { unsolicited: true, ..solicited(index, total) };
    let memory = Region::heap(8).unwrap();
    let buffer = TransferBuffer::Unsolicited(0);
    near.writer.write_section(unsolicited(7, 8), 0, b"told", PATIENCE).unwrap();
    assert_eq!(next_item(&mut far), ReadItem::Placed { rid: rid(7), buffer, offset: 0, octets: 4 });
    near.writer.write_section(unsolicited(7, 8), 4, b"rest", PATIENCE).unwrap();
    near.writer.write_all(b"....", PATIENCE).unwrap();
    assert_eq!(far.reader.read_section(rid(7), &memory, 0..8, PATIENCE).unwrap(), 0);
    let mut section = [0; 8];
    assert!(memory.read(0, &mut section));
    assert_eq!(&section, b"rest....");
    near.writer.write_section(unsolicited(8, 4), 0, b"over", PATIENCE).unwrap();
    near.writer.wait_acknowledged(PATIENCE).unwrap();
    let mut told = [0; 4];
    assert!(far.reader.copy_unsolicited(0, 0, &mut told));
    assert_eq!(&told, b"told");
    assert_eq!(next_item(&mut far), ReadItem::Complete { rid: rid(7), buffer, total_octets: 8 });
    // There was no other.
    assert_eq!(next_item(&mut far), ReadItem::Octets(4));
}

/// A slice without room takes no bytes, and does not wait for those that have arrived; parts that are not
/// copied need none.
#[test]
fn an_item_is_read_without_room_for_bytes() {
    let pair = Pair::new();
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &ByteStreamConfig::default());
    let memory = Region::heap(4).unwrap();
    far.reader.expect(rid(7), &memory, 0..4).unwrap();
    far.reader.cancel(rid(9999), PATIENCE).unwrap();
    assert!(matches!(far.reader.read_item(&mut [], NOW), Err(ByteStreamError::TimedOut)));
    near.writer.write_all(b"bytes", PATIENCE).unwrap();
    near.writer.write_section(solicited(7, 4), 0, b"body", PATIENCE).unwrap();
    near.writer.finish();
    for _ in 0..2 {
        assert_eq!(far.reader.read_item(&mut [], PATIENCE).unwrap(), ReadItem::Octets(0));
    }
    far.reader.read_exact(&mut [0; 5], PATIENCE).unwrap();
    let mut item = || far.reader.read_item(&mut [], PATIENCE).unwrap();
    assert!(matches!(item(), ReadItem::Placed { octets: 4, .. }));
    assert!(matches!(item(), ReadItem::Complete { total_octets: 4, .. }));
    assert_eq!(item(), ReadItem::Finished);
}

/// Who expects a transfer is said by its section: what a server sends to whoever has asked goes to no
/// unsolicited buffer, what a client sends does. The names of requests under way are different.
// Requirements: TRO-5.1.2-01, TRO-5.1.3-01, TRO-5.3.1-01, TRO-5.3.2-01, TRO-5.3.2-02, TRO-3.1.4-02
#[test]
fn a_section_says_who_expects_it() {
    let pair = Pair::new();
    let config = ByteStreamConfig {
        unsolicited: Some(UnsolicitedConfig { count: 4, bytes: 100 }),
        ..ByteStreamConfig::default()
    };
    let (mut near, mut far) = streams(&pair.near, &pair.far, true, &config);
    let cifs = Rid::from(CifsRid { operation: 0, pid: 7, mid: 9 });
    let nfs = Rid::from(NfsRid { xid: 7 << 16 | 9, operation: 1 });
    for rid in [cifs, nfs] {
        near.writer.write_section(Section::solicited(rid, Some(4)), 0, b"read", PATIENCE).unwrap();
        assert_eq!(next_item(&mut far), ReadItem::Octets(4), "nobody has asked for it");
        // Its total is not known: the option has 16 octets, and the application ends the transfer.
        near.writer.write_section(Section::unsolicited(rid, None), 0, b"write", PATIENCE).unwrap();
        let ReadItem::Placed {
            rid: placed,
            buffer: TransferBuffer::Unsolicited(buffer),
            offset: 0,
            octets: 5,
        } = next_item(&mut far)
        else {
            panic!("it was not placed")
        };
        assert_eq!(placed, rid);
        let mut written = [0; 5];
        assert!(far.reader.copy_unsolicited(buffer, 0, &mut written));
        assert_eq!(&written, b"write");
        far.reader.release(buffer, PATIENCE).unwrap();
    }
    let memory = Region::heap(100).unwrap();
    far.reader.expect(cifs, &memory, 0..50).unwrap();
    assert!(matches!(far.reader.expect(cifs, &memory, 50..100), Err(ByteStreamError::NameInUse)));
}
