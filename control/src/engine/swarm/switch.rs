//! The network of a swarm: a link for each host, and a switch between them. What the switch has seen, and
//! when, is the trace of a seed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use warpline_dataplane::device::sim::{
    self, End, EndConfig, Impairments, Network, SimDevice, Statistics, Verdict,
};
use warpline_dataplane::device::{Device, Frame};
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::ethernet::MacAddress;

use super::digest::{Digest, Trace};
use super::draw::Draw;
use super::flood::{self, Flood};
use super::forger;
use super::router;
use super::stranger::{self, Stranger};
use super::wire::Wire;

/// Frames that the switch takes from a port at a time.
const BURST: usize = 64;

/// A port of the switch, and the link to its host.
struct Port {
    device: SimDevice,
    network: Network,
}

/// The links of all hosts, and the switch that they lead to.
pub(super) struct Switch {
    ports: Vec<Port>,
    trace: Digest,
    frames: u64,
    /// What links that were replaced have done.
    former: Vec<Statistics>,
    pub(super) stranger: Stranger,
    flood: Flood,
    /// Forged ICMP errors to each host.
    forged_errors: BTreeMap<usize, u64>,
    /// What hosts send and receive is judged here.
    wire: Arc<Mutex<Wire>>,
}

/// Returns the hardware address of a host.
fn mac(host: usize) -> MacAddress {
    MacAddress([0x02, 0, 0, 0, 1, host as u8])
}

impl Switch {
    /// Returns a switch with no ports.
    pub(super) fn new() -> Self {
        Self {
            ports: Vec::new(),
            trace: Digest::default(),
            frames: 0,
            former: Vec::new(),
            stranger: Stranger::default(),
            flood: Flood::default(),
            forged_errors: BTreeMap::new(),
            wire: Arc::default(),
        }
    }

    /// Makes the link of `host`, the next one or one that was there before: its frames are lost then. `start`
    /// tells the links of one host apart.
    pub(super) fn connect(&mut self, draw: &Draw, host: usize, start: u64) -> SimDevice {
        let of = &draw.hosts[host];
        let near = EndConfig {
            mac: mac(host),
            mtu_bytes: draw.mtu_octets,
            gather: of.gather,
            transmit_checksums: of.transmit_checksums,
            super_frame_bytes: of.super_frame_octets,
            super_frame_pieces: of.super_frame_pieces,
            receive_piece_octets: of.receive_piece_octets,
            ..EndConfig::a()
        };
        let far = EndConfig {
            mac: MacAddress([0x02, 0, 0, 0, 2, host as u8]),
            mtu_bytes: draw.mtu_octets,
            ..EndConfig::a()
        };
        let (near, far) = sim::link(draw.seed ^ (host as u64) << 56 ^ start << 48, near, far);
        let port = Port { network: far.network(), device: far };
        self.judge(host, of.tcp.congestion == Algorithm::Dctcp, &port.network);
        if host == self.ports.len() {
            self.ports.push(port);
        } else {
            let former = std::mem::replace(&mut self.ports[host], port);
            self.stranger.restart(host);
            self.former.extend([End::A, End::B].map(|end| former.network.statistics(end)));
        }
        near
    }

    /// Has everything judged that `host` sends and receives.
    fn judge(&self, host: usize, echoes_each_mark: bool, link: &Network) {
        self.wire().begin(host, echoes_each_mark);
        let (sent, arrived) = (self.wire.clone(), self.wire.clone());
        let shows = super::shows();
        link.set_filter(End::A, move |now, frame: &mut [u8]| {
            if shows {
                println!("{} host {host} sends {}", now.as_nanos(), super::wire::describe(frame));
            }
            sent.lock().expect("no panic").on_sent(host, now, frame);
            Verdict::Pass
        });
        link.set_observer(End::A, move |now, frame| {
            if shows {
                println!("{} host {host} takes {}", now.as_nanos(), super::wire::describe(frame));
            }
            arrived.lock().expect("no panic").on_arrived(now, frame);
        });
    }

    pub(super) fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().expect("no panic")
    }

    /// Forwards what has arrived. Returns true if there was anything.
    pub(super) fn poll(&mut self, now: Instant, draw: &Draw, rng: &mut fastrand::Rng) -> bool {
        let mut busy = false;
        let mut frames = Vec::new();
        for from in 0..self.ports.len() {
            busy |= self.ports[from].device.receive(now, &mut frames, BURST) > 0;
            for frame in frames.drain(..) {
                let octets = frame.piece(0).expect("a frame has octets");
                self.frames += 1;
                self.trace.add(now.as_nanos());
                self.trace.add(from as u64);
                self.trace.add_octets(octets);
                let destination = octets.get(..6).expect("an Ethernet header");
                if destination == stranger::MAC
                    && let Err(what) = self.stranger.on_frame(draw, from, octets)
                {
                    self.wire().set_fault(format!("host {from}: {what}"));
                }
                if draw.has_flood && (destination == flood::MAC || destination[0] & 1 == 1) {
                    match self.flood.answer(draw, rng, from, octets) {
                        Ok(answers) => {
                            for octets in &answers {
                                forward(&mut self.ports[from].device, now, octets);
                            }
                        }
                        Err(what) => self.wire().set_fault(format!("host {from}: {what}")),
                    }
                }
                for to in (0..self.ports.len()).filter(|to| *to != from) {
                    let group = destination[0] & 1 == 1;
                    if group || destination == mac(to).0 {
                        let mtu_octets = self.ports[to].network.impairments(End::B).mtu_octets;
                        if draw.has_router
                            && let Some(mtu_octets) = mtu_octets
                            && let Some(message) = router::too_big(draw, from, octets, mtu_octets)
                        {
                            forward(&mut self.ports[from].device, now, &message);
                        }
                        forward(&mut self.ports[to].device, now, octets);
                    }
                }
            }
        }
        busy
    }

    /// A stranger sends something to a host.
    pub(super) fn send_stray(&mut self, now: Instant, draw: &Draw, rng: &mut fastrand::Rng) {
        let (host, frames) = self.stranger.frames(draw, rng);
        for octets in &frames {
            forward(&mut self.ports[host].device, now, octets);
        }
    }

    /// Somebody begins to open many connections to a host.
    pub(super) fn send_flood(&mut self, now: Instant, draw: &Draw, rng: &mut fastrand::Rng) {
        let host = rng.usize(..self.ports.len());
        for octets in &self.flood.burst(draw, rng, host) {
            forward(&mut self.ports[host].device, now, octets);
        }
    }

    /// Somebody forges a segment of a connection.
    pub(super) fn send_forged(&mut self, now: Instant, draw: &Draw, rng: &mut fastrand::Rng) {
        let target = self.wire().target(rng.usize(..));
        if let Some(target) = target {
            let octets = if rng.u8(..3) == 0 {
                *self.forged_errors.entry(target.host).or_default() += 1;
                router::forged(draw, rng, &target)
            } else {
                forger::frame(draw, rng, &target)
            };
            forward(&mut self.ports[target.host].device, now, &octets);
        }
    }

    /// Returns how many ICMP errors were forged to `host`.
    pub(super) fn forged_errors(&self, host: usize) -> u64 {
        self.forged_errors.get(&host).copied().unwrap_or_default()
    }

    /// Returns when the next frame arrives at the switch.
    pub(super) fn next_arrival(&self) -> Instant {
        let arrivals = self.ports.iter().filter_map(|port| port.device.next_arrival());
        arrivals.min().unwrap_or(Instant::NEVER)
    }

    /// Returns the handle on the link of `host`. End A is the host's.
    pub(super) fn link(&self, host: usize) -> &Network {
        &self.ports[host].network
    }

    /// Has all paths treat frames in this way. Bits are inverted on the way to the switch alone: TCP's
    /// checksum finds any one of them, and where a byte stream has no CRC nothing finds two that make up for
    /// each other.
    pub(super) fn set_impairments(&self, impairments: Impairments) {
        for port in &self.ports {
            port.network.set_impairments(End::A, impairments);
            port.network.set_impairments(End::B, Impairments { corrupt_bits: 0.0, ..impairments });
        }
    }

    /// Returns what has happened to frames so far, link by link.
    pub(super) fn statistics(&self) -> impl Iterator<Item = Statistics> {
        let ends = |port: &Port| [End::A, End::B].map(|end| port.network.statistics(end));
        self.former.iter().copied().chain(self.ports.iter().flat_map(ends))
    }

    /// Returns the digest of all frames with their times and ports, and how many there were.
    pub(super) fn trace(&self) -> Trace {
        Trace { frames: self.frames, wire: self.trace.finish() }
    }
}

fn forward(port: &mut SimDevice, now: Instant, octets: &[u8]) {
    let Some(mut frame) = port.allocate() else { return };
    frame.append(octets.len()).expect("the links have one MTU").copy_from_slice(octets);
    port.transmit(now, &mut vec![frame]);
}

/// Two inverted bits of one weight, 0 to 1 and 1 to 0, leave the sum of RFC 1071 as it was: a frame that
/// meets both on its two links carries other octets with a good checksum (seed 100377 of an earlier network).
#[test]
fn a_frame_has_one_bit_inverted_at_most() {
    let seed = 1;
    let draw = Draw::new(seed, &mut fastrand::Rng::with_seed(seed));
    let mut switch = Switch::new();
    let mut devices = [0, 1].map(|host| switch.connect(&draw, host, 0));
    switch.set_impairments(Impairments { corrupt_bits: 1.0, ..Impairments::default() });
    let mut sent = [0; 100];
    sent[..6].copy_from_slice(&mac(1).0);
    sent[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
    let mut arrived = Vec::new();
    for number in 0..50 {
        let now = Instant::from_nanos(number * 1_000_000);
        forward(&mut devices[0], now, &sent);
        assert!(switch.poll(now + 1_000, &draw, &mut fastrand::Rng::with_seed(seed)));
        assert_eq!(devices[1].receive(now + 2_000, &mut arrived, BURST), 1);
        let frame = arrived.pop().expect("a frame");
        let pieces = (0..).map_while(|piece| frame.piece(piece));
        let inverted = pieces.flatten().zip(&sent).map(|(octet, sent)| (octet ^ sent).count_ones());
        assert_eq!(inverted.sum::<u32>(), 1);
    }
}
