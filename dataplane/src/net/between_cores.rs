//! The notes about their link that hosts of one device write to each other: taken, and sent.

use super::neighbour_cache::NeighbourCache;
use super::neighbourhood::Neighbourhood;
use super::notes::{AddressNews, HostNote, ReplicaNote};
use super::place::Place;
use crate::time::Instant;

/// What notes have changed for connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The hardware address of a neighbour that packets wait for is known now.
    pub neighbour: bool,
    /// An address of the host has come into use.
    pub address: bool,
}

impl Neighbourhood {
    /// Serves the notes of other cores. Returns what they change for connections.
    pub(super) fn receive_notes<F>(&mut self, now: Instant, place: &mut Place<F>) -> News {
        let mut news = News::default();
        place.collect_senders();
        match &mut self.neighbours {
            NeighbourCache::Own(neighbours) => place.dequeue_replica_notes(|core, note| match note {
                ReplicaNote::Wanted(address) => neighbours.want(address, core, now),
                ReplicaNote::Confirmed { address, mac } => {
                    neighbours.confirm_for(address, core, mac, now);
                }
            }),
            NeighbourCache::Replica(neighbours) => place.dequeue_host_notes(|note| match note {
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

    /// Sends the replicas the states of the own addresses, which have changed, at the end of the poll.
    pub(super) fn update_replicas(&mut self, cores: u8) {
        self.own_generation = self.own_generation.wrapping_add(1);
        self.address_news = AddressNews {
            // A bit for each replica.
            unsent_to: u64::MAX.unbounded_shr(u64::BITS - u32::from(cores)) & !1,
            is_new: true,
        };
    }

    /// Sends other cores the notes for them, and wakes those that were sent something in this poll.
    #[inline]
    pub(super) fn end_poll<F>(&mut self, now: Instant, place: &mut Place<F>) {
        let has_notes = self.address_news.is_new || self.neighbours.has_notes();
        if has_notes || place.has_to_ring() || place.is_retry_due(now) {
            self.send_notes(now, place);
        }
    }

    #[inline(never)]
    fn send_notes<F>(&mut self, now: Instant, place: &mut Place<F>) {
        match &mut self.neighbours {
            NeighbourCache::Own(neighbours) => {
                // What is new goes at once. What has found a ring full waits: to find it takes a walk.
                let is_new = core::mem::take(&mut self.address_news.is_new) | neighbours.take_updates();
                if is_new || place.is_retry_due(now) {
                    let states = HostNote::Addresses(self.own.states());
                    let unsent_to = &mut self.address_news.unsent_to;
                    *unsent_to = send_to_each(*unsent_to, |core| place.send_to_replica(core, states));
                    let all_sent = neighbours.send_updates(|core, address, mac| {
                        place.send_to_replica(core, HostNote::Neighbour { address, mac })
                    });
                    place.end_notes(now, all_sent && *unsent_to == 0);
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
    use crate::limits;
    use crate::net::Host;
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
        let place = replica.interface.place.as_mut().expect("it has a place");
        place.collect_senders();
        place.dequeue_host_notes(|note| notes.push(note));
        notes
    }

    /// A replica that does not poll is sent what it lacks once in a while, not in each poll of the host core,
    /// and delays no news for another.
    #[test]
    fn a_stalled_replica_is_retried_once_in_a_while() {
        let mut hosts = hosts();
        for _ in 0..=limits::NOTES_BETWEEN_CORES {
            hosts[0].neighbourhood.update_replicas(3);
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
            hosts[0].neighbourhood.update_replicas(3);
            hosts[0].end_poll(NOW);
            notes(&mut hosts[2]);
        }
        let NeighbourCache::Own(neighbours) = &mut hosts[0].neighbourhood.neighbours else {
            panic!("the host core's")
        };
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
            let NeighbourCache::Replica(neighbours) = &mut hosts[1].neighbourhood.neighbours else {
                panic!("a replica's")
            };
            neighbours.resolve(unknown(n), NOW);
            hosts[1].end_poll(NOW);
        }
        let taken = |host: &mut Host<SimDevice>| {
            let mut count = 0;
            let place = host.interface.place.as_mut().expect("it has a place");
            place.collect_senders();
            place.dequeue_replica_notes(|_, _| count += 1);
            count
        };
        assert_eq!(taken(&mut hosts[0]), limits::NOTES_BETWEEN_CORES);
        hosts[1].end_poll(NOW + 1);
        assert_eq!(taken(&mut hosts[0]), 0);
        hosts[1].end_poll(NOW + limits::NOTE_RETRY_NS);
        assert_eq!(taken(&mut hosts[0]), 1);
    }
}
