//! The Unix sockets of `memif` and `vhost`. A process that was killed leaves its socket behind: drivers take
//! that for one that is in use.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::claim::Owner;
use crate::vocabulary::device_name::{DeviceKind, DeviceName};

/// Why a device cannot have its socket.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketFault {
    /// Another process listens there.
    #[error("{} listens at {path} already: take another path, or the other end of this one ({other_end})",
        named(.owner.as_ref()))]
    InUse {
        /// The path.
        path: String,
        /// The process, if it can be found.
        owner: Option<Owner>,
        /// How the other end is named.
        other_end: String,
    },
    /// The path is that of a file, or of a directory.
    #[error("{path} is there, and is no socket: take another path, or remove it")]
    NotASocket {
        /// The path.
        path: String,
    },
    /// The socket cannot be made, or a left-over one cannot be removed.
    #[error("{path}: {reason}: take a path in a directory of your own")]
    Directory {
        /// The path.
        path: String,
        /// The reason of the system.
        reason: String,
    },
    /// The other end is not there, and has to be first.
    #[error("nothing listens at {path}: start the other end first ({other_end})")]
    NoPeer {
        /// The path.
        path: String,
        /// How the other end is named.
        other_end: String,
    },
}

fn named(owner: Option<&Owner>) -> String {
    owner.map_or_else(|| "another process".into(), ToString::to_string)
}

/// What is at the path of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A socket whose process has ended.
    Stale,
    Listening,
    NoSocket,
}

/// Prepares the path of the socket of `device`, if it has one: removes what a process that has ended has left
/// there.
///
/// # Errors
///
/// [`SocketFault`].
pub(crate) fn prepare(device: &DeviceName) -> Result<(), SocketFault> {
    let is = |option: &str, value: &str| {
        device.driver_options().iter().any(|(name, set)| name == option && set == value)
    };
    let target = device.target();
    let (listens, other_end) = match device.kind() {
        DeviceKind::Memif if is("role", "client") => return Ok(()),
        DeviceKind::Memif => (true, format!("memif:{target},role=client")),
        DeviceKind::Vhost => (!is("client", "1"), format!("virtio_user:{target}")),
        DeviceKind::VirtioUser => (is("server", "1"), format!("vhost:{target}")),
        _ => return Ok(()),
    };
    let path = || target.to_owned();
    let found = look(Path::new(target)).map_err(|error| directory(target, &error))?;
    match (found, listens) {
        (Found::NoSocket, _) => Err(SocketFault::NotASocket { path: path() }),
        (Found::Listening, true) => {
            let owner = Owner::listening_at(target).map(|(owner, _)| owner);
            Err(SocketFault::InUse { path: path(), owner, other_end })
        }
        (Found::Stale, true) => fs::remove_file(target).map_err(|error| directory(target, &error)),
        (Found::Nothing, true) => check_directory(target),
        // A vhost client waits for its server; virtio does not.
        (Found::Nothing | Found::Stale, false) if device.kind() == DeviceKind::VirtioUser => {
            Err(SocketFault::NoPeer { path: path(), other_end })
        }
        (_, false) => Ok(()),
    }
}

fn directory(path: &str, error: &io::Error) -> SocketFault {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "there is no such directory".into(),
        io::ErrorKind::PermissionDenied => "this user may not write there".into(),
        _ => error.to_string(),
    };
    SocketFault::Directory { path: path.to_owned(), reason }
}

/// Finds out by making a socket and removing it again whether there can be one at `path`.
fn check_directory(path: &str) -> Result<(), SocketFault> {
    let made = std::os::unix::net::UnixListener::bind(path).and_then(|_| fs::remove_file(path));
    made.map_err(|error| directory(path, &error))
}

fn look(path: &Path) -> io::Result<Found> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => return Ok(Found::NoSocket),
        Ok(_) => {}
    }
    // A datagram socket: whatever listens there refuses its type, and notices nothing of it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::CONNREFUSED) => Ok(Found::Stale),
        Err(error @ (rustix::io::Errno::ACCESS | rustix::io::Errno::PERM)) => Err(error.into()),
        _ => Ok(Found::Listening),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn prepared(name: &str) -> Result<(), String> {
        prepare(&name.parse().unwrap()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_left_over_socket_is_removed_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let path = path.to_str().unwrap();
        for (server, client) in [
            ("memif:PATH", "memif:PATH,role=client"),
            ("vhost:PATH", "virtio_user:PATH"),
            ("virtio_user:PATH,server=1", "vhost:PATH"),
        ] {
            let [server, client] = [server, client].map(|name| name.replace("PATH", path));
            assert_eq!(prepared(&server), Ok(()));
            assert!(!Path::new(path).exists());
            let listener = UnixListener::bind(path).unwrap();
            let in_use = format!(
                "another device of this process listens at {path} already: take another path, or the other \
                 end of this one ({client})"
            );
            assert_eq!(prepared(&server), Err(in_use));
            assert!(Path::new(path).exists());
            drop(listener);
            assert_eq!(prepared(&server), Ok(()));
            assert!(!Path::new(path).exists(), "{server}");
        }
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "of somebody").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(
            prepared(&format!("vhost:{path}")),
            Err(format!("{path} is there, and is no socket: take another path, or remove it"))
        );
        assert_eq!(fs::read_to_string(path).unwrap(), "of somebody");
        let nowhere = format!("{path}/socket");
        assert!(prepared(&format!("memif:{nowhere}")).unwrap_err().starts_with(&format!("{nowhere}: ")));
        let nowhere = directory.path().join("none/socket");
        let nowhere = nowhere.display();
        assert_eq!(
            prepared(&format!("vhost:{nowhere}")),
            Err(format!("{nowhere}: there is no such directory: take a path in a directory of your own"))
        );
    }

    #[test]
    fn virtio_needs_its_peer_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let path = path.to_str().unwrap();
        let no_peer = format!("nothing listens at {path}: start the other end first (vhost:{path})");
        let name = format!("virtio_user:{path}");
        assert_eq!(prepared(&name), Err(no_peer.clone()));
        drop(UnixListener::bind(path).unwrap());
        assert_eq!(prepared(&name), Err(no_peer), "left over");
        fs::remove_file(path).unwrap();
        let _listener = UnixListener::bind(path).unwrap();
        assert_eq!(prepared(&name), Ok(()));
        assert_eq!(prepared(&format!("vhost:{path},client=1")), Ok(()));
    }
}
