//! One pair of ports: the start of its sequence numbers, and the octets sent over it.

use warpline_dataplane::ring::ConnectionId;
use warpline_dataplane::wire::tcp::{Flags, SeqNumber, Timestamps};

use super::script::{self, Options, Payload, Segment};
use crate::common::raw::{PEER_ISS, PEER_PORT, Sent};

/// A flow of a script, such as flow 1.
pub struct Flow {
    pub number: u32,
    pub peer_port: u16,
    pub core_port: Option<u16>,
    pub peer_iss: SeqNumber,
    /// The sequence number of the core's SYN, once seen.
    pub core_iss: Option<SeqNumber>,
    /// The first timestamp of the core, once seen.
    timestamp_base: Option<u32>,
    pub connection: Option<ConnectionId>,
    /// Octets that the core was asked to send unchanged.
    pub queued: Vec<u8>,
    /// Octets the core has sent, by their place: retransmitted octets must be the same.
    sent: Vec<Option<u8>>,
    /// Streaming octets that control was given and no line has read.
    pub received: Vec<u8>,
    /// Octets read so far.
    pub read: usize,
}

/// The octet at place `at` of the peer's stream.
pub fn peer_octet(at: usize) -> u8 {
    at.wrapping_mul(7).wrapping_add(at / 251 + 3) as u8
}

/// The octet at place `at` of the core's stream.
pub fn core_octet(at: usize) -> u8 {
    at.wrapping_mul(11).wrapping_add(at / 241 + 5) as u8
}

impl Flow {
    pub fn new(spec: &script::Flow) -> Self {
        Self {
            number: spec.number,
            peer_port: spec.peer_port.unwrap_or(PEER_PORT + spec.number as u16 - 1),
            core_port: spec.core_port,
            peer_iss: spec.peer_iss.map_or(PEER_ISS, SeqNumber),
            core_iss: None,
            timestamp_base: None,
            connection: None,
            queued: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            read: 0,
        }
    }

    /// A place in the core's stream. Absolute while its SYN is not known.
    pub fn core_seq(&self, relative: i64) -> SeqNumber {
        self.core_iss.unwrap_or(SeqNumber(0)) + relative as u32
    }

    /// A place in the peer's stream.
    pub fn peer_seq(&self, relative: i64) -> SeqNumber {
        self.peer_iss + relative as u32
    }

    /// The timestamps a segment of the peer carries.
    pub fn timestamps(&self, value: u32, echo: u32, acknowledges: bool) -> Timestamps {
        let base = self.timestamp_base.filter(|_| acknowledges).unwrap_or(0);
        Timestamps { value, echo: base.wrapping_add(echo) }
    }

    /// A segment of the core, in the numbers of scripts.
    pub fn observe(&mut self, sent: &Sent) -> Segment {
        let header = &sent.header;
        if header.flags.contains(Flags::SYN) && self.core_iss.is_none() {
            self.core_iss = Some(header.seq);
        }
        let timestamps = header.options.timestamps.map(|Timestamps { value, echo }| {
            let base = *self.timestamp_base.get_or_insert(value);
            (Some(value.wrapping_sub(base)), Some(echo))
        });
        let from_core = |seq: SeqNumber| i64::from(seq - self.core_seq(0));
        let from_peer = |seq: SeqNumber| i64::from(seq - self.peer_iss);
        Segment {
            flow: self.number,
            flags: header.flags,
            seq: if self.core_iss.is_some() { from_core(header.seq) } else { i64::from(header.seq.0) },
            octets: sent.payload.len() as u32,
            ack: header.flags.contains(Flags::ACK).then(|| from_peer(header.ack)),
            window: Some(header.window),
            urgent: header.urgent,
            ecn: sent.ecn,
            options: Options {
                and_others: false,
                mss: header.options.mss,
                window_scale: header.options.window_scale,
                sack_permitted: header.options.sack_permitted,
                timestamps,
                sack: header
                    .options
                    .sack
                    .iter()
                    .map(|(left, right)| (from_peer(*left), from_peer(*right)))
                    .collect(),
            },
            payload: Payload::Pattern,
        }
    }

    /// Compares octets that the core sent at place `seq` with the expected ones and with earlier copies.
    pub fn judge_octets(&mut self, seq: i64, octets: &[u8]) -> Result<(), String> {
        let Ok(first) = usize::try_from(seq - 1) else {
            return if octets.is_empty() {
                Ok(())
            } else {
                Err(format!("octets before the stream, at {seq}"))
            };
        };
        for (place, octet) in (first..).zip(octets) {
            if self.queued.get(place).is_some_and(|queued| queued != octet) {
                return Err(format!("the octet at {} is not the one that was to be sent", place + 1));
            }
            if place >= self.sent.len() {
                self.sent.resize(place + 1, None);
            }
            if self.sent[place].replace(*octet).is_some_and(|before| before != *octet) {
                return Err(format!(
                    "the octet at {} is another one than when it was sent before",
                    place + 1
                ));
            }
        }
        Ok(())
    }
}
