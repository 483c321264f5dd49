//! ICMP errors about segments we sent. Anybody may have sent them: what they say is believed only of a connection that has
//! the quoted segment outstanding, and only so far as it can be true (RFC 5927; RFC 5044 §9.1).

use super::Core;
use super::connection::Origin;
use super::statistics::DropCause;
use crate::device::Device;
use crate::net::flow::FlowKey;
use crate::net::headers::min_headers_octets;
use crate::net::icmp_errors::IcmpErrorKind;
use crate::net::inbound::IcmpError;
use crate::tcp;
use crate::time::Instant;
use crate::wire::quoted::Segment;

impl<D: Device> Core<D> {
    /// An ICMP error about a segment of ours, if it is true.
    pub(super) fn on_icmp_error(&mut self, now: Instant, error: &IcmpError) -> Result<(), DropCause> {
        let IcmpError { segment, kind } = error;
        let key = FlowKey {
            local: segment.source.ip(),
            remote: segment.destination.ip(),
            remote_port: segment.destination.port(),
            local_port: segment.source.port(),
        };
        let index = self.flows.get(&self.slots, &key).ok_or(DropCause::IcmpRefused)?;
        match *kind {
            IcmpErrorKind::PacketTooBig { mtu_octets } => {
                self.on_packet_too_big(now, index, segment, mtu_octets)
            }
            IcmpErrorKind::Hard | IcmpErrorKind::Soft => self.on_unreachable(now, index, segment, *kind),
        }
    }

    /// RFC 5927 §7: the segment must be outstanding.
    // Requirements: MPA-9.1-01
    fn on_packet_too_big(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment,
        mtu_octets: u16,
    ) -> Result<(), DropCause> {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else {
            return Err(DropCause::IcmpRefused);
        };
        let remote = connection.key.remote;
        let mss_octets = mtu_octets - min_headers_octets(remote);
        if !connection.tcp.on_packet_too_big(now, segment.seq, mss_octets, &mut self.pools) {
            return Err(DropCause::IcmpRefused);
        }
        self.host.learn_path_mtu(now, remote, mtu_octets);
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
        kind: IcmpErrorKind,
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
        if kind == IcmpErrorKind::Hard {
            connection.tcp.abort();
            self.mark_dirty(index);
            self.on_progress(now, index, tcp::Changes::CLOSED);
        }
        Ok(())
    }

    /// What is remembered of the path holds for a connection that has just opened.
    pub(super) fn limit_to_path(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_mut() else { return };
        let remote = connection.key.remote;
        if let Some(mtu_octets) = self.host.path_mtu(now, remote) {
            connection.tcp.limit_mss(now, mtu_octets.saturating_sub(min_headers_octets(remote)));
        }
    }
}
