//! The causes of drops, on every layer, and their counters.

/// Why a frame, or a part of it, went no further. Every drop is counted under one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DropCause {
    /// Shorter than its headers say, or with a header field that cannot be.
    Malformed,
    /// An Ethernet destination that is not ours.
    OtherMac,
    /// A tag of another VLAN than ours, or none where we have one.
    OtherVlan,
    /// An Ethernet type or IP protocol we do not serve, or an IPv6 extension header that must not be skipped.
    OtherProtocol,
    /// An IP destination that is not ours.
    OtherAddress,
    /// An IP source that no station can have (a group, a broadcast address, loopback), or that is ours.
    BadSource,
    /// Another station's claim to an address of ours.
    AddressConflict,
    /// An IPv4 header checksum that does not hold.
    IpChecksum,
    /// A TCP checksum that does not hold.
    TcpChecksum,
    /// An ICMP checksum that does not hold.
    IcmpChecksum,
    /// An IP fragment that cannot belong to a datagram for us: too long, too small, one too many.
    Fragment,
    /// An IP fragment of a datagram whose fragments contradict each other, which is dropped whole (RFC 5722).
    FragmentOverlap,
    /// A datagram of which some fragments did not come in time.
    ReassemblyTimeout,
    /// A datagram that was not whole and made room for another.
    ReassemblyEvicted,
    /// A TCP segment of no connection; answered with RST unless it was one.
    NoConnection,
    /// A SYN, or a cookie come back, while too many connections wait for control or the connection table is full.
    NoRoomForConnection,
    /// A SYN, or a cookie come back, of a peer that has its share of the listener's backlog.
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
    /// A TCP segment that has no place in its connection's state.
    WrongState,
    /// A TCP segment with an older timestamp than one already seen, or with none where each has one (RFC 7323).
    OldTimestamp,
    /// An FPDU whose CRC is wrong or whose length cannot be, dropped before it was acknowledged so that TCP
    /// brings it again.
    FpduCrc,
    /// Octets after the error that ended a stream.
    AfterError,
    /// An ICMP error that cannot be true, or changes nothing: about no segment that is outstanding, with an impossible MTU,
    /// or about a connection that has heard from its peer.
    IcmpRefused,
    /// A packet whose answer would be one too many in its time.
    RateLimited,
    /// All that a connection held: it had held it for long without progress while others found no room, and was reset.
    HeldTooLong,
    /// A frame we could not send: no buffer was free.
    NoTransmitBuffer,
}

impl DropCause {
    /// Number of causes.
    pub const COUNT: usize = Self::NoTransmitBuffer as usize + 1;

    /// Every cause.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Malformed,
        Self::OtherMac,
        Self::OtherVlan,
        Self::OtherProtocol,
        Self::OtherAddress,
        Self::BadSource,
        Self::AddressConflict,
        Self::IpChecksum,
        Self::TcpChecksum,
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
        Self::IcmpRefused,
        Self::RateLimited,
        Self::HeldTooLong,
        Self::NoTransmitBuffer,
    ];
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

    /// Drops for `cause`.
    pub const fn get(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// Drops by cause, indexed by [`DropCause`].
    pub const fn by_cause(&self) -> &[u64; DropCause::COUNT] {
        &self.0
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
    }
}
