//! The possible steps of an input, one function each.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warpline_dataplane::memory::STag;
use warpline_dataplane::mpa::enhanced::{ReadDepths, ReadyToReceive, Rtr, RtrKinds};
use warpline_dataplane::qp::shared::SharedQp;
use warpline_dataplane::qp::work::{Operation, Slice};
use warpline_dataplane::ring::{AfterStream, Command, ConnectionId, FullOperation};
use warpline_dataplane::time::{MICROSECOND, SECOND};

use super::control::QUEUE_PAIRS;
use super::conversation::{STREAM_OCTETS, milliseconds, timestamps};
use super::frames::{self, CORE, Odd, PEERS, Segment};
use super::input::Input;
use super::memory::{BASE_TO, GRANTED_OCTETS, Memory, PURPOSES};
use super::speech::{self, Framing, REPLY, REQUEST};
use super::watch::{ACK, SYN};
use super::world::{FLOWS, LISTENING, World};

/// A tick of the clock in initial sequence numbers (RFC 6528 §3).
const ISS_TICK_NS: u64 = 4 * MICROSECOND;

/// Takes one step that `input` describes.
pub fn take(world: &mut World, input: &mut Input<'_>) {
    let what = input.octet();
    match what % 16 {
        0 => world.inject(input.octets(2048).to_vec()),
        1 => packet(world, input),
        2 => arp(world, input),
        3 => icmp(world, input),
        4 | 5 => segment(world, input),
        6 => say(world, input),
        7 => deliver(world, input),
        8 => acknowledge(world, input),
        9 => pass(world, input),
        10 => command(world, input),
        11 => post(world, input),
        12 => obstruct(world, input),
        13 => accept(world, input),
        14 => connect(world, input),
        _ => turn(world, input),
    }
    // Every step takes time: the clock of initial sequence numbers advances.
    world.now += 2 * ISS_TICK_NS;
    // Half of all steps leave their frames to the next poll, so that several frames arrive in one burst.
    if what & 0x80 == 0 {
        world.settle();
    }
}

fn packet(world: &mut World, input: &mut Input<'_>) {
    let source = PEERS[input.below(PEERS.len())];
    let protocol = [6, 1, 17, 58][input.below(4)];
    let odd = Odd {
        bad_checksum: input.octet() == 0xff,
        ecn: input.octet(),
        fragment: input.u16(),
        identification: input.u16(),
        options: input.octet() % 44,
        padding: input.octet() % 32,
    };
    let payload = input.octets(2048);
    world.inject(frames::packet(source, protocol, odd, payload));
}

/// A packet about hardware addresses, requested or not, true or false.
fn arp(world: &mut World, input: &mut Input<'_>) {
    let kind = input.octet();
    world.set_answers_arp(kind & 0x40 == 0);
    if kind & 0x80 != 0 {
        let peer = PEERS[3];
        let mac = if kind & 0x20 == 0 { frames::mac_of(peer) } else { [input.octet(), 0, 0, 1, 2, 3] };
        let about = if kind & 0x10 == 0 { frames::core_for(peer) } else { peer };
        world.inject(if kind & 8 == 0 {
            frames::neighbour_solicitation(peer, about, mac)
        } else {
            frames::neighbour_advertisement(peer, kind << 5, mac)
        });
        return;
    }
    let known = [PEERS[0], PEERS[1], frames::GATEWAY.into(), CORE.into()];
    let sender = match known.get(usize::from(kind & 7)) {
        Some(IpAddr::V4(sender)) => *sender,
        _ => Ipv4Addr::from(input.u32()),
    };
    let mac = if kind & 0x20 == 0 { frames::mac_of(sender.into()) } else { [input.octet(), 0, 0, 1, 2, 3] };
    let target = if kind & 0x10 == 0 { CORE } else { sender };
    world.inject(frames::arp(1 + u16::from(kind >> 3 & 1), mac, sender, target));
}

/// Echo requests, and errors about a segment of the core, close to the segments it has sent.
fn icmp(world: &mut World, input: &mut Input<'_>) {
    let kind = input.octet();
    let flow = &mut world.flows[input.below(FLOWS)];
    let (host, port) = (flow.host, flow.port);
    let talk = flow.now();
    let seq = talk.core_next().wrapping_sub(u32::from(input.u16()) % 4096);
    let mtu = input.u16();
    let bad = input.octet() == 0xff;
    let (kinds, mut rest) = match host {
        IpAddr::V4(_) => {
            let kinds = [(8, 0), (3, 4), (3, 1), (3, 3), (4, 0), (11, 0), (0, 0), (3, 2)];
            let mut rest = vec![0, 0, (mtu >> 8) as u8, mtu as u8];
            rest.extend([0x45, 0, 5, 0xdc, 0, 1, 0x40, 0, 64, 6, 0, 0]);
            (kinds, rest)
        }
        IpAddr::V6(_) => {
            let kinds = [(128, 0), (2, 0), (1, 3), (1, 4), (3, 0), (4, 1), (129, 0), (134, 0)];
            let mut rest = u32::from(mtu).to_be_bytes().to_vec();
            rest.extend([0x60, 0, 0, 0, 5, 0xb4, 6, 64]);
            (kinds, rest)
        }
    };
    rest.extend(frames::octets(frames::core_for(host)));
    rest.extend(frames::octets(host));
    rest.extend(talk.local_port.to_be_bytes());
    rest.extend(port.to_be_bytes());
    rest.extend(seq.to_be_bytes());
    rest.extend(input.octets(600));
    world.inject(frames::icmp(host, kinds[usize::from(kind) % kinds.len()], &rest, bad));
}

/// One segment, close to the connection's expected sequence numbers or far from them.
fn segment(world: &mut World, input: &mut Input<'_>) {
    let flow = &mut world.flows[input.below(FLOWS)];
    let (host, port) = (flow.host, flow.port);
    let talk = flow.now();
    let flags = input.octet();
    let places = input.octet();
    let seq = match places & 3 {
        0 => talk.expected(),
        1 => talk.end(),
        2 => talk.iss,
        _ => talk.tracker.as_ref().and_then(|tracker| tracker.edge).unwrap_or(0),
    };
    let ack = match places >> 2 & 3 {
        0 => talk.core_next(),
        1 => talk.acked,
        2 => talk.tracker.as_ref().map_or(0, |tracker| tracker.iss),
        _ => input.u32(),
    };
    let seq = seq.wrapping_add_signed(if places & 0x10 == 0 { 0 } else { i32::from(input.i16()) });
    let ack = ack.wrapping_add_signed(if places & 0x20 == 0 { 0 } else { i32::from(input.i16()) });
    let window = if places & 0x40 == 0 { 0xffff } else { input.u16() };
    let timestamp = talk.tracker.as_ref().and_then(|tracker| tracker.timestamp).unwrap_or(0);
    let now_ms = milliseconds(world.now);
    let options = options(input, now_ms, timestamp, talk.acked);
    let payload = match input.below(4) {
        0 => Vec::new(),
        1 => talk.octets(seq, usize::from(input.u16() % 1461)),
        2 => talk.octets(seq, usize::from(input.octet())),
        _ => input.octets(1460).to_vec(),
    };
    let odd = if places & 0x80 == 0 {
        Odd::default()
    } else {
        Odd { ecn: input.octet(), padding: input.octet() % 16, ..Odd::default() }
    };
    let segment = Segment {
        source_port: port,
        destination_port: talk.local_port,
        seq,
        ack,
        flags,
        window,
        urgent: 0,
        options: options.octets,
        payload: &payload,
        bad_checksum: false,
    };
    talk.say((seq, payload.len() as u32), flags, (ack, window), &options.scales);
    let frame = segment.frame(host, odd);
    world.inject(frame);
}

/// Options of a segment, and the window scales they may be taken to name.
struct Options {
    octets: Vec<u8>,
    scales: Vec<Option<u8>>,
}

fn options(input: &mut Input<'_>, now_ms: u32, echo: u32, acked: u32) -> Options {
    let kinds = input.octet();
    let mut options = Options { octets: Vec::new(), scales: vec![None] };
    if kinds & 1 != 0 {
        options.octets.extend([2, 4]);
        options.octets.extend(input.u16().to_be_bytes());
    }
    if kinds & 2 != 0 {
        let scale = input.octet();
        options.octets.extend([1, 3, 3, scale]);
        options.scales = vec![Some(scale)];
    }
    if kinds & 4 != 0 {
        options.octets.extend([1, 1, 4, 2]);
    }
    if kinds & 8 != 0 {
        let value = now_ms.wrapping_add_signed(i32::from(input.octet().cast_signed()) * 16);
        options.octets.extend(timestamps(value, echo));
    } else if kinds & 0x60 == 0 && echo != 0 {
        options.octets.extend(timestamps(now_ms, echo));
    }
    if kinds & 0x10 != 0 {
        let blocks = 1 + input.octet() % 4;
        options.octets.extend([1, 1, 5, 2 + 8 * blocks]);
        for _ in 0..blocks {
            let left = acked.wrapping_add_signed(i32::from(input.i16()));
            options.octets.extend(left.to_be_bytes());
            options.octets.extend(left.wrapping_add(u32::from(input.u16())).to_be_bytes());
        }
    }
    if kinds & 0x20 != 0 {
        options.octets.extend(input.octets(40));
    }
    if options.octets.len() > 40 || kinds & 0x20 != 0 {
        // The removed octets may have contained the scale; raw octets may hide it or name another.
        options.octets.truncate(40);
        options.scales.extend([Some(14), None]);
    }
    options
}

fn say(world: &mut World, input: &mut Input<'_>) {
    let talk = world.flows[input.below(FLOWS)].now();
    if talk.stream.len() < STREAM_OCTETS {
        speech::append(input, &mut talk.stream, talk.framing, &mut talk.next);
    }
}

/// The next octets of a peer's stream, in segments of which some are lost, doubled, late or damaged.
fn deliver(world: &mut World, input: &mut Input<'_>) {
    let which = input.below(FLOWS);
    let octets = usize::from(input.u16());
    let each = 1 + usize::from(input.u16() % 1460);
    let fates = input.u16();
    let now = world.now;
    let flow = &mut world.flows[which];
    let (host, port) = (flow.host, flow.port);
    let talk = flow.now();
    let begin = talk.expected();
    let left = watchful(talk.end().wrapping_sub(begin)).min(octets);
    let mut late = Vec::new();
    let mut frames = Vec::new();
    for (n, at) in (0..left).step_by(each).take(24).enumerate() {
        let seq = begin.wrapping_add(at as u32);
        let mut payload = talk.octets(seq, each.min(left - at));
        let fate = fates >> (n * 2 % 16) & 3;
        if fate == 1 && fates & 0x8000 != 0 {
            payload[0] ^= 1;
        }
        let last = at + each >= left;
        let flags = ACK | if last { 8 } else { 0 };
        let ack = talk.core_next();
        talk.say((seq, payload.len() as u32), flags, (ack, 0xffff), &[]);
        let segment = Segment {
            source_port: port,
            destination_port: talk.local_port,
            seq,
            ack,
            flags,
            window: 0xffff,
            options: talk.timestamps(now),
            payload: &payload,
            ..Segment::default()
        };
        let frame = segment.frame(host, Odd::default());
        match fate {
            1 if fates & 0x8000 == 0 => {}
            2 => late.push(frame),
            3 => frames.extend([frame.clone(), frame]),
            _ => frames.push(frame),
        }
    }
    frames.extend(late);
    for frame in frames {
        world.inject(frame);
    }
}

/// Octets left, none when the place is past the end.
fn watchful(octets: u32) -> usize {
    if octets.cast_signed() < 0 { 0 } else { octets as usize }
}

/// Acknowledges all or a part of the core's octets, optionally several times.
fn acknowledge(world: &mut World, input: &mut Input<'_>) {
    let now = world.now;
    let flow = &mut world.flows[input.below(FLOWS)];
    let (host, port) = (flow.host, flow.port);
    let how = input.octet();
    let window = if how & 0x80 == 0 { 0xffff } else { input.u16() };
    let talk = flow.now();
    let outstanding = watchful(talk.core_next().wrapping_sub(talk.acked));
    let part = outstanding * (usize::from(how & 7) + 1) / 8;
    let ack = talk.acked.wrapping_add(part as u32);
    let seq = talk.expected();
    let mut frames = Vec::new();
    for _ in 0..=(how >> 3 & 3) {
        talk.say((seq, 0), ACK, (ack, window), &[]);
        let segment = Segment {
            source_port: port,
            destination_port: talk.local_port,
            seq,
            ack,
            flags: ACK,
            window,
            options: talk.timestamps(now),
            ..Segment::default()
        };
        frames.push(segment.frame(host, Odd::default()));
    }
    for frame in frames {
        world.inject(frame);
    }
}

/// Time: nothing, up to a few minutes, or until the core has something to do.
fn pass(world: &mut World, input: &mut Input<'_>) {
    let how = input.octet();
    if how & 0x80 == 0 {
        world.pass(1 << (how % 38));
    } else {
        for _ in 0..=(how & 7) {
            let next = world.core.next_deadline();
            let until = next.min(world.now + 100 * SECOND);
            world.pass(until - world.now);
        }
    }
}

fn full_operation(
    world: &mut World,
    input: &mut Input<'_>,
    initiator: bool,
) -> Option<(Arc<SharedQp>, FullOperation)> {
    let how = input.octet();
    let qp = world.control.bind(usize::from(how) % QUEUE_PAIRS)?;
    let operation = FullOperation {
        markers_sent: how & 0x10 != 0,
        markers_received: how & 0x20 != 0,
        crc: how & 0x40 == 0,
        packing: how & 0x80 == 0,
        version: u8::from(how & 0x8c != 0x8c),
        ready: match how >> 2 & 3 {
            0 => ReadyToReceive::None,
            which if initiator => {
                ReadyToReceive::Send([Rtr::Write, Rtr::Read, Rtr::Send][usize::from(which) - 1])
            }
            _ => ReadyToReceive::Expect(RtrKinds::all()),
        },
        depths: ReadDepths { ird: (how & 3).into(), ord: (how >> 4 & 3).into() },
        ..FullOperation::new(initiator)
    };
    Some((qp, operation))
}

fn command(world: &mut World, input: &mut Input<'_>) {
    let what = input.below(12);
    let which = input.below(FLOWS);
    let id = world.flows[which].now().id;
    let slot = usize::from(input.octet());
    match (what, id) {
        (0, _) => {
            let backlog = u32::from(input.octet() % 5);
            world.control.command(Command::Listen {
                address: None,
                port: LISTENING[slot % 2],
                backlog,
                tcp: None,
            });
        }
        (1, _) => drop(world.control.command(Command::Unlisten { address: None, port: LISTENING[slot % 2] })),
        (2, _) => drop(open(world, which, u64::from(input.octet()) * SECOND)),
        (3 | 4, Some(id)) => stream(world, input, which, id),
        (5, Some(connection)) => drop(world.control.command(Command::Close { connection })),
        (6, Some(connection)) => drop(world.control.command(Command::Abort { connection })),
        (7, _) => world.control.create_or_end_qp(slot % QUEUE_PAIRS),
        (8, _) => drop(world.control.destroy_qp(slot % QUEUE_PAIRS)),
        (9, _) => world.control.register(&world.memory, slot % PURPOSES.len()),
        (10, _) => drop(world.control.deregister(slot % (PURPOSES.len() + 1))),
        _ => {
            for _ in 0..slot {
                world.control.command(Command::ReportStatistics);
            }
        }
    }
}

fn open(world: &mut World, which: usize, timeout_ns: u64) -> bool {
    let flow = &world.flows[which];
    let remote = flow.address();
    world.control.command(Command::Connect {
        token: which as u64,
        local: None,
        remote,
        timeout_ns,
        tcp: None,
        octets: Box::default(),
    })
}

/// Streaming octets, and the mode that control requests after them.
fn stream(world: &mut World, input: &mut Input<'_>, which: usize, connection: ConnectionId) {
    let how = input.octet();
    let octets: Box<[u8]> = input.octets(1600).into();
    let operating = world.flows[which].now().operating;
    let then = match how % 4 {
        0 => AfterStream::Close,
        1 if !operating => match full_operation(world, input, how & 4 != 0) {
            Some((qp, operation)) => {
                enter(world, which, operation.markers_received);
                AfterStream::FullOperation { qp, operation }
            }
            None => AfterStream::Stay,
        },
        2 if !operating => {
            if let Some((qp, operation)) = full_operation(world, input, how & 4 != 0) {
                enter(world, which, operation.markers_received);
                world.control.command(Command::Start { connection, qp, operation });
            }
            return;
        }
        _ => AfterStream::Stay,
    };
    world.control.command(Command::Stream { connection, octets, then });
}

/// The peer records, too, where Full Operation begins.
fn enter(world: &mut World, which: usize, markers: bool) {
    let talk = world.flows[which].now();
    talk.operating = true;
    talk.framing = Framing { start: talk.stream.len(), markers };
}

fn slice(input: &mut Input<'_>, stag: STag) -> Slice {
    let to = BASE_TO + u64::from(input.u16()) % (GRANTED_OCTETS as u64 + 16);
    Slice { stag, to, len: u32::from(input.u16()) % (GRANTED_OCTETS as u32 + 16) }
}

/// Any operation but a plain Send.
fn operation(input: &mut Input<'_>) -> Operation {
    let (stag, to) = (STag(input.u32()), u64::from(input.u32()));
    let solicited = to & 1 == 0;
    match to >> 28 {
        0..6 => Operation::Write { stag, to },
        6..9 => Operation::Read { stag, to },
        9 => Operation::FetchAdd { stag, to, add: to, mask: 0 },
        10 => Operation::Swap { stag, to, swap: to, mask: to },
        11 => Operation::WriteWithImmediate { stag, to, immediate: to, solicited },
        12 => Operation::Immediate { immediate: to, solicited },
        13 => Operation::Send { invalidate: Some(stag), solicited },
        // Memory that peers write or may read is not registered again.
        14 => Operation::LocalInvalidate { stag: Memory::stag(1 + 2 * usize::from(solicited)) },
        _ => Operation::Send { invalidate: None, solicited },
    }
}

fn post(world: &mut World, input: &mut Input<'_>) {
    let how = input.octet();
    let number = usize::from(how) % QUEUE_PAIRS;
    if how & 0x80 != 0 {
        // Into the inbox, or by mistake somewhere else.
        let slot = if how & 0x40 == 0 { 2 } else { input.below(PURPOSES.len() + 1) };
        let local = slice(input, Memory::stag(slot));
        world.control.post_receive(number, local);
        return;
    }
    // From memory that never changes, from an unregistered STag, or from memory of another domain.
    let slot = [0, 0, 0, 0, 0, 3, 4, PURPOSES.len()][usize::from(how >> 2 & 7)];
    let local = slice(input, Memory::stag(slot));
    let operation = if how & 0x20 == 0 { Operation::SEND } else { operation(input) };
    let local = match operation {
        // The result of a Read or Atomic Operation needs a place that may change.
        Operation::Read { .. } => Slice { stag: Memory::stag(2), ..local },
        operation if operation.expects_response() => Slice { stag: Memory::stag(2), len: 8, ..local },
        Operation::Immediate { .. } | Operation::LocalInvalidate { .. } => Slice { len: 0, ..local },
        _ => local,
    };
    world.control.post_send(number, operation, local, how & 0x40 == 0);
}

/// Control stops listening, the device has no buffers or no room; or they recover.
fn obstruct(world: &mut World, input: &mut Input<'_>) {
    match input.below(6) {
        0 => world.control.deaf = true,
        1 => world.control.deaf = false,
        2 => world.take_events(input.below(8)),
        3 => {
            world.short = true;
            world.port.set_limit(input.below(32));
        }
        4 => {
            world.short = true;
            world.port.set_credit(Some(input.below(8)));
        }
        _ => {
            world.short = false;
            world.port.set_limit(world.behaviour.frames);
            world.port.set_credit(None);
        }
    }
}

/// A handshake from the peer's side and, if asked for, the MPA startup of a Responder.
fn accept(world: &mut World, input: &mut Input<'_>) {
    let how = input.octet();
    let which = usize::from(how) % FLOWS;
    let port = LISTENING[usize::from(how >> 2 & 1)];
    world.control.command(Command::Listen { address: None, port, backlog: 4, tcp: None });
    let iss = if how & 8 == 0 { 0xffff_ff00 } else { input.u32() };
    world.flows[which].turn_to(port, iss);
    let now_ms = milliseconds(world.now);
    let options = options(input, now_ms, 0, 0);
    send_syn(world, which, SYN, options);
    world.settle();
    greet(world, which);
    if how & 0x10 == 0 {
        return;
    }
    say_now(world, which, REQUEST);
    let Some(connection) = world.flows[which].now().id else { return };
    let Some((qp, operation)) = full_operation(world, input, false) else { return };
    enter(world, which, operation.markers_received);
    let then = AfterStream::FullOperation { qp, operation };
    world.control.command(Command::Stream { connection, octets: Box::new(*REPLY), then });
    supply(world);
}

/// The core opens a connection, the peer answers; if asked for, the MPA startup of an Initiator follows.
fn connect(world: &mut World, input: &mut Input<'_>) {
    let how = input.octet();
    let which = usize::from(how) % FLOWS;
    open(world, which, 30 * SECOND);
    world.settle();
    let now_ms = milliseconds(world.now);
    let timestamp = world.flows[which].now().tracker.as_ref().and_then(|tracker| tracker.timestamp);
    let options = options(input, now_ms, timestamp.unwrap_or(0), 0);
    send_syn(world, which, if how & 8 == 0 { SYN | ACK } else { SYN }, options);
    world.settle();
    greet(world, which);
    if how & 0x10 == 0 {
        return;
    }
    let Some(connection) = world.flows[which].now().id else { return };
    let then = AfterStream::Stay;
    world.control.command(Command::Stream { connection, octets: Box::new(*REQUEST), then });
    world.settle();
    say_now(world, which, REPLY);
    let Some((qp, operation)) = full_operation(world, input, true) else { return };
    enter(world, which, operation.markers_received);
    world.control.command(Command::Start { connection, qp, operation });
    supply(world);
}

/// Memory to write to, to read from and to receive into.
fn supply(world: &mut World) {
    for slot in 0..PURPOSES.len() {
        world.control.register(&world.memory, slot);
    }
    world.settle();
}

fn send_syn(world: &mut World, which: usize, flags: u8, options: Options) {
    let flow = &mut world.flows[which];
    let (host, source_port) = (flow.host, flow.port);
    let talk = flow.now();
    let (seq, ack) = (talk.iss, talk.core_next());
    let window = 0xffff;
    talk.say((seq, 0), flags, (ack, window), &options.scales);
    let destination_port = talk.local_port;
    let options = options.octets;
    let segment =
        Segment { source_port, destination_port, seq, ack, flags, window, options, ..Segment::default() };
    let frame = segment.frame(host, Odd::default());
    world.inject(frame);
}

/// Acknowledges all the core has sent.
fn greet(world: &mut World, which: usize) {
    say_now(world, which, &[]);
}

/// The peer sends `octets` and acknowledges everything it has received.
fn say_now(world: &mut World, which: usize, octets: &[u8]) {
    let now = world.now;
    let flow = &mut world.flows[which];
    let (host, source_port) = (flow.host, flow.port);
    let talk = flow.now();
    let (seq, ack) = (talk.end(), talk.core_next());
    let (flags, window) = (ACK | 8, 0xffff);
    talk.stream.extend(octets);
    talk.say((seq, octets.len() as u32), flags, (ack, window), &[]);
    let destination_port = talk.local_port;
    let options = talk.timestamps(now);
    let segment = Segment {
        source_port,
        destination_port,
        seq,
        ack,
        flags,
        window,
        options,
        payload: octets,
        ..Segment::default()
    };
    let frame = segment.frame(host, Odd::default());
    world.inject(frame);
    world.settle();
}

/// The peer begins again, at the same or another port of the core.
fn turn(world: &mut World, input: &mut Input<'_>) {
    let how = input.octet();
    let iss = if how & 1 == 0 { 0xffff_ff00 } else { input.u32() };
    let port = if how & 2 == 0 { LISTENING[usize::from(how >> 2 & 1)] } else { input.u16() };
    world.flows[usize::from(how >> 3) % FLOWS].turn_to(port, iss);
}
