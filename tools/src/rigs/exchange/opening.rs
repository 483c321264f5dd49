//! How the connection is opened, and MPA started on it.

use std::thread;
use std::time::{Duration, Instant};

use warpline::{
    AcceptError, ConnectConfig, ConnectError, ConnectionRequest, Device, Direction, ListenConfig, Peer,
    QueuePair, ReadDepths, Revision, StreamConfig, TcpListenConfig, TcpStream, TcpStreamError,
    UnnegotiatedConfig,
};
use warpline_tools::interrupt;
use warpline_tools::output::note;

use super::arguments::{ExchangeArguments, Opening, Role};
use crate::failure::Failure;

/// The Initiator's last streaming message.
const HELLO: &[u8] = b"Hello";
/// The Responder's.
const HELLO_ACK: &[u8] = b"Hello Ack";
/// The message of each end after a rejection.
const STILL_OPEN: &[u8] = b"still open";

/// What the setup of the connection came to.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// Nothing is known of a peer that sends no startup frame.
    pub peer: Option<Peer>,
    /// Of DDP and RDMAP.
    pub version: u8,
    pub depths: ReadDepths,
}

/// Returns the bytes that both ends expect as Private Data and as streaming data: byte n is n modulo 251.
fn numbered(octets: usize) -> Vec<u8> {
    (0..octets).map(|index| (index % 251) as u8).collect()
}

/// Opens the connection, either way, and brings `qp` to Full Operation on it.
pub fn open(arguments: &ExchangeArguments, device: &Device, qp: &QueuePair) -> Result<Agreed, Failure> {
    let Opening { role, streaming, culley, .. } = arguments.opening;
    let opener = if arguments.connect.is_some() { Role::Initiator } else { Role::Responder };
    if streaming.is_some() || culley.is_some() || role.is_some_and(|role| role != opener) {
        let stream = open_stream(arguments, device)?;
        return start(arguments, &stream, qp);
    }
    match (arguments.remote()?, arguments.listen) {
        (Some(peer), _) => {
            note!("ready");
            let connected = qp.connect(peer, &connect_config(arguments))?;
            Ok(Agreed { peer: Some(connected.peer), version: connected.version, depths: connected.depths })
        }
        (None, port) => {
            let config = listen_config(arguments);
            let listener = device.listen(port.unwrap_or_default(), &config).map_err(Failure::local)?;
            note!("ready");
            answer(
                arguments,
                accept(arguments, &AcceptError::TimedOut, |patience| listener.accept(patience))?,
                qp,
            )
        }
    }
}

/// Waits for the other end by `wait`, which does so for the time it is given, until the other end comes, its
/// time is over or a signal comes. `timed_out` is what `wait` returns when it has not come.
fn accept<T, E: Into<Failure> + PartialEq>(
    arguments: &ExchangeArguments,
    timed_out: &E,
    wait: impl Fn(Duration) -> Result<T, E>,
) -> Result<T, Failure> {
    /// How often a signal is looked for.
    const LOOK: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + arguments.timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match wait(left.min(LOOK)) {
            Err(error) if error == *timed_out && interrupt::is_requested() => {
                return Err(Failure::local("interrupted"));
            }
            Err(error) if error == *timed_out && !left.is_zero() => {}
            accepted => return accepted.map_err(Into::into),
        }
    }
}

fn connect_config(arguments: &ExchangeArguments) -> ConnectConfig {
    let config = ConnectConfig {
        private_data: numbered(arguments.opening.private_data.into()),
        markers: arguments.markers.is_on(),
        timeout: arguments.startup_timeout,
        core: arguments.core,
        ..ConnectConfig::default()
    };
    arguments.setup.connect(Revision::One, config)
}

fn listen_config(arguments: &ExchangeArguments) -> ListenConfig {
    let (markers, startup_timeout) = (arguments.markers.is_on(), arguments.startup_timeout);
    arguments.setup.listen(ListenConfig { backlog: 1, markers, startup_timeout, ..ListenConfig::default() })
}

fn open_stream(arguments: &ExchangeArguments, device: &Device) -> Result<TcpStream, Failure> {
    match (arguments.remote()?, arguments.listen) {
        (Some(peer), _) => {
            note!("ready");
            let config = StreamConfig { timeout: arguments.startup_timeout, ..StreamConfig::default() };
            Ok(device.connect_stream(peer, &config)?)
        }
        (None, port) => {
            let config = TcpListenConfig { backlog: 1, ..TcpListenConfig::default() };
            let listener =
                device.listen_streams(port.unwrap_or_default(), &config).map_err(Failure::local)?;
            note!("ready");
            accept(arguments, &TcpStreamError::TimedOut, |patience| listener.accept(patience))
        }
    }
}

/// Starts MPA on a connection in streaming mode.
fn start(arguments: &ExchangeArguments, stream: &TcpStream, qp: &QueuePair) -> Result<Agreed, Failure> {
    let wait = arguments.startup_timeout;
    if let Some(octets) = arguments.opening.streaming {
        talk(stream, &numbered(octets), wait)?;
    }
    let delayed = arguments.opening.streaming.is_some();
    if arguments.initiator() {
        if delayed {
            stream.write_all(HELLO, wait)?;
            expect(stream, HELLO_ACK, wait)?;
        }
        if let Some(version) = arguments.opening.culley {
            return start_unnegotiated(arguments, stream, qp, version);
        }
        let connected = match stream.initiate(qp, &connect_config(arguments)) {
            Err(error @ ConnectError::Rejected { .. }) if delayed => {
                talk(stream, STILL_OPEN, wait)?;
                return Err(error.into());
            }
            other => other?,
        };
        return Ok(Agreed {
            peer: Some(connected.peer),
            version: connected.version,
            depths: connected.depths,
        });
    }
    if delayed {
        expect(stream, HELLO, wait)?;
    }
    let last_message = if delayed { HELLO_ACK } else { b"" };
    if let Some(version) = arguments.opening.culley {
        stream.write_all(last_message, wait)?;
        return start_unnegotiated(arguments, stream, qp, version);
    }
    let request = stream.respond(last_message, &listen_config(arguments))?;
    let agreed = answer(arguments, request, qp);
    if agreed.is_err() && arguments.opening.reject && delayed {
        talk(stream, STILL_OPEN, wait)?;
    }
    agreed
}

fn start_unnegotiated(
    arguments: &ExchangeArguments,
    stream: &TcpStream,
    qp: &QueuePair,
    version: u8,
) -> Result<Agreed, Failure> {
    let depths = arguments.setup.depths();
    stream.start_unnegotiated(qp, Direction::Both, &UnnegotiatedConfig { version, depths })?;
    Ok(Agreed { peer: None, version, depths })
}

fn answer(
    arguments: &ExchangeArguments,
    request: ConnectionRequest,
    qp: &QueuePair,
) -> Result<Agreed, Failure> {
    let peer = Some(Peer { revision: request.revision(), depths: request.peer_depths() });
    let private_data = numbered(arguments.opening.private_data.into());
    if arguments.opening.reject {
        request.reject(&private_data)?;
        return Err(Failure::of("we rejected the connection", "startup:rejected"));
    }
    let accepted = request.accept(qp, &private_data)?;
    Ok(Agreed { peer, version: accepted.version, depths: accepted.depths })
}

/// Sends `octets` and receives the same from the other end, both at the same time.
fn talk(stream: &TcpStream, octets: &[u8], wait: Duration) -> Result<(), Failure> {
    thread::scope(|scope| {
        let sending = scope.spawn(|| stream.write_all(octets, wait));
        expect(stream, octets, wait)?;
        Ok(sending.join().expect("it does not panic")?)
    })
}

fn expect(stream: &TcpStream, octets: &[u8], wait: Duration) -> Result<(), Failure> {
    let mut received = vec![0; octets.len()];
    stream.read_exact(&mut received, wait)?;
    if received == octets { Ok(()) } else { Err(Failure::rule("other streaming octets than agreed")) }
}
