//! Packs and unpacks the seeds of a fuzz target, and makes a seed from a capture.
//!
//! - `seeds pack FOLDER ARCHIVE` writes the files of a folder to an archive.
//! - `seeds unpack ARCHIVE FOLDER` writes each seed of an archive to a file of its own, named by its number.
//! - `seeds convert CAPTURE HOST OUTPUT` makes an input of the target `receive` from a capture (pcapng): the
//!   frames that `HOST` received become what the core receives. Sequence numbers differ from run to run, so
//!   the input has for each segment the distance from the number that its connection expected. Commands
//!   follow from the segments that `HOST` sent.

#[path = "../harness/archive.rs"]
mod archive;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;

/// Octets of an input, about: a longer one would not be mutated in useful places.
const INPUT_OCTETS: usize = 6000;

const TURN: u8 = 15;
const SEGMENT: u8 = 4;
const FRAME: u8 = 0;
const PASS: u8 = 9;
const COMMAND: u8 = 10;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["pack", folder, archive] => pack(folder.as_ref(), archive.as_ref()),
        ["unpack", archive, folder] => unpack(archive.as_ref(), folder.as_ref()),
        ["convert", capture, host, output] => convert(capture.as_ref(), host, output.as_ref()),
        _ => {
            eprintln!("usage: seeds pack FOLDER ARCHIVE");
            eprintln!("       seeds unpack ARCHIVE FOLDER");
            eprintln!("       seeds convert CAPTURE HOST OUTPUT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, octets: &[u8]) -> Result<(), String> {
    std::fs::write(path, octets).map_err(|error| format!("{}: {error}", path.display()))
}

fn pack(folder: &Path, file: &Path) -> Result<String, String> {
    let entries = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut seeds = Vec::new();
    for entry in entries {
        seeds.push(read(&entry.map_err(|error| error.to_string())?.path())?);
    }
    let (count, packed) = (seeds.len(), archive::pack(seeds));
    write(file, &packed)?;
    Ok(format!("{}: {count} seeds in {} bytes", file.display(), packed.len()))
}

fn unpack(file: &Path, folder: &Path) -> Result<String, String> {
    let seeds = archive::unpack(&read(file)?).ok_or_else(|| format!("{}: damaged", file.display()))?;
    for (index, seed) in seeds.iter().enumerate() {
        write(&folder.join(format!("seed-{index:05}")), seed)?;
    }
    Ok(format!("{}: {} seeds", folder.display(), seeds.len()))
}

fn convert(capture: &Path, host: &str, output: &Path) -> Result<String, String> {
    let host = host.parse().map_err(|error| format!("{host}: {error}"))?;
    let input = input_of(&read(capture)?, host);
    write(output, &input)?;
    Ok(format!("{}: {} bytes", output.display(), input.len()))
}

/// One packet of a capture and its time in nanoseconds.
struct Packet<'c> {
    nanos: u64,
    frame: &'c [u8],
}

/// The packets of a little-endian capture (draft-ietf-opsawg-pcapng §4.3). Times are taken as nanoseconds.
fn packets(mut capture: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    while let (Some(kind), Some(octets)) = (word(capture, 0), word(capture, 4)) {
        let Some(block) = capture.get(..octets as usize).filter(|block| block.len() >= 12) else { break };
        if kind == 6
            && let (Some(high), Some(low), Some(kept)) = (word(block, 12), word(block, 16), word(block, 20))
            && let Some(frame) = block.get(28..28 + kept as usize)
        {
            packets.push(Packet { nanos: u64::from(high) << 32 | u64::from(low), frame });
        }
        capture = &capture[block.len()..];
    }
    packets
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(octets.get(at..at + 4)?.try_into().ok()?))
}

/// A TCP segment over IPv4.
struct Segment<'c> {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ports: (u16, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: &'c [u8],
    payload: &'c [u8],
}

fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    let packet = frame.get(14..).filter(|packet| frame[12..14] == [8, 0] && packet.len() >= 40)?;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let tcp = packet.get(usize::from(packet[0] & 15) * 4..total).filter(|_| packet[9] == 6)?;
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let wide = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
    let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    Some(Segment {
        source: address(12),
        destination: address(16),
        ports: (half(0), half(2)),
        options: tcp.get(20..header)?,
        payload: tcp.get(header..)?,
        seq: wide(4),
        ack: wide(8),
        flags: tcp[13],
        window: half(14),
    })
}

/// A connection as the capture shows it.
#[derive(Default)]
struct Connection {
    flow: u8,
    /// The next octet that the host expects of its peer, and the end of the octets it has sent.
    expected: u32,
    next: u32,
    /// The host opened it.
    active: bool,
    /// The host has sent its startup frame.
    started: bool,
}

fn input_of(capture: &[u8], host: Ipv4Addr) -> Vec<u8> {
    // No offloads, MTU 1500, enough frames, a window of 64 KiB.
    let mut input = vec![0, 0, 1, 0];
    let mut connections: HashMap<(u16, u16), Connection> = HashMap::new();
    let mut last = None;
    input.extend([COMMAND, 0, 0, 0, 4]);
    for slot in 0..5 {
        input.extend([COMMAND, 9, 0, slot]);
    }
    for Packet { nanos, frame } in packets(capture) {
        if input.len() > INPUT_OCTETS {
            break;
        }
        let passed = nanos.saturating_sub(last.replace(nanos).unwrap_or(nanos));
        if passed > 1000 {
            input.extend([PASS, passed.ilog2().min(37) as u8]);
        }
        match segment(frame) {
            Some(segment) if segment.source == host => sent(&mut input, &mut connections, &segment),
            Some(segment) if segment.destination == host => received(&mut input, &mut connections, &segment),
            _ => {
                input.push(FRAME);
                counted(&mut input, frame);
            }
        }
    }
    input
}

fn counted(input: &mut Vec<u8>, octets: &[u8]) {
    match u8::try_from(octets.len()) {
        Ok(short @ ..=254) => input.push(short),
        _ => {
            input.push(255);
            input.extend((octets.len() as u16).to_be_bytes());
        }
    }
    input.extend(octets);
}

/// The host sent a segment: appends the commands that its control must have issued.
fn sent(input: &mut Vec<u8>, connections: &mut HashMap<(u16, u16), Connection>, segment: &Segment<'_>) {
    let count = connections.len() as u8;
    let connection = connections.entry(segment.ports).or_default();
    if segment.flags & (SYN | ACK) == SYN {
        *connection = Connection { flow: count % 4, active: true, ..Connection::default() };
        input.extend([COMMAND, 2, connection.flow, 0, 30]);
    }
    let control = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & 1);
    connection.next = segment.seq.wrapping_add(segment.payload.len() as u32 + control);
    if segment.flags & ACK != 0 {
        connection.expected = segment.ack;
    }
    if !segment.payload.is_empty() && !connection.started {
        connection.started = true;
        // A Responder's Reply is followed by Full Operation; an Initiator waits for its answer.
        input.extend([COMMAND, 3, connection.flow, 0, if connection.active { 3 } else { 1 }]);
        counted(input, segment.payload);
        if !connection.active {
            input.push(connection.flow % 3);
        }
    }
    if segment.flags & 1 != 0 {
        input.extend([COMMAND, 5, connection.flow, 0]);
    }
}

/// The host received a segment: the peer sends it, at the same distance from the expected octet.
fn received(input: &mut Vec<u8>, connections: &mut HashMap<(u16, u16), Connection>, segment: &Segment<'_>) {
    let count = connections.len() as u8;
    let ports = (segment.ports.1, segment.ports.0);
    let opens = segment.flags & (SYN | ACK) == SYN;
    let connection =
        connections.entry(ports).or_insert_with(|| Connection { flow: count % 4, ..Connection::default() });
    if opens && !connection.active {
        input.extend([TURN, connection.flow << 3]);
    }
    let from_syn = segment.flags & SYN != 0;
    let seq_offset = if from_syn { 0 } else { segment.seq.wrapping_sub(connection.expected) as u16 };
    let ack_offset = segment.ack.wrapping_sub(connection.next) as u16;
    // Relative to the first sequence number or to the expected octet; both distances; the window unchanged.
    let places = if from_syn { 2 } else { 0 } | 0x70;
    input.extend([SEGMENT, connection.flow, segment.flags, places]);
    input.extend(seq_offset.to_be_bytes());
    input.extend(if opens { [0; 2] } else { ack_offset.to_be_bytes() });
    input.extend(segment.window.to_be_bytes());
    input.push(0x20);
    counted(input, segment.options);
    input.push(3);
    counted(input, segment.payload);
    let answers = connection.active && connection.started && !segment.payload.is_empty();
    if answers && connection.expected != 0 && connection.next != 0 {
        // The Initiator has its answer: Full Operation.
        input.extend([COMMAND, 3, connection.flow, 0, 6, 0, connection.flow % 3]);
    }
}
