//! Which core of a device owns a flow.
//!
//! All segments of a TCP connection go to one core, a function of its addresses and ports: the entry of a
//! table that the low bits of their [Toeplitz hash](toeplitz) select. An adapter with several queues computes
//! the same (RSS). So the core that opens a connection can choose a local port whose answers come to it, and
//! frames of an adapter with one queue are handed over in software to where another adapter would have
//! brought them.
//!
//! The key is drawn anew at each start: who knows it chooses the core that its connections load. It is drawn
//! again until the local ports of active opens reach every entry of the table from any peer, which a few keys
//! in a hundred miss, and the ports that a peer takes one after the other come to all cores.
//!
//! A listener may be restricted to a core. Its port then overrides the table; so do the ports that a device
//! opens connections from where it has only a few, which are shared out among the cores.

pub mod classify;
pub mod toeplitz;

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::limits;
use crate::wire::flow::Flow;
use toeplitz::{KEY_BYTES, Toeplitz};

/// Ports that there are.
const PORTS: usize = 1 << 16;

/// The most entries of a table: the free bits of the ports of active opens, 14, can reach no more.
pub const ENTRIES_MAX: usize = (limits::EPHEMERAL_PORTS.1 - limits::EPHEMERAL_PORTS.0) as usize + 1;

const _: () = assert!(ENTRIES_MAX.is_power_of_two() && ENTRIES_MAX == 1 << 14);

/// Where the segments of each flow go, for all cores of a device and those who send to it.
#[derive(Debug)]
pub struct Steering {
    toeplitz: Toeplitz,
    /// The core of each entry.
    table: Box<[u8]>,
    cores: u8,
    /// For each local port the core that has all of its segments, plus one; 0 for none.
    overrides: Box<[AtomicU8]>,
    /// Some port has an override, or had one.
    has_overrides: AtomicBool,
}

impl Steering {
    /// Returns the steering among `cores` cores, at least one, by a table of `entries` entries, a power of
    /// two, that has the cores in turn, as adapters are set up. `random` fills a key.
    ///
    /// # Panics
    ///
    /// As [`with_key`](Self::with_key), and with more than [`ENTRIES_MAX`] entries: under no key do ports
    /// reach all of them.
    pub fn new(cores: u8, entries: usize, mut random: impl FnMut(&mut [u8; KEY_BYTES])) -> Self {
        assert!(entries <= ENTRIES_MAX, "{entries} entries, of which ports reach {ENTRIES_MAX}");
        let mut key = [0; KEY_BYTES];
        loop {
            random(&mut key);
            let steering = Self::with_key(cores, entries, key);
            if steering.ports_reach_every_entry() && steering.successive_ports_reach_every_core() {
                return steering;
            }
        }
    }

    /// Returns the steering with a key that is given. Not every key lets every core open connections.
    ///
    /// # Panics
    ///
    /// Without cores, if `entries` is not a power of two, or if there are fewer entries than cores: no flow
    /// would come to the others.
    pub fn with_key(cores: u8, entries: usize, key: [u8; KEY_BYTES]) -> Self {
        assert!(cores > 0 && entries.is_power_of_two(), "{cores} cores, {entries} entries");
        assert!(entries >= usize::from(cores), "{cores} cores, {entries} entries");
        Self {
            toeplitz: Toeplitz::new(key),
            table: (0..cores).cycle().take(entries).collect(),
            cores,
            overrides: (0..PORTS).map(|_| AtomicU8::new(0)).collect(),
            has_overrides: AtomicBool::new(false),
        }
    }

    /// Returns how many cores there are.
    pub const fn cores(&self) -> u8 {
        self.cores
    }

    /// Returns the key of the hash.
    pub const fn key(&self) -> &[u8; KEY_BYTES] {
        self.toeplitz.key()
    }

    /// Returns the core of each entry of the table.
    pub const fn table(&self) -> &[u8] {
        &self.table
    }

    /// Returns the hash of a flow.
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u32 {
        self.toeplitz.hash(flow)
    }

    /// Returns the core that segments with `flow` go to, as they are received.
    #[inline]
    pub fn owner(&self, flow: &Flow) -> u8 {
        let by_port = if self.has_overrides() { self.restricted_to(flow.destination_port()) } else { None };
        by_port.unwrap_or_else(|| self.table[self.hash(flow) as usize & (self.table.len() - 1)])
    }

    /// Returns what all of `flow` but its local port contributes to its hash, for
    /// [`owner_by_port`](Self::owner_by_port).
    pub fn without_local_port(&self, flow: &Flow) -> WithoutLocalPort {
        let address_octets = if flow.destination().is_ipv4() { 8 } else { 32 };
        let port = self.toeplitz.hash_of_destination_port(address_octets, flow.destination_port());
        WithoutLocalPort { hash: self.hash(flow) ^ port, address_octets }
    }

    /// Returns the [owner](Self::owner) that a flow has if its local port is `port`: two words of the hash
    /// are looked up, where the whole of it takes twelve or more.
    #[inline]
    pub fn owner_by_port(&self, rest: WithoutLocalPort, port: u16) -> u8 {
        let by_port = if self.has_overrides() { self.restricted_to(port) } else { None };
        by_port.unwrap_or_else(|| {
            let hash = rest.hash ^ self.toeplitz.hash_of_destination_port(rest.address_octets, port);
            self.table[hash as usize & (self.table.len() - 1)]
        })
    }

    /// Returns true if the table alone may not say where a flow goes: an adapter, which knows nothing else,
    /// may bring its frames to another core.
    #[inline]
    pub fn has_overrides(&self) -> bool {
        self.has_overrides.load(Ordering::Relaxed)
    }

    /// Has all segments to a local port go to one core from now on, or where the table says again. The flows
    /// of the port change their owner: none may be open. What is left of one in TIME-WAIT at another core is
    /// not found any more: a FIN that its peer sends again is answered by a reset, and a new connection with
    /// the same addresses and ports is not compared with it.
    ///
    /// Relaxed: a core that does not see the change yet, or only a part of it, takes the port's segments to
    /// the core that they went to before, as if they had come earlier. The core that is to listen on the port
    /// sees the change, because the command to listen comes after it through a ring.
    pub fn restrict(&self, port: u16, core: Option<u8>) {
        debug_assert!(core.is_none_or(|core| core < self.cores), "there is no core {core:?}");
        self.overrides[usize::from(port)].store(core.map_or(0, |core| core + 1), Ordering::Relaxed);
        if core.is_some() {
            self.has_overrides.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the core that has all segments to a local port, if one has.
    pub fn restricted_to(&self, port: u16) -> Option<u8> {
        self.overrides[usize::from(port)].load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns true if the ports of active opens reach every entry of the table over both families, whatever
    /// the peer. The hash is linear: it is so if what their free bits contribute has full rank.
    fn ports_reach_every_entry(&self) -> bool {
        let (first, last) = limits::EPHEMERAL_PORTS;
        let free_bits = (last - first + 1).trailing_zeros();
        let mask = self.table.len() as u32 - 1;
        [8, 32].into_iter().all(|addresses| {
            let words = (0..free_bits).map(|bit| {
                let (with, without) = (first | 1 << bit, first);
                self.toeplitz.hash_of_destination_port(addresses, with)
                    ^ self.toeplitz.hash_of_destination_port(addresses, without)
            });
            rank(words.map(|word| word & mask)) == mask.count_ones()
        })
    }

    /// Returns true if the ports that a peer takes one after the other come to every core over both families.
    /// Linux takes every other one, and some keys bring a hundred of these to the same core. It is so if what
    /// few of a port's lowest bits contribute to the bits of the entry that tell cores apart has full rank:
    /// these are the lowest if the cores are a power of two, else all.
    fn successive_ports_reach_every_core(&self) -> bool {
        let distinct = if self.cores.is_power_of_two() { self.cores.into() } else { self.table.len() };
        let (bits, mask) = (distinct.trailing_zeros(), distinct as u32 - 1);
        let last_bit = (bits + 2).min(u16::BITS - 1);
        [8, 32].into_iter().all(|addresses| {
            let words = (1..=last_bit).map(|bit| self.toeplitz.hash_of_source_port(addresses, 1 << bit));
            rank(words.map(|word| word & mask)) == bits
        })
    }
}

/// What all of a flow but its local port contributes to its hash.
#[derive(Clone, Copy, Debug)]
pub struct WithoutLocalPort {
    hash: u32,
    /// Octets of its two addresses.
    address_octets: usize,
}

/// Returns the rank of vectors of bits.
fn rank(vectors: impl Iterator<Item = u32>) -> u32 {
    // The vector of the basis with each highest bit.
    let mut basis = [0; u32::BITS as usize];
    for mut vector in vectors {
        while vector != 0 {
            let place = &mut basis[vector.ilog2() as usize];
            if *place == 0 {
                *place = vector;
                break;
            }
            vector ^= *place;
        }
    }
    basis.iter().filter(|vector| **vector != 0).count() as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    const ENTRIES: usize = 128;

    fn random(seed: u64) -> impl FnMut(&mut [u8; KEY_BYTES]) {
        let mut rng = fastrand::Rng::with_seed(seed);
        move |key| rng.fill(key)
    }

    fn flow(host: u8, remote_port: u16, local_port: u16, v6: bool) -> Flow {
        let address = |host: u8| -> IpAddr {
            if v6 {
                [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host].into()
            } else {
                [198, 18, 0, host].into()
            }
        };
        let [remote, local] =
            [SocketAddr::new(address(host), remote_port), SocketAddr::new(address(1), local_port)];
        Flow::new(remote, local).expect("one family")
    }

    /// From every peer, the ports of active opens come to each entry of the table equally often.
    #[test]
    fn every_core_has_ports_towards_every_peer() {
        let (first, last) = limits::EPHEMERAL_PORTS;
        for (seed, cores) in [(1, 1), (2, 2), (3, 3), (4, 8), (5, 64)] {
            let steering = Steering::new(cores, ENTRIES, random(seed));
            for (host, v6) in [(2, false), (77, false), (2, true), (200, true)] {
                let mut entries = BTreeMap::<u32, usize>::new();
                for port in first..=last {
                    let flow = flow(host, 7471, port, v6);
                    let entry = steering.hash(&flow) % ENTRIES as u32;
                    assert_eq!(steering.owner(&flow), entry as u8 % cores);
                    *entries.entry(entry).or_default() += 1;
                }
                let each = usize::from(last - first + 1) / ENTRIES;
                assert_eq!(entries.len(), ENTRIES, "seed {seed}");
                assert!(entries.values().all(|count| *count == each), "seed {seed}: {entries:?}");
            }
        }
    }

    /// Of the ports that a peer takes one after the other, every other one of a few, each core has as many as
    /// it has entries of the table. Those are as many as there are cores if that is a power of two.
    #[test]
    fn successive_ports_of_a_peer_come_to_every_core() {
        let mut poor = 0;
        for seed in 0..100 {
            let mut key = [0; KEY_BYTES];
            random(seed)(&mut key);
            poor += u32::from(!Steering::with_key(2, ENTRIES, key).successive_ports_reach_every_core());
            for (cores, entries) in [(1, 1), (2, 2), (4, 4), (8, 8), (3, ENTRIES), (7, ENTRIES)] {
                let steering = Steering::new(cores, ENTRIES, random(seed));
                let mut expected = vec![0; cores.into()];
                for core in &steering.table()[..entries] {
                    expected[usize::from(*core)] += 4;
                }
                for (first, v6) in [(32_768_u16, false), (50_176, true)] {
                    let mut owned = vec![0; cores.into()];
                    for port in (first..).step_by(2).take(4 * entries) {
                        owned[usize::from(steering.owner(&flow(77, port, 7471, v6)))] += 1;
                    }
                    assert_eq!(owned, expected, "seed {seed}, {cores} cores, from {first}");
                }
            }
        }
        assert!((10..40).contains(&poor), "one key in four or five: {poor} of 100");
    }

    /// A key under which the low bits of the hash do not depend on the port is drawn again.
    #[test]
    fn a_poor_key_is_drawn_again() {
        let mut keys = vec![[0x5a; KEY_BYTES], [0; KEY_BYTES]];
        let mut good = random(9);
        let steering = Steering::new(4, ENTRIES, |key| match keys.pop() {
            Some(poor) => *key = poor,
            None => good(key),
        });
        assert!(keys.is_empty() && steering.ports_reach_every_entry());
        assert!(!Steering::with_key(4, ENTRIES, [0; KEY_BYTES]).ports_reach_every_entry());
        assert_ne!(steering.key(), &[0x5a; KEY_BYTES]);
    }

    #[test]
    fn a_port_goes_to_the_core_that_it_is_restricted_to() {
        let steering = Steering::new(4, ENTRIES, random(3));
        let flows = || (0..200).map(|host| flow(host, 1000, 7471, false));
        let owners: Vec<u8> = flows().map(|flow| steering.owner(&flow)).collect();
        assert!((0..4).all(|core| owners.contains(&core)), "all cores: {owners:?}");
        steering.restrict(7471, Some(3));
        assert!(steering.has_overrides() && steering.restricted_to(7471) == Some(3));
        assert!(flows().all(|flow| steering.owner(&flow) == 3));
        assert_eq!(steering.restricted_to(7472), None);
        steering.restrict(7471, None);
        assert_eq!(flows().map(|flow| steering.owner(&flow)).collect::<Vec<u8>>(), owners);
    }

    /// The owner by the port alone is that of the whole flow, for the ports too that are restricted.
    #[test]
    fn a_port_says_who_owns_the_flow_if_the_rest_is_known() {
        let steering = Steering::new(5, ENTRIES, random(4));
        for restricted in [None, Some(2)] {
            steering.restrict(50_000, restricted);
            for (host, v6) in [(2, false), (77, true)] {
                let rest = steering.without_local_port(&flow(host, 7471, 1, v6));
                for port in 49_900..50_100 {
                    let owner = steering.owner(&flow(host, 7471, port, v6));
                    assert_eq!(steering.owner_by_port(rest, port), owner, "port {port}");
                }
            }
        }
    }

    #[test]
    fn a_table_may_have_as_many_entries_as_ports_reach() {
        let steering = Steering::new(2, ENTRIES_MAX, random(5));
        let owners = (0..64).map(|n| steering.owner(&flow(2, 7471, 50_000 + n, false)));
        assert_eq!(owners.collect::<std::collections::BTreeSet<u8>>().len(), 2);
    }

    #[test]
    #[should_panic(expected = "32768 entries, of which ports reach 16384")]
    fn a_table_has_no_entries_that_no_port_reaches() {
        let _ = Steering::new(2, 2 * ENTRIES_MAX, random(1));
    }

    #[test]
    #[should_panic(expected = "5 cores, 4 entries")]
    fn each_core_has_an_entry() {
        let _ = Steering::new(5, 4, random(1));
    }

    #[test]
    #[should_panic(expected = "2 cores, 96 entries")]
    fn the_entries_are_a_power_of_two() {
        let _ = Steering::new(2, 96, random(1));
    }

    #[test]
    fn the_rank_counts_independent_vectors() {
        for (vectors, expected) in
            [(&[][..], 0), (&[0, 0], 0), (&[1, 2, 3], 2), (&[0x80, 0x81, 1], 2), (&[5, 6, 4], 3)]
        {
            assert_eq!(rank(vectors.iter().copied()), expected, "{vectors:?}");
        }
    }
}
