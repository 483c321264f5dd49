//! Super-frames: the segments of a turn in one frame, which the device cuts. The wire is the same as without
//! them, so that all that is said of segments holds for both.

use std::sync::{Arc, Mutex};

use crate::common::{Pair, Setup, holds, pattern, region_of};
use warpline_dataplane::device::sim::{End, EndConfig, Impairments, Verdict};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::work::Slice;
use warpline_dataplane::statistics::DropCause;

const SOURCE: STag = STag::new(1, 11);
const SINK: STag = STag::new(2, 22);
const OCTETS: usize = 700_000;
const SUPER_FRAME_BYTES: usize = 65_024;

/// A frame, when it was sent and by whom.
type Sent = (End, u64, Vec<u8>);

struct Transfer {
    setup: Setup,
    over_ipv6: bool,
    mtu_bytes: usize,
    super_frame_bytes: usize,
    /// Whether the device fills in the checksums of IPv4 headers too.
    transmit_ip_checksums: bool,
    /// Whether the source is constant memory and the device takes it by reference, in so many pieces a frame.
    references: Option<usize>,
    /// Octets of each piece of a received frame but the last.
    receive_piece_octets: usize,
    /// Frames that the writing end has at a time.
    frame_limit: usize,
    impairments: Impairments,
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            setup: WITH_CRC,
            over_ipv6: false,
            mtu_bytes: 1500,
            super_frame_bytes: SUPER_FRAME_BYTES,
            transmit_ip_checksums: true,
            references: None,
            receive_piece_octets: usize::MAX,
            frame_limit: usize::MAX,
            impairments: Impairments::default(),
        }
    }
}

impl Transfer {
    /// Writes from one end to the other, verifies what has arrived, and returns both ends with the frames
    /// that they have sent.
    fn run(&self) -> (Pair, Vec<Sent>) {
        let end = |config: EndConfig| EndConfig {
            transmit_checksums: true,
            transmit_ip_checksums: self.transmit_ip_checksums,
            mtu_bytes: self.mtu_bytes,
            super_frame_bytes: self.super_frame_bytes,
            gather: self.references.is_some(),
            super_frame_pieces: self.references.unwrap_or(usize::MAX),
            receive_piece_octets: self.receive_piece_octets,
            ..config
        };
        let a = EndConfig { frame_limit: self.frame_limit, ..EndConfig::a() };
        let mut pair = Pair::new(3, end(a), end(EndConfig::b()));
        pair.over_ipv6 = self.over_ipv6;
        let frames = Arc::new(Mutex::new(Vec::new()));
        for end in [End::A, End::B] {
            let frames = frames.clone();
            pair.network.set_filter(end, move |at, frame| {
                frames.lock().unwrap().push((end, at.as_nanos(), frame.to_vec()));
                Verdict::Pass
            });
        }
        let data = pattern(3, OCTETS);
        let sink = Region::heap(OCTETS).unwrap();
        let mut source = region_of(&data);
        if self.references.is_some() {
            source = source.freeze().unwrap();
        }
        pair.a.register(SOURCE, &source, Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(self.setup);
        pair.network.set_impairments(End::A, self.impairments);
        pair.network.set_impairments(End::B, self.impairments);
        // Long messages, and short ones that share segments.
        let lens = [300_000, 64, 64, 64, 64, 1, 0, 200_000, 9000, 512, 512].into_iter();
        let mut to = 0;
        for (n, len) in lens.chain([OCTETS as u32]).enumerate() {
            let len = len.min(OCTETS as u32 - to);
            let local = Slice { stag: SOURCE, to: to.into(), len };
            pair.a.write(n as u64, local, SINK, to.into());
            to += len;
        }
        let mut completed = 0;
        let done = pair.run_until(20_000, |pair| {
            completed += pair.a.poll_completions().len();
            completed == 12
        });
        assert!(done && holds(&sink, 0, &data), "{completed} of 12 messages; {:?}", pair.a.events);
        let frames = std::mem::take(&mut *frames.lock().unwrap());
        (pair, frames)
    }
}

const WITH_CRC: Setup = Setup { markers: false, crc: true };
const WITH_MARKERS: Setup = Setup { markers: true, crc: true };

/// Cut by the device, super-frames are the segments that are sent without them, octet for octet.
// Requirements: MPA-A.1-01
#[test]
fn the_wire_is_the_same() {
    // 75,000 bytes are more than the length of an IP packet can say: of segments of 9000 bytes, a turn holds
    // more.
    let cases = [
        (WITH_CRC, false, 1500, SUPER_FRAME_BYTES),
        (WITH_CRC, true, 1500, SUPER_FRAME_BYTES),
        (WITH_MARKERS, false, 1500, SUPER_FRAME_BYTES),
        (WITH_CRC, false, 9000, 75_000),
        (WITH_CRC, true, 9000, 75_000),
    ];
    for (setup, over_ipv6, mtu_bytes, most) in cases {
        let run = |super_frame_bytes, transmit_ip_checksums| {
            let path = Transfer { setup, over_ipv6, mtu_bytes, ..Transfer::default() };
            Transfer { super_frame_bytes, transmit_ip_checksums, ..path }.run()
        };
        let (plain, expected) = run(0, true);
        for transmit_ip_checksums in [false, true] {
            let (pair, frames) = run(most, transmit_ip_checksums);
            assert_eq!(frames.len(), expected.len());
            for (at, (frame, expected)) in frames.iter().zip(&expected).enumerate() {
                assert!(frame == expected, "frame {at}:\n{frame:02x?}\n{expected:02x?}");
            }
            let handed_over = |pair: &Pair| pair.a.statistics().frames_sent;
            assert!(handed_over(&pair) * 2 < handed_over(&plain), "few frames were handed to the device");
        }
    }
}

/// A message leaves in as few frames as it takes: full ones, and one for the rest, whose last segment is
/// shorter than the others. With Markers its segments are equally long but for that one, too.
#[test]
fn a_message_fills_its_frames() {
    const MESSAGE: u32 = 65_536;
    for (setup, mtu_bytes, expected) in
        [(WITH_CRC, 1500, 2), (WITH_MARKERS, 1500, 2), (WITH_CRC, 4000, 2), (WITH_CRC, 9000, 2)]
    {
        let end = |config| EndConfig {
            transmit_checksums: true,
            mtu_bytes,
            super_frame_bytes: SUPER_FRAME_BYTES,
            ..config
        };
        let mut pair = Pair::new(3, end(EndConfig::a()), end(EndConfig::b()));
        let data = pattern(3, MESSAGE as usize);
        let sink = Region::heap(MESSAGE as usize).unwrap();
        pair.a.register(SOURCE, &region_of(&data), Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(setup);
        // The windows of both ends open meanwhile; now and then one of them ends within a message.
        let mut filled = 0;
        for n in 0..60 {
            let before = pair.a.statistics().frames_sent;
            pair.a.write(n, Slice { stag: SOURCE, to: 0, len: MESSAGE }, SINK, 0);
            assert!(pair.run_until(2_000, |pair| !pair.a.poll_completions().is_empty()));
            let frames = pair.a.statistics().frames_sent - before;
            let segments = u64::from(MESSAGE).div_ceil(mtu_bytes as u64 - 100);
            assert!(frames <= segments.div_ceil(2), "{mtu_bytes} {n}: {frames} frames");
            filled += u32::from(n >= 20 && frames == expected);
        }
        assert!(filled >= 35, "{mtu_bytes}: {filled} of 40 messages in {expected} frames");
        assert!(holds(&sink, 0, &data));
    }
}

/// In a turn a connection has no more frames than it would have segments without super-frames, however few
/// segments share one, and a bounded number of segments.
#[test]
fn a_turn_is_bounded_in_frames_and_in_segments() {
    const SENDS: u32 = 200;
    const FRAMES: usize = limits::TRANSMIT_BURST_SEGMENTS;
    const SEGMENTS: usize = limits::TRANSMIT_BURST_SEGMENTS_JOINED;
    // Messages of so many octets leave no room for another FPDU in their segments. One that is longer than
    // the one before begins a frame; so many equal ones as fill two frames are sent, or fewer.
    for (mtu_bytes, octets, more, frames, segments) in
        [(1500, 1100, 1, FRAMES, FRAMES), (1500, 1100, 0, 2, 88), (600, 428, 0, 1, SEGMENTS)]
    {
        let end = |config| EndConfig {
            transmit_checksums: true,
            mtu_bytes,
            super_frame_bytes: SUPER_FRAME_BYTES,
            ..config
        };
        let mut pair = Pair::new(3, end(EndConfig::a()), end(EndConfig::b()));
        let data = pattern(3, OCTETS);
        let sink = Region::heap(OCTETS).unwrap();
        pair.a.register(SOURCE, &region_of(&data), Access::empty());
        pair.b.register(SINK, &sink, Access::REMOTE_WRITE);
        pair.establish(WITH_CRC);
        // The windows open.
        pair.a.write(0, Slice { stag: SOURCE, to: 0, len: OCTETS as u32 }, SINK, 0);
        assert!(pair.run_until(2_000, |pair| !pair.a.poll_completions().is_empty()));
        let before = pair.a.statistics().fpdus_sent;
        pair.network.set_transmit_credit(End::A, Some(0));
        for n in 0..SENDS {
            let len = octets + 4 * more * (n % 50);
            pair.a.write(n.into(), Slice { stag: SOURCE, to: 0, len }, SINK, 0);
        }
        pair.a.core.poll_once(pair.now);
        let sent = pair.a.statistics().fpdus_sent - before;
        let waiting = pair.a.core.usage().frames_to_send;
        assert_eq!((waiting, sent), (frames, segments as u64), "{mtu_bytes} {octets} {more}");
        pair.network.set_transmit_credit(End::A, None);
        let mut completed = 0;
        let done = pair.run_until(2_000, |pair| {
            completed += pair.a.poll_completions().len();
            completed == SENDS as usize
        });
        assert!(done, "{completed} messages");
    }
}

/// Segments of a super-frame that are lost are sent again like any others.
#[test]
fn intact_under_loss_and_reordering() {
    for over_ipv6 in [false, true] {
        let impairments = Impairments { loss: 0.03, reorder: 0.03, ..Impairments::default() };
        let (pair, _) = Transfer { over_ipv6, impairments, ..Transfer::default() }.run();
        let tcp = pair.a.statistics().tcp;
        assert!(tcp.retransmitted_segments > 0 && tcp.cut_segments == 0, "{tcp:?}");
    }
}

/// A device that runs out of frames within a turn sends what it has, and the rest when frames are back.
#[test]
fn intact_when_frames_run_out() {
    let (pair, _) = Transfer { super_frame_bytes: 8_000, frame_limit: 6, ..Transfer::default() }.run();
    let statistics = pair.a.statistics();
    assert!(
        statistics.dropped(DropCause::NoTransmitBuffer) > 0 && statistics.tcp.retransmitted_segments == 0,
        "{statistics:?}"
    );
}

/// Payload of constant memory goes by reference in super-frames too, of no more pieces than the device takes
/// (the simulated device checks that), unless that is one. The wire is the same as without super-frames.
#[test]
fn constant_memory_goes_by_reference() {
    for (mtu_bytes, pieces) in [(1500, 1), (1500, 5), (1500, 64), (9000, 64), (1500, usize::MAX)] {
        let path = || Transfer { mtu_bytes, references: Some(pieces), ..Transfer::default() };
        let (_, expected) = Transfer { super_frame_bytes: 0, ..path() }.run();
        let (pair, frames) = path().run();
        assert!(frames == expected, "{mtu_bytes} {pieces}: {} {} frames", frames.len(), expected.len());
        let statistics = pair.a.statistics();
        let handed_over = statistics.frames_sent as usize;
        assert!(handed_over < frames.len(), "{mtu_bytes} {pieces}: {handed_over} frames handed over");
        // The small messages share segments with the ends of long ones, and all these are copied.
        let by_reference = statistics.bytes_copied_tx < OCTETS as u64 / 20;
        assert!(by_reference == (pieces > 1), "{mtu_bytes} {pieces}: {statistics:?}");
    }
}

/// Received frames that lie in several pieces hold the same FPDUs, wherever a piece ends: in a header, in the
/// payload, in a CRC, in a Marker.
#[test]
fn frames_are_received_in_pieces() {
    for (setup, over_ipv6) in [(WITH_CRC, false), (WITH_CRC, true), (WITH_MARKERS, false)] {
        for (mtu_bytes, receive_piece_octets) in [(1500, 131), (9000, 512), (9000, 997), (9000, 2048)] {
            let impairments = Impairments { loss: 0.02, reorder: 0.02, ..Impairments::default() };
            for impairments in [Impairments::default(), impairments] {
                let pieces =
                    Transfer { setup, over_ipv6, mtu_bytes, receive_piece_octets, ..Transfer::default() };
                let (pair, _) = Transfer { impairments, ..pieces }.run();
                let statistics = pair.b.statistics();
                assert_eq!(statistics.dropped(DropCause::FpduCrc), 0, "{statistics:?}");
            }
        }
    }
}
