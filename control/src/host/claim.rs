//! Claims of processes to addresses on an interface: two stacks with one address would answer each other's
//! peers.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

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
    fn name(self) -> String {
        let Self { interface, vlan, address } = self;
        let vlan = vlan.unwrap_or(0);
        format!("warpline/{interface}/{vlan}/{address}")
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

    /// Returns the process that listens at `path`, with the user who made its socket, if the process is in
    /// this network namespace and may be looked at. An abstract name begins with `@`.
    pub(crate) fn listening_at(path: &str) -> Option<(Self, u32)> {
        /// `__SO_ACCEPTCON` of Linux's `net.h`: connections that wait to be accepted have the path, too.
        const LISTENS: &str = "00010000";
        // The words of a line from the fourth on: flags, type, state, number of the socket, path.
        let sockets = fs::read_to_string("/proc/net/unix").ok()?;
        let number = sockets.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(3);
            let (flags, number) = (words.next()?, words.nth(2)?);
            (flags == LISTENS && words.next() == Some(path)).then_some(number)
        })?;
        let link = format!("socket:[{number}]");
        let is_socket =
            |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == &*link);
        fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let socket = fs::read_dir(process.path().join("fd")).ok()?.flatten().find(is_socket)?;
            let user = fs::metadata(socket.path()).ok()?.uid();
            Some((Self::with_pid(pid), user))
        })
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

/// The process that has a name.
struct Holder {
    owner: Owner,
    user: u32,
    /// A connection to its listener; `None` if the listener has no room for one.
    stream: Option<UnixStream>,
}

impl Holder {
    /// Finds the process that listens at the abstract name `name`.
    fn find(name: &str) -> Option<Self> {
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?;
        // A claim accepts no connection, and a closed one keeps its place in the backlog. Where that is full,
        // connect(2) on a blocking socket would wait for ever.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        let ((owner, user), stream) = match connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                (Owner::of(&stream)?, Some(stream))
            }
            Err(Errno::AGAIN) => (Owner::listening_at(&format!("@{name}"))?, None),
            Err(_) => return None,
        };
        Some(Self { owner, user, stream })
    }

    /// Returns true if it has the name still: it writes nothing, and its end resets the stream.
    fn has_name(&self) -> bool {
        let read = self.stream.as_ref().map(|mut stream| stream.read(&mut [0]));
        matches!(read, Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Returns true if it can keep the device from this process. Only root and the own user count: a name in
    /// this namespace protects nobody from other users, and must not let them keep the device from this one.
    fn counts(&self) -> bool {
        self.user == 0 || self.user == rustix::process::getuid().as_raw()
    }
}

/// Claims what `key` says for this process, and waits for another one that may just have been killed.
///
/// # Errors
///
/// The process that has it, of root or of the own user. Where it is another user's, or no socket can be bound
/// for another reason, there is no claim, and no error.
pub(crate) fn claim(key: AddressKey) -> Result<Option<Claim>, Owner> {
    let begin = Instant::now();
    let name = key.name();
    let Ok(address) = SocketAddr::from_abstract_name(&name) else { return Ok(None) };
    let mut known = None;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Some(Claim { _socket: listener })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(_) => return Ok(None),
        }
        let holder = known.take().filter(Holder::has_name).or_else(|| Holder::find(&name));
        let Some(holder) = holder.filter(Holder::counts) else { return Ok(None) };
        let limit = if is_ending(holder.owner.pid) { IS_ENDING } else { MAY_BE_ENDING };
        if holder.owner.is_this_process() || begin.elapsed() >= limit {
            return Err(holder.owner);
        }
        known = Some(holder);
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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

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

    /// A claim whose backlog is full blocks nobody who asks for it, and has its owner still.
    #[test]
    fn a_full_backlog_is_not_waited_for() {
        let key = AddressKey { interface: u32::MAX, vlan: None, address: [198, 18, 0, 3].into() };
        let address = SocketAddrUnix::new_abstract_name(key.name().as_bytes()).unwrap();
        let new =
            || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let (listener, client) = (new(), new());
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        connect(&client, &address).unwrap();
        drop(client);
        let (done, claimed) = mpsc::channel();
        thread::spawn(move || done.send(claim(key)));
        let claimed = claimed.recv_timeout(Duration::from_mins(1)).expect("an answer");
        assert_eq!(claimed.unwrap_err().pid, process::id());
        // Its name is free as soon as it is gone.
        drop(listener);
        assert!(claim(key).unwrap().is_some());
    }

    /// Whoever waits for a claim finds out that its owner is gone.
    #[test]
    fn a_holder_that_is_gone_has_no_name() {
        let key = AddressKey { interface: u32::MAX, vlan: None, address: [198, 18, 0, 4].into() };
        let claimed = claim(key).unwrap();
        let holder = Holder::find(&key.name()).unwrap();
        assert!(holder.has_name() && holder.counts() && holder.owner.is_this_process());
        assert_eq!(
            Owner::listening_at(&format!("@{}", key.name())),
            Some((holder.owner.clone(), holder.user))
        );
        drop(claimed);
        assert!(!holder.has_name() && Holder::find(&key.name()).is_none());
    }
}
