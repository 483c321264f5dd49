//! What hosts of one device hand each other: frames of other cores' flows, and notes about the link.

use super::Host;
use super::flow::FlowKey;
use super::inbound::{IcmpError, Inbound};
use super::neighbour_cache::NeighbourCache;
use super::notes::{HostNote, ReplicaNote};
use super::place::HOST_CORE;
use crate::device::Device;
use crate::drops::DropCause;
use crate::limits;
use crate::steering::WithoutLocalPort;
use crate::time::Instant;
use crate::wire::flow::Flow;

/// What notes have changed for connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The hardware address of a neighbour that packets wait for is known now.
    pub neighbour: bool,
    /// An address of the host has come into use.
    pub address: bool,
}

impl<D: Device> Host<D> {
    /// Returns how many cores the device has.
    pub(crate) fn cores(&self) -> u8 {
        self.place.as_ref().map_or(1, |place| place.cores())
    }

    /// Returns true if the host is a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_replica())
    }

    /// Returns the owner of the flow of received segments, if that is another core.
    pub(crate) fn other_owner(&self, flow: &Flow) -> Option<u8> {
        self.place.as_ref()?.other_owner(flow)
    }

    /// Returns true if segments to `port` all go to one core.
    pub(crate) fn is_restricted(&self, port: u16) -> bool {
        self.place.as_ref().is_some_and(|place| place.steering().restricted_to(port).is_some())
    }

    /// Returns what of the connection of `key` is the same for all local ports, for
    /// [`owns_port`](Self::owns_port); `None` if there is one core only.
    pub(crate) fn without_local_port(&self, key: &FlowKey) -> Option<WithoutLocalPort> {
        Some(self.place.as_ref()?.steering().without_local_port(&key.received()?))
    }

    /// Returns true if this core owns the connection with that local port.
    #[inline]
    pub(crate) fn owns_port(&self, rest: Option<WithoutLocalPort>, port: u16) -> bool {
        let (Some(place), Some(rest)) = (&self.place, rest) else { return true };
        place.steering().owner_by_port(rest, port) == place.core()
    }

    /// Hands a frame to another core.
    pub(super) fn hand_over(&mut self, core: u8, frame: D::Frame) -> Result<Inbound<D::Frame>, DropCause> {
        self.device.hand_over(core, frame).map_err(|_| DropCause::NotHandedOver)?;
        Ok(Inbound::Done)
    }

    /// Hands a frame to the host core, which handles what replicas do not.
    pub(super) fn hand_to_host_core(&mut self, frame: D::Frame) -> Result<Inbound<D::Frame>, DropCause> {
        self.hand_over(HOST_CORE, frame)
    }

    /// Returns an ICMP error, or hands its frame to the core that owns the flow of the segment it quotes.
    pub(super) fn error_for_owner(
        &mut self,
        error: IcmpError,
        frame: D::Frame,
    ) -> Result<Inbound<D::Frame>, DropCause> {
        // The segment went out: those of its flow that are received go the other way.
        let flow = Flow::new(error.segment.destination, error.segment.source);
        match flow.and_then(|flow| self.other_owner(&flow)) {
            Some(owner) => self.hand_over(owner, frame),
            None => Ok(Inbound::IcmpError(error)),
        }
    }

    /// Returns how many more frames a connection may send to another core by this path to the device itself.
    #[inline(never)]
    pub(super) fn looped_room(&self, packet: &[u8], is_ipv4: bool) -> usize {
        let flow = if is_ipv4 { Flow::at_ipv4(packet) } else { Flow::at_ipv6(packet) };
        match (flow.and_then(|flow| self.other_owner(&flow)), &self.place) {
            (Some(owner), Some(place)) => place.room(owner),
            _ => self.loopback.room(),
        }
    }

    /// Sends a frame with a segment to the device itself: to this core or the one that owns its flow.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room.
    pub(super) fn push_looped(&mut self, frame: D::Frame) -> Result<(), D::Frame> {
        if self.place.is_some()
            && let Some(owner) = self.flow_of(&frame).and_then(|flow| self.other_owner(&flow))
            && let Some(place) = &mut self.place
        {
            return place.send_frame(owner, frame);
        }
        self.loopback.push(frame)
    }

    /// Returns true if another core may have sent frames or notes.
    #[inline]
    pub(crate) fn may_have_input_of_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.may_have_input())
    }

    /// Serves the notes of other cores. Returns what they change for connections.
    pub(crate) fn take_notes(&mut self, now: Instant) -> News {
        let mut news = News::default();
        let Some(place) = &mut self.place else { return news };
        place.collect_senders();
        match &mut self.neighbours {
            NeighbourCache::Own(neighbours) => place.take_replica_notes(|core, note| match note {
                ReplicaNote::Wanted(address) => neighbours.want(address, core, now),
                ReplicaNote::Confirmed { address, mac } => {
                    neighbours.confirm_for(address, core, mac, now);
                }
            }),
            NeighbourCache::Replica(neighbours) => place.take_host_notes(|note| match note {
                HostNote::Neighbour { address, mac } => {
                    news.neighbour |= neighbours.learn(address, mac, now);
                }
                HostNote::Addresses(states) => {
                    news.address |= !self.own.follow(states).is_empty();
                    self.own_generation = self.own_generation.wrapping_add(1);
                }
            }),
        }
        news
    }

    /// Dequeues frames to the device's addresses that other cores have sent, a burst at most, as
    /// [`dequeue_burst`](Self::dequeue_burst) does those of the device.
    pub(crate) fn dequeue_burst_of_cores(&mut self) -> Vec<D::Frame> {
        let mut burst = self.take_burst();
        debug_assert!(burst.capacity() >= limits::RECEIVE_BURST_FRAMES, "it is allocated beforehand");
        if let Some(place) = &mut self.place {
            place.take_frames(&mut burst);
        }
        self.counters.frames_looped += burst.len() as u64;
        burst
    }

    /// Sends the replicas the states of the own addresses, which have changed, at the end of the poll.
    pub(super) fn update_replicas(&mut self) {
        self.own_generation = self.own_generation.wrapping_add(1);
        self.has_new_states = true;
        // A bit for each replica.
        self.states_unsent_to = u64::MAX.unbounded_shr(u64::BITS - u32::from(self.cores())) & !1;
    }

    /// Sends other cores the notes for them, and wakes those that were sent something in this poll.
    #[inline]
    pub(crate) fn end_poll(&mut self, now: Instant) {
        let Some(place) = &self.place else { return };
        let has_notes = self.has_new_states || self.neighbours.has_notes();
        if has_notes || place.has_to_ring() || place.is_retry_due(now) {
            self.send_notes(now);
        }
    }

    #[inline(never)]
    fn send_notes(&mut self, now: Instant) {
        let Some(place) = &mut self.place else { return };
        match &mut self.neighbours {
            NeighbourCache::Own(neighbours) => {
                // What is new goes at once. What has found a ring full waits: to find it takes a walk.
                let is_new = core::mem::take(&mut self.has_new_states) | neighbours.take_updates();
                if is_new || place.is_retry_due(now) {
                    let states = HostNote::Addresses(self.own.states());
                    let unsent =
                        send_to_each(self.states_unsent_to, |core| place.send_to_replica(core, states));
                    self.states_unsent_to = unsent;
                    let all_sent = neighbours.send_updates(|core, address, mac| {
                        place.send_to_replica(core, HostNote::Neighbour { address, mac })
                    });
                    place.end_notes(now, all_sent && unsent == 0);
                }
            }
            NeighbourCache::Replica(neighbours) => {
                if !place.awaits_retry(now) {
                    let all_sent = loop {
                        let Some(note) = neighbours.first_note() else { break true };
                        if !place.send_to_host_core(note) {
                            break false;
                        }
                        neighbours.pop_note();
                    };
                    place.end_notes(now, all_sent);
                }
            }
        }
        place.ring();
    }
}

/// Calls `send` with each of `cores`, a bit for each. Returns those of which it returned false.
fn send_to_each(cores: u64, mut send: impl FnMut(u8) -> bool) -> u64 {
    let (mut left, mut unsent) = (cores, 0);
    while left != 0 {
        let core = left.trailing_zeros();
        left &= left - 1;
        unsent |= u64::from(!send(core as u8)) << core;
    }
    unsent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::{self, EndConfig, SimDevice};
    use crate::net::addresses::{Cidr, Presence, Routes};
    use crate::net::host::Config;
    use crate::net::neighbours::StaticNeighbour;
    use crate::net::place::Place;
    use crate::secret::Secret;
    use crate::steering::Steering;
    use crate::steering::toeplitz::KEY_BYTES;
    use crate::wire::ethernet::MacAddress;
    use crate::wire::tcp_rdma::DEFAULT_KIND;

    const NOW: Instant = Instant::from_nanos(1000);
    const PEER: [u8; 4] = [198, 18, 0, 2];

    /// Hosts of three cores, all of which know `PEER`.
    fn hosts() -> Vec<Host<SimDevice>> {
        let (end, _) = sim::link(1, EndConfig::a(), EndConfig::b());
        let steering = std::sync::Arc::new(Steering::with_key(3, 128, [0x6d; KEY_BYTES]));
        let config = Config {
            addresses: [Cidr::new([198, 18, 0, 1].into(), 24)].into_iter().collect(),
            routes: Routes::new(),
            neighbours: [StaticNeighbour { address: PEER.into(), mac: MacAddress([4; 6]) }]
                .into_iter()
                .collect(),
            presence: Presence::Own,
            duplicate_address_detection: false,
            vlan: None,
            rdma_option_kind: DEFAULT_KIND,
        };
        let host = |(device, place)| Host::new(device, config.clone(), Secret::new([1, 2]), Some(place));
        let mut hosts: Vec<_> = end.sharing(3).into_iter().zip(Place::all(&steering)).map(host).collect();
        assert!(hosts[0].detect_duplicates(NOW).is_some(), "it has addresses to announce");
        hosts
    }

    /// Takes the notes of the host core that have come to a replica.
    fn notes(replica: &mut Host<SimDevice>) -> Vec<HostNote> {
        let mut notes = Vec::new();
        let place = replica.place.as_mut().expect("it has a place");
        place.collect_senders();
        place.take_host_notes(|note| notes.push(note));
        notes
    }

    /// A replica that does not poll is sent what it lacks once in a while, not in each poll of the host core,
    /// and delays no news for another.
    #[test]
    fn a_stalled_replica_is_retried_once_in_a_while() {
        let mut hosts = hosts();
        for _ in 0..=limits::NOTES_BETWEEN_CORES {
            hosts[0].update_replicas();
            hosts[0].end_poll(NOW);
            assert_eq!(notes(&mut hosts[2]).len(), 1);
        }
        let retry_at = NOW + limits::NOTE_RETRY_NS;
        assert_eq!(hosts[0].next_deadline(), retry_at);
        // Now there is room again. The host core does not look for it yet.
        assert_eq!(notes(&mut hosts[1]).len(), limits::NOTES_BETWEEN_CORES);
        for now in [NOW, NOW + 1, NOW + (limits::NOTE_RETRY_NS - 1)] {
            hosts[0].end_poll(now);
            assert_eq!(notes(&mut hosts[1]), []);
        }
        hosts[0].end_poll(retry_at);
        assert_eq!(notes(&mut hosts[1]).len(), 1);
        assert!(hosts[0].next_deadline() > retry_at, "all is sent");
        hosts[0].end_poll(retry_at + limits::NOTE_RETRY_NS);
        assert_eq!(notes(&mut hosts[1]), []);
    }

    #[test]
    fn a_stalled_replica_delays_no_news() {
        let mut hosts = hosts();
        for _ in 0..=limits::NOTES_BETWEEN_CORES {
            hosts[0].update_replicas();
            hosts[0].end_poll(NOW);
            notes(&mut hosts[2]);
        }
        let NeighbourCache::Own(neighbours) = &mut hosts[0].neighbours else { panic!("the host core's") };
        neighbours.want(PEER.into(), 2, NOW);
        hosts[0].end_poll(NOW + 1);
        let expected = HostNote::Neighbour { address: PEER.into(), mac: Some(MacAddress([4; 6])) };
        assert_eq!(notes(&mut hosts[2]), [expected]);
        assert!(!notes(&mut hosts[1]).contains(&expected), "it has not asked");
    }

    /// The same the other way: a replica whose ring is full looks for room once in a while.
    #[test]
    fn a_stalled_host_core_is_retried_once_in_a_while() {
        let mut hosts = hosts();
        let unknown = |n: usize| [198, 18, 0, 3 + n as u8].into();
        for n in 0..=limits::NOTES_BETWEEN_CORES {
            let NeighbourCache::Replica(neighbours) = &mut hosts[1].neighbours else { panic!("a replica's") };
            neighbours.resolve(unknown(n), NOW);
            hosts[1].end_poll(NOW);
        }
        let taken = |host: &mut Host<SimDevice>| {
            let mut count = 0;
            let place = host.place.as_mut().expect("it has a place");
            place.collect_senders();
            place.take_replica_notes(|_, _| count += 1);
            count
        };
        assert_eq!(taken(&mut hosts[0]), limits::NOTES_BETWEEN_CORES);
        hosts[1].end_poll(NOW + 1);
        assert_eq!(taken(&mut hosts[0]), 0);
        hosts[1].end_poll(NOW + limits::NOTE_RETRY_NS);
        assert_eq!(taken(&mut hosts[0]), 1);
    }
}
