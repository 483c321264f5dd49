//! What chance decides for a seed before it runs: the hosts, how their connections run, and every fault.

use fastrand::Rng;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{Impairments, OptionFaults};
use warpline_dataplane::limits;
use warpline_dataplane::mpa::enhanced::RtrKinds;
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::tcp::{Behaviour, EcnPolicy, Keepalive};

use warpline_dataplane::time::{MICROSECOND, MILLISECOND};

/// Damage that a path does to segments and that TCP's checksum does not see, of which a seed has one kind at
/// most: a wrong length of an FPDU is found too late to be sent again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Damage {
    None,
    /// Segments are cut and joined, with this probability.
    Resegment(f64),
    /// Octets after the length of an FPDU are altered, with this probability: only where each segment is one
    /// FPDU, and where FPDUs have a CRC.
    Payload(f64),
}

/// A RST that comes beyond octets that are missing is challenged (RFC 5961 §3.2), and if that is lost, an end
/// with nothing to send never learns that its peer is gone: seed 8012574 of an earlier swarm. Where anything
/// may be lost, hosts ask. A peer that stalls for ten seconds, or loses three of ten frames, has answered in
/// time.
const KEEPALIVE: Keepalive = Keepalive { idle_ms: 40_000, interval_ms: 7_000, probes: 12 };

/// Local ports of connections (RFC 6335 §6), and how many follow the first where there are few: enough for
/// all connections to a port that a host has at one time, and not for those in TIME-WAIT beside them.
const FIRST_PORT: u16 = 49_152;
const PORTS_FEW: u16 = 5;

/// How a host is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostDraw {
    pub(super) tcp: Behaviour,
    pub(super) window_octets: u32,
    /// The device takes payload by reference.
    pub(super) gather: bool,
    pub(super) transmit_checksums: bool,
    /// The largest super-frame; 0 if the device takes none.
    pub(super) super_frame_octets: usize,
    pub(super) super_frame_pieces: usize,
    /// Octets of the first pieces of received frames.
    pub(super) receive_piece_octets: usize,
    /// The core sends before it receives, as in a program that polls it itself.
    pub(super) run_to_completion: bool,
    /// Each has a queue of the device.
    pub(super) cores: u8,
    /// Their threads sleep while they have nothing to do.
    pub(super) sleeps: bool,
    /// The host has its IPv6 addresses once nobody else has answered for them.
    pub(super) detects_duplicates: bool,
    /// Its queue pairs do not close because their peers do.
    pub(super) keeps_open: bool,
    /// All its queue pairs report to one queue.
    pub(super) one_completion_queue: bool,
    /// The key of everything that it chooses. A host that starts again has the same.
    pub(super) secret: [u64; 2],
}

/// Everything that is decided before a seed runs.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    pub(super) seed: u64,
    /// Nothing goes wrong on the way, and so no timeout comes to pass.
    pub(super) clean: bool,
    pub(super) hosts: Vec<HostDraw>,
    /// Queue pairs that are connected from the beginning.
    pub(super) connections: usize,
    pub(super) streams: usize,
    pub(super) ipv6: bool,
    pub(super) vlan: Option<u16>,
    pub(super) mtu_octets: usize,
    pub(super) crc_always: bool,
    pub(super) packing: bool,
    /// Sends without a receive wait for one.
    pub(super) receive_wait: bool,
    /// RDMA Reads that may be outstanding, in either direction.
    pub(super) reads: u16,
    /// What may be an Initiator's first FPDU.
    pub(super) rtr: RtrKinds,
    pub(super) impairments: Impairments,
    pub(super) damage: Damage,
    /// Faults that come and go while work is done.
    pub(super) episodes: u32,
    /// The longest time between two of them.
    pub(super) calm_ns: u64,
    /// Actions of the applications.
    pub(super) actions: u32,
    /// Connections that are cut off with work outstanding.
    pub(super) cut_offs: usize,
    /// A stream is dropped, finished or not.
    pub(super) drops_stream: bool,
    /// A station pings hosts, and sends what they must drop.
    pub(super) has_stranger: bool,
    /// Somebody forges RSTs, SYNs and ICMP errors of connections. Not on clear paths: the first two are
    /// answered with acknowledgements that come again, and three of these are a loss (RFC 5681 §3.2).
    pub(super) has_forger: bool,
    /// A router says what is too large for the link to a host.
    pub(super) has_router: bool,
    /// Somebody opens many connections and leaves them. Not on clear paths, which count every frame.
    pub(super) has_flood: bool,
    /// A host stops and starts again.
    pub(super) restart: bool,
    /// Cold branches are taken in so many of 256 cases.
    pub(super) cold_of_256: u16,
    /// What each core has room for.
    pub(super) tables: Tables,
    /// Local ports of connections, from the first to the last.
    pub(super) ports: (u16, u16),
}

impl Draw {
    /// Returns the draw of `seed`.
    pub(super) fn new(seed: u64, rng: &mut Rng) -> Self {
        let clean = rng.u8(..6) == 0;
        let hosts = [2, 2, 2, 2, 3, 4][rng.usize(..6)];
        let packing = rng.bool();
        let damage = match rng.u8(..4) {
            _ if clean => Damage::None,
            0 if packing => Damage::Resegment(rng.f64() * 0.2),
            0 => Damage::Payload(rng.f64() * 0.01),
            _ => Damage::None,
        };
        let streams = match damage {
            // A byte stream has no CRC.
            Damage::Payload(_) => 0,
            _ => [0, 0, 1, 2][rng.usize(..4)],
        };
        let mtu_octets = [576, 1500, 1500, 1500, 9000, 9000][rng.usize(..6)];
        // A link of IPv6 carries 1280 octets at least (RFC 8200 §5).
        let ipv6 = mtu_octets >= 1280 && rng.u8(..4) == 0;
        let transmit_checksums = rng.bool();
        let host_draws: Vec<_> =
            (0..hosts).map(|_| HostDraw::new(rng, mtu_octets, transmit_checksums, clean)).collect();
        let has_super_frames = host_draws.iter().any(|host| host.super_frame_octets > 0);
        let episodes = if rng.bool() && !clean { rng.u32(1..12) } else { 0 };
        let colds: &[u16] = if episodes > 0 && has_super_frames { &[0, 256] } else { &[0, 0, 32, 128, 256] };
        Self {
            seed,
            clean,
            hosts: host_draws,
            connections: rng.usize(1..=3).max(hosts - 1),
            streams,
            ipv6,
            vlan: (rng.u8(..4) == 0).then(|| rng.u16(1..4095)),
            mtu_octets,
            crc_always: matches!(damage, Damage::Payload(_)) || rng.bool(),
            packing,
            receive_wait: rng.bool(),
            reads: [1, 2, 8, 8][rng.usize(..4)],
            rtr: [RtrKinds::WRITE, RtrKinds::READ, RtrKinds::SEND, RtrKinds::all()][rng.usize(..4)],
            impairments: if clean { clear_path(rng) } else { impairments(rng, damage, streams > 0) },
            damage,
            episodes,
            calm_ns: [100 * MICROSECOND, 10 * MILLISECOND, 1000 * MILLISECOND][rng.usize(..3)],
            actions: rng.u32(20..160),
            cut_offs: if rng.u8(..3) == 0 && !clean { rng.usize(1..=2) } else { 0 },
            drops_stream: rng.u8(..4) == 0 && !clean,
            has_stranger: rng.bool(),
            has_forger: rng.u8(..3) == 0 && !clean,
            has_router: rng.bool(),
            has_flood: rng.u8(..6) == 0 && !clean,
            restart: rng.u8(..6) == 0 && !clean,
            cold_of_256: colds[rng.usize(..colds.len())],
            tables: if clean { TABLES } else { tables(seed) },
            ports: (FIRST_PORT, if rng.u8(..4) == 0 { FIRST_PORT + PORTS_FEW } else { u16::MAX }),
        }
    }
}

/// Tables that no seed fills.
const TABLES: Tables = Tables {
    connections: 64,
    time_waits: 64,
    send_descriptors: 4096,
    held_frames: 4096,
    placed_runs: 1024,
    placed_sends: 1024,
    queue_pairs: 64,
    listeners: limits::LISTENERS_PER_CORE,
    regions: limits::REGIONS_PER_CORE,
    cut_octets: limits::CUT_BYTES_PER_CORE,
};

/// These, or some that work on paths that lose frames fills. By the seed alone: whatever else it draws
/// stays as it is.
fn tables(seed: u64) -> Tables {
    let mut rng = Rng::with_seed(!seed);
    if rng.u8(..4) > 0 {
        return TABLES;
    }
    Tables {
        send_descriptors: rng.usize(64..256),
        held_frames: rng.usize(128..1024),
        placed_runs: rng.usize(2..32),
        placed_sends: rng.usize(2..32),
        time_waits: rng.usize(1..4),
        ..TABLES
    }
}

impl Draw {
    /// Whether applications post shared receives after the messages for them. Only where no queue pair ends
    /// with such a message, cores have frames enough for what waits, and no FPDU behind it is damaged: its
    /// octets are acknowledged before its CRC is verified, and TCP cannot bring them again.
    pub(super) fn waits_for_shared_receives(&self) -> bool {
        let is_roomy = self.episodes == 0 && self.tables.held_frames == TABLES.held_frames;
        let is_whole = !matches!(self.damage, Damage::Payload(_));
        self.receive_wait && is_roomy && is_whole && self.cut_offs == 0 && !self.restart && !self.clean
    }

    /// Returns the same seed on hosts of another make: whatever a device, a queue or the poll loop has for
    /// speed is there if it was not, and the other way round. Nobody sees that on the wire.
    ///
    /// An application of a byte stream does more while the poll loop is busy, so a seed with streams keeps
    /// what makes it so. A device with few frames, or a full ring, sends as many as a burst asks for, and one
    /// with few frames has none for an answer to what came in pieces. A super-frame is one of these frames,
    /// and holds as many segments as it has octets and pieces: seeds with such devices keep what decides
    /// that, and take cold branches always or never: twins toss other coins. With few send descriptors they
    /// take those of before: a queue whose segments leave one by one is filled again meanwhile, and what was
    /// its last for a moment has PSH (seed 16844). Threads sleep or do not, as before: one that polls finds
    /// its next timer at another time, and work is counted in such times.
    pub(super) fn into_twin(mut self) -> Self {
        let is_free = self.streams == 0 && self.episodes == 0;
        for host in &mut self.hosts {
            if self.episodes == 0 || host.super_frame_octets == 0 {
                host.gather ^= true;
                host.super_frame_pieces = if host.super_frame_pieces == 8 { usize::MAX } else { 8 };
            }
            host.one_completion_queue ^= true;
            host.transmit_checksums ^= host.super_frame_octets == 0;
            if is_free {
                let is_one_piece = host.receive_piece_octets == usize::MAX;
                host.receive_piece_octets = if is_one_piece { 256 } else { usize::MAX };
                let joins = host.super_frame_octets == 0 && host.transmit_checksums;
                host.super_frame_octets = if joins { 4 * self.mtu_octets } else { 0 };
            }
        }
        if is_free && self.tables.send_descriptors == TABLES.send_descriptors {
            self.cold_of_256 = if self.cold_of_256 == 0 { 256 } else { 0 };
        }
        self
    }
}

impl HostDraw {
    fn new(rng: &mut Rng, mtu_octets: usize, transmit_checksums: bool, clean: bool) -> Self {
        let congestion = [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Dctcp][rng.usize(..3)];
        let ecn = [EcnPolicy::Off, EcnPolicy::Accept, EcnPolicy::Request][rng.usize(..3)];
        let tcp = Behaviour {
            congestion,
            ecn,
            sack: rng.u8(..4) > 0,
            timestamps: rng.u8(..4) > 0,
            rdma_option: rng.u8(..4) > 0,
            nagle: rng.u8(..8) == 0,
            pacing: rng.bool(),
            keepalive: (!clean).then_some(KEEPALIVE),
            ..Behaviour::default()
        };
        let takes_super_frames = transmit_checksums && rng.bool();
        let mut host = Self {
            tcp,
            window_octets: [24 * 1024, 256 * 1024, 2 << 20][rng.usize(..3)],
            gather: rng.bool(),
            transmit_checksums,
            super_frame_octets: if takes_super_frames { rng.usize(2 * mtu_octets..60_000) } else { 0 },
            super_frame_pieces: [usize::MAX, 8, 17][rng.usize(..3)],
            receive_piece_octets: [usize::MAX, usize::MAX, 256, 2048][rng.usize(..4)],
            run_to_completion: rng.u8(..4) == 0,
            cores: [1, 1, 1, 1, 2, 3][rng.usize(..6)],
            sleeps: false,
            detects_duplicates: false,
            keeps_open: false,
            one_completion_queue: rng.bool(),
            secret: [rng.u64(..), rng.u64(..)],
        };
        // By the key alone: whatever else is drawn stays as it is.
        host.sleeps = host.secret[0].is_multiple_of(2);
        host.detects_duplicates = !clean && host.secret[1].is_multiple_of(2);
        host.keeps_open = host.secret[1] % 8 < 2;
        host
    }
}

/// A path with nothing but a delay, and perhaps a bottleneck.
fn clear_path(rng: &mut Rng) -> Impairments {
    let delay_ns = rng.u64(1_000..2 * MILLISECOND);
    let mut path = Impairments { delay_min_ns: delay_ns, delay_max_ns: delay_ns, ..Impairments::default() };
    if rng.u8(..3) == 0 {
        // A bottleneck with room for all, whose switch marks.
        path.rate_bits_per_second = Some(rng.u64(1_000_000_000..10_000_000_000));
        path.queue_octets = 64 << 20;
        path.mark_octets = Some(rng.u64(1_000..20_000));
    }
    path
}

fn impairments(rng: &mut Rng, damage: Damage, has_streams: bool) -> Impairments {
    let mut probability = |most: f64| if rng.bool() { rng.f64() * most } else { 0.0 };
    let mut impairments = Impairments {
        loss: probability(0.04),
        reorder: probability(0.08),
        duplicate: probability(0.04),
        corrupt_bits: probability(0.02),
        ..Impairments::default()
    };
    match damage {
        Damage::None => {}
        Damage::Resegment(probability) => impairments.resegment = probability,
        Damage::Payload(probability) => {
            impairments.corrupt_payload = probability;
            impairments.corrupt_payload_spares = 8;
        }
    }
    if has_streams && rng.bool() {
        let chance = |rng: &mut Rng| [0.0, 0.02, 0.1][rng.usize(..3)];
        impairments.rdma_option = OptionFaults {
            strip: chance(rng),
            split: chance(rng),
            replicate: chance(rng),
            alter: [0.0, 0.05, 0.5][rng.usize(..3)],
        };
    }
    if rng.u8(..4) == 0 {
        // A bottleneck whose switch marks.
        impairments.rate_bits_per_second = Some(rng.u64(20_000_000..2_000_000_000));
        impairments.queue_octets = rng.u64(50_000..500_000);
        impairments.mark_octets = rng.bool().then_some(20_000);
    }
    if rng.bool() {
        impairments.delay_max_ns = rng.u64(1_000..5 * MILLISECOND);
    }
    impairments
}

/// Seed 7001492 of an earlier swarm: a ring with room for a few frames took as many super-frames, of as many
/// segments as their pieces allow by reference, or their octets where payload is copied. The rest waited.
#[test]
fn a_twin_fills_as_many_frames_where_they_are_few() {
    let layout = |host: &HostDraw| (host.gather, host.super_frame_pieces, host.super_frame_octets);
    let (mut kept, mut turned) = (0, 0);
    for seed in 0..1_000 {
        let draw = Draw::new(seed, &mut Rng::with_seed(seed));
        let twin = draw.clone().into_twin();
        for (host, twin) in draw.hosts.iter().zip(&twin.hosts) {
            if draw.episodes > 0 && host.super_frame_octets > 0 {
                assert_eq!(layout(host), layout(twin), "seed {seed}");
                kept += 1;
            } else {
                assert_ne!(host.gather, twin.gather, "seed {seed}");
                turned += 1;
            }
        }
    }
    assert!(kept > 100 && turned > 1_000, "{kept} {turned}");
}
