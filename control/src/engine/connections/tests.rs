//! Tests with many connections: no step looks at others than its own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warpline_dataplane::qp::async_event::AsyncEvents;
use warpline_dataplane::ring::{Command, ConnectionId, Event, FlowKey, ListenAddress, Rings, Scope};
use warpline_dataplane::time::Instant;

use crate::engine::interface::reply::Reply;
use crate::engine::interface::request::{Request, StreamRequest, arrival_queue};
use crate::engine::names::KeyedSequence;
use crate::engine::{Engine, EngineConfig};
use crate::vocabulary::capacity::Capacity;
use crate::vocabulary::device::CrcPolicy;
use crate::vocabulary::listen::ListenConfig;
use crate::vocabulary::quota::Quotas;
use crate::vocabulary::stream::StreamConfig;

const CONNECTIONS: u64 = 100_000;
const PORT: u16 = 7;
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));

/// Returns an engine that listens.
fn engine() -> Engine {
    let mut engine = Engine::new(EngineConfig {
        crc: CrcPolicy::Always,
        capacity: Capacity::default(),
        quotas: Quotas { connections_per_peer: usize::MAX, ..Quotas::default() },
        doorbells: Rings::new().doorbells,
        events: Arc::new(AsyncEvents::new(None)),
        random: KeyedSequence::new([1; 16]),
    });
    let (at, config) = (ListenAddress::everywhere(PORT), ListenConfig::default());
    let (reply, _) = Reply::new();
    let arrivals = arrival_queue(&config);
    engine.on_request(Instant::ZERO, Request::Listen { at, config, arrivals, notify: None, reply });
    deliver(&mut engine);
    engine
}

/// Returns the commands of the engine, and delivers its replies.
fn deliver(engine: &mut Engine) -> Vec<Command> {
    let commands = std::iter::from_fn(|| engine.next_command()).collect();
    while let Some(deliver) = engine.next_reply() {
        deliver();
    }
    commands
}

/// Returns the event of the peer number `number`, which has connected.
fn accepted(number: u64) -> Event {
    let remote = IpAddr::V4(Ipv4Addr::from_bits(0xc612_0100 + (number >> 16) as u32));
    let flow = FlowKey { local: OURS, remote, remote_port: number as u16, local_port: PORT };
    Event::Accepted { connection: ConnectionId::from_bits(number), flow, scope: Scope::All }
}

/// A deadline comes alone, one after the other, and what is due is found without a look at what is not. The
/// steps of this test are 10^5; with a look at all connections they were 10^10.
#[test]
fn what_is_due_is_found_among_a_hundred_thousand_connections() {
    let mut engine = engine();
    let mut waiting = Vec::new();
    for number in 0..CONNECTIONS {
        let now = Instant::from_nanos(number + 1);
        engine.on_event(now, accepted(number));
        let (reply, receiver) = Reply::new();
        let connect =
            StreamRequest::Connect { remote: (OURS, PORT).into(), config: StreamConfig::default(), reply };
        engine.on_request(now, Request::Stream(connect));
        waiting.push(receiver);
    }
    let opened = deliver(&mut engine).len() as u64;
    assert_eq!(opened, CONNECTIONS);
    let (mut aborted, mut given_up) = (0, 0);
    while engine.next_deadline() != Instant::NEVER {
        let now = engine.next_deadline();
        engine.on_time(now);
        for command in deliver(&mut engine) {
            match command {
                Command::Abort { connection } => {
                    assert_eq!(connection.to_bits(), aborted, "in the order of their deadlines");
                    aborted += 1;
                }
                Command::GiveUp { token } => {
                    assert_eq!(token, given_up, "in the order of their deadlines");
                    given_up += 1;
                }
                _ => panic!("another command"),
            }
        }
    }
    assert_eq!((aborted, given_up), (CONNECTIONS, CONNECTIONS));
    assert!(waiting.iter().all(|receiver| receiver.try_recv().is_ok()), "each has its reply");
}
