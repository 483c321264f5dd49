//! What the host core and the replicas of a device write to each other about their link.
//!
//! A device of several cores has one *host core*, core 0: it alone sends and answers ARP, Neighbor Discovery
//! and echo requests, and detects duplicates of the device's addresses. The others are *replicas*: what they
//! know of neighbours and own addresses they have from the host core.
//!
//! A note may be late or missing, because a ring was full, and the two sides agree in the end:
//!
//! - The host core keeps, for each neighbour, which replicas have asked for it and which of them lack its
//!   latest hardware address, and sends it to these when there is room. A note of the own addresses has the
//!   state of all of them, so the latest one is enough.
//! - A replica asks again, once in a retransmission interval, as long as packets wait for a neighbour; and
//!   for one that packets use and nothing confirms, so a host core that has evicted the neighbour solicits it
//!   anew.

use std::net::IpAddr;

use crate::wire::ethernet::MacAddress;

/// From the host core to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostNote {
    /// What the host core has found about a neighbour.
    Neighbour {
        /// Its address.
        address: IpAddr,
        /// Its hardware address; `None` if it does not answer any more.
        mac: Option<MacAddress>,
    },
    /// The state of the device's addresses.
    Addresses(AddressStates),
}

/// From a replica to the host core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaNote {
    /// A packet needs the hardware address of this neighbour, or uses it without a sign that it arrives.
    Wanted(IpAddr),
    /// Packets to this neighbour arrive (RFC 4861 §7.3.1).
    Confirmed {
        /// Its address.
        address: IpAddr,
        /// The hardware address that the packets have.
        mac: MacAddress,
    },
}

/// Which addresses of a device are its own, and which it has given up, as bits in the order of its
/// configuration. The others are tentative.
///
/// Of 198.18.0.1, fd00::1 and fd00::2, all but the second are assigned while detection goes on for that one:
/// `assigned` is 0b101, `given_up` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressStates {
    /// Those that may be used.
    pub assigned: u8,
    /// Those that another station has.
    pub given_up: u8,
}

const _: () = assert!(crate::limits::ADDRESSES_PER_CORE <= u8::BITS as usize);

/// What the host core is still to send to replicas about the own addresses.
#[derive(Debug, Default)]
pub(super) struct AddressNews {
    /// The replicas that the state of the own addresses is still to be sent to, a bit for each.
    pub(super) unsent_to: u64,
    /// The states have changed since they were last sent.
    pub(super) is_new: bool,
}
