//! The end that is pinged: any number of clients, at any time.
//!
//! One thread accepts, and does all that has to wait for the core. The core's thread carries on every
//! client's exchange between its polls.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use warpline::{
    AcceptError, Access, Advertisement, Completion, CompletionKind, ConnectionRequest, Device, ListenConfig,
    Listener, MemoryRegion, Operation, STag, SendRequest,
};
use warpline_tools::output::{note, say};

use super::arguments::Ping;
use super::protocol::{OutOfPlace, Server, ServerAction};
use super::report::Served;
use crate::arguments::MESSAGE_BYTES_MAX;
use crate::endpoint::{Driver, received};
use crate::error::BenchError;
use crate::lane::Lane;

/// Work requests outstanding: a Read or a Write, and the messages before and after it.
const DEPTH: u32 = 4;
/// The identifiers of Reads and Writes, which no message and no slot of an inbox has.
const READ: u64 = u64::MAX - 1;
const WRITE: u64 = u64::MAX - 2;
/// Sessions that are looked at between two polls, at most: a walk over thousands would keep the core from all
/// that waits for its next poll, such as the registrations of the next client.
const SESSIONS_A_TURN: usize = 64;
/// How long to wait for a client before those that are connected are served.
const PATIENCE: Duration = Duration::from_millis(20);
/// Clients in a report, at most: a server may run for years.
const REPORTED: usize = 10_000;
/// The message that gives the client the go-ahead. Its fields mean nothing.
const GO_AHEAD: Advertisement = Advertisement { to: 0, stag: STag(0), len: 0 };

/// A client that is connected.
pub struct Session {
    lane: Lane,
    /// The core of its connection.
    core: u8,
    /// Data read from the client is written back from here.
    buffer: MemoryRegion,
    exchange: Server,
    /// A client's source that is larger than the buffer.
    too_large: Option<Advertisement>,
    /// Pings after which the connection is closed.
    limit: Option<u64>,
    closing: bool,
    served: Served,
}

/// The state of a client's session after a step.
enum SessionState {
    /// It goes on.
    Going,
    /// It needs a larger buffer.
    NeedsBuffer,
    /// Its connection is over.
    Over(Result<(), BenchError>),
}

impl Session {
    /// Handles the completions that are there. Closes if `stop` is set.
    fn step(&mut self, stop: bool) -> SessionState {
        if stop && !self.closing {
            self.close();
        }
        while let Some(completion) = self.lane.completions.poll() {
            if self.lane.is_closed() {
                return SessionState::Over(Ok(()));
            }
            if let Err(error) = self.consume(&completion) {
                return SessionState::Over(Err(error));
            }
            if self.too_large.is_some() {
                return SessionState::NeedsBuffer;
            }
        }
        SessionState::Going
    }

    fn close(&mut self) {
        self.closing = true;
        self.lane.qp.disconnect();
    }

    fn consume(&mut self, completion: &Completion) -> Result<(), BenchError> {
        let message = self.lane.message(completion)?;
        let out_of_place = |error: OutOfPlace| BenchError::Peer(error.to_string());
        let action = match (message, completion.kind) {
            (Some(advertisement), _) => self.exchange.on_advertisement(advertisement),
            (None, CompletionKind::Read) => self.exchange.on_read().map(Some),
            (None, CompletionKind::Write) => self.exchange.on_written(),
            (None, _) => Ok(None),
        };
        match action.map_err(out_of_place)? {
            Some(action) if !self.closing => self.act(action),
            _ => Ok(()),
        }
    }

    fn act(&mut self, action: ServerAction) -> Result<(), BenchError> {
        match action {
            ServerAction::Read(source) if source.len as usize > self.buffer.len() => {
                self.too_large = Some(source);
                Ok(())
            }
            ServerAction::Read(source) => self.read(&source),
            ServerAction::GoAhead => self.lane.send(&GO_AHEAD),
            ServerAction::WriteAndTell(sink, octets) => {
                let operation = Operation::Write { stag: sink.stag, to: sink.to };
                self.post(SendRequest::new(WRITE, operation, self.buffer.slice(0, octets)))?;
                self.lane.send(&GO_AHEAD)?;
                self.served.pings += 1;
                self.served.bytes += u64::from(octets);
                if self.limit.is_some_and(|limit| self.served.pings >= limit) {
                    self.close();
                }
                Ok(())
            }
        }
    }

    fn read(&self, source: &Advertisement) -> Result<(), BenchError> {
        let operation = Operation::Read { stag: source.stag, to: source.to };
        self.post(SendRequest::new(READ, operation, self.buffer.slice(0, source.len)))
    }

    fn post(&self, request: SendRequest) -> Result<(), BenchError> {
        self.lane.qp.post(request).map_err(|error| self.lane.failed(&error.to_string()))
    }

    /// Allocates a buffer large enough for the Read that waits for one.
    fn enlarge(&mut self) -> Result<(), BenchError> {
        let Some(source) = self.too_large.take() else { return Ok(()) };
        if source.len > MESSAGE_BYTES_MAX {
            return Err(self.lane.failed(&format!("it advertises {} bytes", source.len)));
        }
        self.buffer = buffer(&self.lane, source.len)?;
        self.read(&source)
    }
}

fn buffer(lane: &Lane, octets: u32) -> Result<MemoryRegion, BenchError> {
    let memory = lane.domain.allocate(octets as usize, Access::LOCAL_WRITE);
    memory.map_err(|error| BenchError::Memory(error.to_string()))
}

/// Channels from the thread that accepts to the cores' threads, and back.
pub struct Sessions {
    /// By core.
    give: Vec<mpsc::Sender<Session>>,
    back: mpsc::Receiver<(Session, SessionState)>,
}

/// The work of a core's thread between polls.
pub type Work = Box<dyn FnMut(&mut Driver) -> ControlFlow<()> + Send>;

/// Returns the work of the threads of `cores` cores between polls, and the channels to it. Once it `stops`,
/// clients are closed.
pub fn work(cores: usize, stops: impl Fn() -> bool + Clone + Send + 'static) -> (Sessions, Vec<Work>) {
    let (hand_back, back) = mpsc::channel();
    let works = (0..cores).map(|_| {
        let (give, taken) = mpsc::channel();
        (give, work_of_core(taken, hand_back.clone(), stops.clone()))
    });
    let (give, works) = works.unzip();
    (Sessions { give, back }, works)
}

/// Returns the work of a core, which takes sessions from `taken`, and hands back those that it can do nothing
/// for.
fn work_of_core(
    taken: mpsc::Receiver<Session>,
    hand_back: mpsc::Sender<(Session, SessionState)>,
    stops: impl Fn() -> bool + Send + 'static,
) -> Work {
    let mut sessions: Vec<Session> = Vec::new();
    let mut next = 0;
    let step = move |driver: &mut Driver| {
        sessions.extend(received(&taken)?);
        let stop = stops();
        // All of them before it sleeps: no later turn looks at the others then.
        let turns = if driver.sleeps() { sessions.len() } else { sessions.len().min(SESSIONS_A_TURN) };
        for _ in 0..turns {
            if next >= sessions.len() {
                next = 0;
            }
            let Some(session) = sessions.get_mut(next) else { break };
            match session.step(stop) {
                SessionState::Going => next += 1,
                // Fails only when the program is ending.
                state => _ = hand_back.send((sessions.swap_remove(next), state)),
            }
        }
        ControlFlow::Continue(())
    };
    Box::new(step)
}

/// Listens for clients at `port`.
///
/// # Errors
///
/// That of the device.
pub fn listen(device: &Device, port: u16, args: &Ping) -> Result<Listener, BenchError> {
    let (timeout, usual) = (args.device.timeout(), ListenConfig::default());
    let config = ListenConfig {
        markers: args.markers.is_on(),
        startup_timeout: timeout,
        // Clients may wait for one another before they say anything.
        first_fpdu_timeout: usual.first_fpdu_timeout.map(|usual| usual.max(timeout)),
        ..usual
    };
    let config = args.setup.listen(config);
    device.listen(port, &config).map_err(|error| BenchError::Setup(error.to_string()))
}

/// Serves the clients of `listener` until `args.clients` have come, or until `stop`. Returns how each of the
/// first [`REPORTED`] ended, if there is to be a report.
///
/// # Errors
///
/// Errors are those that keep the server from serving any client; a client's errors end that client alone.
pub fn serve(
    device: &Device,
    listener: &Listener,
    args: &Ping,
    sessions: &Sessions,
    stop: &AtomicBool,
) -> Result<Vec<Served>, BenchError> {
    let wanted = args.clients.map_or(usize::MAX, |clients| clients as usize);
    let (mut open, mut all) = (0, Outcomes::new(args.run.json.is_some()));
    let mut patience_ends = None;
    while all.count < wanted {
        if stop.load(Ordering::Relaxed) {
            let ends = *patience_ends.get_or_insert_with(|| Instant::now() + args.device.timeout());
            if open == 0 || Instant::now() > ends {
                break;
            }
        }
        if all.count + open < wanted {
            match accept(device, listener, args)? {
                Accepted::Nobody => {}
                Accepted::Refused(served) => all.add(served),
                Accepted::Session(session) => {
                    open += 1;
                    hand_over(sessions, *session)?;
                }
            }
        } else {
            std::thread::sleep(PATIENCE);
        }
        while let Ok((mut session, state)) = sessions.back.try_recv() {
            let result = match state {
                SessionState::Over(result) => result,
                SessionState::Going | SessionState::NeedsBuffer => match session.enlarge() {
                    Ok(()) => {
                        hand_over(sessions, session)?;
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            open -= 1;
            let ended = result.map_or_else(|error| error.to_string(), |()| "closed".into());
            all.add(Served { ended, ..session.served });
        }
    }
    Ok(all.reported)
}

fn hand_over(sessions: &Sessions, session: Session) -> Result<(), BenchError> {
    let stopped = |_| BenchError::Setup("a core of the server has stopped".into());
    sessions.give[usize::from(session.core)].send(session).map_err(stopped)
}

/// How the sessions of clients ended.
struct Outcomes {
    /// Clients that have gone.
    count: usize,
    /// Those for the report.
    reported: Vec<Served>,
    /// Clients that the report has room for.
    room: usize,
}

impl Outcomes {
    fn new(reports: bool) -> Self {
        Self { count: 0, reported: Vec::new(), room: if reports { REPORTED } else { 0 } }
    }

    fn add(&mut self, served: Served) {
        say!("{served}");
        self.count += 1;
        if self.reported.len() < self.room {
            self.reported.push(served);
        } else if self.room > 0 && self.count == self.room + 1 {
            note!("warpline-bench: the report has the first {REPORTED} clients, no more");
        }
    }
}

/// The outcome of waiting for a client.
enum Accepted {
    Nobody,
    /// A client that was rejected.
    Refused(Served),
    Session(Box<Session>),
}

fn accept(device: &Device, listener: &Listener, args: &Ping) -> Result<Accepted, BenchError> {
    let request = match listener.accept(PATIENCE) {
        Ok(request) => request,
        Err(AcceptError::TimedOut) => return Ok(Accepted::Nobody),
        Err(error @ AcceptError::Startup { .. }) => {
            note!("warpline-bench: {error}");
            return Ok(Accepted::Nobody);
        }
        Err(error) => return Err(BenchError::Setup(error.to_string())),
    };
    let served = Served::new(&request);
    if args.reject {
        let rejected = request.reject(&args.private_data());
        let ended = rejected.map_or_else(|error| error.to_string(), |()| "rejected".into());
        return Ok(Accepted::Refused(Served { ended, ..served }));
    }
    match start(device, request, args, served.clone()) {
        Ok(session) => Ok(Accepted::Session(Box::new(session))),
        Err(error) => Ok(Accepted::Refused(Served { ended: error.to_string(), ..served })),
    }
}

/// Accepts a client; where that fails, it is rejected.
fn start(
    device: &Device,
    request: ConnectionRequest,
    args: &Ping,
    served: Served,
) -> Result<Session, BenchError> {
    let lane = Lane::new(device, DEPTH, true, args.device.timeout())?;
    let (core, buffer) = (request.core(), buffer(&lane, args.size)?);
    let accepted = request.accept(&lane.qp, &args.private_data());
    let accepted = accepted.map_err(|error| BenchError::Setup(error.to_string()))?;
    let served = Served { agreed: accepted.depths.into(), ..served };
    note!("{}: connected", served.remote);
    let (exchange, limit) = (Server::default(), args.count);
    Ok(Session { lane, core, buffer, exchange, too_large: None, limit, closing: false, served })
}

#[cfg(test)]
mod tests {
    use super::super::report::Depths;
    use super::*;

    #[test]
    fn clients_are_counted_and_some_are_kept() {
        let served = Served {
            remote: ([198, 18, 0, 1], 7).into(),
            core: 0,
            revision: 2,
            asked: None,
            agreed: Depths::default(),
            pings: 1,
            bytes: 64,
            ended: "closed".into(),
        };
        for (reports, kept) in [(false, 0), (true, REPORTED)] {
            let mut outcomes = Outcomes::new(reports);
            (0..REPORTED + 2).for_each(|_| outcomes.add(served.clone()));
            assert_eq!((outcomes.count, outcomes.reported.len()), (REPORTED + 2, kept));
        }
    }
}
