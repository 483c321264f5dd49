//! What a core counts.

use crate::tcp;

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

/// Counters of one core. But for the frames held now, they only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames taken from the device.
    pub frames_received: u64,
    /// Frames given to the device.
    pub frames_sent: u64,
    /// Frames to ourselves, which the device does not see.
    pub frames_looped: u64,
    /// Drops by cause, indexed by [`DropCause`].
    pub drops: [u64; DropCause::COUNT],
    /// Datagrams put together from fragments.
    pub datagrams_reassembled: u64,
    /// FPDUs received and verified.
    pub fpdus_received: u64,
    /// RDMA Writes without payload for peers that may have overlooked our first FPDU.
    pub nudges_sent: u64,
    /// Of the FPDUs received, those placed beyond a gap, before their turn (RFC 5044 appendix B).
    pub fpdus_placed_out_of_order: u64,
    /// Messages that had to wait for a receive, on queue pairs that ask for that.
    pub receives_awaited: u64,
    /// Frames held now, of octets that are not consumed yet: those of no whole FPDU, or waiting for their turn.
    pub held_frames: u64,
    /// The most frames held at once.
    pub held_frames_peak: u64,
    /// FPDUs built, retransmissions included.
    pub fpdus_sent: u64,
    /// Octets of FPDUs that were verified, by their CRC if it is in use, whatever that showed. Where it is
    /// more than what arrived, something was verified twice.
    pub octets_verified: u64,
    /// Nodes looked at to find what is held, or was placed before its turn: the work of keeping octets in
    /// order.
    pub nodes_visited: u64,
    /// Octets of payload copied from frames to user buffers.
    pub octets_copied_rx: u64,
    /// Octets of payload copied from user buffers to frames, retransmissions included.
    pub octets_copied_tx: u64,
    /// Connections opened, either way.
    pub connections_opened: u64,
    /// Connections that gave up their TIME-WAIT for want of room.
    pub time_waits_evicted: u64,
    /// Connections opened again in TIME-WAIT, by a peer or by us.
    pub time_waits_reused: u64,
    /// SYNs answered by a cookie, for want of room.
    pub syn_cookies_sent: u64,
    /// Connections made from cookies that came back.
    pub syn_cookies_good: u64,
    /// Segments that acknowledge no cookie, while some are on their way.
    pub syn_cookies_bad: u64,
    /// Selective acknowledgements that were not followed because the poll had searched enough.
    pub searches_refused: u64,
    /// Commands to begin Full Operation that were refused: the connection was over, or the queue pair was not
    /// there or had a connection before.
    pub starts_refused: u64,
    /// Streams that ended with an error.
    pub streams_failed: u64,
    /// Polls of the loop.
    pub polls: u64,
    /// Polls that found nothing to do.
    pub idle_polls: u64,
    /// What TCP did, summed over all connections there were.
    pub tcp: tcp::Counters,
}

impl Statistics {
    /// Counts one drop.
    pub(super) fn count(&mut self, cause: DropCause) {
        self.drops[cause as usize] += 1;
    }

    /// Drops for `cause`.
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.drops[cause as usize]
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
