//! Tests of how connections agree on the TCP RDMA option (draft-csapuntz-tcprdma-00), and of segments whose
//! option does not count. The peer is made of frames.

use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer, Sent};
use crate::common::{PORT, address};
use warpline_dataplane::core::Config;
use warpline_dataplane::ring::{Command, ConnectionId, Event};
use warpline_dataplane::tcp::Behaviour;
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::checksum;
use warpline_dataplane::wire::ipv4::Protocol;
use warpline_dataplane::wire::tcp::{self, Flags, Header, SeqNumber};
use warpline_dataplane::wire::tcp_rdma::{NfsRid, RdmaOption, Transfer};

const ACK: Flags = Flags::ACK;
const OFFER: Option<RdmaOption> = Some(RdmaOption::Permitted);
const ALIGNED: Option<RdmaOption> = Some(RdmaOption::Aligned { message_aligned: true, unsolicited: false });

/// An option that describes `data_octets` at the front of a payload.
fn transfer(data_octets: u16) -> RdmaOption {
    RdmaOption::Transfer(Transfer {
        rid: NfsRid::of_one_operation(7).into(),
        message_aligned: true,
        unsolicited: true,
        buffer_offset: 0,
        data_offset: 0,
        data_octets,
        total_octets: Some(u32::from(data_octets)),
    })
}

fn behaviour(rdma_option: bool) -> Behaviour {
    Behaviour { rdma_option, ..Behaviour::default() }
}

fn with_option(mut header: Header, rdma: Option<RdmaOption>) -> Header {
    header.options.rdma = rdma;
    header
}

/// The core's SYN.
fn syn(peer: &mut RawPeer, tcp: Option<Behaviour>) -> Sent {
    let remote = (address(2), PEER_PORT).into();
    peer.command(Command::Connect {
        token: 1,
        local: None,
        remote,
        timeout_ns: SECOND,
        tcp,
        octets: Box::default(),
    });
    peer.settle();
    peer.expect_one()
}

/// The core's answer to a SYN with this option.
fn syn_ack(peer: &mut RawPeer, tcp: Option<Behaviour>, rdma: Option<RdmaOption>) -> Sent {
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp });
    let syn = with_option(peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), rdma);
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    peer.expect_one()
}

/// Completes a handshake whose SYN-ACK the core has sent.
fn accepted(peer: &mut RawPeer, syn_ack: &Sent) -> ConnectionId {
    peer.send(ACK, PEER_ISS + 1, syn_ack.header.seq + 1, &[]);
    match peer.events.pop() {
        Some(Event::Accepted { connection, .. }) => connection,
        event => panic!("not accepted: {event:?}"),
    }
}

fn negotiated(peer: &RawPeer, connection: ConnectionId) -> bool {
    peer.core.tcp(connection).expect("the connection is there").rdma_option().is_agreed()
}

/// off unless the user has turned it on, and in use only if both SYNs have the form of two octets.
// Requirements: TRO-3.2-01
#[test]
fn both_syns_offer_it() {
    for (tcp, is_on) in [(None, false), (Some(behaviour(false)), false), (Some(behaviour(true)), true)] {
        let offer = if is_on { OFFER } else { None };
        assert_eq!(syn(&mut RawPeer::new(), tcp).header.options.rdma, offer);
        for (theirs, offered) in [(None, false), (OFFER, true), (ALIGNED, false), (Some(transfer(0)), false)]
        {
            let peer = &mut RawPeer::new();
            let answer = syn_ack(peer, tcp, theirs);
            assert_eq!(answer.header.options.rdma, if offered { offer } else { None }, "{theirs:?}");
            let connection = accepted(peer, &answer);
            assert_eq!(negotiated(peer, connection), is_on && offered, "{theirs:?}");

            let peer = &mut RawPeer::new();
            let next = syn(peer, tcp).header.seq + 1;
            let answer = with_option(peer.header(Flags::SYN | ACK, PEER_ISS, next), theirs);
            peer.inject(&RawPeer::segment(&answer, &[]));
            peer.settle();
            let Some(Event::Connected { connection, .. }) = peer.events.pop() else {
                panic!("not connected: {:?}", peer.events)
            };
            assert_eq!(negotiated(peer, connection), is_on && offered, "{theirs:?}");
        }
    }
}

/// The kind is the device's: it offers its own, and does not take that of the draft.
// Requirements: TRO-3.1-01
#[test]
fn the_kind_is_configurable() {
    const KIND: u8 = 253;
    let config = Config { rdma_option_kind: KIND, tcp: behaviour(true), ..RawPeer::config() };
    for (kind, offered) in [(KIND, true), (25, false)] {
        let peer = &mut RawPeer::with(config.clone(), 1500);
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        let syn = with_option(peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), OFFER);
        let mut segment = vec![0; syn.header_len()];
        syn.emit_with(&mut segment, kind);
        let mut sum =
            checksum::ipv4_pseudo_header(address(2), address(1), Protocol::TCP.0, segment.len() as u16);
        sum.add(&segment);
        tcp::set_checksum(&mut segment, sum.finish());
        peer.inject(&RawPeer::packet(Protocol::TCP, &segment));
        peer.settle();
        let answer = peer.expect_one();
        // The peer of the tests parses options of the draft's kind.
        assert_eq!(answer.header.options.rdma, None);
        let connection = accepted(peer, &answer);
        assert_eq!(negotiated(peer, connection), offered);
    }
}

/// A SYN cookie does not store that the SYN offered it.
// Requirements: TRO-3.2-01
#[test]
fn connections_of_cookies_go_without() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: Some(behaviour(true)) });
    // The peer has its share of the backlog: the next SYNs get cookies.
    for port in 100..112 {
        let syn = peer.header(Flags::SYN, PEER_ISS, SeqNumber(0));
        peer.inject(&RawPeer::segment(&Header { source_port: port, ..syn }, &[]));
        peer.settle();
    }
    let cookies = peer.core.statistics().syn_cookies_sent;
    assert!(cookies > 0);
    peer.sent.clear();
    let syn = with_option(peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), OFFER);
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    let answer = peer.expect_one();
    assert_eq!(peer.core.statistics().syn_cookies_sent, cookies + 1);
    assert_eq!(answer.header.options.rdma, None);
    let ack = with_option(peer.header(ACK, PEER_ISS + 1, answer.header.seq + 1), OFFER);
    peer.inject(&RawPeer::segment(&ack, &[]));
    peer.settle();
    let Some(Event::Accepted { connection, .. }) = peer.events.pop() else {
        panic!("not accepted: {:?}", peer.events)
    };
    assert!(!negotiated(&peer, connection));
}

/// Options that do not count change nothing: the data of their segments is taken as that of others, whether
/// the ends have agreed on the option or not.
// Requirements: TRO-3.1-01, TRO-3.1.2-01, TRO-3.1.3-01
#[test]
fn data_arrives_whatever_its_option_is() {
    for is_on in [false, true] {
        let peer = &mut RawPeer::new();
        let answer = syn_ack(peer, Some(behaviour(is_on)), OFFER);
        let connection = accepted(peer, &answer);
        assert_eq!(negotiated(peer, connection), is_on);
        let (mut seq, ack) = (PEER_ISS + 1, answer.header.seq + 1);
        let payload = [0x5a; 100];
        // As many octets as there are, one more, the form of SYNs, and a short one.
        for rdma in [Some(transfer(100)), Some(transfer(101)), OFFER, ALIGNED, None] {
            let header = with_option(peer.header(ACK | Flags::PSH, seq, ack), rdma);
            peer.inject(&RawPeer::segment(&header, &payload));
            peer.settle();
            seq += 100;
            assert_eq!(peer.expect_one().header.ack, seq, "{rdma:?}");
        }
        // Kind 25 of an undefined length, and a NOP after it.
        let header = peer.header(ACK | Flags::PSH, seq, ack);
        let mut frame = RawPeer::segment(&with_option(header, Some(transfer(100))), &payload);
        let at = frame.windows(2).position(|octets| octets == [25, 20]).expect("the option");
        frame[at + 1] = 19;
        frame[at + 19] = 1;
        set_checksum(&mut frame);
        peer.inject(&frame);
        peer.settle();
        seq += 100;
        assert_eq!(peer.expect_one().header.ack, seq);
    }
}

/// Computes the TCP checksum of a frame anew.
fn set_checksum(frame: &mut [u8]) {
    let segment = &mut frame[34..];
    tcp::set_checksum(segment, 0);
    let mut sum = checksum::ipv4_pseudo_header(address(2), address(1), Protocol::TCP.0, segment.len() as u16);
    sum.add(segment);
    tcp::set_checksum(segment, sum.finish());
}

/// A RST resets, and a SYN is challenged, whatever option they have.
// Requirements: TRO-3.2-01
#[test]
fn transfers_on_syn_and_rst_are_ignored() {
    let peer = &mut RawPeer::new();
    let answer = syn_ack(peer, Some(behaviour(true)), OFFER);
    let connection = accepted(peer, &answer);
    assert!(negotiated(peer, connection));
    let (seq, ack) = (PEER_ISS + 1, answer.header.seq + 1);
    let syn = with_option(peer.header(Flags::SYN | ACK, seq, ack), Some(transfer(50)));
    peer.inject(&RawPeer::segment(&syn, &[1; 50]));
    peer.settle();
    let challenge = peer.expect_one().header;
    assert_eq!((challenge.flags, challenge.ack), (ACK, seq), "RFC 5961 §4: nothing of it is taken");
    assert!(negotiated(peer, connection), "the agreement stays");
    let rst = with_option(peer.header(Flags::RST, seq, ack), Some(transfer(50)));
    peer.inject(&RawPeer::segment(&rst, &[1; 50]));
    peer.settle();
    peer.expect_nothing();
    assert!(peer.core.tcp(connection).is_none(), "it is reset");
}
