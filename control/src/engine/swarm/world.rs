//! The world of a seed: hosts, the switch between them, virtual time, and faults that come and go.

use std::sync::Arc;

use crossbeam::channel::{Receiver, TryRecvError};
use fastrand::Rng;
use warpline_dataplane::core::tables::Usage;
use warpline_dataplane::device::sim::{End, Impairments};
use warpline_dataplane::limits;
use warpline_dataplane::memory::{Grant, STag};
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::shared_receive_queue::SharedReceiveQueue;
use warpline_dataplane::qp::work::{Completion, QpNumber, Status};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, MICROSECOND, MILLISECOND, SECOND};

use super::digest::Digest;
use super::draw::Draw;
use super::host::{Host, PATIENCE_NS};
use super::memory_oracle::PD;
use super::memory_oracle::stack::{Damage, World};
use super::reports::{self, Reports};
use super::streams::Streams;
use super::switch::Switch;
use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{NewQueuePair, Request};
use crate::vocabulary::connect::SocketPair;
use crate::vocabulary::memory::{Addressing, MemoryError};

/// Polls in which everything that can happen at one time has mostly happened.
const POLLS_AT_ONE_TIME: u32 = 64;
/// Polls of a seed: many times more than any takes that ends.
const STEPS_MAX: u64 = 2_000_000;
/// Longer than any delayed acknowledgement, or a path.
const REST_NS: u64 = 200 * MILLISECOND;
/// The longest stall: TCP's timeouts are longer.
const STALL_MAX_NS: u64 = 10 * SECOND;

/// A connection, in the words of the model: side 0 is the Initiator.
pub(super) struct Connection {
    pub(super) hosts: [usize; 2],
    pub(super) qps: [NewQueuePair; 2],
    /// The addresses of side 1.
    pub(super) responder: SocketPair,
    pub(super) markers: bool,
    /// The application has dropped its queue pair.
    pub(super) destroyed: [bool; 2],
    /// The first names of memory that the application has taken back.
    pub(super) revoked: [Vec<STag>; 2],
}

/// A fault that is over at some time.
#[derive(Clone, Copy, Debug)]
enum Episode {
    /// A host has few frames.
    FewFrames(usize),
    /// The transmit ring of a host is full.
    FullRing(usize),
    /// All paths are worse.
    BadPaths,
    /// The paths of a host carry smaller packets only.
    SmallMtu(usize),
}

/// Hosts, the network between them, and the time they live in.
pub(super) struct Swarm {
    pub(super) draw: Draw,
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    pub(super) switch: Switch,
    pub(super) connections: Vec<Connection>,
    pub(super) streams: Streams,
    pub(super) reports: Reports,
    /// All that applications have had reported.
    pub(super) reported: Digest,
    /// What cores held whenever time moved on.
    pub(super) held: Digest,
    /// What the world chooses while it runs.
    pub(super) rng: Rng,
    /// What somebody chooses who opens many connections.
    flood_rng: Rng,
    faulty: bool,
    payload_spared: bool,
    /// A sender has nearly timed out as often in a row as it does before it cuts FPDUs that it has sent.
    fears_black_hole: bool,
    episodes_left: u32,
    next_episode: Instant,
    ends: Vec<(Instant, Episode)>,
    /// Polls since time moved on.
    polls: u32,
    /// All polls.
    steps: u64,
    /// How often hosts were started.
    starts: u64,
}

impl Swarm {
    /// Returns the world of `draw`: all hosts listen, and the paths are good until
    /// [`begin_faults`](Self::begin_faults).
    pub(super) fn new(draw: Draw, rng: Rng) -> Self {
        let now = Instant::from_nanos(1);
        let mut switch = Switch::new();
        let host = |host| Host::new(&draw, host, switch.connect(&draw, host, 0), now);
        let hosts = (0..draw.hosts.len()).map(host).collect();
        if draw.clean {
            switch.wire().expect_prompt_acknowledgements();
        }
        Self {
            now,
            hosts,
            switch,
            connections: Vec::new(),
            streams: Streams::default(),
            reports: Reports::default(),
            reported: Digest::default(),
            held: Digest::default(),
            rng,
            flood_rng: Rng::with_seed(draw.seed),
            faulty: false,
            payload_spared: false,
            fears_black_hole: false,
            episodes_left: 0,
            next_episode: Instant::NEVER,
            ends: Vec::new(),
            polls: 0,
            steps: 0,
            starts: 0,
            draw,
        }
    }

    /// From now on frames are lost, reordered and damaged, and faults come and go.
    pub(super) fn begin_faults(&mut self) {
        self.faulty = true;
        self.set_impairments(self.draw.impairments);
        self.episodes_left = self.draw.episodes;
        if self.episodes_left > 0 {
            self.next_episode = self.now + self.rng.u64(..self.draw.calm_ns);
        }
    }

    /// Has no payload damaged where TCP's checksum does not see it: octets of MPA startup have no CRC.
    pub(super) fn spare_payload(&mut self, spared: bool) {
        self.payload_spared = spared;
        if self.faulty && matches!(self.draw.damage, super::draw::Damage::Payload(_)) {
            self.set_impairments(self.draw.impairments);
        }
    }

    /// Has no payload damaged once a sender may take its path for a black hole (RFC 4821 §7.7): damage to a
    /// part of an FPDU that it cuts then may be beyond what TCP can bring again.
    fn spare_cut_fpdus(&mut self) {
        if !matches!(self.draw.damage, super::draw::Damage::Payload(_)) || self.fears_black_hole {
            return;
        }
        let least = u32::from(limits::BLACK_HOLE_TIMEOUTS) - 1;
        self.fears_black_hole = self.hosts.iter().any(|host| host.statistics().tcp.timeouts >= least);
        if self.fears_black_hole {
            for host in 0..self.hosts.len() {
                self.change_link(host, |impairments| impairments.corrupt_payload = 0.0);
            }
        }
    }

    fn set_impairments(&self, impairments: Impairments) {
        let spared = self.payload_spared || self.fears_black_hole;
        let corrupt_payload = if spared { 0.0 } else { impairments.corrupt_payload };
        self.switch.set_impairments(Impairments { corrupt_payload, ..impairments });
    }

    /// Returns the reply to a request, which must come.
    pub(super) fn ask<T>(&mut self, host: usize, request: impl FnOnce(Reply<T>) -> Request) -> T {
        let receiver = self.hosts[host].begin(self.now, request);
        self.await_reply(&receiver)
    }

    /// Returns the STag that a request for one is given, once all cores have answered: one may stall.
    fn grant(&mut self, host: usize, request: impl Fn(Reply<Result<STag, MemoryError>>) -> Request) -> STag {
        loop {
            match self.ask(host, &request) {
                Err(MemoryError::Unanswered(_)) => {}
                granted => return granted.expect("there is room"),
            }
        }
    }

    /// Lets time pass until a reply is there.
    pub(super) fn await_reply<T>(&mut self, receiver: &Receiver<T>) -> T {
        let give_up = self.now + PATIENCE_NS;
        loop {
            match receiver.try_recv() {
                Ok(reply) => return reply,
                Err(TryRecvError::Disconnected) => panic!("the engine dropped a reply"),
                Err(TryRecvError::Empty) => {}
            }
            assert!(self.now < give_up, "no reply in time: {:?}", self.draw);
            self.step();
        }
    }

    /// Stops a host and starts it again: it has the same addresses, ports and STags, and knows nothing of
    /// connections.
    pub(super) fn restart(&mut self, host: usize) {
        self.starts += 1;
        let device = self.switch.connect(&self.draw, host, self.starts);
        let ended = |episode: &Episode| {
            let (Episode::FewFrames(of) | Episode::FullRing(of) | Episode::SmallMtu(of)) = episode else {
                return false;
            };
            *of == host
        };
        self.ends.retain(|(_, episode)| !ended(episode));
        if self.faulty {
            self.set_impairments(self.draw.impairments);
        }
        self.hosts[host] = Host::new(&self.draw, host, device, self.now);
    }

    /// Begins a fault, and ends those whose time is over.
    fn change_faults(&mut self) {
        while let Some(over) = self.ends.iter().position(|(at, _)| *at <= self.now) {
            let (_, episode) = self.ends.swap_remove(over);
            match episode {
                Episode::FewFrames(host) => self.switch.link(host).set_frame_limit(End::A, usize::MAX),
                Episode::FullRing(host) => self.switch.link(host).set_transmit_credit(End::A, None),
                Episode::BadPaths => self.set_impairments(self.draw.impairments),
                Episode::SmallMtu(host) => self.set_mtu(host, None),
            }
        }
        if self.now < self.next_episode {
            return;
        }
        self.episodes_left -= 1;
        self.next_episode = Instant::NEVER;
        if self.episodes_left > 0 {
            self.next_episode = self.now + self.rng.u64(..self.draw.calm_ns);
        }
        let host = self.rng.usize(..self.hosts.len());
        let lasts_ns = [10 * MICROSECOND, MILLISECOND, 300 * MILLISECOND, STALL_MAX_NS][self.rng.usize(..4)];
        let until = self.now + self.rng.u64(1..=lasts_ns);
        // The rest of an FPDU that was cut because it is too long for its path may be damaged after its
        // beginning is acknowledged: TCP cannot bring that again, and the stream ends (MPA-8-02). So the path
        // stays as it is where each segment must be one FPDU.
        let one_fpdu_each = matches!(self.draw.damage, super::draw::Damage::Payload(_));
        let episode = match self.rng.u8(..if one_fpdu_each { 5 } else { 6 }) {
            0 => {
                let any = self.rng.usize(..);
                self.hosts[host].stall_core(any, until);
                return;
            }
            1 => {
                self.hosts[host].control_stalls_until = until;
                return;
            }
            2 => {
                let frames = self.rng.usize(..40);
                self.switch.link(host).set_frame_limit(End::A, frames);
                Episode::FewFrames(host)
            }
            3 => {
                let credit = self.rng.usize(..10);
                self.switch.link(host).set_transmit_credit(End::A, Some(credit));
                Episode::FullRing(host)
            }
            4 => {
                let worse = Impairments { loss: 0.3, reorder: 0.3, ..self.draw.impairments };
                self.set_impairments(worse);
                Episode::BadPaths
            }
            _ => {
                let least = if self.draw.ipv6 { 1280 } else { 400 };
                let octets = self.rng.usize(least..self.draw.mtu_octets.max(least + 1));
                self.set_mtu(host, Some(octets));
                Episode::SmallMtu(host)
            }
        };
        if super::shows() {
            println!("{} {episode:?} until {}", self.now.as_nanos(), until.as_nanos());
        }
        self.ends.push((until, episode));
    }

    fn set_mtu(&self, host: usize, mtu_octets: Option<usize>) {
        self.change_link(host, |impairments| impairments.mtu_octets = mtu_octets);
    }

    fn change_link(&self, host: usize, change: impl Fn(&mut Impairments)) {
        let link = self.switch.link(host);
        for end in [End::A, End::B] {
            let mut impairments = link.impairments(end);
            change(&mut impairments);
            link.set_impairments(end, impairments);
        }
    }

    /// Asserts that no frame so far breaks a rule of its protocol.
    pub(super) fn expect_no_fault(&self) {
        if let Some(fault) = self.switch.wire().fault() {
            panic!("seed {}: {fault}", self.draw.seed);
        }
    }

    /// A stranger sends something to a host.
    pub(super) fn send_stray(&mut self) {
        self.switch.send_stray(self.now, &self.draw, &mut self.rng);
    }

    /// Somebody begins to open many connections to a host.
    pub(super) fn send_flood(&mut self) {
        self.switch.send_flood(self.now, &self.draw, &mut self.flood_rng);
    }

    /// Somebody forges a segment of a connection.
    pub(super) fn send_forged(&mut self) {
        self.switch.send_forged(self.now, &self.draw, &mut self.rng);
    }

    /// Lets time pass in which nothing is posted, and asserts that connections of queue pairs are at rest
    /// then.
    pub(super) fn expect_rest(&mut self) {
        let until = self.now + REST_NS;
        while self.now < until {
            self.step();
        }
        self.switch.wire().check_at_rest(|host| self.draw.hosts[host].window_octets);
        let half_open = self.hosts.iter().flat_map(Host::usage).map(|usage| usage.half_open).sum::<usize>();
        assert_eq!(half_open, 0, "seed {}: connections that are open count in a backlog", self.draw.seed);
        self.expect_no_fault();
    }

    /// Records what each core holds, and when it has work next.
    fn record_held(&mut self) {
        for host in &self.hosts {
            self.held.add(host.next_deadline().as_nanos());
            for usage in host.usage() {
                let Usage { connections, time_waits, half_open, orphans, send_descriptors, .. } = usage;
                let Usage { held_frames, placed_runs, placed_sends, queue_pairs, .. } = usage;
                let Usage { awaiting_shared, cut_octets, frames_to_send, events_waiting, .. } = usage;
                let all = [
                    connections,
                    time_waits,
                    half_open,
                    orphans,
                    send_descriptors,
                    held_frames,
                    placed_runs,
                    placed_sends,
                    queue_pairs,
                    awaiting_shared,
                    cut_octets,
                    frames_to_send,
                    events_waiting,
                ];
                for number in all {
                    self.held.add(number as u64);
                }
            }
        }
    }

    fn next_time(&self) -> Instant {
        let hosts = self.hosts.iter().map(Host::next_deadline);
        let faults = self.ends.iter().map(|(at, _)| *at).chain([self.next_episode]);
        hosts.chain(faults).min().unwrap_or(Instant::NEVER).min(self.switch.next_arrival())
    }
}

impl World for Swarm {
    fn hosts(&self) -> usize {
        self.hosts.len()
    }

    fn host_of(&self, number: usize, side: usize) -> usize {
        self.connections[number].hosts[side]
    }

    fn qp(&self, number: usize, side: usize) -> &Arc<SharedQp> {
        &self.connections[number].qps[side].shared
    }

    fn has_markers(&self, number: usize) -> bool {
        self.connections[number].markers
    }

    fn shared_receives(&self, host: usize) -> &Arc<SharedReceiveQueue> {
        &self.hosts[host].shared_receives
    }

    fn knows_all_names(&self, host: usize) -> bool {
        self.hosts[host].core_count() == 1
    }

    fn cores_follow(&self, host: usize) -> bool {
        self.hosts[host].core_count() == 1 || self.draw.episodes == 0
    }

    fn waits_for_shared_receives(&self) -> bool {
        self.draw.waits_for_shared_receives()
    }

    fn register(&mut self, _: &mut Rng, host: usize, grant: Grant) -> STag {
        let Grant { region, pd, stream, base_to, access } = grant;
        assert_eq!(base_to, 0, "the model's own registrations begin at 0");
        let (stream, addressing) = (stream.map(QpNumber), Addressing::ZeroBased);
        self.grant(host, |reply| {
            let region = region.clone();
            Request::Register { region, pd, stream, access, addressing, reply }
        })
    }

    fn allocate_window(&mut self, _: &mut Rng, host: usize) -> STag {
        self.grant(host, |reply| Request::AllocateWindow { pd: PD, reply })
    }

    fn poll_completions(&mut self, host: usize) -> Vec<((usize, usize), Completion)> {
        let completions = self.hosts[host].poll_completions();
        for ((number, side), completion) in &completions {
            let Completion { id, byte_len, immediate, solicited, .. } = *completion;
            let is_success = completion.status == Status::Success;
            let flags = u64::from(is_success) << 1 | u64::from(solicited);
            let [number, side] = [*number as u64, *side as u64];
            let immediate = immediate.unwrap_or_default();
            for fact in [self.now.as_nanos(), number, side, id, byte_len.into(), flags, immediate] {
                self.reported.add(fact);
            }
            let end = (completion.kind, completion.status, completion.invalidated);
            self.reported.add_octets(format!("{end:?}").as_bytes());
        }
        completions
    }

    fn step(&mut self) {
        let mut busy = false;
        for host in &mut self.hosts {
            busy |= host.poll(self.now);
        }
        self.spare_cut_fpdus();
        for event in self.hosts.iter().flat_map(Host::async_events) {
            self.reported.add(self.now.as_nanos());
            self.reported.add_octets(format!("{event:?}").as_bytes());
        }
        reports::take(self);
        busy |= self.switch.poll(self.now, &self.draw, &mut self.flood_rng);
        self.expect_no_fault();
        self.drop_unheard_streams();
        // Often, as time goes: a peer gives up if nothing of it finds room for long.
        for _ in 0..if busy { 1 } else { 8 } {
            self.streams.act(&mut self.rng, self.now, &mut self.hosts);
        }
        self.change_faults();
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "it does not end: {:#?}", self.draw);
        self.polls += 1;
        if !busy {
            self.polls = 0;
            self.record_held();
            // A ring of a few octets takes many turns of its applications.
            let most_ns = if self.streams.are_over() { SECOND } else { 20 * MILLISECOND };
            self.now = self.next_time().max(self.now + 1).min(self.now + most_ns);
        } else if self.polls.is_multiple_of(POLLS_AT_ONE_TIME) {
            // A core with frames for a full ring is busy until the ring has room.
            let least_ns = 1 << (self.polls / POLLS_AT_ONE_TIME).min(23);
            self.now = self.next_time().clamp(self.now + least_ns, self.now + SECOND);
        }
    }

    fn damage(&self) -> Damage {
        let mut damage = Damage::default();
        for path in self.switch.statistics() {
            damage.inverted_bits += path.corrupted_bits;
            damage.altered_payloads += path.corrupted_payload;
            damage.cut += path.split;
            damage.joined += path.merged;
        }
        for host in &self.hosts {
            let drops = host.statistics();
            let checksums = [DropCause::IpChecksum, DropCause::TcpChecksum];
            damage.wrong_checksums += checksums.map(|cause| drops.dropped(cause)).iter().sum::<u64>();
            damage.wrong_crcs += drops.dropped(DropCause::FpduCrc);
        }
        damage
    }

    fn seconds(&self) -> u64 {
        self.now.as_nanos() / SECOND
    }

    fn describe(&self) -> String {
        let usage: Vec<_> = self.hosts.iter().flat_map(Host::usage).collect();
        let streams = self.streams.describe();
        format!("at {}: {:#?} {usage:?} {streams:?}", self.now.as_nanos(), self.draw)
    }
}
