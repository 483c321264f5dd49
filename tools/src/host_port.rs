//! Where the other end is, or where this one listens, as the command line has it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use warpline::Cidr;

use crate::error::CommandError;

/// A host and a port: `HOST:PORT`, `HOST`, `[IPV6]:PORT`, `IPV6`, and for an end that listens also `PORT` or
/// `:PORT`, at all addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: Host,
    port: Option<u16>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
    /// None was given.
    Any,
}

impl HostPort {
    /// Returns the address that it has, or its name's first one that is of the same version of IP as an
    /// address in `own`. The port is `port` unless it has one.
    ///
    /// # Errors
    ///
    /// [`CommandError::Resolve`] for a name without such an address, [`CommandError::OtherVersion`] for an
    /// address of another version, [`CommandError::NoHost`] without a host.
    pub fn peer(&self, own: &[Cidr], port: u16) -> Result<SocketAddr, CommandError> {
        let port = self.port.unwrap_or(port);
        let reachable =
            |address: &SocketAddr| own.iter().any(|own| own.address.is_ipv4() == address.is_ipv4());
        match &self.host {
            Host::Address(address) if address.is_unspecified() => Err(CommandError::NoHost),
            Host::Any => Err(CommandError::NoHost),
            Host::Address(address) => Some(SocketAddr::from((*address, port)))
                .filter(reachable)
                .ok_or(CommandError::OtherVersion(*address)),
            Host::Name(name) => resolve(name, port)?.find(reachable).ok_or_else(|| {
                CommandError::Resolve(name.clone(), "it has no address of the device's kind".into())
            }),
        }
    }

    /// Returns the address and port to listen at, among `own`; an unspecified address is all of them. The
    /// port is `port` unless it has one.
    ///
    /// # Errors
    ///
    /// [`CommandError::Resolve`], [`CommandError::ListenAddress`].
    pub fn local(&self, own: &[Cidr], port: u16) -> Result<SocketAddr, CommandError> {
        let port = self.port.unwrap_or(port);
        let is_own = |address: IpAddr| own.iter().any(|own| own.address == address);
        match &self.host {
            Host::Any => Ok((Ipv4Addr::UNSPECIFIED, port).into()),
            Host::Address(address) if address.is_unspecified() || own.is_empty() || is_own(*address) => {
                Ok((*address, port).into())
            }
            Host::Address(address) => Err(CommandError::ListenAddress(*address)),
            Host::Name(name) => {
                let addresses: Vec<_> = resolve(name, port)?.collect();
                let own = addresses.iter().find(|address| own.is_empty() || is_own(address.ip()));
                match (own, addresses.first()) {
                    (Some(address), _) => Ok(*address),
                    (None, Some(address)) => Err(CommandError::ListenAddress(address.ip())),
                    (None, None) => Err(CommandError::Resolve(name.clone(), "it has no address".into())),
                }
            }
        }
    }
}

fn resolve(name: &str, port: u16) -> Result<impl Iterator<Item = SocketAddr> + use<>, CommandError> {
    (name, port).to_socket_addrs().map_err(|error| CommandError::Resolve(name.into(), error.to_string()))
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("'{text}' {what}: write HOST, HOST:PORT, ADDR:PORT or [IPV6]:PORT, as in 198.18.0.2:7471")
        };
        let port = |port: &str| match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(wrong("has no port from 1 to 65535")),
        };
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self { host: Host::Address(address.into()), port: None });
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or_else(|| wrong("lacks a bracket"))?;
            let address: Ipv6Addr = address.parse().map_err(|_| wrong("has no IPv6 address"))?;
            let host = Host::Address(address.into());
            return match rest.strip_prefix(':') {
                None if rest.is_empty() => Ok(Self { host, port: None }),
                None => Err(wrong("goes on after the bracket")),
                Some(digits) => Ok(Self { host, port: port(digits)? }),
            };
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self { host: Host::Any, port: port(text)? });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, digits)) => (name, port(digits)?),
            None => (text, None),
        };
        Ok(Self { host: host(name).ok_or_else(|| wrong("has no host"))?, port })
    }
}

/// Returns the host `name`; `None` if it cannot be one.
fn host(name: &str) -> Option<Host> {
    if let Ok(address) = name.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            // Four numbers that are no address are no name either.
            && name.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    match name {
        "" => Some(Host::Any),
        name => is_name(name).then(|| Host::Name(name.into())),
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address @ IpAddr::V6(_)) if self.port.is_some() => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
            Host::Name(name) => f.write_str(name),
            Host::Any => Ok(()),
        }?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> HostPort {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn own(addresses: &[&str]) -> Vec<Cidr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn every_form_has_its_address_and_port() {
        let own = own(&["198.18.0.1/24", "fd00::1/64", "127.0.0.9/8"]);
        for (text, expected) in [
            ("198.18.0.2:7471", "198.18.0.2:7471"),
            ("198.18.0.2", "198.18.0.2:5"),
            ("[fd00::2]:7471", "[fd00::2]:7471"),
            ("[fd00::2]", "[fd00::2]:5"),
            ("fd00::2", "[fd00::2]:5"),
        ] {
            let peer = parsed(text).peer(&own, 5).map_err(|error| error.to_string());
            assert_eq!(peer, Ok(expected.parse().unwrap()), "{text}");
        }
        assert!(parsed("localhost:7").peer(&own, 5).is_ok_and(|peer| peer.ip().is_loopback()));
        for (text, expected) in [
            ("198.18.0.1:9", "198.18.0.1:9"),
            ("0.0.0.0:9", "0.0.0.0:9"),
            ("0.0.0.0", "0.0.0.0:5"),
            ("[::]:9", "[::]:9"),
            ("::", "[::]:5"),
            ("9", "0.0.0.0:9"),
            (":9", "0.0.0.0:9"),
        ] {
            let local = parsed(text).local(&own, 5).map_err(|error| error.to_string());
            assert_eq!(local, Ok(expected.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "a b",
            "h:",
            "h:x",
            "h:0",
            "h:65536",
            "1.2.3.4.5:7",
            "1.2.3:7",
            "999.1.1.1",
            "[fd00::2",
            "[x]:1",
            "[fd00::2]7",
            "fd00::2:x",
            "99999",
            "h:1:2",
        ] {
            if text.is_empty() {
                continue;
            }
            let refused = text.parse::<HostPort>();
            assert!(refused.as_ref().is_err_and(|error| error.contains(text)), "{text}: {refused:?}");
        }
        let own = own(&["198.18.0.1/24"]);
        for text in ["0.0.0.0:7", ":7", "7"] {
            assert!(matches!(parsed(text).peer(&own, 5), Err(CommandError::NoHost)), "{text}");
        }
        assert!(matches!(parsed("198.18.0.9:7").local(&own, 5), Err(CommandError::ListenAddress(_))));
        assert!(matches!(parsed("fd00::1").peer(&own, 5), Err(CommandError::OtherVersion(_))));
        let unknown = parsed("no-such-host.invalid").peer(&own, 5);
        assert!(matches!(unknown, Err(CommandError::Resolve(..))));
        let v6 = parsed("ip6-localhost.invalid").local(&own, 5);
        assert!(v6.is_err());
    }

    #[test]
    fn it_prints_as_it_was_written() {
        for text in ["h:7", "h", "198.18.0.2:7", "fd00::2", "[fd00::2]:7", ":7"] {
            assert_eq!(parsed(text).to_string(), text);
        }
    }
}
