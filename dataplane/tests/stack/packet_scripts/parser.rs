//! Parses the text of a script.

use std::ops::Range;

use super::script::{Action, Establish, Flow, Line, Octets, Options, Script, Statement, When};
use super::segment;
use super::words::{Words, duration, number, range};
use warpline_dataplane::time::{MICROSECOND, SECOND};

/// The round trip of a handshake that names none: a third of a second, so that the first retransmission
/// timeout is a second whether the handshake was taken as a sample (RFC 6298 §2.2: R + 4 R / 2) or not
/// (§2.1).
const HANDSHAKE_NS: u64 = 333_334 * MICROSECOND;

/// Parses a script.
///
/// # Errors
///
/// The file, the line and a description of the error.
pub fn parse(path: &str, text: &str) -> Result<Script, String> {
    let title = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let text = without_comment(text).trim();
        if text.is_empty() {
            continue;
        }
        let number = index + 1;
        let (when, statement) =
            line(text).map_err(|error| format!("{path}:{number}: {error}\n    {text}"))?;
        lines.push(Line { number, text: text.to_owned(), when, statement });
    }
    Ok(Script { path: path.to_owned(), title, lines })
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, char) in line.char_indices() {
        match char {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn line(text: &str) -> Result<(When, Statement), String> {
    let mut words = Words::new(text);
    let when = when(&mut words)?;
    let statement = statement(&mut words)?;
    if words.is_empty() { Ok((when, statement)) } else { Err(format!("{:?} is too much", words.rest())) }
}

fn when(words: &mut Words<'_>) -> Result<When, String> {
    let word = words.peek().unwrap_or_default();
    let when = if word == "*" {
        When::Any
    } else if let Some(after) = word.strip_prefix('+') {
        match after.split_once('~') {
            Some((from, to)) => When::Within(duration(from)?, duration(to.trim_start_matches('+'))?),
            None => When::After(duration(after)?),
        }
    } else if word.starts_with(|first: char| first.is_ascii_digit()) {
        When::At(duration(word)?)
    } else {
        return Ok(When::After(0));
    };
    words.next()?;
    Ok(when)
}

fn statement(words: &mut Words<'_>) -> Result<Statement, String> {
    if words.strip("<") {
        return segment::inject(words);
    }
    if words.strip(">") {
        return segment::expect(words);
    }
    Ok(match words.next()? {
        "option" => Statement::Option(pairs(words)?),
        "flow" => Statement::Flow(flow(words)?),
        "nothing" => Statement::Nothing,
        "unjudged" => Statement::Unjudged,
        "establish" => Statement::Establish(establish(words)?),
        "event" => Statement::Event(all(words)),
        "read" => Statement::Read(optional_flow(words)?, octets(words)?),
        "completion" => Statement::Completion(words.next()?.to_owned()),
        "placed" => Statement::Placed(place(words)?, true),
        "not" if words.take("placed") => Statement::Placed(place(words)?, false),
        "check" => Statement::Check(words.take_rest().to_owned()),
        verb => Statement::Act(action(verb, words)?),
    })
}

fn action(verb: &str, words: &mut Words<'_>) -> Result<Action, String> {
    Ok(match verb {
        "listen" => {
            let (mut port, mut backlog) = (None, 4);
            while !words.is_empty() {
                match words.next()? {
                    "port" => port = Some(words.number()?),
                    "backlog" => backlog = words.number()?,
                    word => return Err(format!("listen knows port and backlog, not {word:?}")),
                }
            }
            Action::Listen { port, backlog }
        }
        "unlisten" => Action::Unlisten,
        "connect" => {
            let (mut flow, mut timeout_ns) = (1, 600 * SECOND);
            while !words.is_empty() {
                match words.next()? {
                    "flow" => flow = words.number()?,
                    "timeout" => timeout_ns = duration(words.next()?)?,
                    word => return Err(format!("connect knows flow and timeout, not {word:?}")),
                }
            }
            Action::Connect { flow, timeout_ns }
        }
        "send" => Action::Send(octets(words)?),
        "operate" => Action::Operate { markers: words.take("markers") },
        "write" => {
            let count = words.number()?;
            if words.take("segments") { Action::WriteSegments(count) } else { Action::Write(count) }
        }
        "close" => Action::Close(optional_flow(words)?),
        "abort" => Action::Abort(optional_flow(words)?),
        "arp" => match words.next()? {
            "off" => Action::Arp(false),
            "on" => Action::Arp(true),
            word => return Err(format!("arp is on or off, not {word:?}")),
        },
        _ => return Err(format!("there is no {verb:?}")),
    })
}

fn optional_flow(words: &mut Words<'_>) -> Result<u32, String> {
    if words.take("flow") { words.number() } else { Ok(1) }
}

fn pairs(words: &mut Words<'_>) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    while !words.is_empty() {
        let word = words.next()?;
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not NAME=VALUE"))?;
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

fn flow(words: &mut Words<'_>) -> Result<Flow, String> {
    let mut flow = Flow { number: words.number()?, peer_port: None, core_port: None, peer_iss: None };
    for (name, value) in pairs(words)? {
        match name.as_str() {
            "peer" => flow.peer_port = Some(number(&value)?),
            "core" => flow.core_port = Some(number(&value)?),
            "iss" => flow.peer_iss = Some(number(&value)?),
            _ => return Err(format!("a flow has peer, core and iss, not {name:?}")),
        }
    }
    Ok(flow)
}

fn establish(words: &mut Words<'_>) -> Result<Establish, String> {
    let mut establish = Establish {
        active: false,
        options: Options::default(),
        window: u16::MAX,
        round_trip_ns: HANDSHAKE_NS,
        ecn: false,
    };
    while !words.is_empty() {
        match words.next()? {
            "active" => establish.active = true,
            "ecn" => establish.ecn = true,
            "win" => establish.window = words.number()?,
            "rtt" => establish.round_trip_ns = duration(words.next()?)?,
            word if word.starts_with('<') => establish.options = segment::options(word)?,
            word => return Err(format!("establish does not know {word:?}")),
        }
    }
    Ok(establish)
}

fn octets(words: &mut Words<'_>) -> Result<Octets, String> {
    let word = words.next()?;
    Ok(match word.strip_prefix('"') {
        Some(literal) => Octets::Literal(literal.trim_end_matches('"').as_bytes().to_vec()),
        None => Octets::Pattern(number(word)?),
    })
}

fn place(words: &mut Words<'_>) -> Result<Range<u32>, String> {
    let (from, to) = range(words.next()?, ':')?;
    Ok(from..to)
}

fn all(words: &mut Words<'_>) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(word) = words.next() {
        all.push(word.to_owned());
    }
    all
}
