//! Claims of processes to addresses on an interface: two stacks with one address would answer each other's
//! peers.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

/// What one process at a time may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressKey {
    /// The index of the interface in this network namespace.
    pub(crate) interface: u32,
    pub(crate) vlan: Option<u16>,
    pub(crate) address: IpAddr,
}

impl AddressKey {
    /// Returns the name of an abstract socket (unix(7)): each network namespace has its own, and they go with
    /// their process, however it ends.
    fn socket(self) -> io::Result<SocketAddr> {
        let Self { interface, vlan, address } = self;
        let vlan = vlan.unwrap_or(0);
        SocketAddr::from_abstract_name(format!("warpline/{interface}/{vlan}/{address}"))
    }
}

/// The claim to an address, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: UnixListener,
}

/// A process that has what another one asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// The name of its program; empty if it is not known.
    pub program: String,
}

impl Owner {
    /// Returns the process that listens at the other end of `stream`, with its user.
    pub(crate) fn of(stream: &UnixStream) -> Option<(Self, u32)> {
        let credentials = socket_peercred(stream).ok()?;
        let pid = credentials.pid.as_raw_nonzero().get().cast_unsigned();
        Some((Self::with_pid(pid), credentials.uid.as_raw()))
    }

    /// Returns the process with the number `pid`.
    pub(crate) fn with_pid(pid: u32) -> Self {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self { pid, program: program.trim().to_owned() }
    }

    /// Returns true if it is the process that asks.
    pub fn is_this_process(&self) -> bool {
        self.pid == process::id()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_this_process(), self.program.as_str()) {
            (true, _) => f.write_str("another device of this process"),
            (false, "") => write!(f, "process {}", self.pid),
            (false, program) => write!(f, "process {} ({program})", self.pid),
        }
    }
}

/// How long a process that has ended may still hold its claim: it gives memory and devices back first.
const ENDING: Duration = Duration::from_millis(500);
const INTERVAL: Duration = Duration::from_millis(20);

/// Claims what `key` says for this process, and waits for another one that may just have been killed.
///
/// # Errors
///
/// As [`try_claim`].
pub(crate) fn claim(key: AddressKey) -> Result<Option<Claim>, Owner> {
    let begin = Instant::now();
    loop {
        match try_claim(key) {
            Err(owner) if !owner.is_this_process() && begin.elapsed() < ENDING => thread::sleep(INTERVAL),
            done => return done,
        }
    }
}

/// Claims what `key` says for this process.
///
/// # Errors
///
/// The process that has it. Only root and the own user count: a name in this namespace protects nobody from
/// other users, and must not let them keep the device from this one. Where no socket can be bound for another
/// reason there is no claim, and no error.
fn try_claim(key: AddressKey) -> Result<Option<Claim>, Owner> {
    let Ok(socket) = key.socket() else { return Ok(None) };
    match UnixListener::bind_addr(&socket) {
        Ok(listener) => Ok(Some(Claim { _socket: listener })),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let owner = UnixStream::connect_addr(&socket).ok().and_then(|stream| Owner::of(&stream));
            match owner {
                Some((owner, user)) if user == 0 || user == rustix::process::getuid().as_raw() => Err(owner),
                _ => Ok(None),
            }
        }
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_on_an_interface_has_one_holder() {
        // No interface has this index: nothing else claims it.
        let key = AddressKey { interface: u32::MAX, vlan: None, address: [198, 18, 0, 1].into() };
        let first = claim(key).unwrap().expect("a claim");
        let owner = claim(key).unwrap_err();
        assert_eq!(owner.pid, process::id());
        assert_eq!(owner.to_string(), "another device of this process");
        for other in [
            AddressKey { address: [198, 18, 0, 2].into(), ..key },
            AddressKey { vlan: Some(7), ..key },
            AddressKey { interface: u32::MAX - 1, ..key },
        ] {
            assert!(claim(other).unwrap().is_some(), "{other:?}");
        }
        drop(first);
        assert!(claim(key).unwrap().is_some());
    }
}
