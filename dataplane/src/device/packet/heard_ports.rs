//! The TCP ports that the packet sockets of a device let through: the kernel passes over frames for others
//! before they take a slot.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ::packet::{Filter, FilterHandle, PacketError, PacketSocket};

use crate::wire::ethernet::MacAddress;

/// The ports that pass until some are set.
pub(super) const ALL_PORTS: &[RangeInclusive<u16>] = &[0..=u16::MAX];

/// The addresses of a device that it shares with the kernel and other programs of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SharedAddresses<'a> {
    /// The addresses.
    pub addresses: &'a [IpAddr],
    /// The VLAN, if the device is on one.
    pub vlan: Option<u16>,
    /// The hardware address by which other programs know this one: it begins as
    /// [`THIS_MACHINE`](crate::device::THIS_MACHINE) does, in its first three octets.
    pub source: MacAddress,
    /// The socket hears the other programs, but not those of this hardware address, which may be none's;
    /// `None` if another socket of the device does.
    pub hears_all_but: Option<MacAddress>,
}

impl SharedAddresses<'_> {
    /// Returns the filter of the socket on the wire.
    pub(super) fn on_wire(&self, ports: &[RangeInclusive<u16>]) -> Filter {
        Filter::ports_of_this_machine(self.addresses, self.vlan, ports)
    }

    /// Returns the filter of the one among programs.
    pub(super) fn among_programs(&self, ports: &[RangeInclusive<u16>]) -> Filter {
        let unheard = self.hears_all_but;
        unheard.map_or_else(Filter::nothing, |unheard| {
            Filter::programs_of_this_machine(self.addresses, unheard.0, ports)
        })
    }
}

/// The handle by which the TCP ports are set that pass to the sockets of a device: all do until then.
#[derive(Debug)]
pub struct HeardPorts {
    addresses: Vec<IpAddr>,
    vlan: Option<u16>,
    source: MacAddress,
    hears_all_but: Option<MacAddress>,
    wire: FilterHandle,
    programs: FilterHandle,
}

impl HeardPorts {
    /// Returns that of a pair of sockets for `shared`.
    pub(super) fn new(
        shared: &SharedAddresses<'_>,
        wire: &PacketSocket,
        programs: &PacketSocket,
    ) -> Result<Self, PacketError> {
        let SharedAddresses { addresses, vlan, source, hears_all_but } = *shared;
        let (wire, programs) = (wire.filter_handle()?, programs.filter_handle()?);
        Ok(Self { addresses: addresses.to_vec(), vlan, source, hears_all_but, wire, programs })
    }

    /// Has the kernel pass over TCP segments to other ports than `ports`, which are in order and do not
    /// overlap. Where that makes a longer program than it takes, all ports pass.
    ///
    /// # Errors
    ///
    /// [`PacketError`]: that of the system call, for all ports too.
    pub fn hear(&self, ports: &[RangeInclusive<u16>]) -> Result<(), PacketError> {
        self.hear_only(ports).or_else(|_| self.hear_only(ALL_PORTS))
    }

    fn hear_only(&self, ports: &[RangeInclusive<u16>]) -> Result<(), PacketError> {
        let Self { addresses, vlan, source, hears_all_but, .. } = self;
        let shared =
            SharedAddresses { addresses, vlan: *vlan, source: *source, hears_all_but: *hears_all_but };
        self.wire.set(&shared.on_wire(ports))?;
        self.programs.set(&shared.among_programs(ports))
    }
}
