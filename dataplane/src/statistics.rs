//! The counters of a core.

use crate::byte_stream::TransferCounters;
pub use crate::drops::{DropCause, Drops};
pub use crate::named::NamedValue;
use crate::named::named_values;
use crate::net::counters::Counters;
use crate::tcp;

/// Counters of one core. But for the frames held now, they only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames taken from the device. One that a core hands to another, such as a fragment or an ICMP error,
    /// counts at both.
    pub frames_received: u64,
    /// Frames given to the device.
    pub frames_sent: u64,
    /// Frames to ourselves, which the device does not see.
    pub frames_looped: u64,
    /// Drops by cause.
    pub drops: Drops,
    /// Datagrams put together from fragments.
    pub datagrams_reassembled: u64,
    /// FPDUs received and verified.
    pub fpdus_received: u64,
    /// Segments whose FPDUs were all consumed where they lay: in order, and expected by header prediction, or
    /// kept until such a one had come.
    pub segments_predicted: u64,
    /// RDMA Writes without payload for peers that may have overlooked our first FPDU.
    pub nudges_sent: u64,
    /// Of the FPDUs received, those placed beyond a gap, before their turn (RFC 5044 appendix B).
    pub fpdus_placed_out_of_order: u64,
    /// Messages that had to wait for a receive, on queue pairs that ask for that.
    pub receives_awaited: u64,
    /// Frames held now, of bytes that are not consumed yet: those of an incomplete FPDU, or those that wait
    /// for their turn.
    pub held_frames: u64,
    /// The most frames held at once.
    pub held_frames_peak: u64,
    /// FPDUs built, retransmissions included.
    pub fpdus_sent: u64,
    /// Bytes of FPDUs that were verified, by their CRC if it is in use, whatever that showed. Where it is
    /// more than what arrived, something was verified twice.
    pub bytes_verified: u64,
    /// Nodes looked at to find what is held, or was placed before its turn: the work of keeping bytes in
    /// order.
    pub nodes_visited: u64,
    /// Bytes of payload copied from frames to user buffers.
    pub bytes_copied_rx: u64,
    /// Bytes of payload copied from user buffers to frames, retransmissions included.
    pub bytes_copied_tx: u64,
    /// Connections opened, either way.
    pub connections_opened: u64,
    /// Connections dropped from TIME-WAIT for want of room.
    pub time_waits_evicted: u64,
    /// Connections opened again in TIME-WAIT, by a peer or by us.
    pub time_waits_reused: u64,
    /// SYNs answered with a cookie, for want of room.
    pub syn_cookies_sent: u64,
    /// Connections made from cookies that came back.
    pub syn_cookies_good: u64,
    /// Segments that acknowledge no cookie, while a cookie could come back.
    pub syn_cookies_bad: u64,
    /// Selective acknowledgements that were not followed because the poll's scan budget was used up.
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
    /// The counters of TCP, summed over all connections so far.
    pub tcp: tcp::Counters,
    /// What became of segments with the TCP RDMA option, summed over all byte streams so far.
    pub transfers: TransferCounters,
}

impl Statistics {
    /// Counts one drop.
    pub(crate) const fn count(&mut self, cause: DropCause) {
        self.drops.count(cause);
    }

    /// Adds the counters of the IP host.
    pub(crate) fn add_host(&mut self, host: &Counters) {
        // Each by its name, so that another counter of the host does not compile without a place here.
        let Counters { frames_received, frames_sent, frames_looped, datagrams_reassembled, drops } = host;
        self.frames_received += frames_received;
        self.frames_sent += frames_sent;
        self.frames_looped += frames_looped;
        self.datagrams_reassembled += datagrams_reassembled;
        self.drops.add(drops);
    }

    /// Adds the counters of another core. Of the most frames held at once, the sum is what all may have held.
    pub fn add(&mut self, other: &Self) {
        // Each by its name, so that another counter does not compile without a place here.
        let Self {
            frames_received,
            frames_sent,
            frames_looped,
            datagrams_reassembled,
            fpdus_received,
            segments_predicted,
            nudges_sent,
            fpdus_placed_out_of_order,
            receives_awaited,
            held_frames,
            held_frames_peak,
            fpdus_sent,
            bytes_verified,
            nodes_visited,
            bytes_copied_rx,
            bytes_copied_tx,
            connections_opened,
            time_waits_evicted,
            time_waits_reused,
            syn_cookies_sent,
            syn_cookies_good,
            syn_cookies_bad,
            searches_refused,
            starts_refused,
            streams_failed,
            polls,
            idle_polls,
            drops,
            tcp,
            transfers,
        } = other;
        let add = |counters: [(&mut u64, &u64); 27]| {
            for (sum, counter) in counters {
                *sum += counter;
            }
        };
        add([
            (&mut self.frames_received, frames_received),
            (&mut self.frames_sent, frames_sent),
            (&mut self.frames_looped, frames_looped),
            (&mut self.datagrams_reassembled, datagrams_reassembled),
            (&mut self.fpdus_received, fpdus_received),
            (&mut self.segments_predicted, segments_predicted),
            (&mut self.nudges_sent, nudges_sent),
            (&mut self.fpdus_placed_out_of_order, fpdus_placed_out_of_order),
            (&mut self.receives_awaited, receives_awaited),
            (&mut self.held_frames, held_frames),
            (&mut self.held_frames_peak, held_frames_peak),
            (&mut self.fpdus_sent, fpdus_sent),
            (&mut self.bytes_verified, bytes_verified),
            (&mut self.nodes_visited, nodes_visited),
            (&mut self.bytes_copied_rx, bytes_copied_rx),
            (&mut self.bytes_copied_tx, bytes_copied_tx),
            (&mut self.connections_opened, connections_opened),
            (&mut self.time_waits_evicted, time_waits_evicted),
            (&mut self.time_waits_reused, time_waits_reused),
            (&mut self.syn_cookies_sent, syn_cookies_sent),
            (&mut self.syn_cookies_good, syn_cookies_good),
            (&mut self.syn_cookies_bad, syn_cookies_bad),
            (&mut self.searches_refused, searches_refused),
            (&mut self.starts_refused, starts_refused),
            (&mut self.streams_failed, streams_failed),
            (&mut self.polls, polls),
            (&mut self.idle_polls, idle_polls),
        ]);
        self.drops.add(drops);
        self.tcp.add(tcp);
        self.transfers.add(transfers);
    }

    /// Returns all counters with their names: those of drops as `drops.tcp_checksum`, those of TCP as
    /// `tcp.timeouts`, those of transfers by the TCP RDMA option as `transfers.octets_placed`.
    pub fn named(&self) -> Vec<NamedValue> {
        let Self {
            frames_received,
            frames_sent,
            frames_looped,
            datagrams_reassembled,
            fpdus_received,
            segments_predicted,
            nudges_sent,
            fpdus_placed_out_of_order,
            receives_awaited,
            held_frames,
            held_frames_peak,
            fpdus_sent,
            bytes_verified,
            nodes_visited,
            bytes_copied_rx,
            bytes_copied_tx,
            connections_opened,
            time_waits_evicted,
            time_waits_reused,
            syn_cookies_sent,
            syn_cookies_good,
            syn_cookies_bad,
            searches_refused,
            starts_refused,
            streams_failed,
            polls,
            idle_polls,
            drops,
            tcp,
            transfers,
        } = self;
        let mut values = named_values![
            frames_received,
            frames_sent,
            frames_looped,
            datagrams_reassembled,
            fpdus_received,
            segments_predicted,
            nudges_sent,
            fpdus_placed_out_of_order,
            receives_awaited,
            held_frames,
            held_frames_peak,
            fpdus_sent,
            bytes_verified,
            nodes_visited,
            bytes_copied_rx,
            bytes_copied_tx,
            connections_opened,
            time_waits_evicted,
            time_waits_reused,
            syn_cookies_sent,
            syn_cookies_good,
            syn_cookies_bad,
            searches_refused,
            starts_refused,
            streams_failed,
            polls,
            idle_polls
        ];
        values.extend(drops.named().into_iter().map(|drop| drop.within("drops")));
        values.extend(tcp.named().into_iter().map(|counter| counter.within("tcp")));
        values.extend(transfers.named().into_iter().map(|counter| counter.within("transfers")));
        values
    }

    /// Returns how many drops there were for `cause`.
    pub const fn dropped(&self, cause: DropCause) -> u64 {
        self.drops.get(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each counter is listed under its own name with its own value.
    #[test]
    fn every_counter_is_listed() {
        let mut statistics = Statistics { polls: 3, streams_failed: 5, ..Statistics::default() };
        statistics.count(DropCause::TcpChecksum);
        statistics.tcp.timeouts = 7;
        let listed = statistics.named();
        let names: std::collections::BTreeSet<_> = listed.iter().map(|value| value.name.as_str()).collect();
        assert_eq!(names.len(), listed.len(), "no name stands for two");
        // Debug names every field: those of Drops are a list without names.
        let fields = format!("{statistics:?}").matches(": ").count() - 3;
        assert_eq!(listed.len(), fields + DropCause::COUNT);
        let counted = listed.iter().filter(|value| value.value > 0);
        let counted: Vec<_> = counted.map(|value| (value.name.as_str(), value.value)).collect();
        let expected = [("streams_failed", 5), ("polls", 3), ("drops.tcp_checksum", 1), ("tcp.timeouts", 7)];
        assert_eq!(counted, expected);
    }

    /// Whatever is counted is summed under its own name.
    #[test]
    fn each_counter_of_another_core_is_added() {
        let one = Statistics { polls: 3, streams_failed: 5, held_frames: 2, ..Statistics::default() };
        let mut other = Statistics { polls: 10, frames_sent: 4, ..Statistics::default() };
        other.count(DropCause::TcpChecksum);
        (other.tcp.timeouts, other.transfers.octets_placed) = (7, 9);
        let mut sum = one.clone();
        sum.add(&other);
        for ((sum, one), other) in sum.named().iter().zip(one.named()).zip(other.named()) {
            assert_eq!(sum.value, one.value + other.value, "{}", sum.name);
        }
        assert_eq!((sum.polls, sum.tcp.timeouts, sum.transfers.octets_placed), (13, 7, 9));
    }

    #[test]
    fn each_counter_of_the_host_is_added() {
        let mut drops = Drops::default();
        drops.count(DropCause::Malformed);
        let host = Counters {
            frames_received: 1,
            frames_sent: 2,
            frames_looped: 4,
            datagrams_reassembled: 8,
            drops: drops.clone(),
        };
        let before = Statistics {
            frames_received: 100,
            frames_sent: 200,
            frames_looped: 400,
            datagrams_reassembled: 800,
            drops,
            ..Statistics::default()
        };
        let mut statistics = before.clone();
        statistics.add_host(&host);
        assert_eq!(statistics.dropped(DropCause::Malformed), 2);
        let expected = Statistics {
            frames_received: 101,
            frames_sent: 202,
            frames_looped: 404,
            datagrams_reassembled: 808,
            drops: statistics.drops.clone(),
            ..before
        };
        assert_eq!(statistics, expected);
    }
}
