//! The IP host of a core: a device, the host's addresses on its link, and the frames in between.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::addresses::{Addresses, Presence, Routes};
use super::counters::Counters;
use super::flow::FlowKey;
use super::loopback::Loopback;
use super::neighbour_cache::NeighbourCache;
use super::neighbours::StaticNeighbour;
use super::notice::Notices;
use super::own_addresses::OwnAddresses;
use super::path_mtu::PathMtus;
use super::place::Place;
use super::port_set::PortSet;
use super::reassembly::Reassembly;
use super::template::Paths;
use crate::device::{Capabilities, Device, Frame, RxInterrupt};
use crate::keyed_hash::KeyedHash;
use crate::limits;
use crate::rate_limit::RateLimit;
use crate::secret::{Purpose, Secret};
use crate::time::Instant;
use crate::waker::Waker;
use crate::wire::ethernet::MacAddress;
use crate::wire::following::HeaderImage;
use crate::wire::tcp_rdma;

/// Frames that are consumed before they are freed: as many as a burst from the device has, and one from the
/// host to itself. Others were kept from bursts before.
const SPENT_FRAMES: usize = 2 * limits::RECEIVE_BURST_FRAMES;

/// How an IP host is set up.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Its addresses, IPv4 and IPv6, each with the prefix of its network.
    pub addresses: Addresses,
    /// Its routes to other networks.
    pub routes: Routes,
    /// Neighbours whose hardware address is configured.
    pub neighbours: ArrayVec<StaticNeighbour, { limits::STATIC_NEIGHBOURS_PER_CORE }>,
    /// Whose the addresses are.
    pub presence: Presence,
    /// Whether the host probes for other stations that have its IPv6 addresses before it uses them (RFC 4862
    /// §5.4): for one to two seconds after the start. Without it, the host uses the addresses at once.
    pub duplicate_address_detection: bool,
    /// The VLAN that all frames belong to, 1 to 4094, by an IEEE 802.1Q tag; `None` for frames without one.
    pub vlan: Option<u16>,
    /// The kind of the TCP RDMA option (draft-csapuntz-tcprdma-00), which [no other option
    /// has](tcp_rdma::is_free_kind).
    pub rdma_option_kind: u8,
}

/// An IP host on a device.
pub(crate) struct Host<D: Device> {
    pub(super) mac: MacAddress,
    pub(super) capabilities: Capabilities,
    pub(super) vlan: Option<u16>,
    pub(crate) rdma_option_kind: u8,

    pub(super) own: OwnAddresses,
    pub(crate) presence: Presence,
    /// Whether the addresses are those of other programs of this machine too, which the device reaches.
    pub(super) reaches_programs: bool,
    /// Where the addresses are shared, the ports of active opens and those that commands have named: this
    /// core answers for them, and no other program has them.
    pub(crate) own_ports: PortSet,
    /// Changes with the own addresses.
    pub(super) own_generation: u32,
    /// The replicas that the state of the own addresses is still to be sent to, a bit for each.
    pub(super) states_unsent_to: u64,
    /// The states of the own addresses have changed since they were last sent to the replicas.
    pub(super) has_new_states: bool,
    pub(super) paths: Paths,
    pub(super) duplicate_address_detection: bool,
    pub(super) routes: Routes,
    pub(super) neighbours: NeighbourCache,
    pub(super) path_mtus: PathMtus,
    pub(super) reassembly: Reassembly,
    /// Hashes flows to IPv6 flow labels.
    pub(super) flow_labels: KeyedHash,
    /// Bounds the replies to echo requests.
    pub(super) echo_replies: RateLimit,
    pub(super) counters: Counters,
    pub(super) notices: Notices,

    /// An empty burst, which keeps its allocation.
    burst: Vec<D::Frame>,
    /// Frames of the burst that are consumed.
    spent: Vec<D::Frame>,
    /// The headers that those of the next segments are compared with.
    pub(super) header_image: HeaderImage,
    pub(super) loopback: Loopback<D::Frame>,
    /// The place of its core among those of the device, if there are several.
    pub(super) place: Option<Box<Place<D::Frame>>>,
    /// Segments in super-frames, the first of each not counted.
    pub(super) joined_segments: u64,
    /// Frames that the device has not accepted yet.
    pub(super) to_send: Vec<D::Frame>,
    /// Empty frames that were allocated and not needed yet.
    pub(super) spare: Vec<D::Frame>,

    /// Dropped last: the frames above go back to it.
    pub(super) device: D,
}

impl<D: Device> Host<D> {
    /// Returns a host on `device`, whose random numbers come from `secret`, for the core at `place` or the
    /// only one. Allocates everything it needs.
    pub(crate) fn new(device: D, config: Config, secret: Secret, place: Option<Place<D::Frame>>) -> Self {
        let capabilities = device.capabilities();
        let place = place.map(|mut place| {
            place.limit_frames(capabilities.frames);
            Box::new(place)
        });
        let is_replica = place.as_ref().is_some_and(|place| place.is_replica());
        let Config {
            addresses,
            routes,
            neighbours,
            presence,
            duplicate_address_detection,
            vlan,
            rdma_option_kind,
        } = config;
        assert!(
            tcp_rdma::is_free_kind(rdma_option_kind),
            "option kind {rdma_option_kind} has another meaning"
        );
        let mut own = OwnAddresses::new(addresses, secret.random(Purpose::DuplicateDetection));
        if is_replica {
            own.start_as_replica(duplicate_address_detection);
        }
        Self {
            mac: device.mac(),
            capabilities,
            vlan,
            rdma_option_kind,
            own_generation: 0,
            states_unsent_to: 0,
            has_new_states: false,
            paths: Paths::new(),
            own,
            presence,
            reaches_programs: presence == Presence::Shared && device.reaches_programs(),
            own_ports: PortSet::default(),
            duplicate_address_detection,
            routes,
            neighbours: NeighbourCache::new(&neighbours, &mut secret.random(Purpose::Neighbours), is_replica),
            path_mtus: PathMtus::new(),
            reassembly: Reassembly::new(capabilities.mtu_bytes.max(limits::REASSEMBLY_MIN_BYTES)),
            flow_labels: KeyedHash::new(secret.derive(Purpose::FlowLabels)),
            echo_replies: RateLimit::new(
                limits::ECHO_REPLIES_PER_SECOND,
                secret.derive(Purpose::EchoReplies),
            ),
            counters: Counters::default(),
            notices: Notices::default(),
            burst: Vec::with_capacity(limits::RECEIVE_BURST_FRAMES),
            spent: Vec::with_capacity(SPENT_FRAMES),
            header_image: HeaderImage::NONE,
            loopback: Loopback::new(capabilities.frames),
            place,
            joined_segments: 0,
            to_send: Vec::with_capacity(limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES),
            spare: Vec::with_capacity(limits::EMPTY_FRAMES + 1),
            device,
        }
    }

    /// Returns the host, to which these ports belong where it shares its addresses.
    pub(crate) fn with_ports(mut self, ports: RangeInclusive<u16>) -> Self {
        if self.presence == Presence::Shared {
            ports.for_each(|port| self.own_ports.insert(port));
        }
        self
    }

    /// Receives a burst of frames from the device, for [`dequeue_burst`](Self::dequeue_burst), unless there
    /// is one. Returns true if there is.
    #[inline]
    pub(crate) fn look_for_frames(&mut self, now: Instant) -> bool {
        if self.burst.is_empty() && self.device.may_have_frames() {
            let count = self.device.receive(now, &mut self.burst, limits::RECEIVE_BURST_FRAMES);
            self.counters.frames_received += count as u64;
        }
        !self.burst.is_empty()
    }

    /// Dequeues a burst of frames from the device; returns `None` if there are none.
    /// [`receive`](Self::receive) handles each of them, [`end_burst`](Self::end_burst) the empty vector.
    #[inline]
    pub(crate) fn dequeue_burst(&mut self, now: Instant) -> Option<Vec<D::Frame>> {
        self.look_for_frames(now).then(|| core::mem::take(&mut self.burst))
    }

    /// Takes the vector of a burst, which is empty.
    pub(super) fn take_burst(&mut self) -> Vec<D::Frame> {
        core::mem::take(&mut self.burst)
    }

    /// Keeps the vector of [`dequeue_burst`](Self::dequeue_burst) for the next burst.
    pub(crate) fn end_burst(&mut self, burst: Vec<D::Frame>) {
        debug_assert!(burst.is_empty(), "frames of the burst are left");
        self.burst = burst;
    }

    /// Frees the frames of the burst that are consumed.
    #[inline]
    pub(crate) fn free_spent(&mut self) {
        D::Frame::free_all(&mut self.spent);
    }

    /// Takes a frame that is consumed: it is freed with others, by [`free_spent`](Self::free_spent) at the
    /// latest, before the next burst is dequeued.
    #[inline]
    pub(crate) fn recycle(&mut self, frame: D::Frame) {
        if self.spent.len() == self.spent.capacity() {
            self.free_spent_early();
        }
        self.spent.push(frame);
    }

    #[cold]
    #[inline(never)]
    fn free_spent_early(&mut self) {
        self.free_spent();
    }

    /// Dequeues the frames from the host to itself that wait, a burst at most, as
    /// [`dequeue_burst`](Self::dequeue_burst) does those of the device.
    pub(crate) fn dequeue_looped_burst(&mut self) -> Vec<D::Frame> {
        let count = self.loopback.len().min(limits::RECEIVE_BURST_FRAMES);
        let mut burst = self.take_burst();
        burst.extend((0..count).map_while(|_| self.loopback.pop()));
        self.counters.frames_looped += burst.len() as u64;
        burst
    }

    /// Returns the time at which the host has work even if nothing arrives and nothing is sent: at once if
    /// frames to itself wait.
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.loopback.len() > 0 {
            return Instant::ZERO;
        }
        let of_cores = self.place.as_ref().map_or(Instant::NEVER, |place| place.next_due());
        let deadline = self.own.next_due().min(self.neighbours.next_due()).min(of_cores);
        self.device.next_arrival().map_or(deadline, |arrival| arrival.min(deadline))
    }

    /// Returns the counters.
    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many frames the device has dropped, see [`Device::frames_not_handed_over`].
    pub(crate) fn frames_not_handed_over(&self) -> u64 {
        self.device.frames_not_handed_over()
    }

    /// Returns how many frames the device had no room for, see [`Device::missed_frames`].
    pub(crate) fn missed_frames(&self) -> u64 {
        self.device.missed_frames()
    }

    /// Returns how many frames the device could not send, see [`Device::unsent_frames`].
    pub(crate) fn unsent_frames(&self) -> u64 {
        self.device.unsent_frames()
    }

    /// Returns how many frames the device has dropped, see [`Device::stalled_frames`].
    pub(crate) fn stalled_frames(&self) -> u64 {
        self.device.stalled_frames()
    }

    /// Has `waker` called when frames arrive; see [`Device::wake_on_arrival`].
    pub(crate) fn wake_on_arrival(&mut self, waker: &Arc<Waker>) -> bool {
        self.device.wake_on_arrival(waker)
    }

    /// Returns the device's receive interrupt, see [`Device::rx_interrupt`].
    pub(crate) fn rx_interrupt(&self) -> Option<RxInterrupt<'_>> {
        self.device.rx_interrupt()
    }

    /// Enables the device's receive interrupt, see [`Device::enable_rx_interrupt`].
    pub(crate) fn enable_rx_interrupt(&mut self) -> bool {
        self.device.enable_rx_interrupt()
    }

    /// Disables the device's receive interrupt, see [`Device::disable_rx_interrupt`].
    pub(crate) fn disable_rx_interrupt(&mut self) {
        self.device.disable_rx_interrupt();
    }

    /// Returns the flow label of a flow's IPv6 packets; 0 over IPv4.
    pub(crate) fn flow_label(&self, key: &FlowKey) -> u32 {
        key.flow_label(self.flow_labels)
    }

    /// Remembers that packets of more than `mtu_octets` do not reach `remote`.
    pub(crate) fn learn_path_mtu(&mut self, now: Instant, remote: IpAddr, mtu_octets: u16) {
        self.path_mtus.learn(now, remote, mtu_octets);
    }

    /// Returns the largest packet that reaches `remote`, in octets, if the path is known to be narrower than
    /// the link.
    pub(crate) fn path_mtu(&self, now: Instant, remote: IpAddr) -> Option<u16> {
        self.path_mtus.get(now, remote)
    }
}

#[cfg(test)]
mod tests;
