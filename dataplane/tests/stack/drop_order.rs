//! Tests that a core that is dropped while it holds frames returns them to a device that still exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, PEER_PORT};
use crate::common::{PORT, WINDOW_OCTETS, address};
use warpline_dataplane::core::{Config, CoreFrame, CoreSetup, PollLoop};
use warpline_dataplane::device::boxed::boxed;
use warpline_dataplane::device::sim::{self, End, EndConfig, SimDevice, SimFrame};
use warpline_dataplane::device::{Capabilities, ChecksumRequest, Device, Frame, ReceivedChecksums};
use warpline_dataplane::net::neighbours::StaticNeighbour;
use warpline_dataplane::ring::{AfterStream, Command, Event, Rings};
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Flags, Header, SeqNumber};

/// Records whether a device, and its frames after it, are dropped.
#[derive(Default)]
struct Notice {
    device_gone: AtomicBool,
    frames_after: AtomicUsize,
    frames: AtomicUsize,
}

/// A device that records when it is dropped.
struct Noticing {
    inner: SimDevice,
    notice: Arc<Notice>,
    /// Frames in transit to or from the inner device.
    burst: Vec<SimFrame>,
    leaving: Vec<SimFrame>,
}

impl Drop for Noticing {
    fn drop(&mut self) {
        self.notice.device_gone.store(true, Ordering::Relaxed);
    }
}

/// A frame that looks whether its device is still there when it goes.
struct NoticingFrame {
    inner: Option<SimFrame>,
    notice: Arc<Notice>,
}

impl NoticingFrame {
    fn new(inner: SimFrame, notice: &Arc<Notice>) -> Self {
        notice.frames.fetch_add(1, Ordering::Relaxed);
        Self { inner: Some(inner), notice: notice.clone() }
    }

    fn inner(&self) -> &SimFrame {
        self.inner.as_ref().expect("it is there until it is sent")
    }

    fn inner_mut(&mut self) -> &mut SimFrame {
        self.inner.as_mut().expect("it is there until it is sent")
    }
}

impl Drop for NoticingFrame {
    fn drop(&mut self) {
        self.notice.frames.fetch_sub(1, Ordering::Relaxed);
        if self.notice.device_gone.load(Ordering::Relaxed) {
            self.notice.frames_after.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Frame for NoticingFrame {
    fn piece(&self, index: usize) -> Option<&[u8]> {
        self.inner().piece(index)
    }

    fn first_mut(&mut self) -> &mut [u8] {
        self.inner_mut().first_mut()
    }

    fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        self.inner_mut().append(octets)
    }

    fn checksums(&self) -> ReceivedChecksums {
        self.inner().checksums()
    }

    fn request_checksums(&mut self, request: ChecksumRequest) {
        self.inner_mut().request_checksums(request);
    }
}

/// Its poll loop is compiled here.
impl CoreFrame for NoticingFrame {}

impl Device for Noticing {
    type Frame = NoticingFrame;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn mac(&self) -> MacAddress {
        self.inner.mac()
    }

    fn receive(&mut self, now: Instant, frames: &mut Vec<NoticingFrame>, limit: usize) -> usize {
        let count = self.inner.receive(now, &mut self.burst, limit);
        frames.extend(self.burst.drain(..).map(|frame| NoticingFrame::new(frame, &self.notice)));
        count
    }

    fn allocate(&mut self) -> Option<NoticingFrame> {
        self.inner.allocate().map(|frame| NoticingFrame::new(frame, &self.notice))
    }

    /// Accepts no frame once the link accepts none.
    fn transmit(&mut self, now: Instant, frames: &mut Vec<NoticingFrame>) -> usize {
        let mut sent = 0;
        while let Some(frame) = frames.first_mut().and_then(|frame| frame.inner.take()) {
            self.leaving.push(frame);
            if self.inner.transmit(now, &mut self.leaving) == 0 {
                frames[0].inner = self.leaving.pop();
                break;
            }
            frames.remove(0);
            sent += 1;
        }
        sent
    }
}

fn segment(flags: Flags, seq: SeqNumber, ack: SeqNumber, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        source_port: PEER_PORT,
        destination_port: PORT,
        seq,
        ack,
        flags,
        window: 0xffff,
        ..Header::default()
    };
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment);
    segment.extend_from_slice(payload);
    let mut sum = checksum::ipv4_pseudo_header(address(2), address(1), Protocol::TCP.0, segment.len() as u16);
    sum.add(&segment);
    tcp::set_checksum(&mut segment, sum.finish());
    let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
    ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV4 }.emit(&mut frame);
    ipv4::Header {
        source: address(2),
        destination: address(1),
        protocol: Protocol::TCP,
        ttl: 64,
        total_len: (ipv4::Header::LEN + segment.len()) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 0,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    frame.extend_from_slice(&segment);
    frame
}

/// A core holds frames beyond a gap, frames that the device had no room for, and one it did not need: all are
/// dropped before the device. A DPDK frame that is dropped after its device returns to a freed pool.
#[test]
fn frames_go_before_their_device() {
    let notice = Arc::new(Notice::default());
    let (inner, mut peer) = sim::link(1, EndConfig::a(), EndConfig::b());
    let network = inner.network();
    let device = Noticing { inner, notice: notice.clone(), burst: Vec::new(), leaving: Vec::new() };
    let rings = Rings::new();
    let mut config = Config { window_bytes: WINDOW_OCTETS, ..Config::new(address(1).into(), 24, [1, 2]) };
    config.neighbours.push(StaticNeighbour { address: address(2).into(), mac: PEER_MAC });
    let mut core = NoticingFrame::poll_loop(boxed(device), CoreSetup::new(config, rings.clone()));
    let mut now = Instant::from_nanos(1);
    let mut turn = |core: &mut Box<dyn PollLoop>, octets: Option<Vec<u8>>| {
        if let Some(octets) = octets {
            let mut frame = peer.allocate().unwrap();
            frame.append(octets.len()).unwrap().copy_from_slice(&octets);
            peer.transmit(now, &mut vec![frame]);
        }
        let mut answers = Vec::new();
        for _ in 0..10 {
            now += 1000;
            core.poll_once(now);
            peer.receive(now, &mut answers, 64);
        }
        answers.pop().map(|frame| frame.piece(0).unwrap().to_vec())
    };
    assert!(
        rings.commands.push(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None }).is_ok()
    );
    turn(&mut core, None);
    let answer = turn(&mut core, Some(segment(Flags::SYN, PEER_ISS, SeqNumber(0), &[]))).expect("an answer");
    let (header, _) = Header::parse(&answer[ethernet::Header::LEN + ipv4::Header::LEN..]).unwrap();
    let ack = header.seq + 1;
    turn(&mut core, Some(segment(Flags::ACK, PEER_ISS + 1, ack, &[])));
    let accepted = std::iter::from_fn(|| rings.events.pop()).find_map(|event| match event {
        Event::Accepted { connection, .. } => Some(connection),
        _ => None,
    });
    let connection = accepted.expect("a connection");
    network.set_transmit_credit(End::A, Some(0));
    for n in 0..10 {
        turn(&mut core, Some(segment(Flags::ACK, PEER_ISS + 1 + 2000 * (n + 1), ack, &[7; 1000])));
    }
    let octets = vec![1; 4000].into_boxed_slice();
    let stream = Command::Stream { connection, octets, then: AfterStream::Stay };
    assert!(rings.commands.push(stream).is_ok());
    turn(&mut core, None);
    let usage = core.usage();
    assert!(usage.held_frames >= 10 && usage.frames_to_send > 0, "{usage:?}");
    let spare = notice.frames.load(Ordering::Relaxed) - usage.held_frames - usage.frames_to_send;
    assert_eq!(spare, 1, "an empty frame that was not needed");
    drop(core);
    assert!(notice.device_gone.load(Ordering::Relaxed));
    assert_eq!(notice.frames.load(Ordering::Relaxed), 0);
    assert_eq!(notice.frames_after.load(Ordering::Relaxed), 0, "frames after their device");
}
