//! What hosts have counted, against what was seen of them.

use std::collections::BTreeMap;

use crossbeam::channel::Receiver;
use warpline_dataplane::device::sim::{End, OptionFaults};
use warpline_dataplane::statistics::{DropCause, Statistics};

use super::digest::Digest;
use super::draw::{Damage, Draw};
use super::host::Host;
use super::wire::Sent;
use super::world::Swarm;
use crate::engine::interface::request::{CoreStatistics, Request};

/// Frames that each core keeps for what it sends next.
const SPARE_FRAMES: usize = 1;
/// What a host may count on clear paths. Streams of work requests that fail have octets after their error, or
/// a last segment for a queue pair that is gone; a tail loss probe sends octets again; neighbours ask groups
/// that a host is not in; a stranger has sent fragments, some of datagrams that never are whole.
const CLEAR: [&str; 28] = [
    "frames_received",
    "frames_sent",
    "fpdus_received",
    "fpdus_sent",
    "segments_predicted",
    "nudges_sent",
    "receives_awaited",
    "held_frames_peak",
    "bytes_verified",
    "bytes_copied_rx",
    "bytes_copied_tx",
    "nodes_visited",
    "connections_opened",
    "datagrams_reassembled",
    "streams_failed",
    "polls",
    "idle_polls",
    "drops.other_address",
    "drops.duplicate",
    "drops.after_error",
    "drops.rate_limited",
    "drops.wrong_state",
    "drops.no_connection",
    "tcp.data_segments_sent",
    "tcp.retransmitted_segments",
    "tcp.retransmitted_as_probe",
    "tcp.duplicate_deliveries",
    "tcp.held_frames_peak",
];
/// Of these, what only failed streams and byte streams bring about.
const NOT_OF_QUEUE_PAIRS: [&str; 4] =
    ["drops.rate_limited", "drops.wrong_state", "drops.no_connection", "drops.after_error"];
/// What else applications of byte streams bring about that do not read.
const OF_STREAMS: [&str; 2] = ["tcp.window_probes", "tcp.cut_segments"];
/// What no path does to frames that it neither alters nor cuts.
const NEVER_INTACT: [&str; 16] = [
    "drops.malformed",
    "drops.oversized_packet",
    "drops.other_mac",
    "drops.other_vlan",
    "drops.other_protocol",
    "drops.bad_source",
    "drops.address_conflict",
    "drops.ip_checksum",
    "drops.tcp_checksum",
    "drops.partial_checksum",
    "drops.icmp_checksum",
    "drops.fragment",
    "drops.fragment_overlap",
    "drops.fpdu_crc",
    "transfers.outside_payload",
    "transfers.out_of_bounds",
];

/// Causes for which a host may report less of a stream than has come.
const NOT_KEPT: [DropCause; 8] = [
    DropCause::OutsideWindow,
    DropCause::BadAck,
    DropCause::NoRoomForFrame,
    DropCause::WrongState,
    DropCause::OldTimestamp,
    DropCause::FpduCrc,
    DropCause::AfterError,
    DropCause::AfterClose,
];

/// What none of the first seeds brings about, and why.
const NEVER: [(&str, &[&str]); 11] = [
    ("the stranger sends one datagram at a time", &["drops.reassembly_evicted"]),
    (
        "tables of connections have room for all that a seed opens",
        &["drops.no_room_for_connection", "drops.peer_share", "searches_refused", "starts_refused"],
    ),
    ("what a seed holds does not stand for minutes", &["drops.held_too_long"]),
    ("no station claims an address of others", &["drops.address_conflict"]),
    ("links carry what a NIC would send", &["drops.partial_checksum"]),
    ("no host talks to itself", &["frames_looped"]),
    ("rings between cores have room for what waits", &["drops.not_handed_over", "drops.stalled_core"]),
    ("the model has no packet socket", &["drops.missed", "drops.not_sent"]),
    ("it is a level, and nothing is held in the end", &["held_frames"]),
    ("rings have room for what transfers are scattered over", &["transfers.too_scattered"]),
    ("few others do", &["drops.oversized_packet", "transfers.placements_revoked"]),
];

/// What all hosts have counted, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted(BTreeMap<String, u64>);

impl Counted {
    pub(super) fn add(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += value;
        }
    }

    /// Asserts that something has moved each counter that something can move, and nothing any other: one that
    /// nothing moves judges nothing.
    pub(super) fn expect_everything(&self) {
        let still = self.0.iter().filter(|(_, value)| **value == 0).map(|(name, _)| name.as_str());
        let has_reason = |name: &&str| NEVER.iter().any(|(_, names)| names.contains(name));
        let still: Vec<_> = still.filter(|name| !has_reason(name)).collect();
        assert!(still.is_empty(), "counters that nothing has moved: {still:?}");
        let moved = self.0.iter().filter(|(_, value)| **value > 0).map(|(name, _)| name.as_str());
        let moved: Vec<_> = moved.filter(has_reason).collect();
        assert!(moved.is_empty(), "counters that something has moved: {moved:?}");
    }
}

/// What cores have done for connections of queue pairs on clear paths, where no cold branch is forced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effort {
    segments: u64,
    data_segments: u64,
    predicted: u64,
    nodes: u64,
    /// Frames that came and went, those of a stranger too, and commands and events.
    causes: u64,
    busy_polls: u64,
}

impl Effort {
    pub(super) fn add(&mut self, other: &Self) {
        self.segments += other.segments;
        self.data_segments += other.data_segments;
        self.predicted += other.predicted;
        self.nodes += other.nodes;
        self.causes += other.causes;
        self.busy_polls += other.busy_polls;
    }

    /// Asserts that segments cost no more than they have to: most of those with data arrive as predicted, few
    /// nodes are visited for each, and the poll loop does not turn for nothing.
    pub(super) fn expect_little(&self) {
        assert!(self.predicted * 10 >= self.data_segments * 6, "few segments as predicted: {self:?}");
        assert!(self.nodes * 10 <= self.segments * 18, "many nodes visited: {self:?}");
        assert!(self.busy_polls * 10 <= self.causes * 6, "many polls with work: {self:?}");
    }
}

/// What the cores of a host had counted when control asked them, and where the reports arrive.
pub(super) struct ReportRequest {
    counted: Vec<Statistics>,
    reply: Receiver<CoreStatistics>,
}

impl Swarm {
    /// Returns what the cores have done, if nothing is in the way of speed.
    pub(super) fn effort(&self) -> Effort {
        let mut effort = Effort::default();
        // Several cores poll in turn, also for frames of one another.
        let has_several = self.hosts.iter().any(|host| host.core_count() > 1);
        if !self.draw.clean || self.draw.cold_of_256 > 0 || self.draw.streams > 0 || has_several {
            return effort;
        }
        effort.segments = self.switch.wire().segments();
        for host in &self.hosts {
            let statistics = host.statistics();
            effort.data_segments += statistics.tcp.data_segments_sent;
            effort.predicted += statistics.segments_predicted;
            effort.nodes += statistics.nodes_visited;
            effort.causes += statistics.frames_received + statistics.frames_sent + host.exchanged;
            effort.busy_polls += statistics.polls - statistics.idle_polls;
        }
        effort
    }

    /// Returns what all hosts have counted.
    pub(super) fn counted(&self) -> Counted {
        let mut counted = Counted::default();
        for named in self.hosts.iter().flat_map(|host| host.statistics().named()) {
            *counted.0.entry(named.name).or_default() += named.value;
        }
        counted
    }

    /// Returns the digest of what each host has counted, and has held meanwhile.
    pub(super) fn counts(&self) -> Digest {
        let mut digest = self.held.clone();
        for named in self.hosts.iter().flat_map(|host| host.statistics().named()) {
            digest.add_octets(named.name.as_bytes());
            digest.add(named.value);
        }
        digest
    }

    /// Has control ask the cores of each host for a report of their counters.
    pub(super) fn request_reports(&mut self) -> Vec<ReportRequest> {
        let now = self.now;
        let request = |host: &mut Host| {
            let counted = host.core_statistics();
            ReportRequest { counted, reply: host.begin(now, |reply| Request::Statistics { reply }) }
        };
        self.hosts.iter_mut().map(request).collect()
    }

    /// Asserts that the reports say what the cores had counted when they made them: no less than when they
    /// were asked, and no more than now. They visit connections one after the other, and add those that end
    /// meanwhile.
    pub(super) fn check_reports(&mut self, requests: Vec<ReportRequest>) {
        for (host, ReportRequest { counted, reply }) in requests.into_iter().enumerate() {
            let reported = self.await_reply(&reply);
            let now = self.hosts[host].core_statistics();
            assert_eq!((reported.len(), now.len()), (counted.len(), counted.len()), "each core has a report");
            for ((before, reported), after) in counted.iter().zip(reported).zip(now) {
                let Some(reported) = reported else {
                    assert!(self.draw.episodes > 0, "seed {}: no core stalls", self.draw.seed);
                    continue;
                };
                let values = before.named().into_iter().zip(reported.named()).zip(after.named());
                for ((before, reported), after) in values {
                    let expected = before.value..=after.value;
                    // Of what is held, the number falls too.
                    let is_expected = expected.contains(&reported.value) || reported.name == "held_frames";
                    assert!(is_expected, "seed {}: {reported:?}, {expected:?}", self.draw.seed);
                }
            }
        }
    }

    /// Asserts that hosts have counted what was seen of them, that nothing is acknowledged late, and that no
    /// frame is left.
    pub(super) fn check_counters(&self) {
        let mut wire = self.switch.wire();
        wire.check_all(self.now);
        for (number, host) in self.hosts.iter().enumerate() {
            let (link, statistics) = (self.switch.link(number), host.statistics());
            let tcp = statistics.tcp;
            let counted = Sent { data_segments: tcp.data_segments_sent, again: tcp.retransmitted_segments };
            assert_eq!(counted, wire.sent(number), "seed {}, host {number}", self.draw.seed);
            let mut frames = vec![(statistics.frames_received, link.statistics(End::B).delivered)];
            if self.draw.hosts[number].super_frame_octets == 0 {
                frames.push((statistics.frames_sent, link.statistics(End::A).sent));
            }
            // A frame that one core hands over to another is taken from a device by both, and one that waits
            // for a core that stalls by none.
            let is_exact = host.core_count() == 1;
            let differs = is_exact && frames.iter().any(|(counted, seen)| counted != seen);
            assert!(!differs, "seed {}, host {number}: frames {frames:?}", self.draw.seed);
            // Frames may wait for a core that stalls.
            let held = if host.stalls(self.now) { 0 } else { link.held_frames(End::A) };
            assert!(
                held <= SPARE_FRAMES * host.core_count(),
                "seed {}, host {number}: {held} frames left",
                self.draw.seed
            );
            // Frames may have waited for a ring with room.
            let is_prompt = self.draw.episodes == 0;
            if is_prompt && NOT_KEPT.iter().all(|cause| statistics.dropped(*cause) == 0) {
                wire.check_kept_all(number);
            }
            let aligns = self.draw.clean && tcp.cut_segments == 0;
            assert!(!aligns || wire.unaligned(number) == 0, "seed {}: FPDUs cut", self.draw.seed);
            let spurious = tcp.retransmitted_segments - u64::from(tcp.retransmitted_as_probe);
            assert!(!self.draw.clean || spurious == 0, "seed {}, host {number}: {tcp:?}", self.draw.seed);
        }
        drop(wire);
        self.expect_no_fault();
        self.check_drops();
        self.check_forged_errors();
        if self.draw.clean {
            self.check_clear_paths();
        }
    }

    /// Asserts that on clear paths each FPDU was received and verified once, and that nothing is counted that
    /// has no cause there.
    fn check_clear_paths(&self) {
        let all = self.hosts.iter().map(Host::statistics);
        let failed: u64 = all.clone().map(|of| of.streams_failed).sum();
        let received = all.clone().map(|of| [of.fpdus_received, of.bytes_verified]);
        let received = received.fold([0; 2], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        let seed = self.draw.seed;
        assert!(failed > 0 || received == self.switch.wire().fpdus(), "seed {seed}: {received:?}");
        let again: u64 = all.clone().map(|of| of.tcp.retransmitted_segments).sum();
        let sent: u64 = all.clone().map(|of| of.fpdus_sent).sum();
        let seen = self.switch.wire().fpdus()[0];
        assert!(sent == seen || again > 0 && sent > seen, "seed {seed}: {sent} FPDUs sent, {seen} seen");
        let is_exact = failed == 0 && self.draw.streams == 0;
        assert_eq!(self.switch.stranger.unanswered(), 0, "seed {seed}: pings without a reply");
        for (number, of) in all.enumerate() {
            let has_cause = |name: &str| {
                let of_streams = name.starts_with("transfers.") || OF_STREAMS.contains(&name);
                let is_mark = name == "tcp.ecn_reductions" && self.draw.impairments.mark_octets.is_some();
                is_mark
                    || CLEAR.contains(&name) && !(is_exact && NOT_OF_QUEUE_PAIRS.contains(&name))
                    || of_streams && self.draw.streams > 0
            };
            let named = of.named().into_iter().filter(|it| it.value > 0 && !it.name.starts_with("drops."));
            let odd: Vec<_> = named.filter(|it| !has_cause(&it.name)).collect();
            assert!(odd.is_empty(), "seed {seed}: {odd:?}");
            let drops = self.switch.stranger.other_drops(number, &of);
            let odd: Vec<_> = drops.iter().filter(|(name, count)| !has_cause(name) || **count < 0).collect();
            assert!(odd.is_empty(), "seed {seed}, host {number}: {odd:?} {drops:?}");
        }
    }

    /// Asserts that a frame was found damaged if it was, and no other.
    fn check_drops(&self) {
        let Draw { seed, damage, impairments, .. } = &self.draw;
        let alters = impairments.corrupt_bits > 0.0 || impairments.rdma_option != OptionFaults::NONE;
        if alters || *damage != Damage::None || impairments.duplicate > 0.0 {
            return;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let drops = self.switch.stranger.other_drops(number, &host.statistics());
            // RFC 4862 §5.4: nobody answers a ping of an address that it still probes for.
            let probes = self.draw.ipv6 && self.draw.hosts[number].detects_duplicates;
            let unanswered = if probes { self.switch.stranger.unanswered_by(number) } else { 0 };
            let most = |name: &str| if name == "drops.other_protocol" { unanswered } else { 0 };
            let is_odd =
                |(name, count): &(&String, &i64)| **count > most(name) && NEVER_INTACT.contains(&&***name);
            let odd: Vec<_> = drops.iter().filter(is_odd).collect();
            assert!(odd.is_empty(), "seed {seed}, host {number}: {odd:?} {drops:?}");
        }
    }

    /// Asserts that each forged ICMP error was refused (RFC 5927), where all arrive once.
    fn check_forged_errors(&self) {
        let Draw { seed, impairments, episodes, restart, .. } = &self.draw;
        if impairments.loss > 0.0 || impairments.duplicate > 0.0 || *episodes > 0 || *restart {
            return;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let refused = host.statistics().dropped(DropCause::IcmpRefused);
            assert_eq!(refused, self.switch.forged_errors(number), "seed {seed}, host {number}");
        }
    }
}
