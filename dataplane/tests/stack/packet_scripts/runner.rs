//! Runs a script: a core on one side, the lines of the script on the other, virtual time between.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use warpline_dataplane::ring::Command;
use warpline_dataplane::time::{Instant, SECOND};
use warpline_dataplane::wire::tcp::{self, Flags, Header};

use super::application::{self, Application, TARGET, connection, write_payload};
use super::flow::{Flow, peer_octet};
use super::frames::{self, Family, Ip};
use super::script::{self, Action, Icmp, Injected, Line, Options, Payload, Script, Segment, Statement, When};
use super::setup::Setup;
use super::{expression, matcher, segment, values};
use crate::common::PORT;
use crate::common::raw::{RawPeer, Sent};

/// Maximum wait for an expected segment that has no time, or whose time has passed.
const PATIENCE_NS: u64 = 300 * SECOND;

/// Maximum time in nanoseconds that the frames of one exchange are in flight: lines that follow each other at
/// once may observe this delay.
const FRAME_TIME_NS: u64 = 1_000_000;

/// Why a script does not hold.
#[derive(Debug)]
pub struct Failure {
    place: String,
    line: String,
    problem: String,
    exchange: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.place, self.problem)?;
        writeln!(f, "    {}", self.line)?;
        writeln!(f, "the exchange so far:")?;
        self.exchange.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Plays `script` to its end.
///
/// # Errors
///
/// The first line that does not hold.
pub fn run(script: &Script) -> Result<(), Failure> {
    let mut setup = Setup::new();
    let mut stage = None;
    let mut number = 1;
    let mut play = || -> Result<(), (Option<&Line>, String)> {
        for line in &script.lines {
            number = line.number;
            let failed = |problem| (Some(line), problem);
            if let Statement::Option(pairs) = &line.statement {
                if stage.is_some() {
                    return Err(failed("options come before everything else".to_owned()));
                }
                for (name, value) in pairs {
                    setup.set(name, value).map_err(failed)?;
                }
                continue;
            }
            let stage = stage.get_or_insert_with(|| Stage::new(&setup));
            stage.line(line).map_err(failed)?;
        }
        stage.as_mut().map_or(Ok(()), Stage::end).map_err(|problem| (None, problem))
    };
    play().map_err(|(line, problem)| Failure {
        place: format!("{}:{number}", script.path),
        line: line.map_or("(the end)".to_owned(), |line| line.text.clone()),
        problem,
        exchange: stage.map_or(Vec::new(), |stage| stage.exchange),
    })
}

/// Everything a script plays with.
struct Stage {
    peer: RawPeer,
    application: Application,
    flows: BTreeMap<u32, Flow>,
    family: Family,
    tolerance_ns: u64,
    start: Instant,
    /// When the line before happened.
    last: Instant,
    exchange: Vec<String>,
}

impl Stage {
    fn new(setup: &Setup) -> Self {
        let mut peer = RawPeer::with(setup.core.clone(), setup.mtu_octets);
        let application = Application::new(&peer);
        peer.come_to_rest();
        let start = peer.now;
        let first = script::Flow { number: 1, peer_port: None, core_port: None, peer_iss: None };
        Self {
            peer,
            application,
            flows: BTreeMap::from([(1, Flow::new(&first))]),
            family: setup.family,
            tolerance_ns: setup.tolerance_ns,
            start,
            last: start,
            exchange: Vec::new(),
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), String> {
        if let Statement::Expect(expected) = &line.statement {
            return self.expect(line.when, &expected.segment);
        }
        let due = match line.when {
            When::After(nanos) => self.last + nanos,
            When::At(nanos) => self.start + nanos,
            When::Within(..) | When::Any => return Err("only segments come within a range".to_owned()),
        };
        if due + FRAME_TIME_NS < self.peer.now {
            return Err(format!("that was {} ago", seconds(self.peer.now - due)));
        }
        let observes = matches!(
            line.statement,
            Statement::Event(_)
                | Statement::Read(..)
                | Statement::Completion(_)
                | Statement::Placed(..)
                | Statement::Check(_)
        );
        let unjudged = matches!(line.statement, Statement::Unjudged);
        if due > self.peer.now {
            if !unjudged {
                self.no_other_segment()?;
            }
            self.advance(due, false)?;
        }
        if !unjudged && (!observes || line.when != When::After(0)) {
            self.no_other_segment()?;
        }
        self.last = due;
        self.statement(&line.statement)?;
        self.settle()
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        match statement {
            Statement::Option(_) | Statement::Expect(_) | Statement::Nothing => Ok(()),
            Statement::Flow(flow) => {
                self.flows.insert(flow.number, Flow::new(flow));
                Ok(())
            }
            Statement::Inject(injected) => self.inject(injected),
            Statement::Icmp(icmp) => self.icmp(icmp),
            Statement::Unjudged => {
                while let Some(sent) = self.peer.sent.pop_front() {
                    let (_, segment) = self.observe(1, &sent)?;
                    self.note(sent.at, &format!("> {} (unjudged)", segment::text(&segment)));
                }
                Ok(())
            }
            Statement::Establish(establish) => self.establish(establish),
            Statement::Act(action) => self.act(action),
            Statement::Event(expected) => self.event(&expected.join(" ")),
            Statement::Read(flow, octets) => self.read(*flow, octets),
            Statement::Completion(expected) => match self.application.completion() {
                Some(came) if came == *expected => Ok(()),
                Some(came) => Err(format!("the work request completed with {came}")),
                None => Err("no work request has completed".to_owned()),
            },
            Statement::Placed(range, expected) => {
                let place = |at: u32| at as usize - 1;
                if range.is_empty() || range.start == 0 {
                    return Err("places count from 1".to_owned());
                }
                let payload = place(range.start)..place(range.end) - 20;
                let mut octets = vec![0; payload.len()];
                let inside = self.application.target.read(payload.start, &mut octets);
                let there = octets.iter().zip(payload).all(|(octet, at)| *octet == peer_octet(at));
                let untouched = octets.iter().all(|octet| *octet == 0);
                match (inside, expected) {
                    (true, true) if there => Ok(()),
                    (true, false) if untouched => Ok(()),
                    _ => Err(format!("placed: {there}, untouched: {untouched}")),
                }
            }
            Statement::Check(text) => {
                let value = |name: &str| {
                    if let Some((name, number)) = name.split_once('.').filter(|(name, _)| *name != "dropped")
                    {
                        let flow = number.parse().ok().and_then(|number: u32| self.flows.get(&number));
                        return values::of_flow(name, flow.ok_or("there is no such flow")?);
                    }
                    values::value(name, &self.peer, &self.flows[&1])
                };
                expression::holds(text, value)?.map_err(|values| format!("that does not hold: {values}"))
            }
        }
    }

    /// Nothing may have come that no line expects.
    fn no_other_segment(&mut self) -> Result<(), String> {
        let Some(sent) = self.peer.sent.front().cloned() else { return Ok(()) };
        let (_, segment) = self.observe(1, &sent)?;
        Err(format!(
            "the core has sent what no line expects: {} > {}",
            self.time(sent.at),
            segment::text(&segment)
        ))
    }

    fn end(&mut self) -> Result<(), String> {
        self.no_other_segment()?;
        if let Some(event) = self.application.events.front() {
            return Err(format!("no line expects the event {event:?}"));
        }
        if let Some(completion) = self.application.completion() {
            return Err(format!("no line expects the completion {completion:?}"));
        }
        match self.flows.values().find(|flow| !flow.received.is_empty()) {
            Some(flow) => Err(format!("no line reads the last {} octets", flow.received.len())),
            None => Ok(()),
        }
    }

    /// Lets everything happen that happens now.
    fn settle(&mut self) -> Result<(), String> {
        if !self.peer.come_to_rest() {
            return Err("the core does not come to rest".to_owned());
        }
        self.application.take_events(&mut self.peer, &mut self.flows);
        Ok(())
    }

    /// Lets time pass until `to`, or until a segment comes.
    fn advance(&mut self, to: Instant, until_sent: bool) -> Result<(), String> {
        loop {
            self.settle()?;
            if self.peer.now >= to || (until_sent && !self.peer.sent.is_empty()) {
                return Ok(());
            }
            self.peer.now = self.peer.core.next_deadline().max(self.peer.now + 1).min(to);
        }
    }

    fn expect(&mut self, when: When, expected: &Segment) -> Result<(), String> {
        let (from, to) = match when {
            When::After(nanos) => self.around(self.last + nanos),
            When::At(nanos) => self.around(self.start + nanos),
            When::Within(from, to) => (self.last + from, self.last + to),
            When::Any => (self.last, self.last + PATIENCE_NS),
        };
        self.advance(to.max(self.peer.now), true)?;
        let Some(sent) = self.peer.sent.pop_front() else {
            self.advance(to + PATIENCE_NS, true)?;
            return Err(match self.peer.sent.front() {
                Some(sent) => {
                    format!("too late: a segment came {} after the last moment", seconds(sent.at - to))
                }
                None => "nothing came".to_owned(),
            });
        };
        let (number, came) = self.observe(expected.flow, &sent)?;
        let text = segment::text(&came);
        self.note(sent.at, &format!("> {text}"));
        let mut problem = String::new();
        for difference in matcher::differences(expected, &came, &sent.payload) {
            let _ = write!(problem, "\n    {difference}");
        }
        if let Some(flow) = self.flows.get_mut(&number)
            && let Err(error) = flow.judge_octets(came.seq, &sent.payload)
        {
            let _ = write!(problem, "\n    {error}");
        }
        if sent.at < from {
            let _ = write!(problem, "\n    too early by {}", seconds(from - sent.at));
        }
        if sent.at > to {
            let _ = write!(problem, "\n    too late by {}", seconds(sent.at - to));
        }
        self.last = sent.at;
        if problem.is_empty() { Ok(()) } else { Err(format!("another segment came: {text}{problem}")) }
    }

    fn around(&self, at: Instant) -> (Instant, Instant) {
        (Instant::from_nanos(at.as_nanos().saturating_sub(self.tolerance_ns)), at + self.tolerance_ns)
    }

    /// A segment of the core, in the numbers of its flow: the wanted flow if the ports match, else the flow
    /// that they belong to.
    fn observe(&mut self, wanted: u32, sent: &Sent) -> Result<(u32, Segment), String> {
        let ports = (sent.header.source_port, sent.header.destination_port);
        let fits = |flow: &Flow| {
            flow.peer_port == ports.1 && flow.core_port.is_none_or(|core_port| core_port == ports.0)
        };
        let number = match self.flows.get(&wanted) {
            Some(flow) if fits(flow) => wanted,
            _ => self
                .flows
                .values()
                .find(|flow| fits(flow))
                .map(|flow| flow.number)
                .ok_or_else(|| format!("a segment between ports of no flow: {:?}", sent.header))?,
        };
        let flow = self.flow(number)?;
        flow.core_port = Some(ports.0);
        Ok((number, flow.observe(sent)))
    }

    fn flow(&mut self, number: u32) -> Result<&mut Flow, String> {
        self.flows.get_mut(&number).ok_or_else(|| format!("there is no flow {number}"))
    }

    fn time(&self, at: Instant) -> String {
        let nanos = at - self.start;
        format!("{}.{:04}", nanos / SECOND, nanos % SECOND / 100_000)
    }

    fn note(&mut self, at: Instant, what: &str) {
        let line = format!("{} {what}", self.time(at));
        self.exchange.push(line);
    }

    fn inject(&mut self, injected: &Injected) -> Result<(), String> {
        let spec = &injected.segment;
        self.note(self.peer.now, &format!("< {}", segment::text(spec)));
        let family = self.family;
        let flow = self.flow(spec.flow)?;
        let header = header_of(flow, spec);
        let payload = payload_of(spec)?;
        let ip = Ip { family, ecn: spec.ecn, identification: injected.identification };
        for frame in frames::segment(ip, &header, &payload, &injected.fragments)? {
            self.peer.inject(&frame);
        }
        Ok(())
    }

    fn icmp(&mut self, icmp: &Icmp) -> Result<(), String> {
        self.note(self.peer.now, &format!("< [{}] {:?}", icmp.seq, icmp.message));
        let flow = self.flow(icmp.flow)?;
        let quoted = Header {
            source_port: flow.core_port.unwrap_or(PORT),
            destination_port: flow.peer_port,
            seq: flow.core_seq(icmp.seq),
            flags: Flags::ACK,
            ..Header::default()
        };
        let frame = frames::icmp(self.family, icmp.message, &quoted, icmp.octets);
        self.peer.inject(&frame);
        Ok(())
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        self.note(self.peer.now, &format!("{action:?}"));
        match action {
            Action::Listen { port, backlog } => {
                self.peer.command(Command::Listen {
                    address: None,
                    port: port.unwrap_or(PORT),
                    backlog: *backlog,
                    tcp: None,
                });
            }
            Action::Unlisten => self.peer.command(Command::Unlisten { address: None, port: PORT }),
            Action::Connect { flow, timeout_ns } => {
                let remote = SocketAddr::new(self.family.address(2), self.flow(*flow)?.peer_port);
                let token = u64::from(*flow);
                self.peer.command(Command::Connect {
                    token,
                    local: None,
                    remote,
                    timeout_ns: *timeout_ns,
                    tcp: None,
                    octets: Box::default(),
                });
            }
            Action::Send(octets) => {
                let flow = self.flows.get_mut(&1).ok_or("there is no flow 1")?;
                application::send(&self.peer, flow, octets)?;
            }
            Action::Operate { markers } => self.application.operate(&self.peer, &self.flows[&1], *markers)?,
            Action::Write(octets) => self.application.write(*octets)?,
            Action::WriteSegments(segments) => {
                let tcp = self.peer.core.tcp(connection(&self.flows[&1])?).ok_or("no connection")?;
                let payload = write_payload(tcp.emss_octets()) as u32;
                self.application.write(segments * payload)?;
            }
            Action::Close(flow) => {
                let connection = connection(self.flow(*flow)?)?;
                self.peer.command(Command::Close { connection });
            }
            Action::Abort(flow) => {
                let connection = connection(self.flow(*flow)?)?;
                self.peer.command(Command::Abort { connection });
            }
            Action::Arp(answers) => self.peer.answers_arp = *answers,
        }
        Ok(())
    }

    fn event(&mut self, expected: &str) -> Result<(), String> {
        match self.application.events.pop_front() {
            Some(event) if event == expected => {
                self.note(self.peer.now, &format!("event {event}"));
                Ok(())
            }
            Some(event) => Err(format!("the next event is {event:?}")),
            None => Err("there is no event".to_owned()),
        }
    }

    fn read(&mut self, flow: u32, expected: &script::Octets) -> Result<(), String> {
        let flow = self.flow(flow)?;
        let received = std::mem::take(&mut flow.received);
        let right = match expected {
            script::Octets::Pattern(octets) => {
                let start = flow.read;
                received.len() == *octets
                    && received.iter().enumerate().all(|(at, octet)| *octet == peer_octet(start + at))
            }
            script::Octets::Literal(octets) => received == *octets,
        };
        flow.read += expected.len();
        if right {
            return Ok(());
        }
        Err(format!("{} octets were given up: \"{}\"", received.len(), received.escape_ascii()))
    }

    /// A handshake; its segments are checked only as far as opening the connection requires.
    fn establish(&mut self, how: &script::Establish) -> Result<(), String> {
        let ecn = if how.ecn { Flags::ECE | Flags::CWR } else { Flags::empty() };
        let timestamps = how.options.timestamps;
        let mut syn =
            Segment { flow: 1, flags: Flags::SYN, options: how.options.clone(), ..Segment::default() };
        syn.window = Some(u16::MAX);
        if how.active {
            self.act(&Action::Connect { flow: 1, timeout_ns: 600 * SECOND })?;
            self.settle()?;
            let came = self.handshake_segment(Flags::SYN | ecn)?;
            if came.seq != 0 {
                return Err(format!("not a SYN to begin with: {}", segment::text(&came)));
            }
            self.pass(how.round_trip_ns)?;
            syn.flags |= Flags::ACK | (ecn & Flags::ECE);
            syn.ack = Some(1);
            self.inject(&Injected { segment: syn, fragments: Vec::new(), identification: 1 })?;
            self.settle()?;
            self.handshake_segment(Flags::ACK)?;
            return self.event("connected");
        }
        self.act(&Action::Listen { port: None, backlog: 4 })?;
        self.settle()?;
        syn.flags |= ecn;
        self.inject(&Injected { segment: syn, fragments: Vec::new(), identification: 1 })?;
        self.settle()?;
        self.handshake_segment(Flags::SYN | Flags::ACK | (ecn & Flags::ECE))?;
        self.pass(how.round_trip_ns)?;
        let options =
            Options { timestamps: timestamps.map(|(value, _)| (value, Some(0))), ..Options::default() };
        let segment = Segment {
            flow: 1,
            flags: Flags::ACK,
            seq: 1,
            ack: Some(1),
            window: Some(how.window),
            options,
            ..Segment::default()
        };
        self.inject(&Injected { segment, fragments: Vec::new(), identification: 1 })?;
        self.settle()?;
        self.event("accepted")
    }

    /// Lets time pass, in which nothing comes.
    fn pass(&mut self, nanos: u64) -> Result<(), String> {
        self.last = self.peer.now + nanos;
        self.advance(self.last, false)?;
        self.no_other_segment()
    }

    fn handshake_segment(&mut self, flags: Flags) -> Result<Segment, String> {
        let sent = self.peer.sent.pop_front().ok_or("the core does not shake hands")?;
        let (_, came) = self.observe(1, &sent)?;
        self.note(sent.at, &format!("> {}", segment::text(&came)));
        let acknowledges = came.ack.is_none_or(|ack| ack == 1);
        if came.flags == flags && acknowledges {
            return Ok(came);
        }
        Err(format!("not {} of a handshake: {}", segment::flags_text(flags), segment::text(&came)))
    }
}

fn header_of(flow: &Flow, spec: &Segment) -> Header {
    let timestamps = spec.options.timestamps.map(|(value, echo)| {
        flow.timestamps(value.unwrap_or(0), echo.unwrap_or(0), spec.flags.contains(Flags::ACK))
    });
    Header {
        source_port: flow.peer_port,
        destination_port: flow.core_port.unwrap_or(PORT),
        seq: flow.peer_seq(spec.seq),
        ack: spec.ack.map_or(tcp::SeqNumber(0), |ack| flow.core_seq(ack)),
        flags: spec.flags,
        window: spec.window.unwrap_or(u16::MAX),
        urgent: spec.urgent,
        options: tcp::Options {
            mss: spec.options.mss,
            window_scale: spec.options.window_scale,
            sack_permitted: spec.options.sack_permitted,
            timestamps,
            sack: spec
                .options
                .sack
                .iter()
                .map(|(left, right)| (flow.core_seq(*left), flow.core_seq(*right)))
                .collect(),
            rdma: None,
        },
    }
}

fn payload_of(spec: &Segment) -> Result<Vec<u8>, String> {
    // The first octet has place 1, whether it comes with the SYN or after it.
    let start = (spec.seq - i64::from(!spec.flags.contains(Flags::SYN))) as usize;
    Ok(match &spec.payload {
        Payload::Pattern => (0..spec.octets as usize).map(|at| peer_octet(start.wrapping_add(at))).collect(),
        Payload::Literal(octets) => octets.clone(),
        Payload::Fpdu => frames::fpdu(spec.octets as usize, TARGET.0, start as u64, peer_octet)?,
        Payload::PartOfFpdu(range) => {
            let first = range.start.saturating_sub(1) as usize;
            let whole = frames::fpdu(range.len(), TARGET.0, first as u64, peer_octet)?;
            let part =
                start.wrapping_sub(first)..start.wrapping_sub(first).wrapping_add(spec.octets as usize);
            whole.get(part).ok_or("that is no part of that FPDU")?.to_vec()
        }
    })
}

fn seconds(nanos: u64) -> String {
    format!("{:.4} s", nanos as f64 / 1e9)
}
