//! What a sender puts on the wire for random messages, judged octet by octet: over loss, over paths that turn
//! out narrower, and with small windows. The judge reads frames by itself.

use std::sync::{Arc, Mutex};

use super::wire::{Capture, Fields, RST, SYN, Segment, fields};
use super::{attach_host, config, connect, of_section, rid, with_option};
use crate::common::{Pair, pattern, region_of, too_big};
use warpline_dataplane::byte_stream::{Annotation, ByteWriter, Section};
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::device::sim::{End, EndConfig, Impairments, Verdict};
use warpline_dataplane::tcp::Behaviour;

/// What an octet of the stream belongs to, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    rid: u64,
    unsolicited: bool,
    total: Option<u32>,
    offset: u32,
}

/// A stream of messages.
#[derive(Default)]
struct Stream {
    octets: Vec<u8>,
    /// For each octet.
    targets: Vec<Option<Target>>,
    starts: Vec<bool>,
    /// The places of transfers of nothing.
    nothing: Vec<(usize, Target)>,
    /// How it is written, up to the places where the writer hands it over.
    writes: Vec<Write>,
}

struct Write {
    annotation: Annotation,
    octets: usize,
    lent: bool,
    commits: bool,
}

impl Stream {
    fn random(rng: &mut fastrand::Rng, octets: usize) -> Self {
        let mut stream = Self { octets: pattern(rng.u64(..), octets), ..Self::default() };
        while stream.targets.len() < octets {
            stream.add_message(rng);
        }
        stream.octets.truncate(stream.targets.len());
        stream
    }

    fn add_message(&mut self, rng: &mut fastrand::Rng) {
        let len = |rng: &mut fastrand::Rng| match rng.u8(..4) {
            0 => rng.usize(1..4),
            1 => rng.usize(1..200),
            _ => rng.usize(1..4000),
        };
        let starts_message = rng.u8(..4) > 0;
        self.add(rng, Annotation { starts_message, section: None }, len);
        let section = Section {
            rid: rid(rng.u64(..1 << 46)),
            unsolicited: rng.bool(),
            total_octets: rng.bool().then(|| rng.u32(..)),
        };
        if rng.u8(..6) == 0 {
            let nothing = Section { total_octets: Some(0), ..section };
            self.add(rng, of_section(nothing, 0), |_| 0);
            if rng.bool() {
                // Octets of another section, or of another message, follow at once.
                let starts_message = rng.bool();
                let section = (!starts_message).then_some((section, 0));
                self.add(rng, Annotation { starts_message, section }, len);
            }
            return self.end_write();
        }
        let mut offset = if rng.bool() { 0 } else { rng.u32(..1 << 31) };
        for _ in 0..rng.usize(0..4) {
            let before = self.targets.len();
            self.add(rng, of_section(section, offset), len);
            offset += (self.targets.len() - before) as u32;
            match rng.u8(..4) {
                // More of the same follows at once, or elsewhere in the buffer, or after other octets.
                0 => {}
                1 => offset += rng.u32(1..9),
                _ => self.add(rng, Annotation::default(), len),
            }
        }
        if rng.bool() {
            self.end_write();
        }
    }

    fn end_write(&mut self) {
        self.writes.last_mut().expect("something is written").commits = true;
    }

    fn add(
        &mut self,
        rng: &mut fastrand::Rng,
        annotation: Annotation,
        len: impl Fn(&mut fastrand::Rng) -> usize,
    ) {
        let octets = len(rng);
        let room = self.octets.len().saturating_sub(self.targets.len());
        if octets > room {
            self.octets.extend(pattern(rng.u64(..), octets - room));
        }
        let target = |octet: usize| {
            annotation.section.map(|(section, offset)| Target {
                rid: section.rid.get(),
                unsolicited: section.unsolicited,
                total: section.total_octets,
                offset: offset + octet as u32,
            })
        };
        if octets == 0 {
            self.nothing.push((self.targets.len(), target(0).expect("a transfer of nothing")));
        }
        for octet in 0..octets {
            self.targets.push(target(octet));
            self.starts.push(annotation.starts_message && octet == 0);
        }
        self.writes.push(Write { annotation, octets, lent: rng.u8(..4) == 0 && octets > 0, commits: false });
    }
}

/// How often each thing was seen that the judge must have seen.
#[derive(Debug, Default)]
struct Seen {
    annotated: usize,
    annotated_again: usize,
    cut: usize,
    aligned: usize,
    aligned_alone: usize,
    nothing: usize,
    /// The most octets of options beside an RDMA option.
    crowded: usize,
}

/// Judges each segment of a stream: its options are well formed, and say what the stream does.
// Requirements: TRO-3.1-01, TRO-3.1.1-01, TRO-3.1.5-01, TRO-3.1.8-01, TRO-4-03
fn judge(stream: &Stream, segments: &[Segment], seen: &mut Seen) {
    let syn = segments.iter().find(|segment| segment.flags & SYN != 0).expect("a SYN");
    let first = syn.seq.wrapping_add(1);
    let mut sent = vec![false; stream.octets.len()];
    let mut nothing = stream.nothing.clone();
    let mut lengths = std::collections::HashMap::new();
    for segment in segments {
        assert!(segment.options_len <= 40 && segment.rdma.len() <= 1, "{segment:?}");
        let option = segment.rdma.first();
        if segment.flags & SYN != 0 {
            assert!(option.is_none_or(|(_, option)| option[..] == [25, 2]), "the offer only: {segment:?}");
            continue;
        }
        if segment.payload.is_empty() || segment.flags & RST != 0 {
            assert_eq!(option, None, "there are no octets to be annotated");
            continue;
        }
        let begin = segment.seq.wrapping_sub(first) as usize;
        let range = begin..begin + segment.payload.len();
        assert!(segment.payload == stream.octets[range.clone()], "the stream at {range:?}");
        let again = sent[begin];
        sent[range.clone()].fill(true);
        let longest = lengths.entry(begin).or_insert(0);
        seen.cut += usize::from(segment.payload.len() < *longest);
        *longest = segment.payload.len().max(*longest);

        let message_starts = stream.starts[begin];
        assert!(!stream.starts[begin + 1..range.end].contains(&true), "a message begins inside {range:?}");
        seen.aligned += usize::from(message_starts);
        let expected = expected(stream, range.clone(), message_starts);
        let Some((place, octets)) = option else {
            assert_eq!((expected, message_starts), (None, false), "no option on {range:?}");
            continue;
        };
        assert_eq!(place % 4, 0, "aligned to four octets: {segment:?}");
        seen.crowded = seen.crowded.max(segment.options_len);
        let Some(fields) = fields(octets) else {
            assert_eq!((expected, message_starts), (None, true), "{octets:02x?} on {range:?}");
            assert_eq!(octets[..], [25, 4, 0x80, 0], "{range:?}");
            seen.aligned_alone += 1;
            continue;
        };
        if fields.data_len > 0 {
            assert_eq!(Some(fields), expected, "{range:?}");
            seen.annotated += 1;
            seen.annotated_again += usize::from(again);
            continue;
        }
        assert_eq!(expected, None, "octets of a section without annotation: {range:?}");
        assert_eq!(fields.aligned, message_starts, "{range:?}");
        let target = Target {
            rid: fields.rid,
            unsolicited: fields.unsolicited,
            total: fields.total,
            offset: fields.buffer_offset,
        };
        let place = (begin + fields.data_offset, target);
        assert!(fields.data_offset <= segment.payload.len(), "{fields:?}");
        assert!(stream.nothing.contains(&place), "no such transfer of nothing: {place:?}");
        nothing.retain(|other| *other != place);
        seen.nothing += 1;
    }
    assert!(!sent.contains(&false), "all octets were on the wire");
    assert_eq!(nothing, [], "transfers of nothing that the wire never had");
}

/// The option that the octets of `range` need: they have at most one part of one section.
fn expected(stream: &Stream, range: std::ops::Range<usize>, aligned: bool) -> Option<Fields> {
    let targets = &stream.targets[range];
    let from = targets.iter().position(Option::is_some)?;
    let to = targets.iter().rposition(Option::is_some)? + 1;
    let head = targets[from].expect("annotated");
    for (octet, target) in targets[from..to].iter().enumerate() {
        let same = Target { offset: head.offset + octet as u32, ..head };
        assert_eq!(*target, Some(same), "two parts of sections in one segment");
    }
    Some(Fields {
        aligned,
        unsolicited: head.unsolicited,
        rid: head.rid,
        buffer_offset: head.offset,
        data_offset: from,
        data_len: to - from,
        total: head.total,
    })
}

/// One run: a stream from one end to the other, over a path that loses segments, and that turns out narrower
/// in some.
fn run(seed: u64, seen: &mut Seen) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rng = &mut rng;
    let stream = Stream::random(rng, 60_000);
    let outbound = match seed % 4 {
        0 => Impairments::default(),
        1 => Impairments { loss: 0.1, ..Impairments::default() },
        _ => Impairments { loss: 0.03, reorder: 0.05, duplicate: 0.05, ..Impairments::default() },
    };
    let mtu_bytes = [1500, 1060, 9000, 600][rng.usize(..4)];
    let end = |config: EndConfig| EndConfig { mtu_bytes, outbound, ..config };
    let window = if rng.bool() { 256 << 10 } else { rng.u32(2000..20_000) };
    let mut pair =
        Pair::with_config(seed, end(EndConfig::a()), end(EndConfig::b()), Tables::default(), |config| {
            config.window_bytes = window;
        });
    // After some segments the path takes only smaller ones, and a router says so.
    let (mut narrows_after, narrow) = (rng.usize(5..60), rng.usize(552..mtu_bytes));
    let narrows = seed % 4 >= 2;
    let message = Arc::new(Mutex::new(None));
    let quoted = message.clone();
    let capture = Capture::start(&pair.network, End::A, move |segment, frame| {
        narrows_after = narrows_after.saturating_sub(usize::from(!segment.payload.is_empty()));
        if !narrows || narrows_after > 0 || segment.packet_len <= narrow {
            return Verdict::Pass;
        }
        *quoted.lock().unwrap() = Some(too_big(frame, narrow as u16));
        Verdict::Drop
    });
    pair.network.set_filter(End::B, move |_, frame| match message.lock().unwrap().take() {
        Some(answer) if frame[12..14] == [8, 0] => Verdict::Replace(answer),
        _ => Verdict::Pass,
    });
    let behaviour =
        Behaviour { timestamps: rng.bool(), sack: rng.bool(), nagle: rng.bool(), ..with_option() };
    connect(&mut pair, [behaviour; 2]);
    let (mut writer, _reader) = attach_host(&pair.a, config(rng.usize(100..100_000), 64));
    let (_writer, mut reader) = attach_host(&pair.b, config(64, rng.usize(100..100_000)));
    let (mut written, mut part, mut in_part) = (0, 0, 0);
    let (mut read, mut out) = (0, vec![0; stream.octets.len()]);
    let arrived = pair.run_until(3000, |_| {
        while part < stream.writes.len() {
            let Some(octets) = write(&mut writer, &stream, part, in_part, written) else { break };
            (in_part, written) = (in_part + octets, written + octets);
            if in_part == stream.writes[part].octets {
                if stream.writes[part].commits || part + 1 == stream.writes.len() {
                    writer.commit();
                }
                (part, in_part) = (part + 1, 0);
            } else {
                writer.commit();
                break;
            }
        }
        read += reader.read_octets(&mut out[read..]);
        read == stream.octets.len()
    });
    assert!(arrived, "seed {seed}: {read} of {} octets, {written} written", stream.octets.len());
    assert!(out == stream.octets, "seed {seed}: the stream is another");
    judge(&stream, &capture.segments(), seen);
}

/// Writes the rest of a part, from `skip` on, which is at `at` of the stream. Returns how many octets of it;
/// `None` if there is no room.
fn write(writer: &mut ByteWriter, stream: &Stream, part: usize, skip: usize, at: usize) -> Option<usize> {
    let Write { annotation, octets, lent, .. } = stream.writes[part];
    let rest = &stream.octets[at..at + octets - skip];
    let section = annotation.section.map(|(section, offset)| (section, offset + skip as u32));
    let annotation = Annotation { starts_message: annotation.starts_message && skip == 0, section };
    if octets == 0 {
        let (section, offset) = annotation.section.expect("a transfer of nothing");
        assert!(writer.write_nothing(section, offset), "octets of no section are right before it");
        return Some(0);
    }
    if lent {
        return writer.write_memory(annotation, &region_of(rest), 0, rest.len()).map(|_| rest.len());
    }
    if writer.room() == 0 {
        writer.commit();
        return None;
    }
    Some(writer.write_annotated(annotation, rest))
}

// Requirements: TRO-3.1.6-01, TRO-3.1.8-02, TRO-3.1.8-03, TRO-3.3-02, TRO-5.1.4-01, TRO-5.3.3-01
#[test]
fn each_octet_of_a_section_is_annotated_and_no_other() {
    let seeds: u64 = std::env::var("WARPLINE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let mut seen = Seen::default();
    for seed in 0..seeds {
        println!("seed {seed}");
        run(seed, &mut seen);
    }
    println!("{seen:?}");
    if seeds >= 16 {
        let Seen { annotated, annotated_again, cut, aligned, aligned_alone, nothing, crowded } = seen;
        for (count, least) in [
            (annotated, 500),
            (annotated_again, 50),
            (cut, 5),
            (aligned, 100),
            (aligned_alone, 20),
            (nothing, 10),
        ] {
            assert!(count >= least, "{seen:?}");
        }
        assert_eq!(crowded, 32, "timestamps and the longest option: {seen:?}");
    }
}
