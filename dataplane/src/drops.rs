//! The causes of drops, on every layer, and their counters.

use crate::named::NamedValue;

/// Why a frame, or a part of it, was dropped. Every drop is counted under one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum DropCause {
    /// Shorter than its headers say, or with an invalid header field.
    Malformed,
    /// A packet that is longer than its frame, which is as long as the MTU or longer: the port has cut it to
    /// its buffer. Linux sends such packets through virtual interfaces, and leaves it to a device to cut them
    /// into segments (`ethtool -K INTERFACE tso off` has it do that).
    OversizedPacket,
    /// An Ethernet destination that is not the host's.
    OtherMac,
    /// A tag of another VLAN than the host's, or none where the host has one.
    OtherVlan,
    /// An unsupported Ethernet type or IP protocol, or an IPv6 extension header that must not be skipped.
    OtherProtocol,
    /// An IP destination that is not the host's.
    OtherAddress,
    /// An IP source that no station can have (a group, a broadcast address, loopback), or that is the host's
    /// own.
    BadSource,
    /// Another station's claim to an address of the host.
    AddressConflict,
    /// A wrong IPv4 header checksum.
    IpChecksum,
    /// A wrong TCP checksum.
    TcpChecksum,
    /// A TCP checksum that its sender has left to a device: the field holds the sum of the pseudo-header
    /// alone. Linux sends such segments through virtual interfaces (`ethtool -K INTERFACE tx off` has it
    /// compute them). A device that knows of it accepts them.
    PartialChecksum,
    /// A wrong ICMP checksum.
    IcmpChecksum,
    /// An IP fragment that no valid datagram has: too long, too small, one too many.
    Fragment,
    /// An IP fragment of a datagram whose fragments contradict each other, which is dropped whole (RFC 5722).
    FragmentOverlap,
    /// A datagram of which some fragments did not arrive in time.
    ReassemblyTimeout,
    /// An incomplete datagram that was evicted for another.
    ReassemblyEvicted,
    /// A TCP segment that belongs to no connection; answered with RST unless it was one.
    NoConnection,
    /// A SYN, or the ACK of a SYN cookie, while too many connections wait for control or the connection table
    /// is full.
    NoRoomForConnection,
    /// A SYN, or the ACK of a SYN cookie, from a peer that has its share of the listener's backlog.
    PeerShare,
    /// A TCP segment outside the window.
    OutsideWindow,
    /// A TCP segment, or a fragment, with nothing new.
    Duplicate,
    /// A TCP segment that acknowledges what was never sent.
    BadAck,
    /// A RST or SYN answered by a challenge (RFC 5961).
    Challenged,
    /// A TCP segment for which no frame can be kept.
    NoRoomForFrame,
    /// A TCP segment that its connection's state does not allow.
    WrongState,
    /// A TCP segment with an older timestamp than one already seen, or with none where each has one (RFC
    /// 7323).
    OldTimestamp,
    /// An FPDU with a wrong CRC or an impossible length, dropped before TCP acknowledged it, so that the peer
    /// retransmits it.
    FpduCrc,
    /// Octets after the error that ended a stream.
    AfterError,
    /// Octets for an application that has left its byte stream; answered with RST.
    AfterClose,
    /// An ICMP error that cannot be true, or changes nothing: about a segment that is not outstanding, with
    /// an impossible MTU, or about a connection that its peer has answered.
    IcmpRefused,
    /// A packet whose reply would exceed a rate limit.
    RateLimited,
    /// The frames of a connection that was reset because it held more than its share for long, while another
    /// found none.
    HeldTooLong,
    /// A frame that could not be sent: no buffer was free.
    NoTransmitBuffer,
    /// A frame that concerns another core of the device, and found no room on the way there: a segment or an
    /// ICMP error of a flow of that core, or at a replica what the host core handles.
    NotHandedOver,
    /// A frame on a wire in memory to a core of the other end that has taken none for long
    /// ([`CORE_STALL_NS`](crate::limits::CORE_STALL_NS)): those for other cores pass.
    StalledCore,
    /// A frame that arrived while the ring of a packet socket was full, which the kernel dropped, or that
    /// fitted no buffer.
    Missed,
    /// A frame that the device had taken and could not send. The kernel does not send one through a packet
    /// socket whose interface is down or gone, or has refused it for a tenth of a second; a port none with
    /// offloads that it does not have; a wire none for which its receiver has no buffer.
    NotSent,
}

impl DropCause {
    /// Number of causes.
    pub const COUNT: usize = Self::NotSent as usize + 1;

    /// Every cause.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Malformed,
        Self::OversizedPacket,
        Self::OtherMac,
        Self::OtherVlan,
        Self::OtherProtocol,
        Self::OtherAddress,
        Self::BadSource,
        Self::AddressConflict,
        Self::IpChecksum,
        Self::TcpChecksum,
        Self::PartialChecksum,
        Self::IcmpChecksum,
        Self::Fragment,
        Self::FragmentOverlap,
        Self::ReassemblyTimeout,
        Self::ReassemblyEvicted,
        Self::NoConnection,
        Self::NoRoomForConnection,
        Self::PeerShare,
        Self::OutsideWindow,
        Self::Duplicate,
        Self::BadAck,
        Self::Challenged,
        Self::NoRoomForFrame,
        Self::WrongState,
        Self::OldTimestamp,
        Self::FpduCrc,
        Self::AfterError,
        Self::AfterClose,
        Self::IcmpRefused,
        Self::RateLimited,
        Self::HeldTooLong,
        Self::NoTransmitBuffer,
        Self::NotHandedOver,
        Self::StalledCore,
        Self::Missed,
        Self::NotSent,
    ];
}

impl DropCause {
    /// Returns its name in reports: `tcp_checksum`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for character in format!("{self:?}").chars() {
            if character.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(character.to_lowercase());
        }
        name
    }
}

/// Drops by cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops([u64; DropCause::COUNT]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; DropCause::COUNT])
    }
}

impl Drops {
    /// Counts one drop.
    pub(crate) const fn count(&mut self, cause: DropCause) {
        self.0[cause as usize] += 1;
    }

    /// Counts drops that were counted elsewhere.
    pub(crate) const fn add_many(&mut self, cause: DropCause, drops: u64) {
        self.0[cause as usize] += drops;
    }

    /// Adds the drops of another part of the same core.
    pub(crate) fn add(&mut self, other: &Self) {
        for (drops, others) in self.0.iter_mut().zip(other.0) {
            *drops += others;
        }
    }

    /// Returns the drops of each cause with its name.
    pub(crate) fn named(&self) -> Vec<NamedValue> {
        DropCause::ALL.into_iter().map(|cause| NamedValue::new(cause.name(), self.get(cause))).collect()
    }

    /// Returns how many drops there were for `cause`.
    pub const fn get(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_place() {
        for (index, cause) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index);
        }
        assert_eq!(DropCause::TcpChecksum.name(), "tcp_checksum");
        assert_eq!(DropCause::Malformed.name(), "malformed");
    }
}
