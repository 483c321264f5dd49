//! Frames out: scheduled connections are served one after the other, and each sends the segments that TCP and
//! its allowance allow.

use crate::conn::{Allowance, Served};
use crate::device::Device;
use crate::endpoint::{AfterTransmit, Connection};
use crate::limits;
use crate::net::Host;
use crate::net::template::PathId;
use crate::tcp::{self, Unusual};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::sending::send_segments;
use super::{Core, look_ahead};

impl<D: Device> Core<D> {
    /// Serves the scheduled connections: each sends what it has. One that is not served, because the device
    /// is full or the poll has sent enough, is the first in the next poll.
    #[inline]
    pub(super) fn transmit(&mut self, now: Instant) -> bool {
        let has_work = self.endpoints.table.has_scheduled()
            || self.host.interface.frames_to_send() > 0
            || self.host.neighbourhood.has_to_solicit(now);
        has_work && self.serve_scheduled(now)
    }

    #[inline(never)]
    fn serve_scheduled(&mut self, now: Instant) -> bool {
        let count = self.endpoints.table.scheduled().min(limits::CONNECTIONS_SERVED_PER_POLL);
        let enough = self.host.interface.segments_sent() + limits::SEGMENTS_SENT_PER_POLL;
        let looks_ahead = count > 1 && look_ahead::is_useful(&self.endpoints.table);
        for left in (0..count).rev() {
            if self.host.interface.segments_sent() >= enough
                || !self.host.interface.has_room_for_connection(now)
            {
                break;
            }
            let Some(allowance) = self.endpoints.table.begin_serving() else { continue };
            if looks_ahead {
                look_ahead::fetch_scheduled(&self.endpoints);
            }
            let served = self.transmit_connection(now, allowance, left == 0);
            self.endpoints.table.end_serving(allowance.slot, served);
        }
        self.host.solicit_neighbours(now);
        let busy = count > 0 || self.host.interface.frames_to_send() > 0;
        self.host.interface.flush(now);
        busy
    }

    /// Serves a connection, which may be the `last` of this poll.
    fn transmit_connection(&mut self, now: Instant, allowance: Allowance, last: bool) -> Served {
        let Allowance { slot, octets } = allowance;
        let Some(mut endpoint) = self.endpoints.at(now, slot) else { return Served::NOTHING };
        debug_assert!(endpoint.connection.has_all_conditions(), "a condition began unnoticed");
        endpoint.retry_stream();
        let Connection { key, flow_label, .. } = &*endpoint.connection;
        let path = self.host.path(key, *flow_label, now);
        let sent = path.map_or(Served::NOTHING, |path| {
            let begin = endpoint.connection.tcp.next_seq();
            let emss_octets = endpoint.connection.tcp.emss_octets();
            let most = segments_in(octets, emss_octets, burst_segments(&self.host, path, emss_octets));
            let (segments, more) = send_segments(&mut self.host, &mut endpoint, path, most, last);
            Served { octets: octets_of(&endpoint.connection.tcp, begin, segments), more }
        });
        if path.is_none() {
            endpoint.await_path();
        }
        let more = match endpoint.unschedule(sent.more) {
            AfterTransmit::More { deadline } => {
                self.endpoints.table.set_deadline(slot, deadline);
                true
            }
            AfterTransmit::Wait { mut deadline } => {
                if path.is_none() {
                    if self.host.neighbourhood.is_unresolved(endpoint.connection.key.remote) {
                        // The next hop may not answer: then the connection asks again.
                        deadline = deadline.min(now + limits::NEIGHBOUR_RETRANSMIT_NS);
                    }
                    self.endpoints.table.await_path(slot);
                }
                self.endpoints.table.set_deadline(slot, deadline);
                false
            }
            AfterTransmit::Closed => {
                self.endpoints.remove(now, slot);
                false
            }
            AfterTransmit::TimeWait(state) => {
                let key = endpoint.connection.key;
                self.endpoints.remove(now, slot);
                let evicted = self.handshakes.time_waits.insert(now, key, state);
                self.endpoints.context.statistics.time_waits_evicted += u64::from(evicted);
                false
            }
        };
        Served { more, ..sent }
    }
}

/// Returns how many segments of `emss_octets` a connection sends on a path in one poll.
#[inline]
fn burst_segments<D: Device>(host: &Host<D>, path: PathId, emss_octets: usize) -> usize {
    if !host.allows_super_frames(path) {
        return limits::TRANSMIT_BURST_SEGMENTS;
    }
    let joined = limits::TRANSMIT_BURST_SUPER_FRAMES * (host.super_frame_room(path).octets / emss_octets);
    joined.clamp(limits::TRANSMIT_BURST_SEGMENTS, limits::TRANSMIT_BURST_SEGMENTS_JOINED)
}

/// Returns how many segments of `emss_octets` an allowance of `octets` octets is good for, the last one
/// whole; at most `most`.
#[inline]
fn segments_in(octets: usize, emss_octets: usize, most: usize) -> usize {
    if octets >= most * emss_octets { most } else { octets.div_ceil(emss_octets) }
}

/// Returns the octets that `segments` segments take of the wire, which were sent since SND.NXT was `begin`.
/// While something is sent again, each counts as a full one.
#[inline]
fn octets_of(tcp: &tcp::Connection, begin: SeqNumber, segments: usize) -> usize {
    let payload = if tcp.unusual.contains(Unusual::RECOVERING) {
        segments * tcp.emss_octets()
    } else {
        (tcp.next_seq() - begin).max(0).cast_unsigned() as usize
    };
    payload + segments * limits::FRAME_OVERHEAD_BYTES
}
