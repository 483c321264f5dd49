//! The segments of a script: `FLAGS SEQ:END(OCTETS) ack N win N <options>`, as text and as header.

use std::fmt::Write as _;
use std::ops::Range;

use super::script::{Expected, Icmp, IcmpMessage, Injected, Options, Payload, Segment, Statement};
use super::words::{Words, number, range};
use warpline_dataplane::wire::tcp::Flags;

const FLAGS: [(char, Flags); 8] = [
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('U', Flags::URG),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
    ('.', Flags::ACK),
];

const ECN: [(&str, u8); 4] = [("[noecn]", 0), ("[ect1]", 1), ("[ect0]", 2), ("[ce]", 3)];

/// Parses the rest of a line after `<`.
pub fn inject(words: &mut Words<'_>) -> Result<Statement, String> {
    let flow = flow(words)?;
    if let Some(quoted) = words.peek().and_then(|word| word.strip_prefix('['))
        && quoted.starts_with(|first: char| first.is_ascii_digit() || first == '-')
    {
        return icmp(flow, words);
    }
    let mut injected = Injected { segment: segment(flow, words)?, fragments: Vec::new(), identification: 7 };
    while !words.is_empty() {
        if words.take("fragments") {
            injected.fragments = words.next()?.split(',').map(fragment).collect::<Result<_, _>>()?;
        } else if words.take("ipid") {
            injected.identification = words.number()?;
        } else {
            part(&mut injected.segment, words)?;
        }
    }
    Ok(Statement::Inject(injected))
}

/// Parses the rest of a line after `>`.
pub fn expect(words: &mut Words<'_>) -> Result<Statement, String> {
    let flow = flow(words)?;
    let mut segment = segment(flow, words)?;
    while !words.is_empty() {
        part(&mut segment, words)?;
    }
    if segment.flags.contains(Flags::ACK) != segment.ack.is_some() {
        return Err("an expected segment has the flag of ACK if and only if it has ack N".to_owned());
    }
    Ok(Statement::Expect(Expected { segment }))
}

fn flow(words: &mut Words<'_>) -> Result<u32, String> {
    let flow = match words.peek() {
        Some(word) if !word.is_empty() && word.chars().all(|char| char.is_ascii_digit()) => words.number()?,
        _ => 1,
    };
    words.skip_spaces();
    Ok(flow)
}

/// `FLAGS SEQ:END(OCTETS)`, perhaps with the ECN bits of IP before it.
fn segment(flow: u32, words: &mut Words<'_>) -> Result<Segment, String> {
    let mut segment = Segment { flow, ..Segment::default() };
    for (name, bits) in ECN {
        if words.take(name) {
            segment.ecn = bits;
        }
    }
    segment.flags = flags(words.next()?)?;
    (segment.seq, segment.octets) = sequence(words.next()?)?;
    Ok(segment)
}

/// Parses one part that may follow the sequence numbers.
fn part(segment: &mut Segment, words: &mut Words<'_>) -> Result<(), String> {
    match words.next()? {
        "ack" => segment.ack = Some(words.number()?),
        "win" => segment.window = Some(words.number()?),
        "urg" => segment.urgent = words.number()?,
        "fpdu" => {
            segment.payload = match words.peek().map(|word| range::<u32>(word, ':')) {
                Some(Ok((from, to))) => {
                    words.next()?;
                    Payload::PartOfFpdu(from..to)
                }
                _ => Payload::Fpdu,
            };
        }
        word if word.starts_with('<') => segment.options = options(word)?,
        word if word.starts_with('"') => {
            let literal = word.trim_matches('"').as_bytes().to_vec();
            if literal.len() != segment.octets as usize {
                return Err(format!("{word} has {} octets, not {}", literal.len(), segment.octets));
            }
            segment.payload = Payload::Literal(literal);
        }
        word => return Err(format!("a segment has no {word:?}")),
    }
    Ok(())
}

fn flags(word: &str) -> Result<Flags, String> {
    if word == "-" {
        return Ok(Flags::empty());
    }
    let mut flags = Flags::empty();
    for char in word.chars() {
        let (_, flag) = FLAGS
            .iter()
            .find(|(name, _)| *name == char)
            .ok_or_else(|| format!("there is no flag {char:?} (in {word:?})"))?;
        flags |= *flag;
    }
    Ok(flags)
}

/// `A:B(N)`: A is the first octet, B the one after the last, N their number.
fn sequence(word: &str) -> Result<(i64, u32), String> {
    let (ends, octets) = word
        .strip_suffix(')')
        .and_then(|word| word.split_once('('))
        .ok_or_else(|| format!("{word:?} is not A:B(N)"))?;
    let (from, to) = range::<i64>(ends, ':')?;
    let octets: u32 = number(octets)?;
    if to - from != i64::from(octets) {
        return Err(format!("{word:?}: from {from} to {to} are not {octets} octets"));
    }
    Ok((from, octets))
}

/// `A-B` of an IP payload; without B, to its end.
fn fragment(word: &str) -> Result<Range<usize>, String> {
    let (from, to) = word.split_once('-').ok_or_else(|| format!("{word:?} is no range A-B"))?;
    let end = if to.is_empty() { usize::MAX } else { number(to)? };
    Ok(number(from)?..end)
}

/// `<mss 1460,wscale 7,sackOK,TS val 1 ecr 0,sack 1:2 3:4,...>`
pub fn options(word: &str) -> Result<Options, String> {
    let mut options = Options::default();
    let list = word.trim_start_matches('<').trim_end_matches('>');
    for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let mut words = Words::new(option);
        match words.next()? {
            "..." => options.and_others = true,
            "mss" => options.mss = Some(words.number()?),
            "wscale" => options.window_scale = Some(words.number()?),
            "sackOK" => options.sack_permitted = true,
            "TS" => {
                let mut value = |name| -> Result<Option<u32>, String> {
                    if !words.take(name) {
                        return Err(format!("TS val N ecr N, not {option:?}"));
                    }
                    if words.take("*") { Ok(None) } else { words.number().map(Some) }
                };
                options.timestamps = Some((value("val")?, value("ecr")?));
            }
            "sack" => {
                while !words.is_empty() {
                    options.sack.push(range(words.next()?, ':')?);
                }
            }
            _ => return Err(format!("there is no option {option:?}")),
        }
        if !words.is_empty() {
            return Err(format!("{option:?} says too much"));
        }
    }
    Ok(options)
}

/// `[SEQ:END(OCTETS)] icmp unreachable CODE` and `... icmp too_big mtu N`
fn icmp(flow: u32, words: &mut Words<'_>) -> Result<Statement, String> {
    let (seq, octets) = sequence(words.next()?.trim_matches(['[', ']']))?;
    if !words.take("icmp") {
        return Err("icmp comes after what it quotes".to_owned());
    }
    let message = match words.next()? {
        "unreachable" => IcmpMessage::Unreachable(match words.next()? {
            "net" => 0,
            "host" => 1,
            "protocol" => 2,
            "port" => 3,
            "prohibited" => 13,
            word => number(word)?,
        }),
        "too_big" => {
            if !words.take("mtu") {
                return Err("too_big mtu N".to_owned());
            }
            IcmpMessage::TooBig(words.number()?)
        }
        word => return Err(format!("there is no ICMP message {word:?}")),
    };
    Ok(Statement::Icmp(Icmp { flow, seq, octets, message }))
}

/// The flags as a script has them.
pub fn flags_text(flags: Flags) -> String {
    let text: String = FLAGS.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(name, _)| name).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// The segment as a script has it, without its direction.
pub fn text(segment: &Segment) -> String {
    let mut text = if segment.flow == 1 { String::new() } else { format!("({}) ", segment.flow) };
    if segment.ecn != 0 {
        let _ = write!(
            text,
            "{} ",
            ECN.iter().find(|(_, bits)| *bits == segment.ecn).map_or("", |(name, _)| name)
        );
    }
    let end = segment.seq + i64::from(segment.octets);
    let _ = write!(text, "{} {}:{end}({})", flags_text(segment.flags), segment.seq, segment.octets);
    if let Some(ack) = segment.ack {
        let _ = write!(text, " ack {ack}");
    }
    if let Some(window) = segment.window {
        let _ = write!(text, " win {window}");
    }
    if segment.urgent != 0 {
        let _ = write!(text, " urg {}", segment.urgent);
    }
    let options = options_text(&segment.options);
    if options != "<>" {
        let _ = write!(text, " {options}");
    }
    match &segment.payload {
        Payload::Pattern => {}
        Payload::Literal(octets) => {
            let _ = write!(text, " \"{}\"", octets.escape_ascii());
        }
        Payload::Fpdu => text.push_str(" fpdu"),
        Payload::PartOfFpdu(range) => {
            let _ = write!(text, " fpdu {}:{}", range.start, range.end);
        }
    }
    text
}

/// The options as a script has them.
pub fn options_text(options: &Options) -> String {
    let star = |value: Option<u32>| value.map_or("*".to_owned(), |value| value.to_string());
    let mut parts = Vec::new();
    parts.extend(options.mss.map(|mss| format!("mss {mss}")));
    parts.extend(options.sack_permitted.then(|| "sackOK".to_owned()));
    parts
        .extend(options.timestamps.map(|(value, echo)| format!("TS val {} ecr {}", star(value), star(echo))));
    parts.extend(options.window_scale.map(|shift| format!("wscale {shift}")));
    if !options.sack.is_empty() {
        let mut blocks = "sack".to_owned();
        for (left, right) in &options.sack {
            let _ = write!(blocks, " {left}:{right}");
        }
        parts.push(blocks);
    }
    parts.extend(options.and_others.then(|| "...".to_owned()));
    format!("<{}>", parts.join(","))
}
