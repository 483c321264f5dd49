//! The neighbour cache of a host: its own, or what a replica has of the host core's.

use std::net::IpAddr;

use super::neighbours::{Neighbours, Resolution, Solicitations, StaticNeighbour};
use super::replica_neighbours::ReplicaNeighbours;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;

/// The neighbour cache of a host.
#[derive(Debug)]
pub(super) enum NeighbourCache {
    /// Of the host core, or of the only core of a device.
    Own(Neighbours),
    /// Of a replica.
    Replica(ReplicaNeighbours),
}

impl NeighbourCache {
    /// Returns true if something for other cores is new, or has not gone yet.
    #[inline]
    pub(super) fn has_notes(&self) -> bool {
        match self {
            Self::Own(neighbours) => neighbours.has_updates(),
            Self::Replica(neighbours) => neighbours.has_notes(),
        }
    }

    /// Returns a cache of the configured neighbours.
    pub(super) fn new(configured: &[StaticNeighbour], random: &mut fastrand::Rng, is_replica: bool) -> Self {
        if is_replica {
            Self::Replica(ReplicaNeighbours::new(configured, random))
        } else {
            Self::Own(Neighbours::new(configured, random))
        }
    }

    /// Returns a number that changes when a hardware address that was known does not hold any more.
    #[inline]
    pub(super) const fn generation(&self) -> u32 {
        match self {
            Self::Own(own) => own.generation(),
            Self::Replica(replica) => replica.generation(),
        }
    }

    /// Returns the earliest time at which [`dequeue_due`](Self::dequeue_due) has a solicitation.
    #[inline]
    pub(super) const fn next_due(&self) -> Instant {
        match self {
            Self::Own(own) => own.next_due(),
            Self::Replica(_) => Instant::NEVER,
        }
    }

    /// Returns the solicitations that are due: a replica sends none.
    pub(super) fn dequeue_due(&mut self, now: Instant) -> Solicitations {
        match self {
            Self::Own(own) => own.dequeue_due(now),
            Self::Replica(_) => Solicitations::new(),
        }
    }

    /// Returns the hardware address of `address` for a packet to send now, and solicits it, or asks the host
    /// core for it, if it is not known.
    #[inline]
    pub(super) fn resolve(&mut self, address: IpAddr, now: Instant) -> Resolution {
        match self {
            Self::Own(own) => own.resolve(address, now),
            Self::Replica(replica) => replica.resolve(address, now),
        }
    }

    /// Returns the hardware address of `address` if it is known, and solicits nothing.
    pub(super) fn known(&self, address: IpAddr) -> Option<MacAddress> {
        match self {
            Self::Own(own) => own.known(address),
            Self::Replica(replica) => replica.known(address),
        }
    }

    /// Returns true if `address` is solicited, or asked for, and not known.
    pub(super) fn is_waiting(&self, address: IpAddr) -> bool {
        match self {
            Self::Own(own) => own.is_waiting(address),
            Self::Replica(replica) => replica.is_waiting(address),
        }
    }

    /// Records that the transport has shown that packets to `address` arrive (RFC 4861 §7.3.1).
    pub(super) fn confirm(&mut self, address: IpAddr, now: Instant) {
        match self {
            Self::Own(own) => own.confirm(address, now),
            Self::Replica(replica) => replica.confirm(address, now),
        }
    }

    /// As [`Neighbours::answered`]. A replica believes the host core alone.
    pub(super) fn answered(&mut self, address: IpAddr, mac: Option<MacAddress>, now: Instant) -> bool {
        match self {
            Self::Own(own) => own.answered(address, mac, now),
            Self::Replica(_) => false,
        }
    }

    /// As [`Neighbours::claimed`]. A replica believes the host core alone.
    pub(super) fn claimed(
        &mut self,
        address: IpAddr,
        mac: MacAddress,
        now: Instant,
        solicits_host: bool,
    ) -> bool {
        match self {
            Self::Own(own) => own.claimed(address, mac, now, solicits_host),
            Self::Replica(_) => false,
        }
    }
}
