//! An end that obeys commands, for scripts that judge it: one command on each line of standard input, one
//! line of JSON on standard output for each. The answer to a command that cannot be obeyed is
//! `{"refused": "why"}`.
//!
//! ```text
//! new [ird=N] [ord=N] [markers]         a Protection Domain and a queue pair, in place of the last ones
//! region NAME OCTETS [RIGHT...]         registers memory between guards; rights local-write, remote-write,
//!                                       remote-read, remote-atomic;
//!                                       `stream`: for this queue pair alone; `other`: in a Protection Domain
//!                                       of its own; `zero`: Tagged Offsets from zero
//! set NAME OFFSET HEX                   writes memory          get NAME OFFSET OCTETS   reads it
//! accept                                takes a connection     connect ADDR:PORT        opens one
//! receive ID LOCAL                      posts a receive
//! send ID LOCAL [invalidate=STAG]       posts a Send           immediate ID VALUE       Immediate Data
//! write ID LOCAL STAG TO                write-immediate ID LOCAL STAG TO VALUE
//! read ID LOCAL STAG TO                 add ID LOCAL STAG TO ADDEND MASK
//! swap ID LOCAL STAG TO VALUE MASK      compare-swap ID LOCAL STAG TO COMPARE MASK VALUE MASK
//! invalidate ID STAG
//! wait SECONDS                          the next completion, or {"timeout": true}
//! ended SECONDS                         how the connection has ended
//! outside                               octets changed outside all regions
//! cores                                 what each core has done
//! close                                 FIN after everything posted
//! ```
//!
//! LOCAL is `NAME:OFFSET:OCTETS`, several with commas between, or `inline=HEX`; an STag in place of NAME
//! makes OFFSET a Tagged Offset. After every request may stand `solicited`, `fenced` and `unsignaled`.

mod requests;
mod session;
mod words;

use std::io::{self, BufRead};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use warpline::{ListenConfig, Listener};
use warpline_tools::arguments::{TIMEOUT_SECONDS, parse_timeout};
use warpline_tools::error::CommandError;
use warpline_tools::interrupt;
use warpline_tools::output::{note, say};

use crate::device::{DeviceOption, Started};
use crate::failure::Failure;
use session::Session;
use words::Words;

/// `operations`.
#[derive(Args, Debug, Clone)]
pub struct OperationsArguments {
    /// The device.
    #[command(flatten)]
    pub device: DeviceOption,
    /// The port at which `accept` takes connections.
    #[arg(long, value_name = "PORT")]
    pub listen: u16,
    /// How long the other end may be silent, in seconds, before it is given up: while it is to connect or to
    /// answer, and while a connection to it is open.
    #[arg(long, value_name = "S", value_parser = parse_timeout, default_value = TIMEOUT_SECONDS)]
    pub timeout: Duration,
}

/// Obeys commands until standard input ends.
///
/// # Errors
///
/// [`CommandError::Failed`].
pub fn run(arguments: &OperationsArguments) -> Result<(), CommandError> {
    Ok(obey_all(arguments)?)
}

fn obey_all(arguments: &OperationsArguments) -> Result<(), Failure> {
    let device = arguments.device.start()?;
    let (mut listener, mut session) = (None, None);
    note!("ready");
    let lines = lines();
    while let Some(line) = next_line(&lines)? {
        let mut words = Words::of(&line);
        let answer = obey(arguments, &device, &mut listener, &mut session, &mut words)
            .and_then(|answer| words.end().map(|()| answer))
            .unwrap_or_else(|failure| json!({"refused": failure.to_string(), "code": failure.code}));
        say!("{answer}");
    }
    Ok(())
}

/// Returns the lines of standard input as they come: a read does not end on a signal.
fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (give, lines) = mpsc::channel();
    thread::spawn(move || io::stdin().lock().lines().try_for_each(|line| give.send(line)));
    lines
}

/// Returns the next line; `None` after the last one, or if the command is to end.
fn next_line(lines: &mpsc::Receiver<io::Result<String>>) -> Result<Option<String>, Failure> {
    /// How often a signal is looked for.
    const LOOK: Duration = Duration::from_millis(50);
    while !interrupt::is_requested() {
        match lines.recv_timeout(LOOK) {
            Ok(line) => return line.map(Some).map_err(Failure::local),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(None)
}

/// Returns the answer to a command.
fn obey(
    arguments: &OperationsArguments,
    device: &Started,
    listener: &mut Option<Listener>,
    session: &mut Option<Session>,
    words: &mut Words<'_>,
) -> Result<Value, Failure> {
    let command = words.next("a command")?;
    if command == "cores" {
        return device.cores();
    }
    if command == "new" {
        // A listener answers by its own depths, so it comes and goes with them.
        (*session, *listener) = (None, None);
        let new = Session::new(device, arguments.timeout, words)?;
        let config = new.listen(ListenConfig { backlog: 1, ..ListenConfig::default() });
        *listener = Some(device.listen(arguments.listen, &config).map_err(Failure::local)?);
        *session = Some(new);
        return Ok(json!({}));
    }
    let session = session.as_mut().ok_or_else(|| Failure::local("`new` comes first"))?;
    match (command, &listener) {
        ("accept", Some(listener)) => session.accept(listener),
        ("connect", _) => session.connect(words),
        ("region", _) => session.register(words),
        ("set", _) => session.set(words),
        ("get", _) => session.get(words),
        ("wait", _) => Ok(session.wait(words.seconds()?)),
        ("ended", _) => session.ended(words.seconds()?),
        ("outside", _) => Ok(json!({"octets_outside": session.octets_outside()})),
        ("close", _) => Ok(session.close()),
        (request, _) => session.post(request, words),
    }
}
