//! Somebody with many addresses who opens connections by the dozen and leaves them (RFC 4987): half-open,
//! reset at once, or answered with what no host has sent. Each answer to its SYNs is judged, cookies as well:
//! nobody can tell which is one.

use core::ops::Range;
use std::collections::BTreeMap;

use fastrand::Rng;

use super::draw::Draw;
use super::host::MPA_PORT;
use super::packets::{ARP, Ip, Link, TCP};
use super::wire::{Segment, flag};

/// Its hardware address.
pub(super) const MAC: [u8; 6] = [0x02, 0, 0, 0, 3, 3];
/// The last octets of its addresses, which are in the network of the hosts.
const ADDRESSES: Range<u8> = 210..240;
/// SYNs at a time: more than a core gives connections to in a poll.
const SYNS_MAX: usize = 40;

/// What a SYN of it says.
#[derive(Clone, Copy, Debug)]
struct Syn {
    seq: u32,
    has_scale: bool,
    permits_sack: bool,
    has_timestamps: bool,
}

/// Its SYNs, by host, address and port.
#[derive(Debug, Default)]
pub(super) struct Flood {
    syns: BTreeMap<(usize, u8, u16), Syn>,
}

/// Returns true if an address, as a flow has it, is one of its own.
pub(super) fn is_its_address(address: [u8; 16]) -> bool {
    matches!(address, [198, 18, 0, last, rest @ ..] if ADDRESSES.contains(&last) && rest == [0; 12])
}

impl Flood {
    /// Returns SYNs to a host.
    pub(super) fn burst(&mut self, draw: &Draw, rng: &mut Rng, host: usize) -> Vec<Vec<u8>> {
        let one = rng.u8(ADDRESSES);
        let from = if rng.bool() { one..one + 1 } else { ADDRESSES };
        (0..rng.usize(1..=SYNS_MAX)).map(|_| self.syn(draw, rng, host, from.clone())).collect()
    }

    fn syn(&mut self, draw: &Draw, rng: &mut Rng, host: usize, from: Range<u8>) -> Vec<u8> {
        // The second SYN of one connection would be another.
        let unused = |at: &(u8, u16)| !self.syns.contains_key(&(host, at.0, at.1));
        let mut places = std::iter::repeat_with(|| (rng.u8(from.clone()), rng.u16(1024..)));
        let (last, port) = places.find(unused).expect("places have no end");
        let seq = rng.u32(..);
        let syn =
            Syn { seq, has_scale: rng.bool(), permits_sack: rng.bool(), has_timestamps: rng.u8(..4) == 0 };
        self.syns.insert((host, last, port), syn);
        let mut options = Vec::new();
        if rng.bool() {
            let mss = [40_u16, 536, 1220, 1400, 1460, 8960][rng.usize(..6)];
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if syn.has_scale {
            options.extend([1, 3, 3, rng.u8(..=14)]);
        }
        if syn.permits_sack {
            options.extend([1, 1, 4, 2]);
        }
        if syn.has_timestamps {
            options.extend([1, 1, 8, 10]);
            options.extend(rng.u32(..).to_be_bytes());
            options.extend([0; 4]);
        }
        segment(draw, host, last, port, [seq, 0], flag::SYN, &options)
    }

    /// A host has sent `frame` to it, or to all. Returns what it answers.
    pub(super) fn answer(
        &self,
        draw: &Draw,
        rng: &mut Rng,
        host: usize,
        frame: &[u8],
    ) -> Result<Vec<Vec<u8>>, String> {
        if let Some(reply) = arp_reply(draw, host, frame) {
            return Ok(vec![reply]);
        }
        let Some(it) = Segment::in_frame(frame).filter(|it| is_its_address(it.flow.addresses()[1])) else {
            return Ok(Vec::new());
        };
        // What does not match may have been altered.
        if !it.is_intact || it.has(flag::RST) {
            return Ok(Vec::new());
        }
        let (last, port) = (it.flow.addresses()[1][3], it.flow.ports()[1]);
        let send = |numbers, flags| segment(draw, host, last, port, numbers, flags, &[]);
        if !it.has(flag::SYN) {
            // It has forgotten the connection.
            return Ok(vec![send([it.ack, 0], flag::RST)]);
        }
        let Some(syn) = self.syns.get(&(host, last, port)) else {
            return Err(format!("a SYN for none: {it:?}"));
        };
        let next = syn.seq.wrapping_add(1);
        let options = &it.options;
        let is_unasked = options.scale.is_some() && !syn.has_scale
            || options.sack_permitted && !syn.permits_sack
            || options.timestamps.is_some() && !syn.has_timestamps;
        if it.ack != next || !it.has(flag::ACK) || is_unasked {
            return Err(format!("{syn:?} is answered with {it:?}"));
        }
        let acknowledged = it.seq.wrapping_add(1);
        Ok(match rng.u8(..4) {
            0 => Vec::new(),
            1 => vec![send([next, 0], flag::RST)],
            2 => vec![send([next, acknowledged.wrapping_add(rng.u32(1..))], flag::ACK)],
            _ => vec![send([next, acknowledged], flag::ACK), send([next, 0], flag::RST)],
        })
    }
}

/// Returns a segment from one of its addresses, with a sequence number and an acknowledgement.
fn segment(
    draw: &Draw,
    host: usize,
    last: u8,
    port: u16,
    [seq, ack]: [u32; 2],
    flags: u8,
    options: &[u8],
) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(port.to_be_bytes());
    segment.extend(MPA_PORT.to_be_bytes());
    segment.extend(seq.to_be_bytes());
    segment.extend(ack.to_be_bytes());
    segment.extend([(5 + options.len() as u8 / 4) << 4, flags, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(options);
    let (source, destination) = ([198, 18, 0, last], [198, 18, 0, 1 + host as u8]);
    let ip = Ip { source: &source, destination: &destination, protocol: TCP };
    Link { draw, station: MAC, host }.frame(ip, segment)
}

/// Returns the reply to a request for one of its addresses (RFC 826), if `frame` is one.
fn arp_reply(draw: &Draw, host: usize, frame: &[u8]) -> Option<Vec<u8>> {
    let at = if draw.vlan.is_some() { 16 } else { 12 };
    let (ether_type, message) = (frame.get(at..at + 2)?, frame.get(at + 2..at + 30)?);
    let [198, 18, 0, last] = message[24..28] else { return None };
    if ether_type != ARP || message[6..8] != [0, 1] || !ADDRESSES.contains(&last) {
        return None;
    }
    let mut reply = Link { draw, station: MAC, host }.header(ARP);
    reply.extend(&message[..6]);
    reply.extend([0, 2]);
    reply.extend(MAC);
    reply.extend([198, 18, 0, last]);
    reply.extend(&message[8..18]);
    Some(reply)
}
