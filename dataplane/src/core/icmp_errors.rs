//! ICMP errors about segments we sent. Anybody may have sent them: what they say is believed only of a connection that has
//! the quoted segment outstanding, and only so far as it can be true (RFC 5927; RFC 5044 §9.1).

use super::Core;
use super::connection::Origin;
use super::statistics::DropCause;
use crate::device::Device;
use crate::limits;
use crate::net::flow::FlowKey;
use crate::net::path_mtu::plateau_below;
use crate::tcp;
use crate::time::Instant;
use crate::wire::icmp;
use crate::wire::quoted::Segment;

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet is too large for a link on its way.
    PacketTooBig {
        /// What that link takes, in octets; 0 from an old router, which does not tell.
        mtu_octets: u32,
    },
    /// Nothing there will ever take the segment (RFC 1122 §4.2.3.9). That ends an attempt to open a connection; where the
    /// peer has answered before, it is a passing trouble or a forgery (RFC 5927 §5.2).
    Hard,
    /// It may pass.
    Soft,
}

impl IcmpError {
    /// An error of IPv4 (RFC 792, RFC 1122 §4.2.3.9).
    pub const fn of_icmp(code: u8, next_hop_mtu: u16) -> Self {
        match code {
            icmp::FRAGMENTATION_NEEDED => Self::PacketTooBig { mtu_octets: next_hop_mtu as u32 },
            // Protocol, port.
            2 | 3 => Self::Hard,
            _ => Self::Soft,
        }
    }

    /// An unreachable destination of IPv6 (RFC 4443 §3.1).
    pub const fn of_icmpv6(code: u8) -> Self {
        match code {
            // Port.
            4 => Self::Hard,
            _ => Self::Soft,
        }
    }
}

impl<D: Device> Core<D> {
    /// An ICMPv6 error for us that quotes `original`.
    pub(super) fn on_icmpv6_error(
        &mut self,
        now: Instant,
        original: &[u8],
        error: IcmpError,
    ) -> Result<(), DropCause> {
        let segment = Segment::in_ipv6(original).ok_or(DropCause::IcmpRefused)?;
        self.on_segment_refused(now, &segment, error)
    }

    /// An ICMP message for us that is no echo request.
    pub(super) fn on_icmp_error(
        &mut self,
        now: Instant,
        message: &icmp::Message<'_>,
    ) -> Result<(), DropCause> {
        let icmp::Message::DestinationUnreachable { code, next_hop_mtu, original } = *message else {
            return Err(DropCause::OtherProtocol);
        };
        let segment = Segment::in_ipv4(original).ok_or(DropCause::IcmpRefused)?;
        self.on_segment_refused(now, &segment, IcmpError::of_icmp(code, next_hop_mtu))
    }

    fn on_segment_refused(
        &mut self,
        now: Instant,
        segment: &Segment,
        error: IcmpError,
    ) -> Result<(), DropCause> {
        let key = FlowKey {
            local: segment.source.ip(),
            remote: segment.destination.ip(),
            remote_port: segment.destination.port(),
            local_port: segment.source.port(),
        };
        let index = self.flows.get(&self.slots, &key).ok_or(DropCause::IcmpRefused)?;
        match error {
            IcmpError::PacketTooBig { mtu_octets } => self.on_packet_too_big(now, index, segment, mtu_octets),
            IcmpError::Hard | IcmpError::Soft => self.on_unreachable(now, index, segment, error),
        }
    }

    /// RFC 5927 §7: the segment must be outstanding, and the MTU between the least there is and what was sent.
    // Requirements: MPA-9.1-01
    fn on_packet_too_big(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment,
        mtu_octets: u32,
    ) -> Result<(), DropCause> {
        let remote = segment.destination.ip();
        let (least, headers_octets) = if remote.is_ipv4() {
            (limits::PATH_MTU_MIN_IPV4_OCTETS, 40)
        } else {
            (limits::PATH_MTU_MIN_IPV6_OCTETS, 60)
        };
        let mtu_octets = match mtu_octets {
            0 if remote.is_ipv4() => plateau_below(segment.packet_octets).ok_or(DropCause::IcmpRefused)?,
            told => u16::try_from(told).map_err(|_| DropCause::IcmpRefused)?,
        };
        if mtu_octets < least || u32::from(mtu_octets) >= segment.packet_octets {
            return Err(DropCause::IcmpRefused);
        }
        let Some(connection) = self.slots[index as usize].connection.as_mut() else {
            return Err(DropCause::IcmpRefused);
        };
        let mss_octets = mtu_octets - headers_octets;
        if !connection.tcp.on_packet_too_big(now, segment.seq, mss_octets, &mut self.pools) {
            return Err(DropCause::IcmpRefused);
        }
        self.path_mtus.learn(now, remote, mtu_octets);
        self.mark_dirty(index);
        Ok(())
    }

    /// A connection that the peer has never answered ends with a hard error about its SYN; with a soft one, or in any other
    /// state, it goes on trying (RFC 1122 §4.2.3.9, RFC 5927 §5.2).
    fn on_unreachable(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment,
        error: IcmpError,
    ) -> Result<(), DropCause> {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else {
            return Err(DropCause::IcmpRefused);
        };
        let opening = connection.tcp.state() == tcp::State::SynSent
            && matches!(connection.origin, Origin::Connect(_))
            // The SYN is all there is outstanding.
            && connection.tcp.acknowledged() == segment.seq;
        if !opening {
            return Err(DropCause::IcmpRefused);
        }
        connection.unreachable = true;
        if error == IcmpError::Hard {
            connection.tcp.abort();
            self.mark_dirty(index);
            self.on_progress(now, index, tcp::Changes::CLOSED);
        }
        Ok(())
    }

    /// What is remembered of the path holds for a connection that has just opened.
    pub(super) fn limit_to_path(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        if let Some(mtu_octets) = self.path_mtus.get(now, connection.key.remote) {
            let headers_octets = if connection.key.remote.is_ipv4() { 40 } else { 60 };
            connection.tcp.limit_mss(now, mtu_octets.saturating_sub(headers_octets));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_will_not() {
        for (code, error) in
            [(0, IcmpError::Soft), (1, IcmpError::Soft), (5, IcmpError::Soft), (13, IcmpError::Soft)]
        {
            assert_eq!(IcmpError::of_icmp(code, 0), error);
        }
        assert_eq!((IcmpError::of_icmp(2, 0), IcmpError::of_icmp(3, 0)), (IcmpError::Hard, IcmpError::Hard));
        for code in 0..=7 {
            let port = code == 4;
            assert_eq!(IcmpError::of_icmpv6(code), if port { IcmpError::Hard } else { IcmpError::Soft });
        }
        assert_eq!(IcmpError::of_icmp(4, 1400), IcmpError::PacketTooBig { mtu_octets: 1400 });
    }
}
