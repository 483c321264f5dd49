//! ICMP errors about segments of the connection. Anybody may have sent them: the connection believes only
//! what can be true of a segment that is outstanding (RFC 5927; RFC 5044 §9.1).

use crate::device::Frame;
use crate::tcp::{self, Changes};
use crate::wire::tcp::SeqNumber;

use super::connection::OpenKind;
use super::{Endpoint, Outcome};

/// What refused a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// The path, or a host on it, for now: a soft error.
    ForNow,
    /// The peer's host, which has no TCP: a hard error.
    Protocol,
    /// The peer's host, which has nobody at the port: a hard error.
    Port,
}

impl<F: Frame> Endpoint<'_, F> {
    /// Handles that the path carries segments of at most `mss_octets` of payload, from an error about the
    /// segment at `seq`. Returns `None` if that segment is not outstanding (RFC 5927 §7).
    // Requirements: MPA-9.1-01
    pub(crate) fn on_packet_too_big(&mut self, seq: SeqNumber, mss_octets: u16) -> Option<Outcome> {
        let outstanding =
            self.connection.tcp.on_packet_too_big(self.now, seq, mss_octets, &mut self.context.pools);
        outstanding.then_some(Outcome::SCHEDULE)
    }

    /// Handles that the segment at `seq` did not reach the peer. A connection that the peer has never
    /// answered ends with a hard error about its SYN: an unreachable port refuses it, as a RST does. With a
    /// soft one it keeps trying (RFC 1122 §4.2.3.9, RFC 5927 §5.2). Returns `None` for any other segment, or
    /// in any other state.
    pub(crate) fn on_unreachable(&mut self, seq: SeqNumber, what: Unreachable) -> Option<Outcome> {
        let connection = &mut *self.connection;
        let about_syn = connection.tcp.state() == tcp::State::SynSent
            && matches!(connection.open_kind, OpenKind::Active { .. })
            // Only the SYN is outstanding.
            && connection.tcp.acknowledged() == seq;
        if !about_syn {
            return None;
        }
        connection.unreachable = true;
        match what {
            Unreachable::ForNow => return Some(Outcome::NONE),
            Unreachable::Protocol => connection.tcp.abort(),
            Unreachable::Port => connection.tcp.refuse(),
        }
        self.on_changes(Changes::CLOSED);
        Some(Outcome::SCHEDULE)
    }
}
