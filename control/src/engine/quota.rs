//! Fair shares: what one part of an application and one peer may hold of what all of a device share (RFC 5042 §5.2,
//! DDP-8.3.2-03, DDP-8.3.2-06, RDMAP-8.1.2-01, RDMAP-8.1.2-03).

use std::collections::HashMap;
use std::hash::Hash;

use warpline_dataplane::limits;

/// How much of a device's resources one holder may have. What is asked for beyond is refused, and nobody else is touched.
///
/// Control decides, and nobody gets any of it without asking control. Receive buffers are shared only where an application
/// shares them itself (shared receive queues), and each of their queue pairs says how many it has taken; RDMA Reads that a
/// peer may have outstanding are of its own connection alone, and no more than the listener's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Registrations and windows of one Protection Domain.
    pub regions_per_domain: usize,
    /// Queue pairs of one Protection Domain.
    pub queue_pairs_per_domain: usize,
    /// Connections from one address, to all listeners together: in startup, before an application, or open. Those in the
    /// middle of TCP's handshake prove no address and are not counted; they are bounded in all and then answered by SYN
    /// cookies.
    pub connections_per_peer: usize,
    /// Connections from all addresses of one IPv6 network of 64 bits, counted in the same way: a host may
    /// have as many addresses there as it likes.
    pub connections_per_network: usize,
}

impl Default for Quotas {
    /// Half of what a device has, three quarters for a network: one holder alone never leaves nothing for
    /// another.
    fn default() -> Self {
        Self {
            regions_per_domain: limits::REGIONS_PER_DOMAIN,
            queue_pairs_per_domain: limits::QPS_PER_DOMAIN,
            connections_per_peer: limits::CONNECTIONS_PER_PEER,
            connections_per_network: limits::CONNECTIONS_PER_NETWORK,
        }
    }
}

/// Who holds what, counted.
#[derive(Debug)]
pub(crate) struct Holdings<Holder, Thing> {
    quota: usize,
    holders: HashMap<Thing, Holder>,
    counts: HashMap<Holder, usize>,
    refused: u64,
}

impl<Holder: Copy + Eq + Hash, Thing: Eq + Hash> Holdings<Holder, Thing> {
    pub(crate) fn new(quota: usize) -> Self {
        Self { quota, holders: HashMap::new(), counts: HashMap::new(), refused: 0 }
    }

    /// Whether `holder` may have another one. A no is counted.
    pub(crate) fn has_room(&mut self, holder: Holder) -> bool {
        let room = self.counts.get(&holder).is_none_or(|&count| count < self.quota);
        self.refused += u64::from(!room);
        room
    }

    /// `holder` has `thing` from now on.
    pub(crate) fn take(&mut self, holder: Holder, thing: Thing) {
        let before = self.holders.insert(thing, holder);
        debug_assert!(before.is_none(), "held twice");
        *self.counts.entry(holder).or_default() += 1;
    }

    /// Nobody has `thing` any more; nothing happens if nobody had.
    pub(crate) fn give_back(&mut self, thing: &Thing) {
        let Some(holder) = self.holders.remove(thing) else { return };
        if let Some(count) = self.counts.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&holder);
            }
        }
    }

    /// How often there was no room.
    pub(crate) const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DDP-8.3.2-06, RDMAP-8.1.2-03: one holder's share is used up by that one alone, and comes back.
    #[test]
    fn shares_are_counted_apart() {
        let mut holdings = Holdings::new(2);
        for (thing, holder) in ["a", "b"].into_iter().zip([1, 1]) {
            assert!(holdings.has_room(holder));
            holdings.take(holder, thing);
        }
        assert!(!holdings.has_room(1) && holdings.has_room(2));
        assert_eq!(holdings.refused(), 1);
        holdings.give_back(&"a");
        holdings.give_back(&"a");
        assert!(holdings.has_room(1), "one came back");
        holdings.take(1, "c");
        assert!(!holdings.has_room(1), "and only one");
        holdings.give_back(&"b");
        holdings.give_back(&"c");
        assert!(holdings.counts.is_empty() && holdings.holders.is_empty(), "who holds nothing is forgotten");
    }
}
