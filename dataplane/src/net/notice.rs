//! Findings of a host about its link that only people can mend.

use std::net::IpAddr;

use crate::device::IpVersion;
use crate::drops::DropCause;
use crate::wire::ethernet::MacAddress;
use crate::wire::{ipv4, ipv6};

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
    /// The first packet was dropped because the port has cut it to its buffer.
    OversizedPacket {
        /// The station that sent it.
        peer: IpAddr,
    },
    /// The adapter brings segments to other cores than the steering says. Each core reports it once.
    AdapterDiffers,
}

/// The notice that waits to be dequeued, and what was reported before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notices {
    waiting: Option<Notice>,
    reported_partial_checksum: bool,
    reported_oversized_packet: bool,
    reported_adapter: bool,
}

impl Notices {
    /// Dequeues the latest notice. There are few: of conflicts one in the interval of a defence, of checksums
    /// one.
    pub(super) fn dequeue(&mut self) -> Option<Notice> {
        self.waiting.take()
    }

    /// Returns true if it was not reported yet that the adapter differs.
    #[inline]
    pub(super) const fn awaits_adapter(&self) -> bool {
        !self.reported_adapter
    }

    /// Records that it is reported that the adapter differs, and returns the notice.
    pub(super) const fn report_adapter(&mut self) -> Notice {
        self.reported_adapter = true;
        Notice::AdapterDiffers
    }

    pub(super) fn record_conflict(&mut self, address: IpAddr, mac: MacAddress, abandoned: bool) {
        self.waiting = Some(Notice::AddressConflict { address, mac, abandoned });
    }

    #[cold]
    pub(super) fn record_partial_checksum(&mut self, peer: IpAddr) {
        if !core::mem::replace(&mut self.reported_partial_checksum, true) {
            self.waiting = Some(Notice::PartialChecksum { peer });
        }
    }

    /// Returns why a packet cannot be parsed of which `octets` have come, on a link of packets of
    /// `mtu_bytes`: whether it was as long as that before something cut it.
    #[cold]
    pub(super) fn unreadable(&mut self, octets: &[u8], version: IpVersion, mtu_bytes: usize) -> DropCause {
        // What the header says, whatever has come of the packet.
        let claimed: Option<(IpAddr, usize)> = match version {
            IpVersion::V4 => ipv4::Header::parse_for(octets, usize::MAX)
                .ok()
                .map(|(header, _)| (header.source.into(), header.total_len.into())),
            IpVersion::V6 => ipv6::Header::parse_for(octets, usize::MAX)
                .ok()
                .map(|header| (header.source.into(), ipv6::Header::LEN + usize::from(header.payload_len))),
        };
        match claimed {
            Some((source, len)) if octets.len() >= mtu_bytes && len > octets.len() => {
                if !core::mem::replace(&mut self.reported_oversized_packet, true) {
                    self.waiting = Some(Notice::OversizedPacket { peer: source });
                }
                DropCause::OversizedPacket
            }
            _ => DropCause::Malformed,
        }
    }
}
