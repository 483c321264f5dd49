//! The path MTUs that are smaller than that of the link (RFC 1191 §6.3, RFC 8201 §5.2): of a few
//! destinations, for some minutes.
//!
//! A connection discovers the MTU of its own path. These values are for the next connection to the same
//! destination, so that it does not lose its first segments to find the MTU again.

use std::net::IpAddr;

use crate::limits;
use crate::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Path {
    destination: IpAddr,
    mtu_octets: u16,
    learned: Instant,
}

/// The known path MTUs of a host.
#[derive(Debug)]
pub(super) struct PathMtus {
    paths: Vec<Path>,
}

impl PathMtus {
    /// Returns room for [`limits::PATH_MTUS_PER_CORE`] destinations.
    pub(super) fn new() -> Self {
        Self { paths: Vec::with_capacity(limits::PATH_MTUS_PER_CORE) }
    }

    /// Remembers that packets of more than `mtu_octets` do not reach `destination`. Evicts the oldest value
    /// if necessary.
    pub(super) fn learn(&mut self, now: Instant, destination: IpAddr, mtu_octets: u16) {
        let path = Path { destination, mtu_octets, learned: now };
        if let Some(known) = self.paths.iter_mut().find(|known| known.destination == destination) {
            *known = path;
        } else if self.paths.len() < limits::PATH_MTUS_PER_CORE {
            self.paths.push(path);
        } else if let Some(oldest) = self.paths.iter_mut().min_by_key(|known| known.learned) {
            *oldest = path;
        }
    }

    /// Returns the largest packet that reaches `destination`, in octets. `None` if that is not known, or was
    /// learned too long ago: paths change.
    pub(super) fn get(&self, now: Instant, destination: IpAddr) -> Option<u16> {
        let known = self.paths.iter().find(|known| known.destination == destination)?;
        (now - known.learned < limits::PATH_MTU_RETRY_NS).then_some(known.mtu_octets)
    }
}

/// Returns the likely MTU of a router that does not say it (RFC 1191 §7.1, table 7-1): the next plateau below
/// the length of the packet that it refused.
pub(super) fn plateau_below(packet_octets: u32) -> Option<u16> {
    const PLATEAUS: [u16; 8] =
        [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, limits::PATH_MTU_MIN_IPV4_BYTES];
    PLATEAUS.into_iter().find(|plateau| u32::from(*plateau) < packet_octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(n).into()
    }

    #[test]
    fn paths_are_remembered_for_a_while() {
        let mut paths = PathMtus::new();
        let now = Instant::from_nanos(1);
        assert_eq!(paths.get(now, host(1)), None);
        paths.learn(now, host(1), 1400);
        paths.learn(now, host(1), 1300);
        let last = now + (limits::PATH_MTU_RETRY_NS - 1);
        assert_eq!((paths.get(last, host(1)), paths.get(last, host(2))), (Some(1300), None));
        assert_eq!(paths.get(last + 1, host(1)), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut paths = PathMtus::new();
        let count = limits::PATH_MTUS_PER_CORE as u32;
        for n in 0..=count {
            paths.learn(Instant::from_nanos(n.into()), host(n), 1400);
        }
        let now = Instant::from_nanos(count.into());
        let known = (0..=count).filter(|n| paths.get(now, host(*n)).is_some()).count();
        assert_eq!((known, paths.get(now, host(0))), (count as usize, None));
    }

    #[test]
    fn a_router_that_says_nothing_is_believed_to_have_a_usual_mtu() {
        let below = [9000, 1501, 1500, 1492, 1006, 552].map(plateau_below);
        assert_eq!(below, [Some(8166), Some(1492), Some(1492), Some(1006), Some(552), None]);
    }
}
