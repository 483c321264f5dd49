//! The ports of a device that shares its addresses with the kernel: the kernel leaves them to the device.
//!
//! The device opens connections from ports of its own, some in a row, which it holds from its start. A port
//! that is listened at, and one that an active open names, is held from then on until the device ends: the
//! connections of a listener outlast it. A listener that asks for any free port gets one that an earlier such
//! listener has left, or was refused at, if there is one that suits its cores: listeners that come and go
//! hold no more ports than are open at once.
//!
//! The sockets of the device learn each port, and the kernel passes over frames for others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use crossbeam::channel::{self, Receiver, Sender};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use warpline_dataplane::device::packet::{HeardPorts, PacketError, PortShadow, hold_row};
use warpline_dataplane::ring::ListenAddress;

use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Request, StreamRequest};
use crate::vocabulary::connect::ConnectError;
use crate::vocabulary::listen::ListenError;

/// Ports of active opens, each of which has connections to any number of peers.
const OWN_PORTS: u16 = 128;
/// Where they are looked for: above those that Linux gives away by default (`ip_local_port_range`).
const FIRST_PORT: u16 = 61_000;
/// How often a free port is looked for that is free at all addresses.
const ATTEMPTS: usize = 16;
/// Ports that are held at most beside those of active opens, each with a file descriptor.
const HELD_MAX: usize = 256;

/// The ports that a device holds.
pub(crate) struct HeldPorts {
    addresses: Vec<IpAddr>,
    first: u16,
    _own: Vec<PortShadow>,
    held: HashMap<SocketAddr, PortShadow>,
    /// Of each socket of the device.
    heard: Vec<HeardPorts>,
    /// The sockets have learned all ports that are held.
    is_heard: bool,
    /// Addresses of listeners that had asked for any free port, and are gone.
    left: Vec<ListenAddress>,
    /// Those that are not.
    chosen: Vec<ListenAddress>,
    /// Those that the engine has refused since the last request.
    refused: Refused,
}

/// Both ends of the queue from the replies to listeners that the engine refuses.
type Refused = (Sender<ListenAddress>, Receiver<ListenAddress>);

impl HeldPorts {
    /// Holds the ports of active opens at `addresses`, which are the kernel's.
    ///
    /// # Errors
    ///
    /// [`PacketError`].
    pub(crate) fn new(addresses: Vec<IpAddr>) -> Result<Self, PacketError> {
        let (first, own) = hold_row(&addresses, OWN_PORTS, FIRST_PORT)?;
        Ok(Self {
            addresses,
            first,
            _own: own,
            held: HashMap::new(),
            heard: Vec::new(),
            is_heard: true,
            left: Vec::new(),
            chosen: Vec::new(),
            refused: channel::unbounded(),
        })
    }

    /// Tells one more socket of the ports from now on.
    ///
    /// # Errors
    ///
    /// [`PacketError`].
    pub(crate) fn tell(&mut self, socket: HeardPorts) -> Result<(), PacketError> {
        socket.hear(&self.ranges())?;
        self.heard.push(socket);
        Ok(())
    }

    /// Returns the ports that are held, in order.
    fn ranges(&self) -> Vec<RangeInclusive<u16>> {
        let (first, last) = self.of_active_opens();
        let mut ports: Vec<_> = self.held.keys().map(|at| at.port()..=at.port()).collect();
        ports.push(first..=last);
        ports.sort_unstable_by_key(|range| *range.start());
        ports.dedup();
        ports
    }

    /// Tells the sockets of the ports that are held, if they do not know.
    fn announce(&mut self) -> Result<(), PacketError> {
        if self.is_heard {
            return Ok(());
        }
        let ports = self.ranges();
        self.heard.iter().try_for_each(|socket| socket.hear(&ports))?;
        self.is_heard = true;
        Ok(())
    }

    /// Returns the first and the last port of active opens.
    pub(crate) const fn of_active_opens(&self) -> (u16, u16) {
        (self.first, self.first + (OWN_PORTS - 1))
    }

    /// Holds what `request` needs, and returns it, with a port that is free if it asks for one; replies to it
    /// if there is none. `check` says whether a port can be that of a new listener at one core, or at all
    /// without.
    pub(crate) fn admit(
        &mut self,
        request: Request,
        check: impl Fn(u16, Option<u8>) -> Result<(), ListenError>,
    ) -> Option<Request> {
        while let Ok(at) = self.refused.1.try_recv() {
            self.leave(at);
        }
        match request {
            Request::Listen { at, config, arrivals, notify, reply } => {
                let (at, reply) = self.admit_listener(at, reply, |port| check(port, config.core))?;
                Some(Request::Listen { at, config, arrivals, notify, reply })
            }
            Request::Stream(StreamRequest::Listen { at, config, reply }) => {
                let (at, reply) = self.admit_listener(at, reply, |port| check(port, config.core))?;
                Some(Request::Stream(StreamRequest::Listen { at, config, reply }))
            }
            Request::Connect { qp, remote, config, reply } => match self.hold_for(config.local) {
                Ok(()) => Some(Request::Connect { qp, remote, config, reply }),
                Err(error) => {
                    reply.send(Err(error));
                    None
                }
            },
            Request::Stream(StreamRequest::Connect { remote, config, reply }) => {
                match self.hold_for(config.local) {
                    Ok(()) => Some(Request::Stream(StreamRequest::Connect { remote, config, reply })),
                    Err(error) => {
                        reply.send(Err(error));
                        None
                    }
                }
            }
            Request::ReservePort { at, reuse_address, reply } => {
                let (at, reply) = self.admit_listener(at, reply, |port| check(port, None))?;
                Some(Request::ReservePort { at, reuse_address, reply })
            }
            Request::Unlisten { at } => {
                self.leave(at);
                Some(Request::Unlisten { at })
            }
            Request::ReleasePort { at } => {
                self.leave(at);
                Some(Request::ReleasePort { at })
            }
            other => Some(other),
        }
    }

    /// Holds the port of a listener. Returns its address with the port, and where the reply goes: one that
    /// refuses the listener leaves a port that was chosen for it to the next. Replies itself if there is no
    /// port.
    fn admit_listener<T: Send + 'static>(
        &mut self,
        asked: ListenAddress,
        reply: Reply<Result<T, ListenError>>,
        check: impl Fn(u16) -> Result<(), ListenError>,
    ) -> Option<(ListenAddress, Reply<Result<T, ListenError>>)> {
        let at = match self.hold_listener(asked, check) {
            Ok(at) => at,
            Err(error) => {
                reply.send(Err(error));
                return None;
            }
        };
        if asked.port != 0 {
            return Some((at, reply));
        }
        let refused = self.refused.0.clone();
        let passing_on = Reply::call(move |answer: Option<Result<T, ListenError>>| {
            // Without an answer the engine ends, and so do all ports.
            let Some(answer) = answer else { return };
            if answer.is_err() {
                let _ = refused.send(at);
            }
            reply.send(answer);
        });
        Some((at, passing_on))
    }

    /// Leaves the address of a listener to the next one that asks for any free port, if this one has.
    fn leave(&mut self, at: ListenAddress) {
        if let Some(place) = self.chosen.iter().position(|chosen| *chosen == at) {
            self.left.push(self.chosen.swap_remove(place));
        }
    }

    /// Holds the port of a listener at each address that it has, and has it heard; returns its address with
    /// the port, which `check` accepts if it was chosen.
    fn hold_listener(
        &mut self,
        asked: ListenAddress,
        check: impl Fn(u16) -> Result<(), ListenError>,
    ) -> Result<ListenAddress, ListenError> {
        let at = self.hold_or_choose(asked, check)?;
        if let Err(error) = self.announce() {
            if asked.port == 0 {
                self.leave(at);
            }
            return Err(refused(at.port, &error));
        }
        Ok(at)
    }

    fn hold_or_choose(
        &mut self,
        at: ListenAddress,
        check: impl Fn(u16) -> Result<(), ListenError>,
    ) -> Result<ListenAddress, ListenError> {
        let ListenAddress { address, port } = at;
        if port != 0 {
            self.hold(at)?;
            self.left.retain(|left| left.port != port);
            return Ok(at);
        }
        let suits = |left: &ListenAddress| left.address == address && check(left.port).is_ok();
        if let Some(place) = self.left.iter().position(suits) {
            let at = self.left.swap_remove(place);
            self.chosen.push(at);
            return Ok(at);
        }
        let some = self.addresses.iter().copied().find(|own| at.scope(*own).is_some());
        let some =
            some.ok_or_else(|| ListenError::NoAddress(address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))))?;
        let mut failed = ListenError::PortInUse(0);
        for _ in 0..ATTEMPTS {
            let shadow = self.held_by_kernel((some, 0).into())?;
            let at = ListenAddress { port: shadow.address().port(), address };
            if let Err(error) = check(at.port) {
                failed = error;
                continue;
            }
            self.held.insert(shadow.address(), shadow);
            self.is_heard = false;
            match self.hold(at) {
                Ok(()) => {
                    self.chosen.push(at);
                    return Ok(at);
                }
                Err(error) => failed = error,
            }
            self.held.remove(&SocketAddr::new(some, at.port));
        }
        Err(failed)
    }

    /// Holds what an active open from `local` needs.
    fn hold_for(&mut self, local: Option<SocketAddr>) -> Result<(), ConnectError> {
        self.hold_local(local).map_err(|_| ConnectError::NoPort)?;
        self.announce().map_err(|_| ConnectError::NoPort)
    }

    /// Returns true if `remote` is a port of this machine that no program has. The kernel would not say so:
    /// it does not take segments of programs to its own addresses.
    pub(crate) fn is_nobodys(&self, remote: SocketAddr) -> bool {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let (first, last) = self.of_active_opens();
        self.addresses.contains(&remote.ip())
            && !(first..=last).contains(&remote.port())
            && !self.held.contains_key(&remote)
            && is_free(remote)
    }

    /// Holds the port that an active open names, if it names one.
    fn hold_local(&mut self, local: Option<SocketAddr>) -> Result<(), ListenError> {
        let Some(local) = local.filter(|local| local.port() != 0) else { return Ok(()) };
        let address = local.ip().to_canonical();
        let everywhere = address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.hold(ListenAddress { address: (!everywhere).then_some(address), port: local.port() })
    }

    /// Holds a port at each address of `at`, or at none.
    fn hold(&mut self, at: ListenAddress) -> Result<(), ListenError> {
        let (first, last) = self.of_active_opens();
        if (first..=last).contains(&at.port) {
            return Ok(());
        }
        let mut new = Vec::new();
        for address in self.addresses.iter().filter(|own| at.scope(**own).is_some()) {
            let address = SocketAddr::new(*address, at.port);
            if !self.held.contains_key(&address) {
                new.push(self.held_by_kernel(address)?);
            }
        }
        self.is_heard &= new.is_empty();
        self.held.extend(new.into_iter().map(|shadow| (shadow.address(), shadow)));
        Ok(())
    }

    /// Has the kernel leave the port of `address` to the device, for port 0 a free one.
    fn held_by_kernel(&self, address: SocketAddr) -> Result<PortShadow, ListenError> {
        if self.held.len() >= HELD_MAX {
            return Err(ListenError::NotHeld { port: address.port(), errno: Errno::MFILE.raw_os_error() });
        }
        PortShadow::hold(address).map_err(|error| refused(address.port(), &error))
    }
}

/// Returns true if no program listens at `address`. The socket does not listen, so a program that begins to
/// do so meanwhile and sets SO_REUSEADDR finds the port free, and so does one that
/// [holds](PortShadow::hold) it. A port that this process may not bind counts as somebody's: nothing tells.
fn is_free(address: SocketAddr) -> bool {
    look_at(address).is_ok()
}

/// Returns a socket that is bound to `address` and shares it, if no program listens there.
fn look_at(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// Returns why there is no listener at `port`.
fn refused(port: u16, error: &PacketError) -> ListenError {
    match error {
        PacketError::PortInUse { address } => ListenError::PortOfKernel(address.port()),
        PacketError::Setup { source, .. } => {
            ListenError::NotHeld { port, errno: source.raw_os_error().unwrap_or_default() }
        }
        _ => ListenError::NotHeld { port, errno: 0 },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::vocabulary::stream::TcpListenConfig;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn any_port() -> ListenAddress {
        ListenAddress { address: Some(LOOPBACK), port: 0 }
    }

    /// Says that any port will do.
    const ANY: fn(u16) -> Result<(), ListenError> = |_| Ok(());

    fn end(ports: &mut HeldPorts, at: ListenAddress) {
        let admitted = ports.admit(Request::Unlisten { at }, |_, _| Ok(()));
        assert!(matches!(admitted, Some(Request::Unlisten { .. })));
    }

    /// Ports that listeners have chosen and left are chosen again; those asked for by number are not.
    #[test]
    fn a_port_that_was_left_is_given_away_again() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let (first, second) =
            (ports.hold_listener(any_port(), ANY).unwrap(), ports.hold_listener(any_port(), ANY).unwrap());
        assert_ne!(first.port, second.port);
        for _ in 0..10 {
            end(&mut ports, first);
            assert_eq!(ports.hold_listener(any_port(), ANY).unwrap(), first);
        }
        // Who asks for it by number has it for good.
        end(&mut ports, second);
        assert_eq!(ports.hold_listener(second, ANY).unwrap(), second);
        end(&mut ports, second);
        let third = ports.hold_listener(any_port(), ANY).unwrap();
        assert!(third.port != first.port && third.port != second.port);
        // The kernel gives none of them to others.
        for at in [first, second, third] {
            assert!(TcpListener::bind((LOOPBACK, at.port)).is_err(), "{at:?}");
        }
    }

    /// A port of this machine that nobody has refuses connections.
    #[test]
    fn a_port_of_nobody_is_known() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let kernel = TcpListener::bind((LOOPBACK, 0)).unwrap().local_addr().unwrap();
        assert!(ports.is_nobodys(kernel), "it was closed");
        let kernel = TcpListener::bind((LOOPBACK, 0)).unwrap();
        assert!(!ports.is_nobodys(kernel.local_addr().unwrap()));
        let own = ports.hold_listener(any_port(), ANY).unwrap();
        assert!(!ports.is_nobodys((LOOPBACK, own.port).into()));
        assert!(!ports.is_nobodys((LOOPBACK, ports.of_active_opens().1).into()));
        assert!(!ports.is_nobodys(([127, 0, 0, 2], own.port).into()), "that of another");
    }

    /// Who looks whether a port is anybody's keeps no other program from listening there that sets
    /// SO_REUSEADDR, as the standard library does.
    #[test]
    fn a_look_at_a_port_leaves_it_free() {
        // Of an address that nothing else here has.
        let port = TcpListener::bind(("127.0.77.1", 0)).unwrap().local_addr().unwrap();
        let _look = look_at(port).unwrap();
        assert!(is_free(port));
        let _listener = TcpListener::bind(port).unwrap();
        assert!(!is_free(port));
    }

    /// A port that was found for a listener is held until that does without it.
    #[test]
    fn a_port_that_was_found_is_held() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let (reply, found) = channel::bounded(1);
        let reply = Reply::call(move |answer| reply.send(answer).unwrap());
        let at = any_port();
        let request = ports.admit(Request::ReservePort { at, reuse_address: false, reply }, |_, _| Ok(()));
        let Some(Request::ReservePort { at, reply, .. }) = request else { panic!("it was refused") };
        reply.send(Ok(at.port));
        assert_eq!(found.recv().unwrap(), Some(Ok(at.port)));
        assert!(TcpListener::bind((LOOPBACK, at.port)).is_err());
        assert_ne!(ports.hold_listener(any_port(), ANY).unwrap(), at);
        assert!(ports.admit(Request::ReleasePort { at }, |_, _| Ok(())).is_some());
        assert_eq!(ports.hold_listener(any_port(), ANY).unwrap(), at);
    }

    /// A port that was chosen for a listener that the engine refuses is chosen again, by the same or by
    /// another kind of request.
    #[test]
    fn a_port_whose_listener_was_refused_is_given_away_again() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let mut refused = Vec::new();
        for _ in 0..2 * HELD_MAX {
            let (reply, answer) = Reply::new();
            let request = Request::ReservePort { at: any_port(), reuse_address: false, reply };
            let Some(Request::ReservePort { at, reply, .. }) = ports.admit(request, |_, _| Ok(())) else {
                panic!("{:?}", answer.recv());
            };
            reply.send(Err(ListenError::TooManyListeners));
            assert_eq!(answer.recv(), Ok(Err(ListenError::TooManyListeners)));
            let (reply, answer) = Reply::new();
            let config = TcpListenConfig::default();
            let request = Request::Stream(StreamRequest::Listen { at: any_port(), config, reply });
            let Some(Request::Stream(StreamRequest::Listen { at: other, reply, .. })) =
                ports.admit(request, |_, _| Ok(()))
            else {
                panic!("{:?}", answer.recv().map(Result::err));
            };
            drop(reply);
            refused.push(at);
            end(&mut ports, other);
        }
        refused.dedup();
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(TcpListener::bind((LOOPBACK, refused[0].port)).is_err());
    }

    /// A port that does not suit the cores of a listener is not chosen for it, and stays for others.
    #[test]
    fn a_port_suits_the_cores_of_its_listener() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let first = ports.hold_listener(any_port(), ANY).unwrap();
        end(&mut ports, first);
        let unsuited = |port| if port == first.port { Err(ListenError::OtherCore(port)) } else { Ok(()) };
        let second = ports.hold_listener(any_port(), unsuited).unwrap();
        assert_ne!(second, first);
        assert_eq!(ports.hold_listener(any_port(), ANY).unwrap(), first);
        let held = ports.held.len();
        let refused = ports.hold_listener(any_port(), |port| Err(ListenError::NoPortOfCore(port)));
        assert!(matches!(refused, Err(ListenError::NoPortOfCore(port)) if port != 0), "{refused:?}");
        assert_eq!(ports.held.len(), held);
    }

    /// A port that the kernel has given away is refused, and nothing is held for it; so is one port too many.
    #[test]
    fn ports_end() {
        let mut ports = HeldPorts::new(vec![LOOPBACK]).unwrap();
        let taken = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = ports.hold_listener(ListenAddress { address: Some(LOOPBACK), port }, ANY);
        assert_eq!(refused, Err(ListenError::PortOfKernel(port)));
        assert!(ports.held.is_empty());
        for _ in 0..HELD_MAX {
            ports.hold_listener(any_port(), ANY).unwrap();
        }
        let full = ListenError::NotHeld { port: 0, errno: Errno::MFILE.raw_os_error() };
        assert_eq!(ports.hold_listener(any_port(), ANY), Err(full));
    }
}
