//! What the application of a byte stream and its core do at the same time, in every order that memory allows.
//! `scripts/test` runs them, with `RUSTFLAGS="--cfg loom"`.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use super::inbound::Inbound;
use super::outbound::Outbound;
use super::placing::Arrived;
use super::reader::{ByteReader, ReadItem};
use super::shared::{ByteStreamConfig, SharedByteStream};
use super::transfers::Buffer;
use super::writer::{Annotation, ByteWriter};
use crate::memory::Region;
use crate::notify::Notify;
use crate::qp::doorbells::Doorbells;
use crate::sync::{AtomicU32, Ordering};
use crate::tcp::CloseReason;
use crate::wire::tcp::SeqNumber;
use crate::wire::tcp_rdma::{Rid, Transfer};

const STREAM: u32 = 0;
const START: SeqNumber = SeqNumber(100);
/// Room of a segment.
const SEGMENT_OCTETS: u32 = 100;
const RID: Rid = Rid::new(1).unwrap();
const OTHER_RID: Rid = Rid::new(2).unwrap();

fn model(f: impl Fn() + Send + Sync + 'static) {
    // More switches between threads than any of these protocols has steps that matter.
    bounded_model(3, f);
}

fn bounded_model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Records of who touches the octets of a ring or of a buffer: the model fails where one thread touches what
/// another has not handed over. Rings and buffers themselves are memory that it does not see.
#[derive(Clone)]
struct Touched(Arc<[UnsafeCell<()>]>);

impl Touched {
    fn new(octets: usize) -> Self {
        Self((0..octets).map(|_| UnsafeCell::new(())).collect())
    }

    /// The octets `octets` of a stream are read where they lie.
    fn read(&self, octets: std::ops::Range<u64>) {
        for at in octets {
            self.0[at as usize % self.0.len()].with(|_| ());
        }
    }

    /// They are written.
    fn write(&self, octets: std::ops::Range<u64>) {
        for at in octets {
            self.0[at as usize % self.0.len()].with_mut(|_| ());
        }
    }
}

#[derive(Default)]
struct Bell(AtomicU32);

impl Notify for Bell {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn has_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A stream whose rings have `octets` octets each.
struct Stream {
    shared: Arc<SharedByteStream>,
    doorbells: Arc<Doorbells>,
    reader: Arc<Bell>,
    writer: Arc<Bell>,
    send_ring: Touched,
    receive_ring: Touched,
}

impl Stream {
    fn new(octets: usize) -> Self {
        let (reader, writer) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let config = ByteStreamConfig {
            reader: Some(reader.clone()),
            writer: Some(writer.clone()),
            ..Self::rings(octets)
        };
        Self { reader, writer, ..Self::of(octets, config) }
    }

    /// Its application only polls: nothing that wakes it orders what the core does.
    fn polled(octets: usize) -> Self {
        Self::of(octets, Self::rings(octets))
    }

    fn rings(octets: usize) -> ByteStreamConfig {
        let ring = || Region::heap(octets).unwrap();
        ByteStreamConfig { pieces: 2, ..ByteStreamConfig::new(ring(), ring()) }
    }

    fn of(octets: usize, config: ByteStreamConfig) -> Self {
        let doorbells = Arc::new(Doorbells::new(1).with_byte_streams(1));
        doorbells.use_byte_stream(STREAM);
        let (reader, writer) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let shared = Arc::new(SharedByteStream::new(STREAM, doorbells.clone(), config));
        let (send_ring, receive_ring) = (Touched::new(octets), Touched::new(octets));
        Self { shared, doorbells, reader, writer, send_ring, receive_ring }
    }

    /// The core's half, to which the octets of `arrived` come in order.
    fn core(&self, arrived: &[u8]) -> CoreHalf {
        CoreHalf {
            shared: self.shared.clone(),
            doorbells: self.doorbells.clone(),
            inbound: Inbound::new(self.shared.clone()),
            outbound: Outbound::new(self.shared.clone(), START, false),
            arrived: arrived.to_vec(),
            filled: 0,
            receive_ring: self.receive_ring.clone(),
            sent: Vec::new(),
            send_ring: self.send_ring.clone(),
        }
    }

    fn reading(&self) -> Reading {
        let (reader, ring) = (ByteReader::new(self.shared.clone()), self.receive_ring.clone());
        Reading { reader, ring, octets: Vec::new() }
    }

    fn writing(&self) -> Writing {
        let (writer, ring) = (ByteWriter::new(self.shared.clone()), self.send_ring.clone());
        Writing { writer, ring, written: 0 }
    }
}

/// What an endpoint does with a byte stream.
struct CoreHalf {
    shared: Arc<SharedByteStream>,
    doorbells: Arc<Doorbells>,
    inbound: Inbound,
    outbound: Outbound,
    /// Octets that have arrived in order.
    arrived: Vec<u8>,
    /// How many of them were put into the ring.
    filled: u64,
    receive_ring: Touched,
    /// Octets that TCP has.
    sent: Vec<u8>,
    send_ring: Touched,
}

impl CoreHalf {
    /// Serves the stream if its bell rings.
    fn step(&mut self) {
        if !self.doorbells.clear_others() {
            return;
        }
        while let Some(slot) = self.doorbells.dequeue_byte_stream() {
            assert_eq!(slot, STREAM);
            self.shared.clear_bell();
            self.inbound.receive_commands();
            self.receive();
            self.send();
        }
    }

    /// Hands what has arrived to the application.
    fn receive(&mut self) {
        loop {
            let begin = self.inbound.position() as usize;
            let available = self.arrived.len() - begin;
            let (arrived, ring, filled) = (&self.arrived, &self.receive_ring, &mut self.filled);
            let taken = self.inbound.hand_over(available, true, |skip, octets, write| {
                ring.write(*filled..*filled + octets as u64);
                *filled += octets as u64;
                write(&arrived[begin + skip..][..octets]);
            });
            if !self.inbound.record_stalled(taken < available) {
                return;
            }
        }
    }

    /// Places the octet at `at`, which arrives beyond a gap, and is all of the transfer `rid`.
    fn place(&mut self, rid: Rid, at: u64, memory: &Touched) {
        let option = Transfer {
            rid,
            message_aligned: false,
            unsolicited: false,
            buffer_offset: 0,
            data_offset: 0,
            data_octets: 1,
            total_octets: Some(1),
        };
        let arrived = Arrived { payload: at, payload_octets: 1, kept: (at, at + 1), in_order: false };
        let octet = self.arrived[at as usize];
        self.inbound.place(&option, &arrived, |_, _, write| {
            memory.write(0..1);
            write(&[octet]);
        });
    }

    /// Accepts what the application has written, and has TCP send it.
    fn send(&mut self) {
        self.outbound.accept_pieces();
        while let Some(next) = self.outbound.next_run(SEGMENT_OCTETS) {
            let begin = self.sent.len() as u64;
            let end = begin + u64::from(next.run.octets);
            self.sent.resize(end as usize, 0);
            self.send_ring.read(begin..end);
            assert!(self.outbound.copy(START + begin as u32, &mut self.sent[begin as usize..]));
            self.outbound.on_queued(&next);
            self.outbound.accept_pieces();
        }
    }

    /// The peer acknowledges all that was sent.
    fn acknowledge(&mut self) {
        let una = START + self.sent.len() as u32;
        self.outbound.on_acknowledged(una);
        self.outbound.release(una);
    }
}

/// An application that reads.
struct Reading {
    reader: ByteReader,
    ring: Touched,
    octets: Vec<u8>,
}

impl Reading {
    /// Consumes the next part of the stream, at most two octets.
    fn read(&mut self) -> ReadItem {
        let mut out = [0; 2];
        // Octets that are read are the core's to write over, so they are touched before.
        let ready = self.reader.peek(&mut out);
        let begin = self.octets.len() as u64;
        self.ring.read(begin..begin + ready as u64);
        match self.reader.read(&mut out[..ready], 2) {
            // They have come since, and the slice has no room for them.
            ReadItem::Octets(0) if ready == 0 => ReadItem::Nothing,
            ReadItem::Octets(octets) => {
                self.octets.extend_from_slice(&out[..octets]);
                ReadItem::Octets(octets)
            }
            item => item,
        }
    }
}

/// An application that writes.
struct Writing {
    writer: ByteWriter,
    ring: Touched,
    written: u64,
}

impl Writing {
    /// Writes one octet and hands it over, if there is room.
    fn write(&mut self, octet: u8) -> bool {
        if self.writer.room() == 0 {
            return false;
        }
        self.ring.write(self.written..self.written + 1);
        assert_eq!(self.writer.write(&[octet]), 1);
        self.written += 1;
        self.writer.commit();
        true
    }
}

/// What arrives is read once, complete and in order, also where the ring is used again; and a core that waits
/// for room hears of it.
#[test]
fn what_arrives_is_read_once_and_in_order() {
    model(|| {
        let stream = Stream::new(2);
        let (mut core, mut reading) = (stream.core(&[1, 2, 3]), stream.reading());
        let application = thread::spawn(move || {
            reading.read();
            reading.read();
            reading
        });
        core.receive();
        core.step();
        let mut reading = application.join().unwrap();
        for _ in 0..3 {
            reading.read();
            // Nothing but the bell says that there is room.
            core.step();
        }
        assert_eq!(reading.octets, [1, 2, 3]);
    });
}

/// A core that waits for room, and whose application leaves, waits no longer.
#[test]
fn octets_that_nobody_reads_are_dropped() {
    model(|| {
        let stream = Stream::new(1);
        let (mut core, mut reading) = (stream.core(&[1, 2, 3]), stream.reading());
        let application = thread::spawn(move || {
            reading.read();
            drop(reading);
        });
        core.receive();
        core.step();
        application.join().unwrap();
        core.step();
        assert_eq!(core.inbound.position(), 3);
    });
}

/// A core that does `event` while an application that found nothing arms itself, looks once more and sleeps.
fn wakes_the_reader(event: impl Fn(&mut CoreHalf) + Send + Sync + Copy + 'static) {
    model(move || {
        let stream = Stream::new(1);
        let (mut core, mut reading) = (stream.core(&[1]), stream.reading());
        let application = thread::spawn(move || {
            assert!(reading.reader.arm());
            (reading.reader.is_readable(), reading)
        });
        event(&mut core);
        let (seen, _reading) = application.join().unwrap();
        assert!(seen || stream.reader.has_rung(), "asleep for ever");
        assert!(stream.reader.0.load(Ordering::Relaxed) <= 1, "notified twice");
    });
}

#[test]
fn no_octets_slip_past_a_reader_that_sleeps() {
    wakes_the_reader(CoreHalf::receive);
}

#[test]
fn no_fin_slips_past_a_reader_that_sleeps() {
    wakes_the_reader(|core| core.inbound.finish());
}

#[test]
fn no_end_slips_past_a_reader_that_sleeps() {
    wakes_the_reader(|core| core.shared.set_end(CloseReason::Reset));
}

/// A writer that finds no room arms itself, looks once more and sleeps; it is woken by room or by the end.
fn wakes_the_writer(event: impl Fn(&mut CoreHalf) + Send + Sync + Copy + 'static) {
    model(move || {
        let stream = Stream::new(1);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        assert!(writing.write(1));
        core.step();
        let application = thread::spawn(move || {
            assert!(writing.writer.arm());
            (writing.writer.room() > 0 || writing.writer.shared().end().is_some(), writing)
        });
        event(&mut core);
        let (seen, _writing) = application.join().unwrap();
        assert!(seen || stream.writer.has_rung(), "asleep for ever");
        assert!(stream.writer.0.load(Ordering::Relaxed) <= 1, "notified twice");
    });
}

#[test]
fn no_room_slips_past_a_writer_that_sleeps() {
    wakes_the_writer(CoreHalf::acknowledge);
}

#[test]
fn no_end_slips_past_a_writer_that_sleeps() {
    wakes_the_writer(|core| core.shared.set_end(CloseReason::Reset));
}

/// Octets that are written while the core hears an earlier bell are sent: a bell rings for them. The room of
/// those that are acknowledged is written to again after the core has read it.
#[test]
fn what_is_written_is_sent_once_and_in_order() {
    model(|| {
        let stream = Stream::new(1);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        let application = thread::spawn(move || {
            let written = u8::from(writing.write(1)) + u8::from(writing.write(2));
            (written, writing)
        });
        core.step();
        core.acknowledge();
        core.step();
        let (written, _writing) = application.join().unwrap();
        core.step();
        assert_eq!(core.sent, [1, 2][..usize::from(written)]);
        assert!(written > 0);
    });
}

/// Several pieces are committed one after the other: none is left behind.
#[test]
fn a_second_piece_is_heard() {
    model(|| {
        let stream = Stream::new(2);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        let application = thread::spawn(move || {
            assert!(writing.write(1) && writing.write(2));
            writing
        });
        core.step();
        core.step();
        let _writing = application.join().unwrap();
        core.step();
        assert_eq!(core.sent, [1, 2]);
    });
}

/// A message of two pieces appears as a whole. The core has the other thread here: `commit` loads how far it
/// has come and then stores more, and the search tries no order in which another thread's load, once it came
/// before this load, comes after that store.
#[test]
fn a_message_is_committed_as_a_whole() {
    model(|| {
        let stream = Stream::new(2);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        let core = thread::spawn(move || {
            core.send();
            assert!(core.sent.is_empty() || core.sent == [1, 2], "{:?}", core.sent);
            core
        });
        writing.ring.write(0..2);
        assert_eq!(writing.writer.write(&[1]) + writing.writer.write(&[2]), 2);
        writing.writer.commit();
        let mut core = core.join().unwrap();
        core.step();
        assert_eq!(core.sent, [1, 2]);
    });
}

/// A core sends no FIN before all octets, and hears that there is one.
#[test]
fn the_last_octets_come_before_the_fin() {
    model(|| {
        let stream = Stream::new(2);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        let application = thread::spawn(move || {
            assert!(writing.write(1));
            writing.ring.write(1..2);
            assert_eq!(writing.writer.write(&[2]), 1);
            writing.writer.finish();
            writing
        });
        core.step();
        assert!(!core.outbound.is_finished() || core.sent == [1, 2], "{:?}", core.sent);
        core.step();
        assert!(!core.outbound.is_finished() || core.sent == [1, 2], "{:?}", core.sent);
        let _writing = application.join().unwrap();
        core.step();
        assert!(core.outbound.is_finished() && core.sent == [1, 2], "{:?}", core.sent);
    });
}

/// Memory that an application lends is its own again when `is_released` says so of its piece, and not before.
fn lends(is_released: impl Fn(&ByteWriter, u64) -> bool + Send + Sync + Copy + 'static) {
    model(move || {
        let stream = Stream::new(1);
        let (mut core, mut writing) = (stream.core(&[]), stream.writing());
        // What is lent has the place of the ring in the notes.
        let lent = writing.ring.clone();
        let application = thread::spawn(move || {
            lent.write(0..1);
            let memory = Region::heap(1).unwrap();
            let number = writing.writer.write_memory(Annotation::default(), &memory, 0, 1).unwrap();
            writing.writer.commit();
            if is_released(&writing.writer, number) {
                lent.write(0..1);
            }
            writing
        });
        core.step();
        core.acknowledge();
        let _writing = application.join().unwrap();
        core.step();
        assert_eq!(core.sent.len(), 1);
    });
}

#[test]
fn memory_of_a_released_piece_was_read() {
    lends(|writer, number| writer.released_pieces() >= number);
}

#[test]
fn memory_that_is_acknowledged_was_read() {
    lends(|writer, _| writer.is_acknowledged());
}

/// The end is reported to a reader after everything that came before it, whether it sleeps or polls.
fn ends(event: impl Fn(&mut CoreHalf) + Send + Sync + Copy + 'static) {
    ends_of(Stream::new, event);
    ends_of(Stream::polled, event);
}

fn ends_of(stream: fn(usize) -> Stream, event: impl Fn(&mut CoreHalf) + Send + Sync + Copy + 'static) {
    model(move || {
        let stream = stream(1);
        let (mut core, mut reading) = (stream.core(&[1]), stream.reading());
        let application = thread::spawn(move || {
            let at_once = reading.reader.is_finished();
            assert!(!at_once, "there is an octet before the end");
            for _ in 0..2 {
                if reading.read() == ReadItem::Finished {
                    assert_eq!(reading.octets, [1]);
                }
            }
            reading
        });
        core.receive();
        event(&mut core);
        let mut reading = application.join().unwrap();
        reading.read();
        assert_eq!(reading.octets, [1]);
        assert!(reading.reader.is_finished());
    });
}

#[test]
fn the_fin_comes_after_the_octets() {
    ends(|core| core.inbound.finish());
}

#[test]
fn the_end_comes_after_the_octets() {
    ends(|core| core.shared.set_end(CloseReason::Finished));
}

/// What is reported to a reader of a transfer of one octet.
fn transfer(rid: Rid) -> [ReadItem; 2] {
    let buffer = Buffer::Expected;
    [
        ReadItem::Placed { rid, buffer, offset: 0, octets: 1 },
        ReadItem::Complete { rid, buffer, total_octets: 1 },
    ]
}

/// Octets of the ring and of a buffer are read in the order of the stream, and each is there when it is
/// reported.
#[test]
fn records_are_read_at_their_place() {
    bounded_model(2, || {
        let stream = Stream::new(2);
        let (mut core, mut reading) = (stream.core(&[]), stream.reading());
        let buffer = Region::heap(1).unwrap();
        assert!(reading.reader.expect(RID, &buffer, 0, 1));
        core.step();
        let memory = Touched::new(1);
        let application = {
            let memory = memory.clone();
            thread::spawn(move || {
                let items = [(); 1].map(|()| {
                    let item = reading.read();
                    if let ReadItem::Placed { .. } = item {
                        memory.read(0..1);
                    }
                    item
                });
                (items.to_vec(), reading)
            })
        };
        core.arrived = vec![1, 2, 3];
        core.place(RID, 1, &memory);
        core.receive();
        let (mut items, mut reading) = application.join().unwrap();
        items.extend([(); 5].map(|()| reading.read()));
        items.retain(|item| *item != ReadItem::Nothing);
        let [placed, complete] = transfer(RID);
        assert_eq!(items, [ReadItem::Octets(1), placed, complete, ReadItem::Octets(1)]);
        assert_eq!(reading.octets, [1, 3]);
    });
}

/// A core that waits for room among the records hears of it, as of room in the ring.
#[test]
fn a_core_hears_of_room_among_the_records() {
    bounded_model(2, || {
        let stream = Stream::new(2);
        let (mut core, mut reading) = (stream.core(&[]), stream.reading());
        let buffer = Region::heap(2).unwrap();
        assert!(reading.reader.expect(RID, &buffer, 0, 1) && reading.reader.expect(OTHER_RID, &buffer, 1, 1));
        core.step();
        core.arrived = vec![1, 2];
        let memory = Touched::new(1);
        core.place(RID, 0, &memory);
        core.place(OTHER_RID, 1, &memory);
        // Each has two records, and there is room for two.
        let next = |reading: &mut Reading| reading.reader.read(&mut [], 1);
        let application = thread::spawn(move || (vec![next(&mut reading)], reading));
        core.receive();
        let (mut items, mut reading) = application.join().unwrap();
        for _ in 0..4 {
            // Nothing but the bell says that there is room.
            core.step();
            items.push(next(&mut reading));
        }
        items.retain(|item| *item != ReadItem::Nothing);
        assert_eq!(items, [transfer(RID), transfer(OTHER_RID)].concat());
    });
}

/// The buffer of a transfer that is cancelled is its owner's when the core has seen that: nothing is written
/// to it any more.
#[test]
fn a_cancelled_buffer_is_its_owners() {
    model(|| {
        let stream = Stream::new(2);
        let (mut core, mut reading) = (stream.core(&[]), stream.reading());
        let buffer = Region::heap(1).unwrap();
        assert!(reading.reader.expect(RID, &buffer, 0, 1));
        core.step();
        let memory = Touched::new(1);
        let application = {
            let memory = memory.clone();
            thread::spawn(move || {
                assert!(reading.reader.cancel(RID));
                if reading.reader.has_settled() {
                    memory.write(0..1);
                }
                reading
            })
        };
        core.arrived = vec![1, 2, 3];
        core.place(RID, 1, &memory);
        core.step();
        core.place(RID, 2, &memory);
        let reading = application.join().unwrap();
        core.step();
        assert!(reading.reader.has_settled(), "the core hears of it");
    });
}

/// A reader that waits for its core to see a command is woken.
#[test]
fn no_command_slips_past_its_core() {
    model(|| {
        let stream = Stream::new(1);
        let (mut core, mut reading) = (stream.core(&[]), stream.reading());
        let application = thread::spawn(move || {
            assert!(reading.reader.cancel(RID));
            assert!(reading.reader.arm());
            (reading.reader.has_settled(), reading)
        });
        core.step();
        let (seen, _reading) = application.join().unwrap();
        core.step();
        assert!(seen || stream.reader.has_rung(), "asleep for ever");
    });
}

/// Messages beyond a gap are read as they were written, also where their ring is used again, while the gap
/// closes; and each octet is read once, early or in its turn.
#[test]
fn early_messages_are_read_completely() {
    bounded_model(2, || {
        let config = ByteStreamConfig { early_ring: Region::heap(1), ..Stream::rings(4) };
        let stream = Stream::of(4, config);
        let early = Touched::new(1);
        let (mut core, mut reading) = (stream.core(&[1, 2, 3, 4]), stream.reading());
        let read = {
            let early = early.clone();
            move |reading: &mut Reading, taken: &mut u64| {
                let mut out = [0];
                match reading.reader.read(&mut out, 1) {
                    ReadItem::EarlyMessage { position, octets } => {
                        assert_eq!(octets, 1);
                        early.read(*taken..*taken + 1);
                        *taken += 1;
                        assert_eq!(reading.reader.read(&mut out, 1), ReadItem::EarlyOctets(1));
                        assert_eq!(u64::from(out[0]), position + 1);
                    }
                    ReadItem::HandedOut { position, .. } => reading.octets.push(position as u8 + 1),
                    ReadItem::Octets(1) => reading.octets.push(out[0]),
                    _ => {}
                }
            }
        };
        let application = thread::spawn({
            let read = read.clone();
            move || {
                let mut taken = 0;
                read(&mut reading, &mut taken);
                (reading, taken)
            }
        });
        for at in 1..4 {
            let arrived = Arrived { payload: at, payload_octets: 1, kept: (at, at + 1), in_order: false };
            core.inbound.record_message_start(&arrived);
            let (octets, written) = (&core.arrived, std::cell::Cell::new(0));
            let filled = core.inbound.counters().messages_early;
            core.inbound.hand_out_early(
                at..at + 1,
                |_, _| true,
                |at, _, write| {
                    early.write(filled + written.get()..filled + written.get() + 1);
                    written.set(written.get() + 1);
                    write(&octets[at as usize..][..1]);
                },
            );
        }
        core.receive();
        let (mut reading, mut taken) = application.join().unwrap();
        while reading.octets.len() < 4 {
            read(&mut reading, &mut taken);
            // Nothing but the bell says that there is room for the next records.
            core.step();
        }
        assert_eq!(reading.octets, [1, 2, 3, 4]);
    });
}

/// A message that was read early is told of as handed out in its turn, and not read again, also where its
/// octets come while the application looks.
#[test]
fn what_was_read_early_is_not_read_again() {
    bounded_model(2, || {
        let config = ByteStreamConfig { early_ring: Region::heap(1), ..Stream::rings(4) };
        let stream = Stream::of(4, config);
        let (mut core, mut reading) = (stream.core(&[1]), stream.reading());
        for at in 1..3 {
            let arrived = Arrived { payload: at, payload_octets: 1, kept: (at, at + 1), in_order: false };
            core.inbound.record_message_start(&arrived);
        }
        core.inbound.hand_out_early(1..2, |_, _| true, |_, _, write| write(&[2]));
        let next = |reading: &mut Reading| reading.reader.read(&mut [0], 1);
        assert_eq!(next(&mut reading), ReadItem::EarlyMessage { position: 1, octets: 1 });
        assert_eq!(next(&mut reading), ReadItem::EarlyOctets(1));
        core.receive();
        assert_eq!(next(&mut reading), ReadItem::Octets(1), "the gap has closed");
        core.arrived.push(2);
        let application = thread::spawn(move || {
            let items = [next(&mut reading), next(&mut reading)];
            (items.to_vec(), reading)
        });
        core.receive();
        let (mut items, mut reading) = application.join().unwrap();
        items.extend((0..3).map(|_| next(&mut reading)));
        items.retain(|item| !matches!(item, ReadItem::Nothing | ReadItem::MessageStart));
        assert_eq!(items, [ReadItem::HandedOut { position: 1, octets: 1 }]);
    });
}
