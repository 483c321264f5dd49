//! From the name of a backend to a device of DPDK's.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use tempfile::TempDir;
use warpline::open::{self, OpenError};
use warpline_dataplane::device::dpdk::DpdkDevice;

use crate::cli::Backend;

/// Why a backend cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// It needs something said of it.
    #[error("backend {backend} needs --eal \"{example}\": {why}")]
    NeedsArguments {
        /// The backend.
        backend: &'static str,
        /// What to write.
        example: &'static str,
        /// What is missing.
        why: &'static str,
    },
    /// There is no place for the socket that the other end connects to.
    #[error(
        "no directory for a socket in {0}: {1}; set XDG_RUNTIME_DIR, or name a socket with --eal --vdev=..."
    )]
    Socket(PathBuf, io::Error),
    /// DPDK refuses.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What DPDK is told to make a backend, and what its port is called then.
#[derive(Debug)]
pub struct Plan {
    /// The EAL's arguments.
    pub eal: String,
    /// The port to open.
    pub port: String,
    /// The socket of this end, unless the arguments name one. Keep it until the port is closed.
    pub socket: Option<Socket>,
}

/// A socket in a directory that no other user can write to. In a shared directory like `/tmp` another user
/// could make the socket first, and whoever serves it shares the memory of the wire.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Removed with the socket when this is dropped.
    _directory: Option<TempDir>,
}

impl Socket {
    /// Names the socket `name` in `runtime` (`$XDG_RUNTIME_DIR`), which is its user's alone, or else in a
    /// directory made for it in `shared`.
    fn new(name: &str, runtime: Option<PathBuf>, shared: &Path) -> Result<Self, BackendError> {
        if let Some(runtime) = runtime.filter(|runtime| runtime.is_absolute() && runtime.is_dir()) {
            return Ok(Self { path: runtime.join(name), _directory: None });
        }
        // Its name cannot be guessed, and mode 0700 keeps others out.
        let own = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("warpline-").permissions(own).tempdir_in(shared);
        let directory = directory.map_err(|error| BackendError::Socket(shared.into(), error))?;
        Ok(Self { path: directory.path().join(name), _directory: Some(directory) })
    }

    /// Names the socket `name` for this process.
    fn here(name: &str) -> Result<Self, BackendError> {
        Self::new(name, env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), &env::temp_dir())
    }
}

/// The port of a backend, with a `--vdev` of its kind taken from `eal`, or added to it where a default serves.
///
/// # Errors
///
/// [`BackendError::NeedsArguments`], [`BackendError::Socket`].
pub fn plan(backend: Backend, eal: &str) -> Result<Plan, BackendError> {
    let needs = |example, why| BackendError::NeedsArguments { backend: backend.name(), example, why };
    let (driver, default) = match backend {
        Backend::Ring => return Ok(Plan { eal: eal.into(), port: String::new(), socket: None }),
        Backend::Tap => ("net_tap", Some("net_tap0,iface=warpline0")),
        Backend::AfPacket => ("net_af_packet", None),
        Backend::AfXdp => ("net_af_xdp", None),
        // An abstract socket, the driver's default, has no owner: any user could be first.
        Backend::Memif => ("net_memif", Some("net_memif0,role=server,socket-abstract=no,socket=")),
        Backend::Vhost => ("net_vhost", Some("net_vhost0,iface=")),
        Backend::Pci => {
            let address = value_of(eal, &["-a", "--allow"]);
            let port = address
                .ok_or_else(|| needs("-a 0000:01:00.0", "the address of a device bound to vfio-pci"))?;
            let port = port.split(',').next().unwrap_or(port).into();
            return Ok(Plan { eal: eal.into(), port, socket: None });
        }
    };
    // A process at the other end of a vhost-user socket names its side of it.
    let named = value_of(eal, &["--vdev"]).filter(|vdev| {
        vdev.starts_with(driver) || (backend == Backend::Vhost && vdev.starts_with("net_virtio_user"))
    });
    let port = |vdev: &str| vdev.split(',').next().unwrap_or(vdev).to_owned();
    match (named, default) {
        (Some(vdev), _) => Ok(Plan { eal: eal.into(), port: port(vdev), socket: None }),
        (None, Some(vdev)) => {
            let socket = match backend {
                Backend::Memif | Backend::Vhost => {
                    Some(Socket::here(&format!("warpline-{}.sock", backend.name()))?)
                }
                _ => None,
            };
            let path = socket.as_ref().map(|socket| socket.path.display().to_string()).unwrap_or_default();
            Ok(Plan { eal: format!("{eal} --vdev={vdev}{path}").trim().into(), port: port(vdev), socket })
        }
        (None, None) if backend == Backend::AfXdp => {
            Err(needs("--vdev=net_af_xdp0,iface=IF", "the interface to use"))
        }
        (None, None) => Err(needs(
            "--vdev=net_af_packet0,iface=IF,framesz=9216,blocksz=36864,framecnt=512",
            "the interface to use",
        )),
    }
}

/// The value of the first argument with one of `names`, written with `=` or with a blank.
fn value_of<'e>(eal: &'e str, names: &[&str]) -> Option<&'e str> {
    let mut words = eal.split_whitespace();
    while let Some(word) = words.next() {
        for name in names {
            if word == *name {
                return words.next();
            }
            if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
    }
    None
}

/// Opens the port of `plan`, to be polled on the CPU `cpu`.
///
/// # Errors
///
/// [`BackendError::Open`].
pub fn open_port(plan: &Plan, mtu_octets: u16, cpu: usize) -> Result<DpdkDevice, BackendError> {
    if let Some(socket) = &plan.socket {
        eprintln!("socket: {}", socket.path.display());
    }
    let eal = open::eal(&beside(&plan.eal, cpu))?;
    Ok(open::port(eal, &plan.port, mtu_octets)?)
}

/// `eal`, with EAL's own threads kept off `cpu`, unless it says something of lcores itself. When the peer of a memif leaves, one
/// of these threads unmaps the rings; where it has interrupted the thread that polls in the midst of a burst, the driver of
/// DPDK 22.11 then reads what is gone.
fn beside(eal: &str, cpu: usize) -> String {
    match value_of(eal, &["--lcores"]) {
        Some(_) => eal.into(),
        None => format!("--lcores=0@{cpu} {eal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(backend: Backend, eal: &str) -> Option<String> {
        plan(backend, eal).ok().map(|plan| plan.port)
    }

    #[test]
    fn threads_of_eal_keep_off_the_core() {
        assert_eq!(beside("-m 8 --no-huge", 3), "--lcores=0@3 -m 8 --no-huge");
        assert_eq!(beside("--lcores 0@1,1@2 -m 8", 3), "--lcores 0@1,1@2 -m 8");
    }

    #[test]
    fn names_come_from_the_arguments() {
        assert_eq!(port(Backend::Tap, ""), Some("net_tap0".into()));
        assert_eq!(port(Backend::Tap, "--vdev=net_tap3,iface=x"), Some("net_tap3".into()));
        assert_eq!(
            port(Backend::AfPacket, "--no-huge --vdev net_af_packet1,iface=e"),
            Some("net_af_packet1".into())
        );
        assert_eq!(port(Backend::Vhost, "--vdev=net_virtio_user0,path=s"), Some("net_virtio_user0".into()));
        assert_eq!(port(Backend::Pci, "-a 0000:01:00.0,x=1"), Some("0000:01:00.0".into()));
    }

    /// Never straight in a directory where another user could have made the socket first.
    #[test]
    fn sockets_are_in_a_directory_of_the_users_own() {
        let shared = tempfile::tempdir().unwrap();
        for runtime in [None, Some("".into()), Some("relative".into()), Some(shared.path().join("missing"))] {
            let sockets = [(); 2].map(|()| Socket::new("s", runtime.clone(), shared.path()).unwrap());
            assert_ne!(sockets[0].path, sockets[1].path, "one for each process");
            for socket in sockets {
                let own = socket.path.parent().unwrap().to_path_buf();
                assert_eq!(own.parent(), Some(shared.path()));
                assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o700);
                drop(socket);
                assert!(!own.exists());
            }
        }
        let socket = Socket::new("s", Some(shared.path().into()), Path::new("/nowhere")).unwrap();
        assert_eq!(socket.path, shared.path().join("s"));
        drop(socket);
        assert!(shared.path().exists(), "the user's runtime directory stays");
    }

    #[test]
    fn default_devices_name_the_socket_that_is_kept() {
        for (backend, driver) in [(Backend::Memif, "net_memif0"), (Backend::Vhost, "net_vhost0")] {
            let plan = plan(backend, "-m 8").unwrap();
            let path = plan.socket.unwrap().path;
            assert_eq!(plan.port, driver);
            assert!(
                plan.eal.starts_with("-m 8 --vdev=") && plan.eal.ends_with(path.to_str().unwrap()),
                "{}",
                plan.eal
            );
            assert!(!plan.eal.contains("socket-abstract=yes"));
        }
        assert!(plan(Backend::Memif, "--vdev=net_memif0,socket=x").unwrap().socket.is_none());
    }

    #[test]
    fn what_cannot_be_guessed_is_asked_for() {
        for backend in [Backend::AfPacket, Backend::AfXdp, Backend::Pci] {
            let error = plan(backend, "").unwrap_err().to_string();
            assert!(error.contains(backend.name()) && error.contains("--eal"), "{error}");
        }
        assert!(plan(Backend::AfPacket, "--vdev=net_tap0").is_err(), "another driver's device");
    }
}
