//! A device that captures the frames of another device.

mod checksums;

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use super::packet::HeardPorts;
use super::pcapng::{self, Direction, PacketInfo};
use super::{Capabilities, Device, Frame, RxInterrupt};
use crate::limits::RECEIVE_BURST_FRAMES;
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;

/// Octets gathered before the writer is called.
const BUFFER_OCTETS: usize = 1 << 18;

/// The contents of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The name of the interface in the capture.
    pub interface_name: String,
    /// The time of [`Instant::ZERO`], in nanoseconds since 1970-01-01 UTC.
    pub origin_unix_ns: u64,
    /// Bytes kept of each frame; `None` keeps all.
    pub snap_bytes: Option<u32>,
    /// Bytes after which the capture ends, its headers included; `None` for no end.
    pub limit_bytes: Option<u64>,
    /// Whether other taps write to the same place. Then the writer gets each burst at once: frames stand in
    /// the order in which they pass, but for those that pass at two taps at the same time.
    pub is_shared: bool,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            interface_name: "warpline".into(),
            origin_unix_ns: 0,
            snap_bytes: None,
            limit_bytes: None,
            is_shared: false,
        }
    }
}

/// The counters of a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TapStatistics {
    /// Frames given to the writer.
    pub recorded_frames: u64,
    /// Bytes given to the writer, headers of the capture included.
    pub recorded_bytes: u64,
    /// Frames that passed unrecorded because the capture had ended.
    pub skipped_frames: u64,
    /// Failures of the writer; the first ends the capture.
    pub write_errors: u64,
}

/// A device around another that records every frame received and every frame accepted for transmission, in
/// pcapng.
///
/// It offers neither checksum offload nor transmission by reference, so that the capture holds frames as they
/// are on the wire. Of a frame received from a sender that has no wire either, the capture holds the
/// checksums that such a wire's hardware would have filled in, where the device vouches for the octets; the
/// frame itself is left alone. Trouble with the writer ends the capture and leaves the traffic alone. The
/// writer is called on the thread that polls the device: a capture costs time, and the writer should not
/// block.
///
/// What is buffered is written when the tap is dropped, errors unseen; [`flush`](Self::flush) shows them.
pub struct Tap<D: Device, W: Write> {
    capture: Capture<W>,
    /// The frames on their way into `inner`; empty between calls.
    burst: Vec<D::Frame>,
    /// Dropped last: the frames are its own.
    inner: D,
}

impl<D: Device, W: Write + Send + 'static> Tap<D, W> {
    /// Returns a tap on `inner` that writes to `out`.
    ///
    /// # Errors
    ///
    /// Those of `out` when it is given the first octets.
    pub fn new(inner: D, out: W, config: &TapConfig) -> io::Result<Self> {
        Ok(Self { inner, capture: Capture::new(out, config)?, burst: Vec::new() })
    }

    /// Returns the device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the device inside; frames passed through it directly are not recorded.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Returns the counters of the tap.
    pub fn statistics(&self) -> TapStatistics {
        self.capture.statistics
    }

    /// Hands everything recorded so far to the writer.
    ///
    /// # Errors
    ///
    /// Those of the writer; the capture then ends. After the end there is nothing to write and no error.
    pub fn flush(&mut self) -> io::Result<()> {
        let result = self.capture.out.as_mut().map_or(Ok(()), Write::flush);
        if result.is_err() {
            self.capture.fail();
        }
        result
    }
}

impl<D: Device, W: Write + Send + 'static> Device for Tap<D, W> {
    type Frame = D::Frame;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities().without_offloads()
    }

    fn mac(&self) -> MacAddress {
        self.inner.mac()
    }

    fn reaches_programs(&self) -> bool {
        self.inner.reaches_programs()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<D::Frame>, limit: usize) -> usize {
        let before = frames.len();
        let count = self.inner.receive(now, frames, limit);
        for burst in frames[before..].chunks(RECEIVE_BURST_FRAMES) {
            for frame in burst {
                self.capture.stage(now, Direction::Inbound, frame);
            }
            self.capture.commit(burst.len());
        }
        count
    }

    fn allocate(&mut self) -> Option<D::Frame> {
        self.inner.allocate()
    }

    fn allocate_burst(&mut self, frames: &mut Vec<D::Frame>, limit: usize) {
        self.inner.allocate_burst(frames, limit);
    }

    fn transmit(&mut self, now: Instant, frames: &mut Vec<D::Frame>) -> usize {
        // What the device takes is gone afterwards, so frames are staged before, and those that were taken
        // are committed; in bursts, so that a full device does not have the whole queue staged again and
        // again.
        let mut taken = 0;
        while !frames.is_empty() {
            let count = frames.len().min(RECEIVE_BURST_FRAMES);
            self.burst.extend(frames.drain(..count));
            for frame in &self.burst {
                self.capture.stage(now, Direction::Outbound, frame);
            }
            let accepted = self.inner.transmit(now, &mut self.burst);
            self.capture.commit(accepted);
            taken += accepted;
            frames.splice(..0, self.burst.drain(..));
            if accepted < count {
                break;
            }
        }
        taken
    }

    fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<(), D::Frame> {
        self.inner.hand_over(core, frame)
    }

    fn frames_not_handed_over(&self) -> u64 {
        self.inner.frames_not_handed_over()
    }

    fn stalled_frames(&self) -> u64 {
        self.inner.stalled_frames()
    }

    fn missed_frames(&self) -> u64 {
        self.inner.missed_frames()
    }

    fn unsent_frames(&self) -> u64 {
        self.inner.unsent_frames()
    }

    fn take_heard_ports(&mut self) -> Option<HeardPorts> {
        self.inner.take_heard_ports()
    }

    fn adapter_differs(&self) -> bool {
        self.inner.adapter_differs()
    }

    fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.inner.wake_on_arrival(waker)
    }

    fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.inner.rx_interrupt()
    }

    fn enable_rx_interrupt(&mut self) -> bool {
        self.inner.enable_rx_interrupt()
    }

    fn disable_rx_interrupt(&mut self) {
        self.inner.disable_rx_interrupt();
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.inner.next_arrival()
    }
}

/// The capture itself: encodes frames and writes them out.
struct Capture<W: Write> {
    /// `None` once the capture has ended.
    out: Option<BufWriter<W>>,
    /// Encoded frames of which it is not yet known whether they pass.
    staged: Vec<u8>,
    /// Where each of them ends in `staged`.
    ends: Vec<usize>,
    origin_unix_ns: u64,
    snap_octets: u32,
    limit_octets: u64,
    statistics: TapStatistics,
}

impl<W: Write> Capture<W> {
    fn new(out: W, config: &TapConfig) -> io::Result<Self> {
        let snap_octets = config.snap_bytes.unwrap_or(0);
        let mut staged = Vec::new();
        pcapng::section_header(&mut staged);
        pcapng::interface_description(&mut staged, &config.interface_name, snap_octets);
        let mut out = BufWriter::with_capacity(if config.is_shared { 0 } else { BUFFER_OCTETS }, out);
        out.write_all(&staged)?;
        let recorded_octets = staged.len() as u64;
        staged.clear();
        Ok(Self {
            out: Some(out),
            staged,
            ends: Vec::with_capacity(RECEIVE_BURST_FRAMES),
            origin_unix_ns: config.origin_unix_ns,
            snap_octets,
            limit_octets: config.limit_bytes.unwrap_or(u64::MAX),
            statistics: TapStatistics { recorded_bytes: recorded_octets, ..TapStatistics::default() },
        })
    }

    /// Encodes a frame that may be about to pass.
    fn stage(&mut self, now: Instant, direction: Direction, frame: &impl Frame) {
        if self.out.is_none() {
            return;
        }
        let info = PacketInfo {
            interface: 0,
            unix_ns: self.origin_unix_ns.saturating_add(now.as_nanos()),
            direction,
            snap_octets: self.snap_octets,
        };
        let pieces = (0..).map_while(|index| frame.piece(index));
        let kept = pcapng::enhanced_packet(&mut self.staged, info, pieces);
        checksums::fill_in(&mut self.staged[kept], frame);
        self.ends.push(self.staged.len());
    }

    /// Records the first `passed` of the staged frames and forgets the others.
    fn commit(&mut self, passed: usize) {
        let room = self.limit_octets.saturating_sub(self.statistics.recorded_bytes);
        let fitting = self.ends.iter().take(passed).take_while(|&&end| end as u64 <= room).count();
        self.statistics.skipped_frames += (passed - fitting) as u64;
        if let Some(out) = &mut self.out
            && let Some(&end) = self.ends[..fitting].last()
        {
            if out.write_all(&self.staged[..end]).is_ok() {
                self.statistics.recorded_frames += fitting as u64;
                self.statistics.recorded_bytes += end as u64;
            } else {
                self.statistics.skipped_frames += fitting as u64;
                self.fail();
            }
        }
        if fitting < passed && self.out.is_some() {
            self.end();
        }
        self.staged.clear();
        self.ends.clear();
    }

    /// Ends the capture at its limit.
    fn end(&mut self) {
        if let Some(out) = &mut self.out
            && out.flush().is_err()
        {
            return self.fail();
        }
        self.out = None;
    }

    /// Ends the capture after a failure of the writer.
    fn fail(&mut self) {
        self.statistics.write_errors += 1;
        if let Some(out) = self.out.take() {
            // Taken apart, because dropping it whole would call the writer once more.
            drop(out.into_parts());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::pcapng::reader;
    use super::super::sim::{self, End, EndConfig, SimDevice, SimFrame};
    use super::*;

    /// A writer that lets the test read the written octets, and that fails once it holds `capacity` octets.
    #[derive(Clone)]
    struct Store {
        octets: Arc<Mutex<Vec<u8>>>,
        capacity: usize,
    }

    impl Store {
        fn new(capacity: usize) -> Self {
            Self { octets: Arc::default(), capacity }
        }

        fn octets(&self) -> Vec<u8> {
            self.octets.lock().unwrap().clone()
        }
    }

    impl Write for Store {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let mut held = self.octets.lock().unwrap();
            if held.len() + octets.len() > self.capacity {
                return Err(io::ErrorKind::StorageFull.into());
            }
            held.extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn tapped(store: &Store, config: &TapConfig) -> (Tap<SimDevice, Store>, SimDevice) {
        let offering = EndConfig { transmit_checksums: true, ..EndConfig::a() };
        let (a, b) = sim::link(1, offering, EndConfig::b());
        (Tap::new(a, store.clone(), config).unwrap(), b)
    }

    fn frame(device: &mut impl Device<Frame = SimFrame>, fill: u8, octets: usize) -> SimFrame {
        let mut frame = device.allocate().unwrap();
        frame.append(octets).unwrap().fill(fill);
        frame
    }

    fn send(device: &mut impl Device<Frame = SimFrame>, now: Instant, fill: u8, octets: usize) {
        let frame = frame(device, fill, octets);
        assert_eq!(device.transmit(now, &mut vec![frame]), 1);
    }

    /// Direction, time and first octet of every recorded frame.
    fn recorded(capture: &[u8]) -> Vec<(Direction, u64, u8)> {
        let packets = reader::blocks(capture);
        let packets = packets[2..].iter().map(reader::packet);
        packets.map(|packet| (packet.direction, packet.unix_ns, packet.octets[0])).collect()
    }

    #[test]
    fn records_both_directions_with_their_times() {
        let store = Store::new(usize::MAX);
        let config = TapConfig { origin_unix_ns: 1_700_000_000_000_000_000, ..TapConfig::default() };
        let (mut tap, mut peer) = tapped(&store, &config);
        send(&mut tap, Instant::from_nanos(5), 1, 77);
        send(&mut peer, Instant::from_nanos(10), 2, 60);
        send(&mut peer, Instant::from_nanos(10), 3, 61);
        let mut frames = Vec::new();
        assert_eq!(tap.next_arrival(), Some(Instant::from_nanos(1010)));
        assert_eq!(tap.receive(Instant::from_nanos(1010), &mut frames, 1), 1);
        assert_eq!(tap.receive(Instant::from_nanos(1020), &mut frames, 9), 1);
        assert_eq!(frames.len(), 2);
        tap.flush().unwrap();
        let expected = [
            (Direction::Outbound, 1_700_000_000_000_000_005, 1),
            (Direction::Inbound, 1_700_000_000_000_001_010, 2),
            (Direction::Inbound, 1_700_000_000_000_001_020, 3),
        ];
        let capture = store.octets();
        assert_eq!(recorded(&capture), expected);
        let blocks = reader::blocks(&capture);
        assert_eq!((blocks[0].kind, blocks[1].kind), (0x0a0d_0d0a, 1));
        assert_eq!(reader::packet(&blocks[2]).octets, [1; 77]);
        let statistics = tap.statistics();
        assert_eq!((statistics.recorded_frames, statistics.recorded_bytes), (3, capture.len() as u64));
    }

    #[test]
    fn offers_nothing_that_would_falsify_the_capture() {
        let (tap, _peer) = tapped(&Store::new(usize::MAX), &TapConfig::default());
        assert!(tap.inner().capabilities().transmit_checksums);
        let offered = tap.capabilities();
        assert!(!offered.transmit_checksums && !offered.gather);
        assert_eq!((offered.mtu_bytes, tap.mac()), (1500, EndConfig::a().mac));
    }

    #[test]
    fn records_only_what_the_device_accepts() {
        let store = Store::new(usize::MAX);
        let (mut tap, _peer) = tapped(&store, &TapConfig::default());
        let network = tap.inner().network();
        network.set_transmit_credit(End::A, Some(40));
        let mut frames: Vec<_> = (0..50).map(|fill| frame(&mut tap, fill, 60)).collect();
        assert_eq!((tap.transmit(Instant::ZERO, &mut frames), frames.len()), (40, 10));
        assert_eq!(
            frames.iter().map(|frame| frame.piece(0).unwrap()[0]).collect::<Vec<_>>(),
            (40..50).collect::<Vec<_>>()
        );
        assert_eq!(tap.transmit(Instant::ZERO, &mut frames), 0);
        network.set_transmit_credit(End::A, None);
        assert_eq!(tap.transmit(Instant::from_nanos(1), &mut frames), 10);
        tap.flush().unwrap();
        let expected = (0..50).map(|fill| (Direction::Outbound, u64::from(fill >= 40), fill));
        assert_eq!(recorded(&store.octets()), expected.collect::<Vec<_>>());
    }

    #[test]
    fn is_written_when_dropped() {
        let store = Store::new(usize::MAX);
        let (mut tap, _peer) = tapped(&store, &TapConfig::default());
        send(&mut tap, Instant::ZERO, 1, 60);
        drop(tap);
        assert_eq!(recorded(&store.octets()), [(Direction::Outbound, 0, 1)]);
    }

    /// A frame that one tap receives is captured before the answer that another one sends.
    #[test]
    fn taps_that_share_a_writer_keep_the_order_of_bursts() {
        let store = Store::new(usize::MAX);
        let config = TapConfig { is_shared: true, ..TapConfig::default() };
        let [(mut one, mut peer), (mut other, _)] = [0; 2].map(|_| tapped(&store, &config));
        let mut frames = Vec::new();
        for fill in [1, 3] {
            send(&mut peer, Instant::ZERO, fill, 60);
            assert_eq!(one.receive(Instant::from_nanos(1000), &mut frames, 9), 1);
            send(&mut other, Instant::from_nanos(2000), fill + 1, 60);
        }
        let capture = store.octets();
        let packets = reader::blocks(&capture);
        let packets = packets.iter().filter(|block| block.kind == 6).map(reader::packet);
        let passed: Vec<_> = packets.map(|packet| (packet.direction, packet.octets[0])).collect();
        let (inbound, outbound) = (Direction::Inbound, Direction::Outbound);
        assert_eq!(passed, [(inbound, 1), (outbound, 2), (inbound, 3), (outbound, 4)]);
    }

    #[test]
    fn a_snap_length_cuts_the_record_and_not_the_frame() {
        let store = Store::new(usize::MAX);
        let config = TapConfig { snap_bytes: Some(54), ..TapConfig::default() };
        let (mut tap, mut peer) = tapped(&store, &config);
        send(&mut tap, Instant::ZERO, 7, 1000);
        tap.flush().unwrap();
        let capture = store.octets();
        let blocks = reader::blocks(&capture);
        assert_eq!(reader::u32_at(blocks[1].body, 4), 54);
        let packet = reader::packet(&blocks[2]);
        assert_eq!((packet.octets, packet.original_octets), (&[7; 54][..], 1000));
        let mut frames = Vec::new();
        peer.receive(Instant::from_nanos(1000), &mut frames, 1);
        assert_eq!(frames[0].len(), 1000);
    }

    #[test]
    fn a_limit_ends_the_capture_and_not_the_traffic() {
        let store = Store::new(usize::MAX);
        let config = TapConfig { limit_bytes: Some(500), ..TapConfig::default() };
        let (mut tap, mut peer) = tapped(&store, &config);
        for fill in 0..10 {
            send(&mut tap, Instant::ZERO, fill, 60);
        }
        // No octets remain to be written: the end of the capture has flushed it.
        let capture = store.octets();
        let statistics = tap.statistics();
        assert!(capture.len() <= 500 && capture.len() > 400);
        assert_eq!(recorded(&capture).len() as u64, statistics.recorded_frames);
        assert_eq!(statistics.recorded_frames + statistics.skipped_frames, 10);
        assert_eq!(statistics.write_errors, 0);
        let mut frames = Vec::new();
        assert_eq!(peer.receive(Instant::from_nanos(1000), &mut frames, 32), 10);
    }

    #[test]
    fn a_failing_writer_ends_the_capture_and_not_the_traffic() {
        let store = Store::new(1000);
        let (mut tap, mut peer) = tapped(&store, &TapConfig::default());
        for fill in 0..100 {
            send(&mut tap, Instant::ZERO, fill, 60);
        }
        assert!(tap.flush().is_err());
        send(&mut tap, Instant::ZERO, 1, 60);
        assert!(tap.flush().is_ok(), "an error is reported once");
        assert_eq!((tap.statistics().write_errors, tap.statistics().skipped_frames), (1, 1));
        let mut frames = Vec::new();
        assert_eq!(peer.receive(Instant::from_nanos(1000), &mut frames, 200), 101);

        // Met in passing, without a flush.
        let (mut tap, _peer) = tapped(&store, &TapConfig::default());
        for _ in 0..300 {
            send(&mut tap, Instant::ZERO, 1, 1514);
        }
        let statistics = tap.statistics();
        assert_eq!(statistics.write_errors, 1);
        assert!(statistics.skipped_frames > 0);
        assert_eq!(statistics.recorded_frames + statistics.skipped_frames, 300);
    }
}
