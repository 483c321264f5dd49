//! Values of the names in `check` lines.

use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::{Connection, State};

use super::flow::Flow;
use crate::common::raw::RawPeer;

const STATES: [(&str, State); 10] = [
    ("SYN_SENT", State::SynSent),
    ("SYN_RECEIVED", State::SynReceived),
    ("ESTABLISHED", State::Established),
    ("FIN_WAIT_1", State::FinWait1),
    ("FIN_WAIT_2", State::FinWait2),
    ("CLOSE_WAIT", State::CloseWait),
    ("CLOSING", State::Closing),
    ("LAST_ACK", State::LastAck),
    ("TIME_WAIT", State::TimeWait),
    ("CLOSED", State::Closed),
];

/// The value of `name`, asked of flow 1 or of the core.
pub fn value(name: &str, peer: &RawPeer, flow: &Flow) -> Result<i128, String> {
    if let Some((_, state)) = STATES.iter().find(|(state, _)| *state == name) {
        return Ok(*state as i128);
    }
    if let Some(cause) = name.strip_prefix("dropped.") {
        let cause = DropCause::ALL.into_iter().find(|known| format!("{known:?}") == cause);
        let cause = cause.ok_or_else(|| format!("nothing is dropped for {name:?}"))?;
        return Ok(i128::from(peer.core.statistics().dropped(cause)));
    }
    if let Some(value) = of_core(name, peer) {
        return Ok(value);
    }
    let tcp = flow.connection.and_then(|connection| peer.core.tcp(connection));
    match (tcp, name) {
        (None, "state") if peer.core.usage().time_waits > 0 => Ok(State::TimeWait as i128),
        (None, "state") => Ok(State::Closed as i128),
        (None, _) => Err(format!("there is no connection to ask for {name:?}")),
        (Some(tcp), _) => of_connection(name, tcp).ok_or_else(|| format!("nothing is called {name:?}")),
    }
}

/// Values from the segments of a flow: `iss.2`, `port.2`.
pub fn of_flow(name: &str, flow: &Flow) -> Result<i128, String> {
    let value = match name {
        "iss" => flow.core_iss.map(|iss| iss.0.into()),
        "port" => flow.core_port.map(i128::from),
        _ => return Err(format!("a flow has iss and port, no {name:?}")),
    };
    value.ok_or_else(|| format!("nothing has come that tells the {name} of flow {}", flow.number))
}

fn of_core(name: &str, peer: &RawPeer) -> Option<i128> {
    let statistics = peer.core.statistics();
    let tcp = &statistics.tcp;
    let value = match name {
        "data_segments" => tcp.data_segments_sent,
        "retransmits" => tcp.retransmitted_segments,
        "retransmits_after_timeout" => tcp.retransmitted_after_timeout.into(),
        "tail_probes" => tcp.retransmitted_as_probe.into(),
        "fast_retransmits" => tcp.fast_retransmits.into(),
        "timeouts" => tcp.timeouts.into(),
        "undone" => tcp.undone_reductions.into(),
        "ecn_reductions" => tcp.ecn_reductions.into(),
        "duplicate_deliveries" => tcp.duplicate_deliveries.into(),
        "reneged" => tcp.reneged.into(),
        "reordered" => tcp.reordered_segments.into(),
        "out_of_order" => tcp.out_of_order_segments,
        "out_of_order_octets" => tcp.out_of_order_bytes,
        "probes" => tcp.window_probes.into(),
        "keepalive_probes" => tcp.keepalive_probes.into(),
        "cut_segments" => tcp.cut_segments.into(),
        "path_mtu_reductions" => tcp.path_mtu_reductions.into(),
        "held_frames_peak" => tcp.held_frames_peak.into(),
        "forgotten_runs" => tcp.forgotten_runs.into(),
        "connections_opened" => statistics.connections_opened,
        "fpdus_received" => statistics.fpdus_received,
        _ => return None,
    };
    Some(value.into())
}

fn of_connection(name: &str, tcp: &Connection) -> Option<i128> {
    let snapshot = tcp.snapshot();
    Some(match name {
        "state" => snapshot.state as i128,
        "mss" => snapshot.emss_bytes.into(),
        "sack" => snapshot.sack.into(),
        "timestamps" => snapshot.timestamps.into(),
        "ecn" => snapshot.ecn.into(),
        "cwnd" => snapshot.window_bytes.into(),
        "ssthresh" => snapshot.threshold_bytes.into(),
        "peer_window" => snapshot.peer_window_bytes.into(),
        "outstanding" => snapshot.outstanding_bytes.into(),
        "in_flight" => snapshot.in_flight_bytes.into(),
        "sacked" => snapshot.sacked_bytes.into(),
        "lost" => snapshot.lost_bytes.into(),
        "unsent" => snapshot.unsent_bytes.into(),
        "srtt" => snapshot.smoothed_rtt_ns.unwrap_or(0).into(),
        "rttvar" => snapshot.rtt_variation_ns.unwrap_or(0).into(),
        "least_rtt" => snapshot.least_rtt_ns.unwrap_or(0).into(),
        "rto" => snapshot.rto_ns.into(),
        "reordering_seen" => snapshot.reordering_seen.into(),
        "held_frames" => snapshot.held_frames as i128,
        _ => return None,
    })
}
