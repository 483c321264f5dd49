//! The CPUs of this machine that the cores of a device may have.

use std::fs;
use std::path::Path;

use warpline_dataplane::limits::CORES_MAX;

use crate::vocabulary::cpu_list::CpuList;

/// Why a NUMA node has no CPUs for a device.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuFault {
    /// There is no such node, or no CPU of it may be used.
    #[error(
        "NUMA node {node} has no CPU that this process may use: list CPUs (lscpu shows the nodes, taskset -p \
         what a process may use)"
    )]
    NoCpu {
        /// The number of the node.
        node: usize,
    },
    /// The node has more CPUs than a device has cores.
    #[error(
        "this process may use {cpus} CPUs of NUMA node {node}, and a device has at most {CORES_MAX} cores: \
         list the CPUs"
    )]
    TooMany {
        /// The number of the node.
        node: usize,
        /// CPUs of it that this process may use.
        cpus: usize,
    },
}

/// Returns the CPUs of `cores`, one for each core. Those that are listed one by one are not looked at: the
/// thread that cannot be pinned to one says so.
///
/// # Errors
///
/// [`CpuFault`].
pub(crate) fn cpus_of(cores: &CpuList) -> Result<Vec<usize>, CpuFault> {
    match cores {
        CpuList::Cpus(cpus) => Ok(cpus.clone()),
        CpuList::Node(node) => {
            let usable = core_affinity::get_core_ids().unwrap_or_default();
            let usable: Vec<usize> = usable.into_iter().map(|cpu| cpu.id).collect();
            cpus_of_node(Path::new("/"), *node, &usable)
        }
    }
}

/// Returns those of `usable` that are CPUs of a node, in a system whose files are under `root`.
fn cpus_of_node(root: &Path, node: usize, usable: &[usize]) -> Result<Vec<usize>, CpuFault> {
    let list = root.join(format!("sys/devices/system/node/node{node}/cpulist"));
    let list = fs::read_to_string(list).map_err(|_| CpuFault::NoCpu { node })?;
    let cpus: Vec<usize> = parse(list.trim()).filter(|cpu| usable.contains(cpu)).collect();
    match cpus.len() {
        0 => Err(CpuFault::NoCpu { node }),
        1..=CORES_MAX => Ok(cpus),
        cpus => Err(CpuFault::TooMany { node, cpus }),
    }
}

/// Returns the CPUs of a list of the kernel's, as in `0-3,8-11`; what is no number is left out.
fn parse(list: &str) -> impl Iterator<Item = usize> {
    list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
        range.into_iter().flat_map(|(first, last)| first..=last)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process;

    use super::*;

    #[test]
    fn a_list_of_the_kernels_is_ranges_and_numbers() {
        for (list, cpus) in [("0-3,8,10-11", &[0, 1, 2, 3, 8, 10, 11][..]), ("5", &[5]), ("", &[])] {
            assert_eq!(parse(list).collect::<Vec<_>>(), cpus, "{list}");
        }
    }

    /// A system with the CPUs of a node.
    fn system(list: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("warpline-cpus-{}-{}", process::id(), list.len()));
        let node = root.join("sys/devices/system/node/node1");
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), list).unwrap();
        root
    }

    #[test]
    fn a_node_has_the_cpus_that_may_be_used() {
        let root = system("0-127\n");
        assert_eq!(cpus_of_node(&root, 1, &[3, 200, 7]), Ok(vec![3, 7]));
        let all: Vec<usize> = (0..128).collect();
        assert_eq!(cpus_of_node(&root, 1, &all[..64]).map(|cpus| cpus.len()), Ok(64));
        assert_eq!(cpus_of_node(&root, 1, &all), Err(CpuFault::TooMany { node: 1, cpus: 128 }));
        assert_eq!(cpus_of_node(&root, 1, &[200]), Err(CpuFault::NoCpu { node: 1 }));
        assert_eq!(cpus_of_node(&root, 0, &all), Err(CpuFault::NoCpu { node: 0 }));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn listed_cpus_are_those() {
        assert_eq!(cpus_of(&CpuList::Cpus(vec![900, 3])), Ok(vec![900, 3]));
    }
}
