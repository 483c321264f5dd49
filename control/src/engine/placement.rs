//! Which core a connection is at: one that this end opens, and those of a listener.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::{Addresses, source_for};
use warpline_dataplane::steering::Steering;
use warpline_dataplane::wire::flow::Flow;

use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::listen::ListenError;

/// The cores of a device, and which of them a connection that this end opens goes to.
pub(crate) struct Placement {
    /// Where the peer's segments go; `None` with one core.
    steering: Option<Arc<Steering>>,
    /// The device's own, from which that of a connection is chosen.
    addresses: Addresses,
    /// The core whose turn it is.
    next: u8,
    /// The core of each port that had a listener; `None` for all cores. It stays: connections of the port
    /// are where they are.
    listeners: HashMap<u16, Option<u8>>,
    /// The number of connections that this end has opened, or is opening, from each port that a listener of
    /// one core may have.
    opened: HashMap<u16, usize>,
}

impl Placement {
    /// Returns the placement on the cores of `steering`, or on one core without, of a device with these
    /// addresses.
    pub(crate) fn new(steering: Option<Arc<Steering>>, addresses: Addresses) -> Self {
        Self { steering, addresses, next: 0, listeners: HashMap::new(), opened: HashMap::new() }
    }

    /// Returns how many cores there are.
    pub(crate) fn cores(&self) -> u8 {
        self.steering.as_ref().map_or(1, |steering| steering.cores())
    }

    /// Has all segments to the port of a listener go to `core`, one of those that are polled, or to each core
    /// its own without.
    pub(super) fn place_listener(
        &mut self,
        polled: CoreSet,
        port: u16,
        core: Option<u8>,
    ) -> Result<(), ListenError> {
        if let Some(core) = core.filter(|core| !polled.contains(*core)) {
            return Err(ListenError::NoCore { core });
        }
        let is_unplaced = self.check_port(polled, port, core)?;
        if let Some(steering) = self.steering.as_ref().filter(|_| is_unplaced) {
            self.listeners.insert(port, core);
            if may_be_of_one_core(port) {
                steering.restrict(port, core);
            }
        }
        Ok(())
    }

    /// Gives the cores in turn the ports from which they open connections, whoever the peer is. A port stays
    /// with its core. For a device that has few: what their hash selects may leave a core without any.
    pub(crate) fn share_out(&self, ports: RangeInclusive<u16>) {
        let Some(steering) = &self.steering else { return };
        for (port, core) in ports.zip((0..steering.cores()).cycle()) {
            debug_assert!(!may_be_of_one_core(port), "port {port} may be that of a listener of one core");
            steering.restrict(port, Some(core));
        }
    }

    /// Checks that `port` can be that of a listener of `core`, or of all cores without. Returns true if none
    /// has had it before, whose connections may be there.
    pub(super) fn check_port(
        &self,
        polled: CoreSet,
        port: u16,
        core: Option<u8>,
    ) -> Result<bool, ListenError> {
        if core.is_some() && !may_be_of_one_core(port) {
            return Err(ListenError::NoPortOfCore(port));
        }
        if self.steering.is_none() {
            return Ok(true);
        }
        // The connections of a core that is no longer polled have ended with it.
        let has_ended = |before: &Option<u8>| before.is_some_and(|before| !polled.contains(before));
        match self.listeners.get(&port).filter(|before| !has_ended(before)) {
            Some(before) if *before != core => Err(ListenError::OtherCore(port)),
            Some(_) => Ok(false),
            None if core.is_some() && self.opened.contains_key(&port) => Err(ListenError::OtherCore(port)),
            None => Ok(true),
        }
    }

    /// Returns the core for a connection to `remote`, one of those that are polled: the one that is `wanted`,
    /// or that the peer's segments to a port that is given come to, or each in turn.
    pub(super) fn core_for(
        &mut self,
        polled: CoreSet,
        wanted: Option<u8>,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<u8, ConnectError> {
        if let Some(core) = wanted
            && !polled.contains(core)
        {
            return Err(ConnectError::NoCore { core });
        }
        let Some(owner) = self.owner_of(local, remote) else {
            return Ok(wanted.unwrap_or_else(|| self.next_in_turn(polled)));
        };
        if wanted.is_some_and(|wanted| wanted != owner) {
            return Err(ConnectError::OtherCore { owner });
        }
        if !polled.contains(owner) {
            return Err(ConnectError::NoCore { core: owner });
        }
        Ok(owner)
    }

    /// Returns true if an address is one of this end.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Counts a connection that this end opens from `port`: the peer's segments to it are not taken to
    /// another core meanwhile.
    pub(super) fn hold(&mut self, port: u16) {
        if may_be_of_one_core(port) {
            *self.opened.entry(port).or_default() += 1;
        }
    }

    /// Counts a connection from `port` no more.
    pub(super) fn release(&mut self, port: u16) {
        if let Entry::Occupied(mut opened) = self.opened.entry(port) {
            *opened.get_mut() -= 1;
            if *opened.get() == 0 {
                opened.remove();
            }
        }
    }

    /// Returns the core that segments from `remote` come to at a port that is given. `None` if the core that
    /// opens the connection chooses the port, or finds out that there is no such connection.
    fn owner_of(&self, local: Option<SocketAddr>, remote: SocketAddr) -> Option<u8> {
        let (steering, local) = (self.steering.as_ref()?, local.filter(|local| local.port() != 0)?);
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let given = Some(local.ip().to_canonical()).filter(|address: &IpAddr| !address.is_unspecified());
        let address = given.or_else(|| source_for(&self.addresses, remote.ip()))?;
        Some(steering.owner(&Flow::new(remote, SocketAddr::new(address, local.port()))?))
    }

    fn next_in_turn(&mut self, polled: CoreSet) -> u8 {
        let later = polled.iter().find(|core| *core >= self.next);
        let core = later.or_else(|| polled.iter().next()).unwrap_or_default();
        self.next = core + 1;
        core
    }
}

/// Returns true for a port that a listener of one core can have: the cores choose none of these for the
/// connections that they open. 0 is no port.
const fn may_be_of_one_core(port: u16) -> bool {
    0 < port && port < limits::EPHEMERAL_PORTS.0
}

#[cfg(test)]
mod tests {
    use warpline_dataplane::net::addresses::Cidr;

    use super::*;

    fn placement(cores: u8) -> Placement {
        let mut rng = fastrand::Rng::with_seed(7);
        let steering = Arc::new(Steering::new(cores, 128, |key| rng.fill(key)));
        let addresses = [Cidr::new([198, 18, 0, 1].into(), 24)].into_iter().collect();
        Placement::new(Some(steering), addresses)
    }

    const REMOTE: ([u8; 4], u16) = ([198, 18, 0, 2], 7471);

    /// What the low bits of a port change in its hash may be nothing that tells cores apart.
    #[test]
    fn every_core_has_some_of_few_ports() {
        const FEW: RangeInclusive<u16> = 61_000..=61_127;
        let mut without = 0;
        for (seed, cores) in (0..300).zip([2, 3, 4, 8, 64].into_iter().cycle()) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let steering = Arc::new(Steering::new(cores, 512, |key| rng.fill(key)));
            let placement = Placement::new(Some(steering.clone()), Addresses::new());
            let ports_by_core = || {
                let mut owned = vec![0; cores.into()];
                for port in FEW {
                    let local = SocketAddr::from(([198, 18, 0, 1], port));
                    owned[usize::from(steering.owner(&Flow::new(REMOTE.into(), local).unwrap()))] += 1;
                }
                owned
            };
            without += u32::from(ports_by_core().contains(&0));
            placement.share_out(FEW);
            let (least, most) = (128 / usize::from(cores), 128_usize.div_ceil(cores.into()));
            let owned = ports_by_core();
            assert!(owned.iter().all(|count| (least..=most).contains(count)), "seed {seed}: {owned:?}");
        }
        assert!(without > 10, "keys that leave a core without a port: {without}");
    }

    /// A listener at such a port has the connections that come to its core, and they stay there.
    #[test]
    fn a_listener_leaves_a_shared_out_port_to_its_core() {
        let mut placement = placement(3);
        let owner = |placement: &Placement| {
            let local = SocketAddr::from(([198, 18, 0, 1], 61_001));
            placement.steering.as_ref().unwrap().owner(&Flow::new(REMOTE.into(), local).unwrap())
        };
        assert_ne!(owner(&placement), 1, "by its hash it is another's");
        placement.share_out(61_000..=61_002);
        assert_eq!(owner(&placement), 1);
        placement.place_listener(CoreSet::first(3), 61_001, None).unwrap();
        assert_eq!(owner(&placement), 1);
    }

    #[test]
    fn cores_take_turns_and_one_that_has_ended_is_passed_over() {
        let mut placement = placement(3);
        let mut cores = |polled, count| -> Vec<u8> {
            (0..count).map(|_| placement.core_for(polled, None, None, REMOTE.into()).unwrap()).collect()
        };
        let all = CoreSet::first(3);
        assert_eq!(cores(all, 4), [0, 1, 2, 0]);
        let left = all.without(1);
        assert_eq!(cores(left, 3), [2, 0, 2]);
        let mut wanted = |core| placement.core_for(left, Some(core), None, REMOTE.into());
        assert_eq!(wanted(1), Err(ConnectError::NoCore { core: 1 }));
        assert_eq!(wanted(0), Ok(0));
    }

    /// With a port that is given the addresses decide, and another core cannot have the connection.
    #[test]
    fn a_given_port_says_which_core() {
        let (mut placement, all) = (placement(4), CoreSet::first(4));
        let mut owners = CoreSet::EMPTY;
        for port in 1000..1100 {
            let mut core = |wanted, local: [u8; 4]| {
                placement.core_for(all, wanted, Some((local, port).into()), REMOTE.into())
            };
            let owner = core(None, [0; 4]).unwrap();
            assert_eq!(core(None, [198, 18, 0, 1]), Ok(owner));
            assert_eq!(core(Some(owner), [0; 4]), Ok(owner));
            assert_eq!(core(Some((owner + 1) % 4), [0; 4]), Err(ConnectError::OtherCore { owner }));
            owners = owners.with(owner);
        }
        assert_eq!(owners, CoreSet::first(4));
    }

    #[test]
    fn a_listener_keeps_to_its_core_and_its_port_does_too() {
        let (mut placement, all) = (placement(4), CoreSet::first(4));
        assert_eq!(placement.place_listener(all, 7471, Some(3)), Ok(()));
        let local: SocketAddr = ([198, 18, 0, 1], 7471).into();
        for host in 2..100 {
            let remote = ([198, 18, 0, host], 40_000).into();
            assert_eq!(placement.core_for(all, None, Some(local), remote), Ok(3));
        }
        let mut place = |port, core| placement.place_listener(all, port, core);
        assert_eq!(place(7471, Some(3)), Ok(()), "the next one");
        assert_eq!(place(7471, Some(2)), Err(ListenError::OtherCore(7471)));
        assert_eq!(place(7471, None), Err(ListenError::OtherCore(7471)));
        assert_eq!(place(7472, None), Ok(()));
        assert_eq!(place(7472, Some(1)), Err(ListenError::OtherCore(7472)));
        for core in [4, 63, 64, 255] {
            assert_eq!(place(7474, Some(core)), Err(ListenError::NoCore { core }));
        }
        assert_eq!(place(50_000, Some(1)), Err(ListenError::NoPortOfCore(50_000)));
        assert_eq!(place(50_000, None), Ok(()));
    }

    /// Connections from a port that is given may be at another core, as long as they are open.
    #[test]
    fn the_given_port_of_a_connection_is_no_listeners_of_one_core() {
        let (mut placement, all) = (placement(4), CoreSet::first(4));
        for _ in 0..2 {
            placement.hold(5000);
            placement.hold(5000);
            placement.release(5000);
            let refused = placement.place_listener(all, 5000, Some(1));
            assert_eq!(refused, Err(ListenError::OtherCore(5000)));
            placement.release(5000);
            placement.release(50_000);
        }
        assert_eq!(placement.place_listener(all, 5000, Some(1)), Ok(()));
        placement.hold(5000);
        assert_eq!(placement.place_listener(all, 5000, Some(1)), Ok(()), "it is at that core");
        assert_eq!(placement.place_listener(all, 5000, Some(2)), Err(ListenError::OtherCore(5000)));
        placement.hold(5001);
        assert_eq!(placement.place_listener(all, 5001, None), Ok(()));
        placement.hold(50_000);
        placement.hold(0);
        assert_eq!(placement.opened.len(), 2, "no listener of one core has an ephemeral port");
    }

    #[test]
    fn a_core_that_has_ended_keeps_no_port() {
        let (mut placement, all) = (placement(4), CoreSet::first(4));
        let left = all.without(3);
        assert_eq!(placement.place_listener(all, 7471, Some(3)), Ok(()));
        let local = Some(([0; 4], 7471).into());
        let refused = placement.core_for(left, None, local, REMOTE.into());
        assert_eq!(refused, Err(ConnectError::NoCore { core: 3 }), "its peer's segments go there");
        assert_eq!(placement.place_listener(left, 7471, Some(2)), Ok(()));
        assert_eq!(placement.core_for(left, None, local, REMOTE.into()), Ok(2));
        assert_eq!(placement.place_listener(left, 7471, None), Err(ListenError::OtherCore(7471)));
    }

    #[test]
    fn a_device_of_one_core_has_core_0_alone() {
        let (mut placement, one) = (Placement::new(None, Addresses::new()), CoreSet::first(1));
        assert_eq!(placement.cores(), 1);
        assert_eq!(placement.core_for(one, None, Some(([0; 4], 5).into()), REMOTE.into()), Ok(0));
        for core in [1, 64, 255] {
            let other = placement.core_for(one, Some(core), None, REMOTE.into());
            assert_eq!(other, Err(ConnectError::NoCore { core }));
            let listener = placement.place_listener(one, 7471, Some(core));
            assert_eq!(listener, Err(ListenError::NoCore { core }));
        }
        assert_eq!(placement.place_listener(one, 7471, Some(0)), Ok(()));
    }
}
