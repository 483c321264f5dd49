//! From the name of a backend to a device of DPDK's.

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
    /// DPDK refuses.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What DPDK is told to make a backend, and what its port is called then.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The EAL's arguments.
    pub eal: String,
    /// The port to open.
    pub port: String,
}

/// The port of a backend, with a `--vdev` of its kind taken from `eal`, or added to it where a default serves.
///
/// # Errors
///
/// [`BackendError::NeedsArguments`].
pub fn plan(backend: Backend, eal: &str) -> Result<Plan, BackendError> {
    let needs = |example, why| BackendError::NeedsArguments { backend: backend.name(), example, why };
    let (driver, default) = match backend {
        Backend::Ring => return Ok(Plan { eal: eal.into(), port: String::new() }),
        Backend::Tap => ("net_tap", Some("net_tap0,iface=warpline0")),
        Backend::AfPacket => ("net_af_packet", None),
        Backend::AfXdp => ("net_af_xdp", None),
        Backend::Memif => ("net_memif", Some("net_memif0,role=server")),
        Backend::Vhost => ("net_vhost", Some("net_vhost0,iface=/tmp/warpline-vhost.sock")),
        Backend::Pci => {
            let address = value_of(eal, &["-a", "--allow"]);
            let port = address
                .ok_or_else(|| needs("-a 0000:01:00.0", "the address of a device bound to vfio-pci"))?;
            return Ok(Plan { eal: eal.into(), port: port.split(',').next().unwrap_or(port).into() });
        }
    };
    // A process at the other end of a vhost-user socket names its side of it.
    let named = value_of(eal, &["--vdev"]).filter(|vdev| {
        vdev.starts_with(driver) || (backend == Backend::Vhost && vdev.starts_with("net_virtio_user"))
    });
    let port = |vdev: &str| vdev.split(',').next().unwrap_or(vdev).to_owned();
    match (named, default) {
        (Some(vdev), _) => Ok(Plan { eal: eal.into(), port: port(vdev) }),
        (None, Some(vdev)) => {
            Ok(Plan { eal: format!("{eal} --vdev={vdev}").trim().into(), port: port(vdev) })
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
        assert_eq!(
            port(Backend::Vhost, "--vdev=net_virtio_user0,path=/tmp/s"),
            Some("net_virtio_user0".into())
        );
        assert_eq!(port(Backend::Pci, "-a 0000:01:00.0,x=1"), Some("0000:01:00.0".into()));
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
