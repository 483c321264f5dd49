//! Tests of ICMP errors about our segments (RFC 1191, RFC 5927, RFC 5044 §9.1): plausible errors are
//! processed, impossible ones are ignored.

use crate::common::address;
use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer, Sent};
use warpline_dataplane::limits;
use warpline_dataplane::ring::{AfterStream, Command, ConnectError, ConnectionId, Event};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};

const ACK: Flags = Flags::ACK;
const PORT_UNREACHABLE: u8 = 3;
const NET_UNREACHABLE: u8 = 0;
const TOO_BIG: u8 = 4;

/// A segment of the core as a router saw it.
#[derive(Clone)]
struct Quoted {
    header: Header,
    packet_octets: u16,
    protocol: Protocol,
}

impl Quoted {
    fn of(sent: &Sent) -> Self {
        let packet_octets = (ipv4::Header::LEN + sent.header.header_len() + sent.payload.len()) as u16;
        Self { header: sent.header.clone(), packet_octets, protocol: Protocol::TCP }
    }
}

/// Destination unreachable, from a router that quotes the IP header and eight octets more.
fn refuse(peer: &mut RawPeer, quoted: &Quoted, code: u8, next_hop_mtu: u16) {
    let mut message = vec![3, code, 0, 0, 0, 0];
    message.extend(next_hop_mtu.to_be_bytes());
    let mut original = [0; ipv4::Header::LEN];
    ipv4::Header {
        source: address(1),
        destination: address(2),
        protocol: quoted.protocol,
        ttl: 3,
        total_len: quoted.packet_octets,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        identification: 77,
        ecn: 0,
        dscp: 0,
    }
    .emit(&mut original);
    message.extend(original);
    message.extend(quoted.header.source_port.to_be_bytes());
    message.extend(quoted.header.destination_port.to_be_bytes());
    message.extend(quoted.header.seq.0.to_be_bytes());
    let sum = checksum::sum(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    peer.inject(&RawPeer::packet(Protocol::ICMP, &message));
    peer.settle();
}

fn stream(peer: &mut RawPeer, connection: ConnectionId, octets: &[u8]) {
    peer.command(Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay });
    peer.settle();
}

/// A core that has sent four full segments of a stream, which are in `sent`.
fn sending() -> (RawPeer, SeqNumber, Vec<u8>) {
    let mut peer = RawPeer::new();
    let next = peer.accept(Options { mss: Some(1460), ..Options::default() });
    let octets: Vec<u8> = (0..4 * 1460).map(|n| (n % 251) as u8).collect();
    let connection = peer.accepted.unwrap();
    stream(&mut peer, connection, &octets);
    assert_eq!(peer.sent.iter().map(|sent| sent.payload.len()).collect::<Vec<_>>(), [1460; 4]);
    (peer, next, octets)
}

/// Takes the core's segments of up to `limit` octets, and acknowledges them, until all `octets` have arrived.
fn receive_all(peer: &mut RawPeer, start: SeqNumber, octets: &[u8], limit: usize) {
    let mut have = vec![None; octets.len()];
    for _ in 0..1000 {
        for sent in std::mem::take(&mut peer.sent) {
            assert!(sent.payload.len() <= limit, "{} octets, {limit} pass", sent.payload.len());
            let at = (sent.header.seq - start) as usize;
            for (place, octet) in have[at..].iter_mut().zip(sent.payload) {
                *place = Some(octet);
            }
        }
        let in_order = have.iter().position(Option::is_none).unwrap_or(octets.len());
        peer.send(ACK, PEER_ISS + 1, start + in_order as u32, &[]);
        if in_order == octets.len() {
            let have: Vec<u8> = have.into_iter().flatten().collect();
            assert_eq!(have, octets);
            return;
        }
        peer.pass_ms(5);
    }
    panic!("not all has come");
}

/// RFC 1191 §6.3: lost octets are retransmitted in segments that fit the path, without waiting for a timeout,
/// and nothing is lost.
#[test]
fn segments_shrink_to_the_path() {
    let (mut peer, next, octets) = sending();
    let first = Quoted::of(&peer.sent[0]);
    peer.sent.clear();
    let before = peer.now;
    refuse(&mut peer, &first, TOO_BIG, 1000);
    assert!(!peer.sent.is_empty(), "at once");
    assert!(peer.sent[0].at - before < SECOND / 10);
    receive_all(&mut peer, next, &octets, 960);
}

/// An old router puts 0: the next usual size below the packet's is taken (RFC 1191 §5, §7.1).
#[test]
fn a_router_that_tells_no_size_is_understood() {
    let (mut peer, next, octets) = sending();
    let first = Quoted::of(&peer.sent[0]);
    peer.sent.clear();
    refuse(&mut peer, &first, TOO_BIG, 0);
    receive_all(&mut peer, next, &octets, 1492 - 40);
}

/// RFC 5927 §7: of no connection, of nothing outstanding, or with a size that cannot be.
// Requirements: MPA-9.1-01
#[test]
fn what_cannot_be_true_changes_nothing() {
    let (mut peer, next, _) = sending();
    let first = Quoted::of(&peer.sent[0]);
    // The first two segments arrive.
    peer.sent.clear();
    peer.send(ACK, PEER_ISS + 1, next + 2920, &[]);
    let at = |seq: SeqNumber| Quoted { header: Header { seq, ..first.header.clone() }, ..first.clone() };
    let third = at(next + 2920);
    let ports = |source_port, destination_port| Quoted {
        header: Header { source_port, destination_port, ..third.header.clone() },
        ..third.clone()
    };
    let forged = [
        (at(next), 1000, "acknowledged already"),
        (at(next + 2919), 1000, "acknowledged already"),
        (at(next + 4 * 1460), 1000, "never sent"),
        (at(next + 1_000_000), 1000, "never sent"),
        (ports(third.header.source_port + 1, PEER_PORT), 1000, "another port of ours"),
        (ports(third.header.source_port, PEER_PORT + 1), 1000, "another port of the peer"),
        (third.clone(), 551, "less than any link"),
        (third.clone(), 68, "less than any link"),
        (third.clone(), 1500, "no less than the packet"),
        (third.clone(), 9000, "no less than the packet"),
        (Quoted { packet_octets: 9000, ..third.clone() }, 1500, "what is sent already"),
        (Quoted { protocol: Protocol(17), ..third.clone() }, 1000, "no TCP"),
    ];
    for (count, (quoted, mtu, why)) in forged.into_iter().enumerate() {
        refuse(&mut peer, &quoted, TOO_BIG, mtu);
        peer.expect_nothing();
        let refused = peer.core.statistics().dropped(DropCause::IcmpRefused);
        assert_eq!(refused, count as u64 + 1, "{why}");
    }
    refuse(&mut peer, &third, TOO_BIG, 1000);
    assert!(!peer.sent.is_empty(), "the same, true");
}

/// RFC 1191 §6.3: the next connection uses the stored path MTU, for ten minutes.
#[test]
fn the_path_is_remembered_for_a_while() {
    let (mut peer, next, octets) = sending();
    let first = Quoted::of(&peer.sent[0]);
    peer.sent.clear();
    refuse(&mut peer, &first, TOO_BIG, 1000);
    receive_all(&mut peer, next, &octets, 960);

    let largest_of_another = |peer: &mut RawPeer, port| {
        peer.events.clear();
        let connection = connect(peer, port);
        stream(peer, connection, &[7; 2920]);
        let largest = peer.sent.iter().map(|sent| sent.payload.len()).max();
        peer.command(Command::Abort { connection });
        peer.settle();
        peer.sent.clear();
        largest
    };
    assert_eq!(largest_of_another(&mut peer, 1), Some(960));
    peer.now += limits::PATH_MTU_RETRY_NS;
    assert_eq!(largest_of_another(&mut peer, 2), Some(1460));
}

/// A connection from the peer's port `port`.
fn connect(peer: &mut RawPeer, port: u16) -> ConnectionId {
    let options = Options { mss: Some(1460), ..Options::default() };
    let syn = Header { source_port: port, options, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    let answer = peer.sent.pop_back().unwrap();
    peer.sent.clear();
    let ack = Header { source_port: port, ..peer.header(ACK, PEER_ISS + 1, answer.header.seq + 1) };
    peer.inject(&RawPeer::segment(&ack, &[]));
    peer.settle();
    match peer.events.pop() {
        Some(Event::Accepted { connection, .. }) => connection,
        event => panic!("not accepted: {event:?}"),
    }
}

fn failure(peer: &mut RawPeer) -> Option<ConnectError> {
    match peer.events.pop() {
        Some(Event::ConnectFailed { error, .. }) => Some(error),
        None => None,
        event => panic!("{event:?}"),
    }
}

/// RFC 1122 §4.2.3.9: a hard error about our SYN ends the attempt, with its reason. An unreachable port
/// refuses it.
#[test]
fn a_hard_error_ends_an_attempt() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    let quoted = Quoted::of(&syn);
    let other = Quoted { header: Header { seq: syn.header.seq + 1, ..syn.header.clone() }, ..quoted.clone() };
    refuse(&mut peer, &other, PORT_UNREACHABLE, 0);
    assert_eq!(failure(&mut peer), None, "not about our SYN");
    refuse(&mut peer, &quoted, PORT_UNREACHABLE, 0);
    assert_eq!(failure(&mut peer), Some(ConnectError::Closed(CloseReason::Refused)));
    assert_eq!(peer.core.usage().connections, 0);
    peer.pass_s(5);
    peer.expect_nothing();
}

/// A soft error may be temporary: the attempt continues, and either succeeds or reports this reason in the
/// end.
#[test]
fn a_soft_error_is_the_reason_at_last() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    refuse(&mut peer, &Quoted::of(&syn), NET_UNREACHABLE, 0);
    assert_eq!(failure(&mut peer), None);
    peer.pass_s(300);
    assert!(peer.sent.len() > 3, "it goes on trying");
    assert_eq!(failure(&mut peer), Some(ConnectError::Unreachable));

    let mut peer = RawPeer::new();
    let syn = peer.connect();
    refuse(&mut peer, &Quoted::of(&syn), NET_UNREACHABLE, 0);
    peer.send(Flags::SYN | ACK, PEER_ISS, syn.header.seq + 1, &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Connected { .. })));
}

/// Without an ICMP error the reason is a timeout.
#[test]
fn silence_is_no_error() {
    let mut peer = RawPeer::new();
    peer.connect();
    peer.pass_s(300);
    assert_eq!(failure(&mut peer), Some(ConnectError::Closed(CloseReason::TimedOut)));
}

/// RFC 5927 §5.2: no ICMP error resets a connection that is open, however well it is forged.
#[test]
fn no_error_ends_a_connection() {
    let (mut peer, next, octets) = sending();
    let first = Quoted::of(&peer.sent[0]);
    for code in (0..=15).filter(|code| *code != TOO_BIG) {
        refuse(&mut peer, &first, code, 0);
    }
    assert_eq!(peer.core.statistics().dropped(DropCause::IcmpRefused), 15);
    assert!(peer.events.is_empty());
    receive_all(&mut peer, next, &octets, 1460);
}
