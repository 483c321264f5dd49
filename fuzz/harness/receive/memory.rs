//! Memory with guards: writable memory of the peer lies between octets that must not be written, and next to
//! it is memory that must not be written at all.

use warpline_dataplane::memory::{Access, Grant, ProtectionDomainId, Region, STag};

pub const PD: ProtectionDomainId = ProtectionDomainId(1);
const OTHER_PD: ProtectionDomainId = ProtectionDomainId(2);

/// Octets of the granted middle, odd on purpose, and of the guards at either side.
pub const GRANTED_OCTETS: usize = 5001;
const GUARD_OCTETS: usize = 139;
/// The Tagged Offset of the first granted octet.
pub const BASE_TO: u64 = 0x1_0000;

/// The purpose of each registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Sends read from it. Its octets never change, so retransmitted octets must be the same.
    Source,
    /// The peer writes to it.
    Sink,
    /// Received messages are placed in it.
    Inbox,
    /// Peers may read it, and not write.
    ReadOnly,
    /// It belongs to another Protection Domain.
    Foreign,
}

/// Every purpose, in the order of the slots their STags name.
pub const PURPOSES: [Purpose; 5] =
    [Purpose::Source, Purpose::Sink, Purpose::Inbox, Purpose::ReadOnly, Purpose::Foreign];

impl Purpose {
    fn grants(self) -> (ProtectionDomainId, Access) {
        match self {
            Self::Source => (PD, Access::empty()),
            Self::Sink => (PD, Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::LOCAL_WRITE),
            Self::Inbox => (PD, Access::LOCAL_WRITE),
            Self::ReadOnly => (PD, Access::REMOTE_READ),
            Self::Foreign => (OTHER_PD, Access::REMOTE_WRITE | Access::LOCAL_WRITE),
        }
    }

    fn may_be_written(self) -> bool {
        matches!(self, Self::Sink | Self::Inbox)
    }
}

struct Buffer {
    purpose: Purpose,
    /// The guards and the memory between them.
    whole: Region,
    granted: Region,
}

/// The memory of one run.
pub struct Memory {
    buffers: Vec<Buffer>,
    /// Contents of untouched memory.
    untouched: Vec<u8>,
}

impl Memory {
    pub fn new() -> Self {
        let octets = GRANTED_OCTETS + 2 * GUARD_OCTETS;
        let untouched: Vec<u8> = (0..octets).map(|at| (at * 7 + at / 251) as u8).collect();
        let buffers = PURPOSES
            .into_iter()
            .map(|purpose| {
                let whole = Region::heap(octets).unwrap();
                assert!(whole.write(0, &untouched));
                // Constant memory is sent by reference where the device supports references.
                let constant = matches!(purpose, Purpose::Source | Purpose::ReadOnly);
                let whole = if constant { whole.freeze().unwrap() } else { whole };
                let granted = whole.part(GUARD_OCTETS, GRANTED_OCTETS).unwrap();
                Buffer { purpose, whole, granted }
            })
            .collect();
        Self { buffers, untouched }
    }

    /// The STag of slot `slot`. There is one slot for each purpose; later ones are never registered.
    pub fn stag(slot: usize) -> STag {
        STag::new(slot as u16 + 1, 0x4b00 + slot as u16)
    }

    pub fn grant(&self, slot: usize) -> Grant {
        let buffer = &self.buffers[slot];
        let (pd, access) = buffer.purpose.grants();
        Grant::new(buffer.granted.clone(), pd, BASE_TO, access)
    }

    /// Panics if an octet was written that must not be written.
    pub fn check(&self) {
        for Buffer { purpose, whole, .. } in &self.buffers {
            let guards = [0..GUARD_OCTETS, GUARD_OCTETS + GRANTED_OCTETS..self.untouched.len()];
            let intact = if purpose.may_be_written() {
                guards.into_iter().all(|range| self.is_untouched(whole, range))
            } else {
                self.is_untouched(whole, 0..self.untouched.len())
            };
            assert!(intact, "octets outside what was granted were written: {purpose:?}");
        }
    }

    fn is_untouched(&self, region: &Region, range: core::ops::Range<usize>) -> bool {
        let mut octets = vec![0; range.len()];
        region.read(range.start, &mut octets) && octets == self.untouched[range]
    }
}
