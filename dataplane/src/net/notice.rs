//! Findings of a host about its link that only people can mend.

use std::net::IpAddr;

use super::Host;
use crate::device::Device;
use crate::wire::ethernet::MacAddress;

/// A finding of a host about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Another station uses an address of the host.
    AddressConflict {
        /// The address.
        address: IpAddr,
        /// The station's hardware address.
        mac: MacAddress,
        /// Whether the host has given the address up; else it defends it.
        abandoned: bool,
    },
    /// The first segment was dropped because its TCP checksum is partial.
    PartialChecksum {
        /// The station that sent it.
        peer: IpAddr,
    },
}

/// The notice that waits to be taken, and what was noted before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notices {
    waiting: Option<Notice>,
    noted_partial_checksum: bool,
}

impl<D: Device> Host<D> {
    /// Takes the latest notice. There are few: of conflicts one in the interval of a defence, of checksums
    /// one.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.waiting.take()
    }

    pub(super) fn note_conflict(&mut self, address: IpAddr, mac: MacAddress, abandoned: bool) {
        self.notices.waiting = Some(Notice::AddressConflict { address, mac, abandoned });
    }

    #[cold]
    pub(super) fn note_partial_checksum(&mut self, peer: IpAddr) {
        if !core::mem::replace(&mut self.notices.noted_partial_checksum, true) {
            self.notices.waiting = Some(Notice::PartialChecksum { peer });
        }
    }
}
