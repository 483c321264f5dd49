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

/// How long a process that may be ending is asked for its claim again.
const MAY_BE_ENDING: Duration = Duration::from_millis(500);
/// The same for one that is ending: it gives memory and devices back first, which takes a busy machine long.
const IS_ENDING: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(20);

/// Claims what `key` says for this process, and waits for another one that may just have been killed.
///
/// # Errors
///
/// As [`try_claim`].
pub(crate) fn claim(key: AddressKey) -> Result<Option<Claim>, Owner> {
    let begin = Instant::now();
    loop {
        let owner = match try_claim(key) {
            Err(owner) if !owner.is_this_process() => owner,
            done => return done,
        };
        let limit = if is_ending(owner.pid) { IS_ENDING } else { MAY_BE_ENDING };
        if begin.elapsed() >= limit {
            return Err(owner);
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns true if the process is gone, or certain to be soon: it exits, or SIGKILL has been sent to it.
fn is_ending(pid: u32) -> bool {
    /// proc_pid_stat(5), field 9: `PF_EXITING` of Linux's `sched.h`.
    const EXITING: u32 = 4;
    const SIGKILL: u32 = 9;
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The fields from the third on, after the name in parentheses: the state, and later the flags.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let (state, flags) = (fields.next(), fields.nth(5).and_then(|flags| flags.parse::<u32>().ok()));
    if matches!(state, Some("Z" | "X")) || flags.is_some_and(|flags| flags & EXITING != 0) {
        return true;
    }
    // A signal that waits to be seen by the process (proc_pid_status(5)), or by its first thread.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let waiting = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let is_killed = |signals: &str| {
        u64::from_str_radix(signals.trim(), 16).is_ok_and(|signals| signals >> (SIGKILL - 1) & 1 == 1)
    };
    ["SigPnd:", "ShdPnd:"].into_iter().filter_map(waiting).any(is_killed)
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
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_was_killed_is_ending() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!is_ending(process::id()) && !is_ending(child.id()));
        child.kill().unwrap();
        // From the signal on, whatever the child has done about it.
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()), "it is gone");
    }

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
