//! A core, its peers, its control and its memory, and the invariants between any two steps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::{Config, Core, CoreSetup};
use warpline_dataplane::limits;
use warpline_dataplane::net::addresses::{Cidr, Route};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::time::{Instant, MICROSECOND, SECOND};
use warpline_dataplane::wire::ethernet::MacAddress;

use super::control::{Control, QUEUE_PAIRS};
use super::conversation::{Flow, SENT_OCTETS};
use super::device::{Behaviour, FuzzDevice, Port};
use super::frames::{self, CORE, CORE_MAC, CORE6, GATEWAY, PEERS};
use super::input::Input;
use super::memory::{Memory, PURPOSES};
use super::watch;

/// Ports for incoming connections, if control listens.
pub const LISTENING: [u16; 2] = [7471, 7472];
/// Peer ports.
pub const FLOWS: usize = 4;

const TABLES: Tables = Tables {
    connections: 8,
    time_waits: 8,
    send_descriptors: 128,
    held_frames: 64,
    placed_runs: 16,
    placed_sends: 16,
    queue_pairs: QUEUE_PAIRS,
    listeners: 4,
    regions: 8,
    cut_octets: 1024,
};

/// Polls without anything new after which the core has nothing left to do.
const POLLS_TO_REST: usize = 64;
/// Polls at a time while the device lacks resources: the core retries without end.
const POLLS_WHEN_SHORT: usize = 4;
/// Maximum number of times the core is woken in one advance of time, before the rest of the time passes at
/// once.
const WAKES: usize = 1000;
/// Frames in one poll: the waiting ones, and a burst of each kind on top.
const FRAMES_PER_POLL: usize = limits::SEGMENTS_SENT_PER_POLL as usize
    + limits::TRANSMIT_QUEUE_FRAMES
    + limits::TRANSMIT_BURST_SEGMENTS
    + 2 * limits::RECEIVE_BURST_FRAMES;
/// Frames that wait for the device.
const FRAMES_WAITING: usize = limits::TRANSMIT_QUEUE_FRAMES + limits::RECEIVE_BURST_FRAMES;

pub struct World {
    pub core: Core<FuzzDevice>,
    pub port: Port,
    pub control: Control,
    pub memory: Memory,
    pub flows: Vec<Flow>,
    pub now: Instant,
    pub behaviour: Behaviour,
    /// The device was left without buffers or refuses frames.
    pub short: bool,
    /// Frames without payload that the core may still send: each answers something that happened.
    allowance: usize,
    answers_arp: bool,
}

impl World {
    /// A world as the first octets of an input describe it.
    pub fn new(input: &mut Input<'_>) -> Self {
        let kind = input.octet();
        let behaviour = Behaviour {
            mtu_octets: [1500, 9000, 576, 1280, 296, 1492][input.below(6)],
            frames: [96, 256, 64][input.below(3)],
            offloads: kind & 1 != 0,
            verifies: kind & 2 != 0,
            piece_octets: (kind & 4 != 0).then_some(37),
        };
        let config = Config {
            addresses: [Cidr::new(CORE.into(), 24), Cidr::new(CORE6.into(), 64)].into_iter().collect(),
            routes: (kind & 8 == 0).then_some(Route::default_by(GATEWAY.into())).into_iter().collect(),
            window_bytes: 1 << [16, 18, 12, 20, 10, 30][input.below(6)],
            ..Config::new(CORE.into(), 24, [7, 11])
        };
        let (device, port) = FuzzDevice::new(MacAddress(CORE_MAC), behaviour);
        let control = Control::new();
        Self {
            core: Core::new(device, CoreSetup::new(config, control.rings.clone()).with_tables(TABLES)),
            port,
            control,
            memory: Memory::new(),
            flows: (0..FLOWS).map(|index| Flow::new(index, LISTENING[0])).collect(),
            now: Instant::from_nanos(1),
            behaviour,
            short: false,
            // The core's unsolicited frames: announcements of its addresses.
            allowance: 16,
            answers_arp: true,
        }
    }

    /// Puts a frame on the wire. The core answers with few frames: an acknowledgement, the packets that a
    /// newly resolved address releases, and the outstanding frames of a freed connection.
    pub fn inject(&mut self, frame: Vec<u8>) {
        self.allowance += 3;
        self.port.put(frame);
    }

    /// Polls the core until it has no more work at this time.
    pub fn settle(&mut self) {
        for _ in 0..if self.short { POLLS_WHEN_SHORT } else { POLLS_TO_REST } {
            if !self.poll() {
                break;
            }
        }
        while !self.control.deaf && self.core.usage().events_waiting > 0 {
            self.poll();
        }
        if !self.short {
            // Data that waits only for its turn may take more polls than that; it ends with the window.
            let mut polls = 0;
            while self.poll() {
                polls += 1;
                assert!(polls < 4096, "the core does not come to rest at {:?}", self.now);
            }
            let deadline = self.core.next_deadline();
            assert!(deadline > self.now, "at rest, but to be woken at {deadline:?}, which is past");
        }
        self.check();
    }

    /// Polls once and checks the invariants. Returns true if there was any work.
    pub fn poll(&mut self) -> bool {
        self.learn_good_cookies();
        let busy = self.core.poll_once(self.now);
        self.learn_good_cookies();
        self.allowance += 2 * core::mem::take(&mut self.control.commands);
        let mut frames = 0;
        while let Some(frame) = self.port.take() {
            frames += 1;
            self.hear(&frame);
        }
        assert!(frames <= FRAMES_PER_POLL, "{frames} frames in one poll");
        if !self.control.deaf {
            self.take_events(usize::MAX);
        }
        self.control.poll_completions();
        busy
    }

    fn learn_good_cookies(&mut self) {
        let good = self.core.statistics().syn_cookies_good;
        self.flows.iter_mut().flat_map(Flow::all).for_each(|talk| talk.learn_good_cookies(good));
    }

    pub fn take_events(&mut self, most: usize) {
        for _ in 0..most {
            let Some(event) = self.control.take_event() else { break };
            // The window may open.
            self.allowance += 2;
            let (id, remote, local_port) = match event {
                Event::Accepted { connection, flow, .. } => {
                    (connection, Some(flow.remote_end()), flow.local_port)
                }
                Event::Connected { connection, local, token, .. } => {
                    let flow = &self.flows[token as usize % FLOWS];
                    (connection, Some(flow.address()), local.port())
                }
                Event::Closed { connection, .. } => (connection, None, 0),
                _ => continue,
            };
            for flow in &mut self.flows {
                let talks = remote == Some(flow.address());
                for talk in flow.all() {
                    if talks && talk.local_port == local_port {
                        talk.open(id);
                    } else if remote.is_none() && talk.id == Some(id) {
                        talk.id = None;
                    }
                }
            }
        }
    }

    fn hear(&mut self, frame: &[u8]) {
        let sent = watch::dissect(frame, self.behaviour.mtu_octets);
        if sent.as_ref().is_none_or(|sent| sent.payload.is_empty()) {
            assert!(self.allowance > 0, "more frames than anything asked for: {sent:?}");
            self.allowance -= 1;
        }
        let Some(sent) = sent else { return self.hear_other(frame) };
        let flow =
            self.flows.iter_mut().find(|flow| flow.host == sent.remote && flow.port == sent.remote_port);
        if let Some(flow) = flow {
            flow.hear(&sent);
        }
    }

    /// Answers a request for the hardware address of a peer (RFC 826, RFC 4861 §4.3), unless the input
    /// disables it.
    fn hear_other(&mut self, frame: &[u8]) {
        if !self.answers_arp {
            return;
        }
        if frame[12..14] == [8, 6] && frame[20..22] == [0, 1] {
            let target = Ipv4Addr::from(<[u8; 4]>::try_from(&frame[38..42]).unwrap());
            if PEERS[..2].contains(&target.into()) || target == GATEWAY {
                self.inject(frames::arp(2, frames::mac_of(target.into()), target, CORE));
            }
        } else if frame[12..14] == [0x86, 0xdd] && frame[20] == frames::ICMPV6 && frame[54] == 135 {
            let target = IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&frame[62..78]).unwrap()));
            if PEERS.contains(&target) {
                self.inject(frames::neighbour_advertisement(target, 0x60, frames::mac_of(target)));
            }
        }
    }

    pub fn set_answers_arp(&mut self, answers: bool) {
        self.answers_arp = answers;
    }

    /// Lets `nanos` pass; the core is woken whenever it asked to be.
    pub fn pass(&mut self, nanos: u64) {
        let end = self.now + nanos;
        let (mut wakes, mut idle_wakes) = (0, 0);
        let begin = self.now;
        while self.now < end && wakes < WAKES {
            wakes += 1;
            let next = self.core.next_deadline().max(self.now + 1);
            self.now = next.min(end);
            // Every connection may have a timer that is due, and its neighbour one.
            self.allowance += 2 * TABLES.connections;
            if !self.poll() {
                idle_wakes += 1;
            }
            self.settle();
        }
        let elapsed = self.now - begin;
        assert!(
            idle_wakes <= 64 + elapsed / (100 * MICROSECOND),
            "{idle_wakes} wakes for nothing in {elapsed} ns"
        );
        self.now = end;
        self.allowance += 2 * TABLES.connections;
        self.settle();
    }

    /// Checks the invariants between steps.
    pub fn check(&self) {
        self.memory.check();
        let usage = self.core.usage();
        assert!(usage.connections <= TABLES.connections, "{usage:?}");
        assert!(usage.half_open <= usage.connections && usage.time_waits <= TABLES.time_waits, "{usage:?}");
        assert!(usage.held_frames <= TABLES.held_frames.min(self.behaviour.frames / 2), "{usage:?}");
        assert!(usage.send_descriptors <= TABLES.send_descriptors, "{usage:?}");
        assert!(usage.placed_runs <= TABLES.placed_runs, "{usage:?}");
        assert!(usage.placed_sends <= TABLES.placed_sends, "{usage:?}");
        assert!(usage.frames_to_send <= FRAMES_WAITING, "{usage:?}");
        assert!(self.port.alive() <= self.behaviour.frames, "{} frames alive", self.port.alive());
        assert!(
            usage.held_frames + usage.frames_to_send <= self.port.alive(),
            "{usage:?}, but {} frames alive",
            self.port.alive()
        );
        self.check_sequences();
        if usage.connections == 0 {
            assert_eq!((usage.held_frames, usage.send_descriptors), (0, 0), "{usage:?}");
            assert_eq!((usage.placed_runs, usage.placed_sends), (0, 0), "{usage:?}");
        }
    }

    /// RFC 9293 §3.3.1, figure 3: acknowledged octets were sent, and sent octets were queued (plus its FIN).
    fn check_sequences(&self) {
        for talk in self.flows.iter().flat_map(Flow::talks) {
            let (Some(id), Some(tracker)) = (talk.id, &talk.tracker) else { continue };
            let Some(tcp) = self.core.tcp(id) else { continue };
            let (una, end) = (tcp.acknowledged().0, tcp.queued_end().0.wrapping_add(1));
            let is_far = watch::distance(tracker.iss, una).unsigned_abs() > SENT_OCTETS;
            if is_far || talk.may_be_of_another(una) {
                // An older SYN cookie than the last came back: the connection is not the one that is tracked.
                continue;
            }
            let in_order = watch::distance(una, end) >= 0 && watch::distance(tracker.nxt, end) >= 0;
            assert!(in_order, "una {una}, nxt {}, end and FIN {end}", tracker.nxt);
            // Segments that wait for the device count as sent, but no peer has seen them.
            let seen = self.short || watch::distance(una, tracker.nxt) >= 0;
            assert!(seen, "una {una} is beyond nxt {}", tracker.nxt);
        }
    }

    /// Ends everything in an orderly way, and asserts that no resource remains in use.
    pub fn end(mut self) {
        self.control.deaf = false;
        self.short = false;
        self.port.set_limit(self.behaviour.frames);
        self.port.set_credit(None);
        self.settle();
        for port in LISTENING {
            self.command(Command::Unlisten { address: None, port });
        }
        for number in 0..QUEUE_PAIRS {
            while !self.control.destroy_qp(number) {
                self.settle();
            }
        }
        // Connections that were opening may open while others close.
        for _ in 0..3 {
            self.settle();
            let open: Vec<_> = self.control.open.keys().copied().collect();
            for connection in open {
                self.command(Command::Abort { connection });
            }
            self.settle();
            self.pass(200 * SECOND);
        }
        for slot in 0..PURPOSES.len() {
            while !self.control.deregister(slot) {
                self.settle();
            }
        }
        self.settle();
        let usage = self.core.usage();
        let empty = warpline_dataplane::core::tables::Usage::default();
        assert_eq!(usage, empty, "something is left at the end");
        assert!(self.port.alive() <= 1, "{} frames are left, not only the spare one", self.port.alive());
        assert!(!self.control.has_qps() && !self.control.has_registered(), "control was not answered");
        assert!(self.control.open.is_empty(), "{} connections were not closed", self.control.open.len());
    }

    /// A command that must not be lost.
    fn command(&mut self, command: Command) {
        if self.control.rings.commands.is_full() {
            self.settle();
        }
        assert!(self.control.command(command), "the ring is empty");
    }
}
