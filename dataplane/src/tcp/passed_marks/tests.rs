//! Connections that have sent more than half of the space of sequence numbers.

use super::*;
use crate::device::Device;
use crate::device::sim::{self, EndConfig, SimDevice, SimFrame};
use crate::rate_limit::RateLimit;
use crate::tcp::congestion::CongestionControl;
use crate::tcp::receive_queue::HeldPool;
use crate::tcp::recovery::Recovery;
use crate::tcp::scan_budget::ScanBudget;
use crate::tcp::send_queue::SegmentPool;
use crate::tcp::{Behaviour, Config, EcnField, EcnPolicy, Payload, Pools, Unusual};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options};

const ISS: SeqNumber = SeqNumber(77);
const PEER_ISS: SeqNumber = SeqNumber(7000);
const MSS: u16 = 60_000;
const ROUND_TRIP_NS: u64 = 1_000_000;

struct Sender {
    tcp: Connection,
    pools: Pools<u32, SimFrame>,
    device: SimDevice,
    now: Instant,
}

impl Sender {
    /// Connects to a peer with a large window.
    fn new(sack: bool, ecn: bool) -> Self {
        let ecn_policy = if ecn { EcnPolicy::Request } else { EcnPolicy::Off };
        let behaviour = Behaviour { ecn: ecn_policy, ..Behaviour::default() };
        let config = Config { mss_octets: MSS, window_octets: 1 << 20, timestamp_offset: 0, behaviour };
        let pools = Pools {
            segments: SegmentPool::new(100),
            held: HeldPool::new(8, 2048, 8),
            challenges: RateLimit::new(100, [1, 2]),
            scan_budget: ScanBudget::new(),
        };
        let (device, _) = sim::link(1, EndConfig::a(), EndConfig::b());
        let now = Instant::from_nanos(1_000_000_000);
        let mut sender = Self { tcp: Connection::connect(config, ISS), pools, device, now };
        assert_eq!(sender.send(), 1, "a SYN");
        let echo = if ecn { Flags::ECE } else { Flags::empty() };
        let options =
            Options { mss: Some(MSS), window_scale: Some(14), sack_permitted: sack, ..Options::default() };
        let syn_ack = Flags::SYN | Flags::ACK | echo;
        sender.receive(Header { seq: PEER_ISS, ack: ISS + 1, flags: syn_ack, options, ..Header::default() });
        // The window of a SYN is not scaled.
        sender.acknowledge(ISS + 1, None, Flags::empty());
        sender
    }

    fn receive(&mut self, header: Header) {
        self.now += ROUND_TRIP_NS;
        self.pools.scan_budget.begin_poll();
        let frame = self.device.allocate().expect("a frame");
        let payload = Payload { frame, offset: 0, octets: 0, ecn: EcnField::NotCapable };
        self.tcp.on_segment(self.now, &Header { window: 20_000, ..header }, payload, &mut self.pools);
        self.tcp.unusual = Unusual::of(&self.tcp);
    }

    /// Receives an acknowledgement of everything before `ack`, and of the octets in `sack`.
    fn acknowledge(&mut self, ack: SeqNumber, sack: Option<(SeqNumber, SeqNumber)>, flags: Flags) {
        let options = Options { sack: sack.into_iter().collect(), ..Options::default() };
        self.receive(Header {
            seq: PEER_ISS + 1,
            ack,
            flags: Flags::ACK | flags,
            options,
            ..Header::default()
        });
    }

    /// Sends all that may be sent; returns how many segments.
    fn send(&mut self) -> usize {
        let sent = core::iter::from_fn(|| self.tcp.poll_transmit(self.now, &mut self.pools)).count();
        self.tcp.unusual = Unusual::of(&self.tcp);
        sent
    }

    /// Queues so many full segments, and sends them. Returns where they begin, and the octets of each.
    fn send_segments(&mut self, count: u32) -> (SeqNumber, u32) {
        let (begin, octets) = (self.tcp.send.queue.nxt(), self.tcp.path.emss_octets());
        for number in 0..count {
            self.tcp.queue(&mut self.pools, number, 0, octets);
        }
        assert_eq!(self.send(), count as usize);
        (begin, octets)
    }

    /// Sends `octets` octets, 16 segments a round trip, all of which arrive.
    fn transfer(&mut self, octets: u64) {
        let mut sent = 0;
        while sent < octets {
            // What the initial window takes, and more.
            let count = (self.tcp.congestion.window_octets() / self.tcp.path.emss_octets()).min(16);
            let (begin, each) = self.send_segments(count);
            sent += u64::from(count * each);
            self.acknowledge(begin + count * each, None, Flags::empty());
        }
    }
}

/// More than half of the space, and less than all of it.
const FAR: u64 = 9 << 28;

/// A lost segment has fast recovery reduce the window, however much was sent before it: found by selective
/// acknowledgements (RFC 6675 §5) or by duplicates (RFC 6582 §3.2).
#[test]
fn a_loss_reduces_the_window_after_gibibytes() {
    for sack in [true, false] {
        let mut sender = Sender::new(sack, false);
        sender.transfer(FAR);
        assert_eq!(sender.tcp.congestion.threshold_octets(), u32::MAX, "nothing was lost");
        let (begin, octets) = sender.send_segments(10);
        for arrived in 2..=4 {
            let block = (begin + octets, begin + arrived * octets);
            sender.acknowledge(begin, sack.then_some(block), Flags::empty());
        }
        assert_eq!(sender.tcp.counters().fast_retransmits, 1, "SACK {sack}");
        let threshold = sender.tcp.congestion.threshold_octets();
        assert!(threshold <= 9 * octets, "{threshold} octets after ten segments of {octets}, SACK {sack}");
    }
}

/// So does a mark (RFC 3168 §6.1.2).
#[test]
fn a_mark_reduces_the_window_after_gibibytes() {
    let mut sender = Sender::new(true, true);
    sender.transfer(FAR);
    let (begin, octets) = sender.send_segments(10);
    sender.acknowledge(begin + 10 * octets, None, Flags::ECE);
    assert_eq!(sender.tcp.counters().ecn_reductions, 1);
}

/// A window that does not limit sending does not grow (RFC 7661 §4.1), and D-SACKs of any time widen the
/// reordering window (RFC 8985 §6.2 step 4): no mark that was passed comes to lie ahead.
#[test]
fn what_was_passed_stays_passed() {
    let mut sender = Sender::new(true, false);
    sender.transfer(1 << 29);
    let window = sender.tcp.congestion.window_octets();
    for _ in 0..20 {
        sender.transfer(FAR / 20);
        assert_eq!(sender.tcp.congestion.window_octets(), window, "16 segments do not fill it");
        let una = sender.tcp.send.una;
        let Recovery { until, ecn_until, rack, .. } = &mut sender.tcp.recovery;
        for mark in [*until, *ecn_until, *rack.widened_round_mut(), sender.tcp.send.cwnd_limited_until] {
            assert!(mark < una && una - mark <= 1 << QUARTER_BITS, "{mark:?} was passed before {una:?}");
        }
    }
}

/// A retransmission that was acknowledged long ago needs no duplicate for a later recovery to be undone (RFC
/// 3708 §2).
#[test]
fn retransmissions_of_long_ago_are_forgotten() {
    let mut sender = Sender::new(true, false);
    sender.transfer(1 << 20);
    let una = sender.tcp.send.una;
    let recovery = &mut sender.tcp.recovery;
    recovery.on_reduction(una - 10, una);
    recovery.on_resent(0, (una - 10, una), una - 10);
    recovery.forget_undo();
    sender.transfer(FAR);
    let una = sender.tcp.send.una;
    let recovery = &mut sender.tcp.recovery;
    recovery.on_reduction(una, una + 1000u32);
    recovery.on_resent(0, (una, una + 1000u32), una);
    assert!(recovery.on_duplicate_delivery((una, una + 1000u32)));
}
