//! Tests of TIME-WAIT on the wire (RFC 9293 §3.6.1, RFC 1337, RFC 6191), and of the local ports in it (RFC
//! 6056).

use std::net::SocketAddr;

use crate::common::PORT;
use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer};
use warpline_dataplane::core::Config;
use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::limits;
use warpline_dataplane::ring::{Command, ConnectError, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

const ACK: Flags = Flags::ACK;

fn fin() -> Flags {
    Flags::FIN | ACK
}

/// A core whose connection with the peer is in TIME-WAIT, and its next sequence number. The peer's is
/// `PEER_ISS + 2`.
fn waiting() -> (RawPeer, SeqNumber) {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    close(&mut peer, next);
    (peer, next + 1)
}

/// The core closes first, then the peer.
fn close(peer: &mut RawPeer, next: SeqNumber) {
    let connection = peer.accepted.unwrap();
    peer.command(Command::Close { connection });
    peer.settle();
    assert_eq!(peer.expect_one().header.flags, fin());
    peer.send(ACK, PEER_ISS + 1, next + 1, &[]);
    peer.send(fin(), PEER_ISS + 1, next + 1, &[]);
    let ack = peer.expect_one().header;
    assert_eq!((ack.seq, ack.ack), (next + 1, PEER_ISS + 2));
    assert!(matches!(peer.events.pop(), Some(Event::Closed { .. })));
}

/// A connection in TIME-WAIT occupies no connection slot, and the table is bounded.
#[test]
fn it_takes_no_place_of_a_connection() {
    let (mut peer, _) = waiting();
    assert_eq!((peer.core.usage().connections, peer.core.usage().time_waits), (0, 1));
    peer.pass_s(limits::LINGER_NS / SECOND);
    peer.send(ACK, PEER_ISS + 2, SeqNumber(7), &[]);
    assert_eq!(peer.expect_one().header.flags, Flags::RST, "nothing is left of it");
    assert_eq!(peer.core.usage().time_waits, 0);
}

/// RFC 9293 §3.10.7.4: each retransmission of the peer's FIN is acknowledged, and restarts the wait.
#[test]
fn a_repeated_fin_is_acknowledged_and_prolongs() {
    let (mut peer, next) = waiting();
    for _ in 0..3 {
        peer.pass_s(40);
        peer.send(fin(), PEER_ISS + 1, next, &[]);
        let ack = peer.expect_one().header;
        assert_eq!((ack.flags, ack.seq, ack.ack), (ACK, next, PEER_ISS + 2));
    }
}

/// RFC 1337: neither a RST nor an old duplicate ends the wait. An old duplicate and a retransmitted FIN are
/// still answered.
#[test]
fn it_is_not_assassinated() {
    let (mut peer, next) = waiting();
    for seq in [PEER_ISS + 2, PEER_ISS + 1, PEER_ISS + 100] {
        peer.send(Flags::RST, seq, SeqNumber(0), &[]);
        peer.expect_nothing();
    }
    // The old duplicate of figure 1 there: its answer would make the peer's new connection send a RST.
    peer.send(ACK, PEER_ISS - 50, next - 10, b"old");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 2);
    peer.send(Flags::RST, PEER_ISS + 2, SeqNumber(0), &[]);
    peer.send(fin(), PEER_ISS + 1, next, &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 2, "it is still there");
}

/// Two ends that disagree do not answer each other forever: an echo of our answer causes no other answer.
#[test]
fn acknowledgements_do_not_ping_pong() {
    let (mut peer, next) = waiting();
    peer.send(ACK, PEER_ISS + 100, next + 100, &[]);
    let mut answers = 0;
    for _ in 0..10_000 {
        answers += peer.sent.drain(..).count();
        peer.send(ACK, PEER_ISS + 100, next + 100, &[]);
    }
    // Ten thousand exchanges took a tenth of a second.
    assert_eq!(answers, 1);
    peer.pass_ms(limits::CHALLENGE_INTERVAL_NS / MILLISECOND);
    peer.send(ACK, PEER_ISS + 100, next + 100, &[]);
    assert_eq!(peer.sent.len(), 1);
    assert!(peer.core.statistics().dropped(DropCause::RateLimited) > 9000);
}

/// RFC 1122 §4.2.2.13: a SYN beyond the sequence numbers of the old connection opens a new one, whose own
/// numbers are beyond the old ones; any other SYN is answered as in RFC 5961 §4.
#[test]
fn a_new_syn_reopens() {
    let (mut peer, next) = waiting();
    peer.send(Flags::SYN, PEER_ISS + 1, SeqNumber(0), &[]);
    let challenge = peer.expect_one().header;
    assert_eq!((challenge.flags, challenge.ack), (ACK, PEER_ISS + 2));
    peer.send(Flags::SYN, PEER_ISS + 1000, SeqNumber(0), &[]);
    let answer = peer.expect_one().header;
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | ACK, PEER_ISS + 1001));
    assert!(answer.seq > next + 0xffff, "{:?} after {next:?}", answer.seq);
    peer.send(ACK, PEER_ISS + 1001, answer.seq + 1, &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Accepted { .. })));
    let (usage, reused) = (peer.core.usage(), peer.core.statistics().time_waits_reused);
    assert_eq!((usage.connections, usage.time_waits, reused), (1, 0, 1));
}

/// A SYN alone does not reopen: without a listener there is no connection.
#[test]
fn a_syn_to_a_port_nobody_listens_at_does_not_reopen() {
    let (mut peer, _) = waiting();
    peer.command(Command::Unlisten { address: None, port: PORT });
    peer.send(Flags::SYN, PEER_ISS + 1000, SeqNumber(0), &[]);
    assert!(peer.expect_one().header.flags.contains(Flags::RST));
    assert_eq!(peer.core.usage().time_waits, 1);
}

/// A core whose connection with the peer has ended, and stays in the table: control has not read its events,
/// so there is no room for ten octets that came with the peer's FIN.
fn waiting_in_the_connection_table() -> RawPeer {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options::default());
    let connection = peer.accepted.unwrap();
    peer.command(Command::Close { connection });
    peer.settle();
    peer.send(ACK, PEER_ISS + 1, next + 1, &[]);
    for _ in 0..limits::EVENTS / 2 {
        assert!(peer.rings.events.push(Event::QpDestroyed(crate::common::QP)).is_ok());
    }
    // Control reads no events while the last octets arrive.
    peer.inject(&RawPeer::segment(&peer.header(fin(), PEER_ISS + 1, next + 1), b"last words"));
    peer.now += 10_000;
    peer.core.poll_once(peer.now);
    assert_eq!(peer.core.usage().connections, 1);
    peer
}

/// Octets that control has not taken yet are not lost when the peer's FIN follows them.
#[test]
fn what_came_before_the_end_is_handed_up() {
    let mut peer = waiting_in_the_connection_table();
    peer.settle();
    peer.pass_ms(10);
    peer.events.retain(|event| !matches!(event, Event::QpDestroyed(_)));
    let events = &peer.events[..];
    assert!(
        matches!(events, [Event::Stream { octets, .. }, Event::PeerFinished { .. }, Event::Closed { .. }]
            if octets[..] == *b"last words"),
        "{events:?}"
    );
    assert_eq!((peer.core.usage().connections, peer.core.usage().time_waits), (0, 1));
}

/// RFC 1337 §3: nor does a RST end the wait of a connection that is still in the table, wherever it lies in
/// the window.
#[test]
fn a_rst_before_control_reads_does_not_end_it() {
    for beyond in [0, 1] {
        let mut peer = waiting_in_the_connection_table();
        let after_fin = PEER_ISS + 1 + 10 + 1;
        let reset = peer.header(Flags::RST, after_fin + beyond, SeqNumber(0));
        peer.sent.clear();
        peer.inject(&RawPeer::segment(&reset, &[]));
        peer.now += 10_000;
        peer.core.poll_once(peer.now);
        peer.settle();
        peer.pass_ms(10);
        assert_eq!((peer.core.usage().connections, peer.core.usage().time_waits), (0, 1), "{beyond}");
        let challenged = peer.sent.iter().filter(|sent| sent.header.flags == ACK).count();
        assert_eq!(challenged, 1, "the acknowledgement of the FIN alone, {beyond}");
    }
}

/// Has the core open a connection to the peer.
fn begin_to_open(peer: &mut RawPeer, token: u64) {
    begin_to_open_from(peer, token, None, None);
}

/// The same from a local port, with a behaviour of TCP.
fn begin_to_open_from(peer: &mut RawPeer, token: u64, port: Option<u16>, tcp: Option<Behaviour>) {
    peer.command(Command::Connect {
        token,
        local: port.map(|port| SocketAddr::new(crate::common::address(1).into(), port)),
        remote: SocketAddr::new(crate::common::address(2).into(), PEER_PORT),
        timeout_ns: 100 * SECOND,
        tcp,
        octets: Box::default(),
    });
}

/// Opens a connection to the peer and returns our SYN; `None` if no port is left.
fn open(peer: &mut RawPeer, token: u64) -> Option<Header> {
    begin_to_open(peer, token);
    peer.settle();
    match peer.events.pop() {
        Some(Event::ConnectFailed { error: ConnectError::NoPort, .. }) => None,
        None => Some(peer.expect_one().header),
        event => panic!("{event:?}"),
    }
}

/// RFC 6056: no port is used twice at once, none that has a listener, each once; then the open fails.
#[test]
fn ports_are_used_once_and_their_end_is_told() {
    let mut peer = RawPeer::with(Config { ports: (50_000, 50_009), ..RawPeer::config() }, 1500);
    peer.command(Command::Listen { address: None, port: 50_004, backlog: 1, tcp: None });
    let mut ports: Vec<u16> = (0..9).map(|token| open(&mut peer, token).unwrap().source_port).collect();
    ports.sort_unstable();
    let expected: Vec<u16> = (50_000..50_010).filter(|port| *port != 50_004).collect();
    assert_eq!(ports, expected);
    assert_eq!(open(&mut peer, 9), None);
}

/// A connection from the only port, closed by the core first; with timestamps or without. Returns its last
/// sequence number.
fn opened_and_closed(clock: Option<u32>) -> (RawPeer, SeqNumber) {
    opened_and_closed_with(clock, Tables::default())
}

/// The same in a core with tables of other sizes.
fn opened_and_closed_with(clock: Option<u32>, tables: Tables) -> (RawPeer, SeqNumber) {
    let config = Config { ports: (50_000, 50_000), ..RawPeer::config() };
    let mut peer = RawPeer::with_tables(config, 1500, tables);
    let syn = open(&mut peer, 1).unwrap();
    let last = complete_and_close(&mut peer, &syn, clock);
    assert_eq!(peer.core.usage().time_waits, 1);
    (peer, last)
}

/// Completes the handshake that our `syn` begins, and has the core close the connection first. Returns its
/// last sequence number.
fn complete_and_close(peer: &mut RawPeer, syn: &Header, clock: Option<u32>) -> SeqNumber {
    let to_core = |header: Header| Header { destination_port: syn.source_port, ..header };
    let options = |ours: &Header| Options {
        timestamps: clock.map(|value| Timestamps {
            value,
            echo: ours.options.timestamps.map_or(0, |timestamps| timestamps.value),
        }),
        ..Options::default()
    };
    let next = syn.seq + 1;
    let answer = Header { options: options(syn), ..peer.header(Flags::SYN | ACK, PEER_ISS, next) };
    peer.inject(&RawPeer::segment(&to_core(answer), &[]));
    peer.settle();
    let ack = peer.expect_one().header;
    let Some(Event::Connected { connection, .. }) = peer.events.pop() else { panic!("not connected") };
    peer.command(Command::Close { connection });
    peer.settle();
    peer.expect_one();
    let last = Header { options: options(&ack), ..peer.header(fin(), PEER_ISS + 1, next + 1) };
    peer.inject(&RawPeer::segment(&to_core(last), &[]));
    peer.settle();
    assert!(matches!(peer.events.pop(), Some(Event::Closed { .. })), "{:?}", peer.sent);
    peer.sent.clear();
    peer.events.clear();
    next + 1
}

/// Once a search has found all ports to a peer in TIME-WAIT, the next connections take the one that has
/// rested longest without a search, for a while.
#[test]
fn ports_in_time_wait_are_not_searched_each_time() {
    const PORTS: u16 = 1024;
    let config = Config { ports: (50_000, 50_000 + PORTS - 1), ..RawPeer::config() };
    let mut peer = RawPeer::with(config, 1500);
    for token in 0..u64::from(PORTS) {
        let syn = open(&mut peer, token).unwrap();
        complete_and_close(&mut peer, &syn, Some(100));
    }
    assert_eq!(peer.core.usage().time_waits, usize::from(PORTS));
    peer.pass_ms(limits::TIME_WAIT_REST_NS / MILLISECOND);
    // Returns how many polls the search took, and what it found.
    let search = |peer: &mut RawPeer, token| {
        let before = peer.core.usage().connections;
        begin_to_open(peer, token);
        let mut polls = 0;
        while peer.core.usage().connections == before {
            peer.poll();
            polls += 1;
        }
        peer.settle();
        (polls, peer.expect_one().header.source_port)
    };
    let (searched, first) = search(&mut peer, 10_000);
    assert!(searched >= u32::from(PORTS) / limits::PORTS_TRIED_TOGETHER, "{searched} polls");
    let (found, second) = search(&mut peer, 10_001);
    assert_eq!((found, second - 50_000), (1, (first - 50_000 + 1) % PORTS));
    peer.pass_ms(limits::PORTS_EXHAUSTED_NS / MILLISECOND);
    peer.sent.clear();
    let (again, _) = search(&mut peer, 10_002);
    assert!(again > 1, "others may be unused by now");
    assert_eq!(peer.core.statistics().time_waits_reused, 3);
}

/// RFC 6191 §2, from the side that opens: with timestamps a port in TIME-WAIT is used again when no other is
/// left, after a pause, and beyond the numbers of the old connection.
#[test]
fn our_own_ports_are_used_again_under_timestamps() {
    let (mut peer, last) = opened_and_closed(Some(100));
    assert_eq!(open(&mut peer, 2), None, "it has not rested");
    peer.pass_ms(limits::TIME_WAIT_REST_NS / MILLISECOND);
    let syn = open(&mut peer, 3).unwrap();
    assert_eq!((syn.flags, syn.source_port), (Flags::SYN, 50_000));
    assert!(syn.seq > last + 0xffff);
    assert_eq!((peer.core.statistics().time_waits_reused, peer.core.usage().time_waits), (1, 0));
}

/// RFC 6191 §2: a port whose last connection had timestamps waits its time if the new one is to have none,
/// whether the core looks for a port or is given one.
#[test]
fn our_own_ports_wait_for_a_connection_without_timestamps() {
    let (mut peer, last) = opened_and_closed(Some(100));
    peer.pass_ms(limits::TIME_WAIT_REST_NS / MILLISECOND);
    let without = Some(Behaviour { timestamps: false, ..Behaviour::default() });
    for (token, port) in [(2, None), (3, Some(50_000))] {
        begin_to_open_from(&mut peer, token, port, without);
        peer.settle();
        let refused = peer.events.pop();
        assert!(
            matches!(refused, Some(Event::ConnectFailed { error: ConnectError::NoPort, .. })),
            "{port:?}: {refused:?}"
        );
    }
    assert_eq!((peer.core.statistics().time_waits_reused, peer.core.usage().time_waits), (0, 1));
    begin_to_open_from(&mut peer, 4, Some(50_000), None);
    peer.settle();
    let syn = peer.expect_one().header;
    assert!(syn.flags == Flags::SYN && syn.seq > last + 0xffff, "with timestamps it is free");
}

/// An open that finds the connection table full leaves the old connection in TIME-WAIT: it still answers old
/// segments.
#[test]
fn an_open_without_room_ends_no_wait() {
    let tables = Tables { connections: 1, ..Tables::default() };
    let (mut peer, last) = opened_and_closed_with(Some(100), tables);
    peer.pass_ms(limits::TIME_WAIT_REST_NS / MILLISECOND);
    for (token, port) in [(2, PEER_PORT + 1), (3, PEER_PORT)] {
        let remote = SocketAddr::new(crate::common::address(2).into(), port);
        peer.command(Command::Connect {
            token,
            local: None,
            remote,
            timeout_ns: 100 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
    }
    peer.settle();
    assert_eq!(peer.expect_one().header.destination_port, PEER_PORT + 1, "it takes the only place");
    let refused = peer.events.pop();
    assert!(
        matches!(refused, Some(Event::ConnectFailed { token: 3, error: ConnectError::NoRoom })),
        "{refused:?}"
    );
    assert_eq!((peer.core.usage().time_waits, peer.core.statistics().time_waits_reused), (1, 0));
    peer.send(fin(), PEER_ISS + 1, last, &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 2);
}

/// Without timestamps an old segment could pass for one of the new connection: the port waits its time.
#[test]
fn our_own_ports_wait_without_timestamps() {
    let (mut peer, _) = opened_and_closed(None);
    peer.pass_s(limits::LINGER_NS / SECOND - 1);
    assert_eq!(open(&mut peer, 2), None);
    peer.pass_s(1);
    assert!(open(&mut peer, 3).is_some());
}

/// RFC 7323 §3.2: an answer to an old segment carries timestamps like any other.
#[test]
fn its_answers_carry_timestamps() {
    let (mut peer, last) = opened_and_closed(Some(100));
    let options = Options { timestamps: Some(Timestamps { value: 120, echo: 0 }), ..Options::default() };
    let again = Header { options, ..peer.header(fin(), PEER_ISS + 1, last) };
    peer.inject(&RawPeer::segment(&again, &[]));
    peer.settle();
    let answer = peer.expect_one().header;
    assert_eq!((answer.seq, answer.ack), (last, PEER_ISS + 2));
    assert_eq!(answer.options.timestamps.map(|timestamps| timestamps.echo), Some(100));
}
