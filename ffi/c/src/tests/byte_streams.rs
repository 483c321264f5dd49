//! Byte streams, and the TCP RDMA option.

use std::fs;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Scope, ScopedJoinHandle};

use warpline::link::sim::{self, Verdict};

use super::ends::*;
use super::handles::*;
use super::statistics::of_byte_stream;
use crate::byte_stream::*;
use crate::device::*;
use crate::extensible::{Flag, extensible};
use crate::memory::*;

const OPTION: StreamAttr =
    StreamAttr { size: size_of::<StreamAttr>(), timeout_ms: 0, backlog: 0, rdma_option: 1, reserved: 0 };

const ATTR: ByteStreamAttr = ByteStreamAttr {
    size: size_of::<ByteStreamAttr>(),
    send_bytes: 0,
    receive_bytes: 0,
    unsolicited_count: 2,
    unsolicited_bytes: 100,
    rid_format: WARPLINE_RID_NFS,
    message_starts: 0,
    early_message_bytes: 0,
};

const PLAIN: Annotated = Annotated {
    size: size_of::<Annotated>(),
    rid: 0,
    buffer_offset: 0,
    total_bytes: 0,
    starts_message: Flag::CLEAR,
    in_section: Flag::CLEAR,
    unsolicited: Flag::CLEAR,
    total_known: Flag::CLEAR,
    reserved: 0,
};

/// A section of transfer `rid` with this total.
pub(super) const fn section(rid: u64, total_bytes: u32) -> Annotated {
    Annotated { rid, total_bytes, in_section: Flag::SET, total_known: Flag::SET, ..PLAIN }
}

pub(super) type Ends = (Handle<ByteStream>, Handle<ByteStream>);

pub(super) fn streams(near: &Handle<Device>, far: &Handle<Device>) -> Ends {
    let listener = far.listen_streams_with(PORT, &OPTION).unwrap();
    let near = near.open_stream(FAR, PORT, Some(&OPTION)).unwrap();
    let far = listener.accept(PATIENCE).unwrap();
    (near.into_byte_stream(None).unwrap(), far.into_byte_stream(Some(&ATTR)).unwrap())
}

fn say(stream: &Handle<ByteStream>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = stream.write(bytes, PATIENCE);
        assert!(written > 0, "{written} {}", last_error());
        bytes = &bytes[written as usize..];
    }
}

fn hear(stream: &Handle<ByteStream>, bytes: &[u8]) {
    let (mut read, mut filled) = (vec![0; bytes.len()], 0);
    while filled < bytes.len() {
        let more = stream.read(&mut read[filled..], PATIENCE);
        assert!(more > 0, "{more} {}", last_error());
        filled += more as usize;
    }
    assert!(read == bytes);
}

fn numbered(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|byte| (byte % 251) as u8).collect()
}

#[test]
fn bytes_go_both_ways_and_each_half_closes() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    drop((near_device, far_device));
    let bytes = numbered(3_000_000);
    thread::scope(|scope| {
        for stream in [&near, &far] {
            scope.spawn(|| say(stream, &bytes));
            scope.spawn(|| hear(stream, &bytes));
        }
    });
    assert!(near.has_rdma_option() && far.has_rdma_option());
    assert_eq!(near.read(&mut [0; 8], 1), -libc::ETIMEDOUT);
    // Nothing to read, and room to write: only the reader may sleep.
    assert_eq!(far.arm(), [1, 0]);
    let [read_fd, write_fd] = far.fds();
    assert!(write_fd > 0 && !readable(read_fd, 1));
    assert_eq!(near.finish(), 0);
    assert!(readable(read_fd, PATIENCE));
    assert_eq!(near.write(b"x", 1), -libc::EPIPE);
    assert_eq!(far.read(&mut [0; 8], PATIENCE), 0);
    assert_eq!(far.wait_closed(1), -libc::ETIMEDOUT);
    assert_eq!((far.finish(), near.wait_closed(PATIENCE), far.wait_closed(PATIENCE)), (0, 0, 0));
}

// Requirements: TRO-3.1.5-01, TRO-3.1.7-01, TRO-5.1.2-02
#[test]
fn transfers_are_placed() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let end = End::new(&near_device);
    let body = numbered(3000);
    assert_eq!(near.expect(7, &end.mr, 100, 3000), 0);
    assert_eq!(near.expect(7, &end.mr, 100, 3000), -libc::EINVAL, "it is expected already");
    assert_eq!(near.expect(8, &end.mr, BYTES - 1, 2), -libc::EINVAL);
    assert_eq!(near.expect(1 << 46, &end.mr, 0, 1), -libc::EINVAL);
    assert_eq!(near.expect(8, &end.mr, usize::MAX, 2), -libc::EINVAL);
    let header = Annotated { starts_message: Flag::SET, ..PLAIN };
    assert_eq!(far.cork(true), 0);
    assert_eq!(far.write_annotated(&header, b"header", PATIENCE), 0);
    assert_eq!(far.write_annotated(&section(7, 3000), &body, PATIENCE), 0);
    assert_eq!(far.cork(false), 0);
    hear(&near, b"header");
    assert_eq!(near.read_section(7, &end.mr, 100, 3000, PATIENCE), 0, "{}", last_error());
    assert_eq!(end.get(100, 3000), body);
    let mut place = [0; 64];
    let part = near.read_part(&mut place, PATIENCE).unwrap();
    let ReadPart { rid, kind, length, buffer, .. } = part;
    assert_eq!((rid, kind, length, buffer), (7, WARPLINE_READ_COMPLETE, 3000, WARPLINE_BUFFER_EXPECTED));

    // An unsolicited one, and one of nothing.
    assert_eq!(near.cork(true), 0);
    // Bits that the format has as zero are received as zeros.
    let unsolicited = Annotated { unsolicited: Flag::SET, ..section(1 << 45 | 9, 50) };
    assert_eq!(near.write_annotated(&unsolicited, &body[..50], PATIENCE), 0);
    assert_eq!(near.write(b"end", PATIENCE), 3);
    assert_eq!(near.cork(false), 0);
    let part = far.read_part(&mut place, PATIENCE).unwrap();
    assert_eq!((part.kind, part.rid, part.offset, part.length), (WARPLINE_READ_PLACED, 9, 0, 50));
    let mut copy = [0; 50];
    assert_eq!(far.copy_unsolicited(part.buffer, 0, &mut copy), 0);
    assert_eq!(copy[..], body[..50]);
    assert_eq!(far.copy_unsolicited(part.buffer, 51, &mut copy), -libc::EINVAL);
    assert_eq!(far.copy_unsolicited(2, 0, &mut copy), -libc::EINVAL);
    // A length that no memory has is refused before memory is asked for.
    assert_eq!(far.copy_unsolicited_length(part.buffer, 0, &mut copy, isize::MAX as usize), -libc::EINVAL);
    assert_eq!(far.copy_unsolicited_length(part.buffer, 1, &mut copy, usize::MAX), -libc::EINVAL);
    assert_eq!(far.read_part(&mut place, PATIENCE).unwrap().kind, WARPLINE_READ_COMPLETE);
    assert_eq!(far.release(part.buffer), 0);
    let part = far.read_part(&mut place, PATIENCE).unwrap();
    assert_eq!((part.kind, part.length, &place[..3]), (WARPLINE_READ_BYTES, 3, &b"end"[..]));
    // What contradicts a section before it is refused.
    assert_eq!(near.write_annotated(&section(20, 0), &[], PATIENCE), -libc::EINVAL, "no byte to go with");
    assert_eq!(near.write_annotated(&section(20, 9), &[0; 10], PATIENCE), -libc::EINVAL);
    assert_eq!(near.write_annotated(&section(20, 10), &[0; 5], PATIENCE), 0);
    assert_eq!(near.write_annotated(&section(20, 9), &[], PATIENCE), -libc::EINVAL, "{}", last_error());
    assert_eq!(near.write_annotated(&section(20, 10), &[0; 5], PATIENCE), -libc::EINVAL);
    assert_eq!(near.end_transfer(20), 0);
    assert_eq!(near.end_transfer(1 << 46), -libc::EINVAL);
    assert_eq!(near.write_annotated(&section(20, 9), &[0; 5], PATIENCE), 0);
    assert_eq!(near.expect(10, &end.mr, 0, 10), 0);
    assert_eq!(near.cancel(10, PATIENCE), 0);
    assert_eq!(near.expect(10, &end.mr, 0, 10), 0, "the name is free");
    assert_eq!(far.abort(), 0);
    assert_eq!(near.read(&mut place, PATIENCE), -libc::ECONNRESET);
    assert_eq!(near.read_part(&mut place, PATIENCE).unwrap_err(), -libc::ECONNRESET);
}

/// A program that has corked a stream until it is full sleeps until there is room.
#[test]
fn a_corked_stream_that_is_full_wakes_its_writer() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let bytes = numbered(2 << 20);
    assert_eq!(near.cork(true), 0);
    let written = near.write(&bytes, 0) as usize;
    assert!((1..bytes.len()).contains(&written), "{written}");
    while near.arm()[1] == 1 {
        assert!(readable(near.fds()[1], PATIENCE), "{written} bytes, and nothing wakes the writer");
    }
    let more = near.write(&bytes[written..], 0);
    assert!(more > 0, "{more} {}", last_error());
    assert_eq!(near.cork(false), 0);
    say(&near, &bytes[written + more as usize..]);
    hear(&far, &bytes);
}

/// A transfer that the peer has begun before it was expected ends with the section that is read by its name,
/// and its buffer is the next one's.
// Requirements: TRO-6.1-03
#[test]
fn a_section_gives_the_buffer_of_its_own_transfer_back() {
    let (near_device, far_device) = devices();
    let listener = far_device.listen_streams_with(PORT, &OPTION).unwrap();
    let near = near_device.open_stream(FAR, PORT, Some(&OPTION)).unwrap().into_byte_stream(None).unwrap();
    let attr = ByteStreamAttr { unsolicited_count: 1, ..ATTR };
    let far = listener.accept(PATIENCE).unwrap().into_byte_stream(Some(&attr)).unwrap();
    let end = End::new(&far_device);
    for round in 0..3 {
        let unsolicited = Annotated { unsolicited: Flag::SET, total_known: Flag::CLEAR, ..section(7, 0) };
        assert_eq!(near.write_annotated(&unsolicited, b"sections", PATIENCE), 0);
        assert_eq!(near.end_transfer(7), 0);
        while far.arm()[0] == 1 {
            assert!(readable(far.fds()[0], PATIENCE));
        }
        assert_eq!(far.expect(7, &end.mr, 0, 8), 0, "{}", last_error());
        assert_eq!(far.read_section(7, &end.mr, 0, 8, PATIENCE), 0, "{}", last_error());
        assert_eq!(end.get(0, 8), b"sections");
        // The core has seen what was asked of it.
        assert_eq!(far.cancel(99, PATIENCE), 0);
        let next = Annotated { unsolicited: Flag::SET, ..section(8, 4) };
        assert_eq!(near.write_annotated(&next, b"next", PATIENCE), 0);
        let (part, _) = part_of(&far, 64);
        assert_eq!((part.kind, part.rid, part.length), (WARPLINE_READ_PLACED, 8, 4), "{round}");
        let (part, _) = part_of(&far, 64);
        assert_eq!((part.kind, part.length), (WARPLINE_READ_COMPLETE, 4));
        assert_eq!(far.release(part.buffer), 0);
    }
}

/// A buffer that the stream does not have is refused, on an open connection and on one that has ended.
#[test]
fn a_buffer_that_does_not_exist_is_not_released() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    for _ in 0..2 {
        assert_eq!((far.release(0), far.release(1)), (0, 0), "{}", last_error());
        for buffer in [2, 0xffff, 0x10000, WARPLINE_BUFFER_EXPECTED] {
            assert_eq!(far.release(buffer), -libc::EINVAL, "{buffer}");
        }
        assert_eq!(near.release(0), -libc::EINVAL, "it has none");
        assert_eq!(near.abort(), 0);
        assert_eq!(far.read(&mut [0; 8], PATIENCE), -libc::ECONNRESET);
    }
}

/// A call without room for bytes returns when there are some, and takes none.
#[test]
fn a_part_is_read_without_room_for_bytes() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    assert_eq!(far.read_part(&mut [], 1).unwrap_err(), -libc::ETIMEDOUT);
    say(&near, b"bytes");
    for _ in 0..2 {
        let (part, _) = part_of(&far, 0);
        assert_eq!((part.kind, part.length), (WARPLINE_READ_BYTES, 0));
    }
    hear(&far, b"bytes");
    assert_eq!(near.finish(), 0);
    assert_eq!(part_of(&far, 0).0.kind, WARPLINE_READ_FINISHED);
}

/// Calls `wait` in a thread of `scope`, and returns once that thread sleeps.
fn asleep<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    wait: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let (say, told) = mpsc::channel();
    let thread = scope.spawn(move || {
        // SAFETY: the call has no conditions.
        say.send(unsafe { libc::gettid() }).unwrap();
        wait()
    });
    let path = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    // The state comes after the name, which is in parentheses (proc_pid_stat(5)).
    let state = |stat: &str| stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    while state(&fs::read_to_string(&path).unwrap()) != Some('S') {
        thread::yield_now();
    }
    thread
}

/// A thread that waits keeps no other one from asking, or from ending the connection.
#[test]
fn a_stream_is_aborted_while_threads_write_read_and_wait() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    // The far end reads nothing, so there is no room at some time.
    let bytes = numbered(1 << 20);
    let write_all = || std::iter::repeat_with(|| near.write(&bytes, PATIENCE)).find(|written| *written < 0);
    thread::scope(|scope| {
        let writes = asleep(scope, write_all);
        let reads = asleep(scope, || near.read(&mut [0; 8], PATIENCE));
        assert!(near.has_rdma_option());
        assert_eq!(near.abort(), 0);
        assert_eq!(writes.join().unwrap(), Some(-libc::ECONNRESET));
        assert_eq!(reads.join().unwrap(), -libc::ECONNRESET);
        assert_eq!(far.wait_closed(PATIENCE), -libc::ECONNRESET);
    });
    drop((near, far));
    let (near, far) = streams(&near_device, &far_device);
    thread::scope(|scope| {
        let waits = asleep(scope, || near.wait_closed(PATIENCE));
        let reads = asleep(scope, || near.read_part(&mut [0; 8], PATIENCE).map(|part| part.kind));
        assert!(near.has_rdma_option());
        assert_eq!((near.abort(), near.abort()), (0, 0));
        assert_eq!(waits.join().unwrap(), -libc::ECONNRESET);
        assert_eq!(reads.join().unwrap(), Err(-libc::ECONNRESET));
        assert_eq!(far.read(&mut [0; 8], PATIENCE), -libc::ECONNRESET);
        assert_eq!(near.abort(), 0, "it has ended");
    });
}

/// Where messages begin is told to a program that asks for it.
// Requirements: TRO-3.1.6-01
#[test]
fn message_starts_are_told() {
    let (near_device, far_device) = devices();
    let listener = far_device.listen_streams_with(PORT, &OPTION).unwrap();
    let near = near_device.open_stream(FAR, PORT, Some(&OPTION)).unwrap().into_byte_stream(None).unwrap();
    let attr = ByteStreamAttr { message_starts: 1, ..ATTR };
    let far = listener.accept(PATIENCE).unwrap().into_byte_stream(Some(&attr)).unwrap();
    let message = Annotated { starts_message: Flag::SET, ..PLAIN };
    for round in 0..3 {
        assert_eq!(near.write_annotated(&message, b"message", PATIENCE), 0);
        let mut place = [0; 64];
        let part = far.read_part(&mut place, PATIENCE).unwrap();
        assert_eq!(part.kind, WARPLINE_READ_MESSAGE_START, "{round}");
        let part = far.read_part(&mut place, PATIENCE).unwrap();
        assert_eq!((part.kind, part.length, &place[..7]), (WARPLINE_READ_BYTES, 7, &b"message"[..]));
    }
}

/// Reads the next part, with room for `room` bytes, and returns it with the bytes that were copied.
fn part_of(stream: &Handle<ByteStream>, room: usize) -> (ReadPart, Vec<u8>) {
    let mut place = vec![0; room];
    let part = stream.read_part(&mut place, PATIENCE).unwrap();
    let is_copied = matches!(part.kind, WARPLINE_READ_BYTES | WARPLINE_READ_EARLY_BYTES);
    place.truncate(if is_copied { part.length as usize } else { 0 });
    (part, place)
}

/// While a segment is lost, the message after it is read; in its turn it is passed over, and a program that
/// reads plain bytes gets all of them.
// Requirements: TRO-3.1.6-03, A-43
#[test]
fn complete_messages_are_read_before_a_gap_closes() {
    for is_plain in [false, true] {
        let (near_device, far_device, network) = watched_devices();
        let listener = far_device.listen_streams_with(PORT, &OPTION).unwrap();
        let near = near_device.open_stream(FAR, PORT, Some(&OPTION)).unwrap().into_byte_stream(None).unwrap();
        let attr = ByteStreamAttr { early_message_bytes: 4096, ..ATTR };
        let far = listener.accept(PATIENCE).unwrap().into_byte_stream(Some(&attr)).unwrap();
        let gap = Arc::new(AtomicBool::new(true));
        let loses = gap.clone();
        network.set_filter(sim::End::A, move |_, frame| {
            let is_lost = loses.load(Ordering::Acquire) && frame.windows(4).any(|part| part == b"lost");
            if is_lost { Verdict::Drop } else { Verdict::Pass }
        });
        let message = Annotated { starts_message: Flag::SET, ..PLAIN };
        for bytes in [&b"lost"[..], b"whole", b"last"] {
            assert_eq!(near.write_annotated(&message, bytes, PATIENCE), 0);
        }
        let (part, _) = part_of(&far, 64);
        assert_eq!((part.kind, part.rid, part.length), (WARPLINE_READ_EARLY_MESSAGE, 4, 5));
        let (part, _) = part_of(&far, 0);
        assert_eq!((part.kind, part.length), (WARPLINE_READ_EARLY_BYTES, 0));
        for bytes in [&b"who"[..], b"le"] {
            let (part, read) = part_of(&far, 3);
            assert_eq!((part.kind, &read[..]), (WARPLINE_READ_EARLY_BYTES, bytes));
        }
        assert_eq!(far.read_part(&mut [0; 64], 1).unwrap_err(), -libc::ETIMEDOUT);
        gap.store(false, Ordering::Release);
        if is_plain {
            hear(&far, b"lostwholelast");
            continue;
        }
        let starts = || assert_eq!(part_of(&far, 64).0.kind, WARPLINE_READ_MESSAGE_START);
        starts();
        let (part, read) = part_of(&far, 64);
        assert_eq!((part.kind, &read[..]), (WARPLINE_READ_BYTES, &b"lost"[..]));
        starts();
        let (part, _) = part_of(&far, 64);
        assert_eq!((part.kind, part.rid, part.length), (WARPLINE_READ_HANDED_OUT, 4, 5));
        starts();
        let (part, read) = part_of(&far, 64);
        assert_eq!((part.kind, &read[..]), (WARPLINE_READ_BYTES, &b"last"[..]));
        let counters = of_byte_stream(&far);
        let transfers = |name: &str| counters[&format!("transfers.{name}")];
        assert_eq!((transfers("messages_early"), transfers("messages_early_refused")), (1, 0));
    }
}

/// A structure of a program with an older header has no room for early messages.
#[test]
fn an_older_program_reads_messages_in_their_turn() {
    assert_eq!(
        offset_of!(ByteStreamAttr, early_message_bytes) + 8,
        size_of::<ByteStreamAttr>(),
        "no padding"
    );
    let mut older = [0_usize; size_of::<ByteStreamAttr>() / 8];
    older[0] = offset_of!(ByteStreamAttr, early_message_bytes);
    older[6] = 4096;
    // SAFETY: aligned, and as long as its size says.
    let attr = unsafe { extensible::<ByteStreamAttr>(older.as_ptr().cast()) };
    assert_eq!(attr.ok().map(|attr| attr.early_message_bytes), Some(0));
}

/// Octets of transfers are placed where the registration lets them be: with the right to write, and inside
/// of what is registered.
#[test]
fn transfers_respect_the_rights_of_memory() {
    let (near_device, far_device) = devices();
    let (near, _far) = streams(&near_device, &far_device);
    let end = End::new(&near_device);
    let read_only = end.pd.allocate(None, 64, WARPLINE_ACCESS_REMOTE_READ).unwrap();
    assert_eq!(near.expect(1, &read_only, 0, 64), -libc::EACCES, "{}", last_error());
    assert_eq!(near.read_section(1, &read_only, 0, 64, 1), -libc::EACCES);
    let rights = WARPLINE_ACCESS_LOCAL_WRITE | WARPLINE_ACCESS_REMOTE_READ;
    let memory = end.pd.allocate(None, 64, rights).unwrap();
    assert_eq!(near.expect(1, &memory, 0, 64), 0, "{}", last_error());
    // Of what is registered anew only a part, and after that without the right.
    memory.fast_registration((16, 16), rights, true);
    assert_eq!(near.expect(2, &memory, 15, 2), -libc::EINVAL);
    assert_eq!(near.expect(2, &memory, 31, 2), -libc::EINVAL);
    assert_eq!(near.expect(2, &memory, 16, 16), 0, "{}", last_error());
    memory.fast_registration((0, 64), WARPLINE_ACCESS_REMOTE_READ, true);
    assert_eq!(near.expect(3, &memory, 16, 16), -libc::EACCES);
}

/// Whatever byte a program leaves in a field that is true or false in C, it is read: what is not 0 is true.
#[test]
fn any_byte_is_a_boolean() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    for byte in [1, 2, 0x80, 0xff] {
        let flag = Flag(byte);
        let annotation = Annotated {
            starts_message: flag,
            in_section: flag,
            unsolicited: flag,
            total_known: flag,
            ..section(u64::from(byte), 4)
        };
        assert_eq!(near.write_annotated(&annotation, b"body", PATIENCE), 0, "{}", last_error());
        let mut place = [0; 8];
        let part = far.read_part(&mut place, PATIENCE).unwrap();
        assert_eq!((part.kind, part.rid, part.length), (WARPLINE_READ_PLACED, byte.into(), 4));
        let part = far.read_part(&mut place, PATIENCE).unwrap();
        assert_eq!((part.kind, part.length), (WARPLINE_READ_COMPLETE, 4));
        assert_eq!(far.release(part.buffer), 0);
    }
}

/// After the end of a connection calls return, however many there are.
#[test]
fn calls_on_a_connection_that_has_ended_return() {
    let (near_device, far_device) = devices();
    let (near, far) = streams(&near_device, &far_device);
    let end = End::new(&far_device);
    assert_eq!(near.abort(), 0);
    assert_eq!(far.read(&mut [0; 8], PATIENCE), -libc::ECONNRESET);
    for name in 0..2000 {
        assert_eq!(far.expect(name, &end.mr, 0, 10), -libc::ECONNRESET);
        assert_eq!(far.release(0), 0);
        assert_eq!(far.cancel(name, PATIENCE), 0);
    }
}

#[test]
fn wrong_attributes_are_refused() {
    let (near, far) = devices();
    let refused = |attr: StreamAttr| near.open_stream(FAR, PORT, Some(&attr)).unwrap_err();
    assert_eq!(refused(StreamAttr { reserved: 1, ..OPTION }), -libc::EINVAL);
    assert_eq!(refused(StreamAttr { size: 8, ..OPTION }), -libc::EINVAL);
    assert_eq!(refused(StreamAttr { timeout_ms: 1000, ..OPTION }), -libc::ECONNREFUSED);
    let _listener = far.listen_streams_with(PORT, &OPTION).unwrap();
    let stream = near.open_stream(FAR, PORT, Some(&OPTION)).unwrap();
    let attr = ByteStreamAttr { rid_format: 4, ..ATTR };
    assert_eq!(stream.into_byte_stream(Some(&attr)).unwrap_err(), -libc::EINVAL);
}
