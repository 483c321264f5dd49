//! Findings of a host about its link that only people can mend.

use std::net::IpAddr;

use super::Host;
use crate::device::{Device, IpVersion};
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

impl<D: Device> Host<D> {
    /// Dequeues the latest notice. There are few: of conflicts one in the interval of a defence, of checksums
    /// one.
    pub(crate) fn dequeue_notice(&mut self) -> Option<Notice> {
        self.notices.waiting.take()
    }

    /// Returns true if the adapter was found to [differ](Device::adapter_differs), and
    /// [`take_adapter_notice`](Self::take_adapter_notice) has not returned that yet.
    #[inline]
    pub(crate) fn has_adapter_notice(&self) -> bool {
        self.device.adapter_differs() && !self.notices.reported_adapter
    }

    /// Takes the notice about the adapter.
    pub(crate) fn take_adapter_notice(&mut self) -> Notice {
        debug_assert!(self.has_adapter_notice(), "it was taken, or there is none");
        self.notices.reported_adapter = true;
        Notice::AdapterDiffers
    }

    pub(super) fn record_conflict(&mut self, address: IpAddr, mac: MacAddress, abandoned: bool) {
        self.notices.waiting = Some(Notice::AddressConflict { address, mac, abandoned });
    }

    #[cold]
    pub(super) fn record_partial_checksum(&mut self, peer: IpAddr) {
        if !core::mem::replace(&mut self.notices.reported_partial_checksum, true) {
            self.notices.waiting = Some(Notice::PartialChecksum { peer });
        }
    }

    /// Returns why a packet cannot be parsed of which `octets` have come: whether it was as long as the MTU
    /// before something cut it.
    #[cold]
    pub(super) fn unreadable(&mut self, octets: &[u8], version: IpVersion) -> DropCause {
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
            Some((source, len)) if octets.len() >= self.capabilities.mtu_bytes && len > octets.len() => {
                if !core::mem::replace(&mut self.notices.reported_oversized_packet, true) {
                    self.notices.waiting = Some(Notice::OversizedPacket { peer: source });
                }
                DropCause::OversizedPacket
            }
            _ => DropCause::Malformed,
        }
    }
}
