//! Tests of sources that change while they are sent. RFC 5040 §5.5 (8) leaves the contents of such a message
//! indeterminate, and nothing else: every FPDU has a CRC that fits it, and the stream continues.

use std::sync::{Arc, Mutex};

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{End, EndConfig, Impairments, Verdict};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, InsertError, Region, STag};
use warpline_dataplane::mpa::MpaError;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::work::{Operation, Slice, Status};
use warpline_dataplane::ring::Event;
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::MILLISECOND;

use crate::common::{Pair, Setup, holds, too_big};

/// At `a`: open to the peer in every way, or at least to be read by it.
const SOURCE: STag = STag::new(1, 0x1111);
/// At `b`: where all of it goes.
const SINK: STag = STag::new(2, 0x2222);
const OCTETS: usize = 16_000;

/// The operations that move octets from the memory of `a` to that of `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    Send,
    Write,
    ReadResponse,
}

const MESSAGES: [Message; 3] = [Message::Send, Message::Write, Message::ReadResponse];

struct Bench {
    pair: Pair,
    source: Region,
    sink: Region,
}

impl Bench {
    /// Both devices support payload by reference, and read it when the frame leaves.
    fn new(seed: u64, source: Region) -> Self {
        Self::with_tables(seed, source, Tables::default())
    }

    fn with_tables(seed: u64, source: Region, tables: Tables) -> Self {
        let end = |end| EndConfig { gather: true, transmit_checksums: true, ..end };
        let mut pair = Pair::with_tables(seed, end(EndConfig::a()), end(EndConfig::b()), tables);
        pair.reads = 4;
        let sink = Region::heap(OCTETS).unwrap();
        let rights =
            Access::REMOTE_READ | if source.is_constant() { Access::empty() } else { Access::ANY_WRITE };
        pair.a.register(SOURCE, &source, rights);
        pair.b.register(SINK, &sink, Access::ANY_WRITE);
        pair.establish(Setup { markers: false, crc: true });
        // A Responder sends nothing before the first FPDU has come.
        pair.a.write(9, Slice::default(), SINK, 0);
        assert!(pair.run_until(5, |pair| !pair.a.poll_completions().is_empty()));
        Self { pair, source, sink }
    }

    fn post(&self, message: Message, octets: usize) {
        let source = Slice { stag: SOURCE, to: 0, len: octets as u32 };
        let sink = Slice { stag: SINK, ..source };
        match message {
            Message::Send => {
                self.pair.b.receive(2, sink);
                self.pair.a.send(1, source);
            }
            Message::Write => self.pair.a.write(1, source, SINK, 0),
            Message::ReadResponse => self.pair.b.post(1, Operation::Read { stag: SOURCE, to: 0 }, sink),
        }
    }

    /// Runs until the requester of `message` has its completion; returns its status.
    fn completion(&mut self, message: Message) -> Status {
        let mut status = None;
        let done = self.pair.run_until(600, |pair| {
            let asker = if message == Message::ReadResponse { &pair.b } else { &pair.a };
            status =
                status.or(asker.poll_completions().iter().find(|done| done.id == 1).map(|done| done.status));
            status.is_some()
        });
        assert!(done, "{message:?}: {:?}, {:?}", self.pair.a.qp.error(), self.pair.b.qp.error());
        status.unwrap()
    }

    fn bad_crcs(&self) -> u64 {
        self.pair.b.statistics().dropped(DropCause::FpduCrc)
    }
}

fn filled(octet: u8) -> Region {
    let region = Region::heap(OCTETS).unwrap();
    assert!(region.write(0, &[octet; OCTETS]));
    region
}

/// A write to a source between the building of a frame and the moment the device reads it does not invalidate
/// the frame's CRC.
#[test]
fn a_source_may_change_while_frames_wait_at_the_device() {
    for message in MESSAGES {
        let mut bench = Bench::new(1, filled(1));
        bench.pair.network.set_transmit_credit(End::A, Some(0));
        bench.post(message, OCTETS);
        (0..50).for_each(|_| bench.pair.step());
        assert!(bench.pair.a.statistics().fpdus_sent > 5, "{message:?}: some are built");
        assert!(bench.source.write(0, &[2; OCTETS]));
        bench.pair.network.set_transmit_credit(End::A, None);
        assert_eq!(bench.completion(message), Status::Success, "{message:?}");
        assert_eq!(bench.bad_crcs(), 0, "{message:?}");
        assert_eq!(bench.pair.a.statistics().bytes_copied_tx, OCTETS as u64, "{message:?}");
    }
}

/// If the octets of a frame that waits at the device are already acknowledged, through an earlier copy, the
/// frame shows nothing that was written after the completion.
#[test]
fn a_frame_that_leaves_after_the_completion_shows_nothing_of_later() {
    const SECRET: [u8; 16] = [0xee; 16];
    for message in [Message::Send, Message::Write] {
        let mut bench = Bench::new(1, filled(1));
        // The acknowledgement is so late that the segment is retransmitted.
        let slow = Impairments {
            delay_min_ns: 900 * MILLISECOND,
            delay_max_ns: 900 * MILLISECOND,
            ..Impairments::default()
        };
        bench.pair.network.set_impairments(End::B, slow);
        bench.post(message, 1400);
        let sent = bench.pair.network.statistics(End::A).sent;
        assert!(bench.pair.run_until(1, |pair| pair.network.statistics(End::A).sent > sent));
        bench.pair.network.set_transmit_credit(End::A, Some(0));
        let mut completed = false;
        for _ in 0..2000 {
            bench.pair.a.core.poll_once(bench.pair.now);
            bench.pair.b.core.poll_once(bench.pair.now);
            bench.pair.now += MILLISECOND;
            completed |= bench.pair.a.poll_completions().iter().any(|done| done.status == Status::Success);
        }
        assert!(completed && bench.pair.a.statistics().fpdus_sent > 2, "{message:?}: it was built again");
        assert!(bench.source.write(0, &[0xee; OCTETS]));
        let shown = Arc::new(Mutex::new((0, 0)));
        let seen = shown.clone();
        bench.pair.network.set_filter(End::A, move |_, frame| {
            let mut seen = seen.lock().unwrap();
            seen.0 += usize::from(frame.len() > 1400);
            seen.1 += usize::from(frame.windows(SECRET.len()).any(|octets| octets == SECRET));
            Verdict::Pass
        });
        bench.pair.network.set_transmit_credit(End::A, None);
        bench.pair.run_for(1);
        let (frames, secrets) = *shown.lock().unwrap();
        assert!(frames > 0, "{message:?}: a frame was waiting");
        assert_eq!(secrets, 0, "{message:?}");
    }
}

/// RFC 5044 App. A.5: FPDUs that no longer fit the path are sent in parts, one round trip after the other.
/// The parts match even if the source changes meanwhile.
#[test]
fn the_parts_of_a_cut_fpdu_fit_together() {
    const MOST_OCTETS: usize = 1300;
    // With room for all, and with none but for one run of a connection.
    let room = [Tables::default(), Tables { cut_octets: 0, ..Tables::default() }];
    for (message, tables) in MESSAGES.into_iter().flat_map(|message| room.map(|tables| (message, tables))) {
        let mut bench = Bench::with_tables(1, filled(0), tables);
        let (source, mut times) = (bench.source.clone(), 0_u8);
        // The path has become narrower and sends no ICMP error.
        bench.pair.network.set_filter(End::A, move |_, frame| {
            times = times.wrapping_add(1);
            assert!(source.write(0, &[times; OCTETS]), "it changes with each frame");
            if frame.len() > MOST_OCTETS { Verdict::Drop } else { Verdict::Pass }
        });
        bench.post(message, OCTETS);
        assert_eq!(bench.completion(message), Status::Success, "{message:?}");
        let statistics = bench.pair.a.statistics();
        assert!(statistics.tcp.cut_segments >= 5, "{message:?}: {}", statistics.tcp.cut_segments);
        assert_eq!(bench.bad_crcs(), 0, "{message:?}");
        assert_eq!((bench.pair.a.qp.error(), bench.pair.b.qp.error()), (None, None));
        bench.pair.run_for(5);
        assert_eq!(bench.pair.a.core.usage().cut_octets, 0, "all is acknowledged");
    }
}

/// Where a router reports the narrow path while FPDUs are in flight, all of them are cut at once, and only
/// one finds room: the oldest that the peer has not acknowledged. A tail probe is a part of the last one,
/// which the peer acknowledges after all others.
#[test]
fn the_oldest_cut_fpdu_has_room_in_any_case() {
    const MOST_OCTETS: usize = 1300;
    // Seven FPDUs, all of them too long for the path.
    const OCTETS: usize = 9900;
    for message in MESSAGES {
        let mut bench = Bench::with_tables(1, filled(0), Tables { cut_octets: 0, ..Tables::default() });
        let report = Arc::new(Mutex::new(None));
        let (reported, delivered) = (report.clone(), report.clone());
        bench.pair.network.set_filter(End::A, move |_, frame| {
            if frame.len() <= MOST_OCTETS {
                return Verdict::Pass;
            }
            *reported.lock().unwrap() = Some(too_big(frame, (MOST_OCTETS - 14) as u16));
            Verdict::Drop
        });
        bench.post(message, OCTETS);
        assert!(bench.pair.run_until(1, |_| report.lock().unwrap().is_some()), "{message:?}: it is sent");
        // The report comes instead of a frame of the peer.
        bench.pair.network.set_filter(End::B, move |_, _| {
            delivered.lock().unwrap().take().map_or(Verdict::Pass, Verdict::Replace)
        });
        bench.pair.b.write(9, Slice::default(), SOURCE, 0);
        assert_eq!(bench.completion(message), Status::Success, "{message:?}");
        let statistics = bench.pair.a.statistics();
        eprintln!("{message:?} {:?} {:?}", bench.pair.now, statistics.tcp);
        assert!(statistics.tcp.cut_segments >= 5, "{message:?}: {}", statistics.tcp.cut_segments);
        assert_eq!(bench.bad_crcs(), 0, "{message:?}");
        bench.pair.run_for(5);
        assert_eq!(bench.pair.a.core.usage().cut_octets, 0, "all is acknowledged");
    }
}

/// A retransmission is built again from the current contents of its source, as a whole and with a CRC that
/// fits it.
#[test]
fn what_is_sent_again_has_a_crc_that_fits() {
    for message in MESSAGES {
        let mut bench = Bench::new(1, filled(0));
        let (source, mut times) = (bench.source.clone(), 0_u8);
        bench.pair.network.set_filter(End::A, move |_, frame| {
            times = times.wrapping_add(1);
            assert!(source.write(0, &[times; OCTETS]), "it changes with each frame");
            if frame.len() > 1000 && times % 3 != 0 { Verdict::Drop } else { Verdict::Pass }
        });
        bench.post(message, OCTETS);
        assert_eq!(bench.completion(message), Status::Success, "{message:?}");
        assert!(bench.pair.a.statistics().tcp.retransmitted_segments >= 3, "{message:?}");
        assert_eq!(bench.bad_crcs(), 0, "{message:?}");
    }
}

/// A middlebox cuts segments at any octet. If the peer has kept a part of an FPDU, and the source has changed
/// by the time the rest is retransmitted, no CRC fits both: the peer refuses the mixture, and no octet of it
/// is ever placed.
#[test]
fn a_mixture_made_by_a_middlebox_is_refused() {
    let mut outcomes = [0; 2];
    for seed in 0..40 {
        let mut bench = Bench::new(seed, filled(1));
        let rough = Impairments { resegment: 0.7, loss: 0.2, ..Impairments::default() };
        bench.pair.network.set_impairments(End::A, rough);
        let (source, mut times) = (bench.source.clone(), 0_u8);
        bench.pair.network.set_filter(End::A, move |_, _| {
            times ^= 3;
            assert!(source.write(0, &[1 + times; OCTETS]));
            Verdict::Pass
        });
        bench.post(Message::ReadResponse, OCTETS);
        match bench.completion(Message::ReadResponse) {
            Status::Success => outcomes[0] += 1,
            Status::Failed(error) => {
                assert_eq!(error, StreamError::Mpa(MpaError::Crc), "seed {seed}");
                outcomes[1] += 1;
            }
            status => panic!("seed {seed}: {status:?}"),
        }
        // Each FPDU that was placed is of one moment.
        let mut octets = vec![0; OCTETS];
        assert!(bench.sink.read(0, &mut octets));
        let fpdu_octets = 1460 - 12 - 2 - 14 - 4;
        for (number, fpdu) in octets.chunks(fpdu_octets).enumerate() {
            assert!(fpdu.iter().all(|octet| *octet == fpdu[0]), "seed {seed}, FPDU {number}");
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "of both kinds: {outcomes:?}");
}

/// Constant memory is sent by reference, Responses too, and stays registered as long as a frame refers to it.
#[test]
fn constant_memory_goes_by_reference() {
    for message in MESSAGES {
        let octets = crate::common::pattern(5, OCTETS);
        let source = Region::owned(octets.clone()).unwrap().freeze().unwrap();
        let mut bench = Bench::new(1, source);
        bench.post(message, OCTETS);
        assert_eq!(bench.completion(message), Status::Success, "{message:?}");
        assert!(holds(&bench.sink, 0, &octets), "{message:?}");
        let (copied, least) =
            (bench.pair.a.statistics().bytes_copied_tx, u64::from(limits::BY_REFERENCE_MIN_BYTES));
        assert!(copied < least, "{message:?}: {copied} octets copied");
    }
}

/// No right to write to constant memory can be granted, and a write to it is refused.
#[test]
fn constant_memory_cannot_be_opened_for_writing() {
    let source = Region::heap(64).unwrap().freeze().unwrap();
    let mut bench = Bench::new(1, filled(1));
    let rights = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    for (slot, access) in (8..).zip(rights) {
        let stag = STag::new(slot, 0x77);
        bench.pair.a.register(stag, &source, access | Access::REMOTE_READ);
        bench.pair.run_for(1);
        let refused = |event: &Event| match event {
            Event::Registered { stag: named, result } => {
                *named == stag && *result == Err(InsertError::Constant)
            }
            _ => false,
        };
        assert!(bench.pair.a.events.iter().any(refused), "{access:?}: {:?}", bench.pair.a.events);
    }
}
