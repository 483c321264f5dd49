//! The CPUs whose threads poll the cores of a device, as its name lists them.

use std::fmt;
use std::str::FromStr;

use warpline_dataplane::limits::CORES_MAX;

/// One more than the highest number of a CPU or of a NUMA node: that of `cpu_set_t`.
const NUMBERS: usize = 1024;

/// The CPUs of a device, with one core on each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuList {
    /// These CPUs, each once, in the order of the cores: `2-5`, `2+4+7`.
    Cpus(Vec<usize>),
    /// All CPUs of a NUMA node that this process may use: `node0`.
    Node(usize),
}

/// Why a text lists no CPUs.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.rule())]
#[non_exhaustive]
pub enum NotCpuList {
    /// It is neither a list of CPUs nor a NUMA node.
    Form,
    /// No CPU or node has such a number.
    Number,
    /// A range whose last CPU is lower than its first.
    Order,
    /// A CPU is listed twice.
    Twice,
    /// More CPUs than a device has cores.
    Count,
}

impl NotCpuList {
    /// Says what the list must be.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::Form => "list CPUs, as in 2-5 or 2+4+7, or name all of a NUMA node, as in node0",
            Self::Number => "the number of a CPU or of a NUMA node is 0 to 1023",
            Self::Order => "the lower CPU of a range comes first, as in 2-5",
            Self::Twice => "each CPU has one core: name it once",
            Self::Count => "a device has at most 64 cores",
        }
    }
}

impl FromStr for CpuList {
    type Err = NotCpuList;

    fn from_str(text: &str) -> Result<Self, NotCpuList> {
        if let Some(node) = text.strip_prefix("node") {
            return Ok(Self::Node(number(node)?));
        }
        let mut cpus = Vec::new();
        for part in text.split('+') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if last < first {
                return Err(NotCpuList::Order);
            }
            for cpu in first..=last {
                if cpus.contains(&cpu) {
                    return Err(NotCpuList::Twice);
                }
                if cpus.len() == CORES_MAX {
                    return Err(NotCpuList::Count);
                }
                cpus.push(cpu);
            }
        }
        Ok(Self::Cpus(cpus))
    }
}

/// Returns the number of a CPU or node: digits alone.
fn number(text: &str) -> Result<usize, NotCpuList> {
    if text.is_empty() || !text.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(NotCpuList::Form);
    }
    text.parse().ok().filter(|number| *number < NUMBERS).ok_or(NotCpuList::Number)
}

impl fmt::Display for CpuList {
    /// Writes the list as a device name has it, with ranges for CPUs in a row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node{node}"),
            Self::Cpus(cpus) => {
                for (index, run) in cpus.chunk_by(|cpu, next| cpu + 1 == *next).enumerate() {
                    let separator = if index == 0 { "" } else { "+" };
                    match run {
                        [first, .., last] => write!(f, "{separator}{first}-{last}")?,
                        run => run.iter().try_for_each(|cpu| write!(f, "{separator}{cpu}"))?,
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_order_in_which_it_is_written() {
        for (text, cpus, written) in [
            ("3", &[3][..], "3"),
            ("2-5", &[2, 3, 4, 5], "2-5"),
            ("2+4+7", &[2, 4, 7], "2+4+7"),
            ("8-9+0-1", &[8, 9, 0, 1], "8-9+0-1"),
            ("7+2+3", &[7, 2, 3], "7+2-3"),
            ("1023", &[1023], "1023"),
            ("6-6", &[6], "6"),
        ] {
            let cores = text.parse();
            assert_eq!(cores, Ok(CpuList::Cpus(cpus.to_vec())), "{text}");
            assert_eq!(cores.unwrap().to_string(), written);
        }
        assert_eq!("node1".parse(), Ok(CpuList::Node(1)));
        assert_eq!(CpuList::Node(1).to_string(), "node1");
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, expected) in [
            ("", NotCpuList::Form),
            ("all", NotCpuList::Form),
            ("2,3", NotCpuList::Form),
            ("2+", NotCpuList::Form),
            ("+2", NotCpuList::Form),
            ("-2", NotCpuList::Form),
            ("2-3-4", NotCpuList::Form),
            ("node", NotCpuList::Form),
            ("node0+node1", NotCpuList::Form),
            ("1024", NotCpuList::Number),
            ("99999999999999999999", NotCpuList::Number),
            ("5-2", NotCpuList::Order),
            ("2+2", NotCpuList::Twice),
            ("2-5+4", NotCpuList::Twice),
            ("0-64", NotCpuList::Count),
        ] {
            assert_eq!(text.parse::<CpuList>(), Err(expected), "{text}");
        }
        assert!(matches!("0-63".parse(), Ok(CpuList::Cpus(cpus)) if cpus.len() == CORES_MAX));
    }
}
