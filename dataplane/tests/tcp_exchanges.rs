//! TCP, segment by segment, against a peer made of frames. Each test reads like the exchange it is.

mod common;

use common::raw::{OUR_MAC, PEER_ISS, PEER_MAC, RawPeer};
use common::{PORT, address};
use warpline_dataplane::core::ring::{AfterStream, Command, ConnectError, ConnectionId, Event};
use warpline_dataplane::core::statistics::DropCause;
use warpline_dataplane::limits;
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::{MILLISECOND, SECOND};
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber};
use warpline_dataplane::wire::{arp, checksum, icmp};

const ACK: Flags = Flags::ACK;

fn synack() -> Flags {
    Flags::SYN | Flags::ACK
}

fn options(mss: u16, window_scale: Option<u8>) -> Options {
    Options { mss: Some(mss), window_scale, ..Options::default() }
}

/// A core with a connection the peer opened; its next sequence number, and the connection's name.
fn accepted(options: Options) -> (RawPeer, SeqNumber, ConnectionId) {
    let mut peer = RawPeer::new();
    let next = peer.accept(options);
    let connection = peer.accepted.unwrap();
    (peer, next, connection)
}

fn stream(peer: &mut RawPeer, connection: ConnectionId, octets: &[u8]) {
    peer.command(Command::Stream { connection, octets: octets.into(), then: AfterStream::Stay });
    peer.settle();
}

fn streamed(peer: &mut RawPeer) -> Vec<u8> {
    let mut octets = Vec::new();
    for event in peer.events.drain(..) {
        if let Event::Stream { octets: more, .. } = event {
            octets.extend_from_slice(&more);
        }
    }
    octets
}

/// RFC 9293 §3.5: active open, with the options of RFC 7323.
#[test]
fn opens_actively() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    assert_eq!(syn.header.flags, Flags::SYN);
    assert_eq!(syn.header.options.mss, Some(1460));
    assert_eq!(syn.header.options.window_scale, Some(3), "256 KiB in 16 bits");
    assert_eq!(syn.header.window, 0xffff, "a SYN's window is not scaled");
    assert!((49_152..=65_535).contains(&syn.header.source_port));
    peer.send(synack(), PEER_ISS, syn.header.seq + 1, &[]);
    let ack = peer.expect_one();
    assert_eq!((ack.header.flags, ack.header.ack), (ACK, PEER_ISS + 1));
    assert!(matches!(peer.events.pop(), Some(Event::Connected { token: 9, .. })));
}

/// RFC 9293 §3.8.1, RFC 6298 §5.5: a SYN without an answer is sent again with doubled timeouts, and not for ever.
#[test]
fn an_unanswered_syn_is_repeated_and_given_up() {
    let mut peer = RawPeer::new();
    let first = peer.connect();
    peer.pass_s(100);
    assert_eq!(peer.sent.len(), usize::from(limits::SYN_ATTEMPTS) - 1);
    assert!(peer.sent.iter().all(|sent| sent.header.seq == first.header.seq));
    let times: Vec<_> = peer.sent.iter().map(|sent| (sent.at - first.at) / SECOND).collect();
    assert_eq!(times, [1, 3, 7, 15, 31]);
    let error = ConnectError::Closed(CloseReason::TimedOut);
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 9, error: e }) if e == error));
}

#[test]
fn a_refused_connection_is_reported() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    peer.send(Flags::RST | ACK, SeqNumber(0), syn.header.seq + 7, &[]);
    assert!(peer.events.is_empty(), "a RST for something else");
    peer.sent.clear();
    peer.send(Flags::RST | ACK, SeqNumber(0), syn.header.seq + 1, &[]);
    let error = ConnectError::Closed(CloseReason::Refused);
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 9, error: e }) if e == error));
}

/// RFC 9293 §3.10.7.3: an acknowledgement of something never sent is answered with a RST, and the open goes on.
#[test]
fn an_old_duplicate_does_not_open() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    peer.send(synack(), PEER_ISS, syn.header.seq + 100, &[]);
    let reset = peer.expect_one();
    assert_eq!((reset.header.flags, reset.header.seq), (Flags::RST, syn.header.seq + 100));
    peer.send(synack(), PEER_ISS, syn.header.seq + 1, &[]);
    assert_eq!(peer.expect_one().header.flags, ACK);
}

/// RFC 9293 §3.5, figure 7: both ends open at once.
#[test]
fn opens_simultaneously() {
    let mut peer = RawPeer::new();
    let syn = peer.connect();
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    let answer = peer.expect_one();
    assert_eq!(answer.header.flags, synack());
    assert_eq!((answer.header.seq, answer.header.ack), (syn.header.seq, PEER_ISS + 1));
    peer.send(ACK, PEER_ISS + 1, syn.header.seq + 1, &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Connected { .. })));
}

/// RFC 9293 §3.5.2: nobody listens.
#[test]
fn a_closed_port_answers_with_reset() {
    let mut peer = RawPeer::new();
    // The core knows the peer's hardware address from an earlier exchange.
    peer.accept(Options::default());
    peer.core_port = 9;
    peer.send(Flags::SYN, SeqNumber(100), SeqNumber(0), &[]);
    let reset = peer.expect_one();
    assert_eq!((reset.header.flags, reset.header.ack), (Flags::RST | ACK, SeqNumber(101)));
    peer.send(ACK, SeqNumber(100), SeqNumber(5000), b"x");
    let reset = peer.expect_one();
    assert_eq!((reset.header.flags, reset.header.seq), (Flags::RST, SeqNumber(5000)));
    peer.send(Flags::RST, SeqNumber(100), SeqNumber(0), &[]);
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().dropped(DropCause::NoConnection), 3);
}

/// The peer's SYN again: our answer was lost. RFC 9293 §3.10.7.4.
#[test]
fn a_repeated_syn_is_answered_again() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { port: PORT, backlog: 1 });
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    let first = peer.expect_one();
    peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
    let second = peer.expect_one();
    assert_eq!(first.header, second.header);
}

/// A backlog bounds the half-open connections, and those that control has not brought to Full Operation; a SYN beyond
/// that is dropped and counted.
#[test]
fn the_backlog_is_a_bound() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { port: PORT, backlog: 2 });
    for port in 1..=5 {
        let syn = Header { source_port: port, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        peer.inject(&RawPeer::segment(&syn, &[]));
    }
    peer.settle();
    assert_eq!((peer.sent.len(), peer.core.usage().connections), (5, 2), "the others get cookies");
    for answer in std::mem::take(&mut peer.sent) {
        let ack = Header {
            source_port: answer.header.destination_port,
            ..peer.header(ACK, PEER_ISS + 1, answer.header.seq + 1)
        };
        peer.inject(&RawPeer::segment(&ack, &[]));
        peer.settle();
    }
    // Those that were half-open had their place before two cookies came back; the third finds none.
    assert_eq!((peer.events.len(), peer.core.usage().connections), (4, 4));
    assert_eq!(peer.core.statistics().dropped(DropCause::NoRoomForConnection), 1);
    let syn = Header { source_port: 6, ..peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
    peer.inject(&RawPeer::segment(&syn, &[]));
    peer.settle();
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().dropped(DropCause::NoRoomForConnection), 2);
}

/// Peers that come and go while control is behind do not pile up events.
#[test]
fn no_connection_is_taken_while_control_is_behind() {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { port: PORT, backlog: 4 });
    peer.settle();
    for _ in 0..limits::EVENTS / 2 {
        assert!(peer.rings.events.push(Event::QpDestroyed(common::QP)).is_ok());
    }
    let syn = RawPeer::segment(&peer.header(Flags::SYN, PEER_ISS, SeqNumber(0)), &[]);
    peer.inject(&syn);
    peer.now += 10_000;
    peer.core.poll_once(peer.now);
    assert_eq!(peer.core.statistics().dropped(DropCause::NoRoomForConnection), 1);
    // Control catches up, and the peer tries again.
    peer.settle();
    peer.expect_nothing();
    peer.inject(&syn);
    peer.settle();
    assert_eq!(peer.expect_one().header.flags, synack());
}

/// RFC 9293 §3.7.1: no segment is larger than the peer's MSS, 536 when it names none.
#[test]
fn the_peers_mss_holds() {
    for (mss, expected) in [(Some(1000), 1000), (None, 536), (Some(9000), 1460), (Some(1), 64)] {
        let (mut peer, _, connection) = accepted(Options { mss, ..Options::default() });
        stream(&mut peer, connection, &[7; 1460]);
        let largest = peer.sent.iter().map(|sent| sent.payload.len()).max();
        assert_eq!(largest, Some(expected), "MSS {mss:?}");
    }
}

/// RFC 7323 §2: the peer's window is scaled as it said, and not at all when it said nothing.
#[test]
fn the_peers_window_is_scaled() {
    for (scale, window, expected) in [(None, 500, 500), (Some(2), 125, 500), (Some(40), 1, 1460)] {
        let (mut peer, next, connection) = accepted(options(1460, scale));
        peer.send_with_window(window, PEER_ISS + 1, next);
        stream(&mut peer, connection, &[7; 1460]);
        peer.pass_s(10);
        let octets = peer.sent.iter().map(|sent| sent.payload.len()).max();
        assert_eq!(octets, Some(expected), "shift {scale:?}: a shift above 14 is taken as 14");
    }
}

/// RFC 9293 §3.8.6.3, RFC 5681 §4.2: every second segment is acknowledged at once, a single one within 40 ms.
#[test]
fn acknowledgements_are_delayed_within_bounds() {
    let (mut peer, next, _) = accepted(Options::default());
    let at = peer.now;
    peer.send(ACK, PEER_ISS + 1, next, b"one");
    peer.expect_nothing();
    peer.pass_ms(60);
    let ack = peer.expect_one();
    assert_eq!(ack.header.ack, PEER_ISS + 4);
    assert!(ack.at - at <= 42 * MILLISECOND, "{} ns", ack.at - at);
    peer.send(ACK, PEER_ISS + 4, next, b"two");
    peer.send(ACK, PEER_ISS + 7, next, b"three");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 12);
    assert_eq!(streamed(&mut peer), b"onetwothree");
}

/// A sender that has nothing more to send waits for the acknowledgement: an RDMA Write completes with it.
#[test]
fn pushed_data_is_acknowledged_at_once() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.send(ACK | Flags::PSH, PEER_ISS + 1, next, b"done");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 5);
    stream(&mut peer, connection, b"ours");
    assert_eq!(peer.expect_one().header.flags, ACK | Flags::PSH, "what ends our queue is pushed");
}

/// RFC 5681 §4.2: a segment beyond a gap, and the one that fills it, are acknowledged at once. MPA-A.3-02: the first
/// copy of an octet stays.
#[test]
fn out_of_order_segments_are_held() {
    let (mut peer, next, _) = accepted(Options::default());
    peer.send(ACK, PEER_ISS + 4, next, b"DEF");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1);
    peer.send(ACK, PEER_ISS + 7, next, b"GHI");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1, "one for each, so that the peer can count");
    peer.send(ACK, PEER_ISS + 1, next, b"ABCdefg");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 10);
    assert_eq!(streamed(&mut peer), b"ABCDEFGHI");
    let statistics = peer.core.statistics();
    assert_eq!(statistics.tcp.out_of_order_segments, 2);
}

#[test]
fn a_duplicate_is_acknowledged_and_dropped() {
    let (mut peer, next, _) = accepted(Options::default());
    peer.send(ACK, PEER_ISS + 1, next, b"once");
    peer.pass_ms(50);
    peer.sent.clear();
    peer.send(ACK, PEER_ISS + 1, next, b"once");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 5);
    assert_eq!(streamed(&mut peer), b"once");
    assert_eq!(peer.core.statistics().dropped(DropCause::Duplicate), 1);
}

/// RFC 6298 §5: the timer backs off; new data acknowledged ends the backoff.
#[test]
fn lost_data_is_sent_again() {
    let (mut peer, next, connection) = accepted(Options::default());
    stream(&mut peer, connection, b"hello");
    let first = peer.expect_one();
    assert_eq!(first.payload, b"hello");
    peer.pass_ms(6500);
    let times: Vec<_> = peer.sent.iter().map(|sent| (sent.at - first.at) / (10 * MILLISECOND)).collect();
    assert_eq!(times, [20, 60, 140, 300, 620], "hundredths: the least timeout, doubled each time");
    assert!(peer.sent.iter().all(|sent| sent.payload == b"hello" && sent.header.seq == next));
    peer.sent.clear();
    peer.send(ACK, PEER_ISS + 1, next + 5, &[]);
    peer.pass_s(60);
    peer.expect_nothing();
}

#[test]
fn a_silent_peer_is_given_up() {
    let (mut peer, _, connection) = accepted(Options::default());
    stream(&mut peer, connection, b"hello");
    peer.pass_s(800);
    let reset = peer.sent.pop_back().unwrap();
    assert!(reset.header.flags.contains(Flags::RST));
    assert_eq!(peer.sent.len(), usize::from(limits::RETRANSMIT_ATTEMPTS));
    let closed = peer.events.pop();
    assert!(matches!(closed, Some(Event::Closed { reason: CloseReason::TimedOut, .. })), "{closed:?}");
}

/// RFC 5681 §3.2: three duplicates bring the lost segment back before any timeout.
#[test]
fn three_duplicates_bring_a_fast_retransmit() {
    let (mut peer, next, connection) = accepted(options(100, None));
    stream(&mut peer, connection, &[1; 600]);
    assert_eq!(peer.sent.len(), 6);
    peer.sent.clear();
    for _ in 0..2 {
        peer.send(ACK, PEER_ISS + 1, next, &[]);
    }
    peer.expect_nothing();
    peer.send(ACK, PEER_ISS + 1, next, &[]);
    let again = peer.expect_one();
    assert_eq!((again.header.seq, again.payload.len()), (next, 100));
    // RFC 6582 §3.2: a partial acknowledgement brings the next hole.
    peer.send(ACK, PEER_ISS + 1, next + 300, &[]);
    assert_eq!(peer.expect_one().header.seq, next + 300);
    peer.send(ACK, PEER_ISS + 1, next + 600, &[]);
    peer.pass_s(5);
    peer.expect_nothing();
    assert_eq!(peer.core.statistics().tcp.fast_retransmits, 1);
}

/// RFC 9293 §3.8.6.1: a closed window is probed, without data that could be cut, and used when it opens.
#[test]
fn a_closed_window_is_probed() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.send_with_window(0, PEER_ISS + 1, next);
    stream(&mut peer, connection, b"wait");
    peer.expect_nothing();
    peer.pass_s(8);
    assert!(peer.sent.len() >= 3, "{:?}", peer.sent);
    assert!(peer.sent.iter().all(|probe| probe.payload.is_empty() && probe.header.seq == next - 1));
    peer.sent.clear();
    peer.send_with_window(1000, PEER_ISS + 1, next);
    assert_eq!(peer.expect_one().payload, b"wait");
    assert!(peer.core.statistics().tcp.window_probes >= 3);
}

/// RFC 9293 §3.8.6.2.1: a window that stays small is used at last.
#[test]
fn a_small_window_is_used_after_a_while() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.send_with_window(3, PEER_ISS + 1, next);
    stream(&mut peer, connection, b"hello");
    peer.expect_nothing();
    peer.pass_ms(1200);
    assert!(
        peer.sent.iter().all(|probe| probe.payload.is_empty()),
        "data may have filled it for a moment only"
    );
    peer.pass_ms(400);
    assert_eq!(peer.sent.back().unwrap().payload, b"hel");
    peer.sent.clear();
    peer.send_with_window(3, PEER_ISS + 1, next + 3);
    assert_eq!(peer.expect_one().payload, b"lo");
}

/// DDP-A-04: the right edge of the window never goes back; octets beyond it are not taken.
#[test]
fn the_offered_window_stands() {
    let (mut peer, next, _) = accepted(options(1460, Some(0)));
    peer.send(ACK, PEER_ISS + 1, next, &[1; 100]);
    peer.send(ACK, PEER_ISS + 101, next, &[1; 100]);
    let ack = peer.expect_one();
    let edge = ack.header.ack + (u32::from(ack.header.window) << 3);
    assert!(edge >= PEER_ISS + common::WINDOW_OCTETS);
    peer.send(ACK, edge, next, b"beyond");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 201);
    assert_eq!(peer.core.statistics().dropped(DropCause::OutsideWindow), 1);
}

/// RFC 9293 §3.6, case 1: we close first.
#[test]
fn closes_first() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.command(Command::Close { connection });
    peer.settle();
    let fin = peer.expect_one();
    assert_eq!((fin.header.flags, fin.header.seq), (Flags::FIN | ACK, next));
    peer.send(ACK, PEER_ISS + 1, next + 1, &[]);
    peer.expect_nothing();
    // Half-closed: what the peer still has to say is taken.
    peer.send(ACK, PEER_ISS + 1, next + 1, b"last");
    peer.send(Flags::FIN | ACK, PEER_ISS + 5, next + 1, &[]);
    assert_eq!(peer.sent.back().unwrap().header.ack, PEER_ISS + 6);
    assert!(matches!(peer.events.last(), Some(Event::Closed { reason: CloseReason::Finished, .. })));
    peer.events.pop();
    assert_eq!(streamed(&mut peer), b"last");
    // TIME-WAIT: the peer's FIN again is acknowledged again, for a minute.
    peer.sent.clear();
    peer.pass_s(30);
    peer.send(Flags::FIN | ACK, PEER_ISS + 5, next + 1, &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 6);
    peer.pass_s(120);
    peer.send(Flags::FIN | ACK, PEER_ISS + 5, next + 1, &[]);
    assert!(peer.expect_one().header.flags.contains(Flags::RST), "nothing is left of the connection");
}

/// RFC 9293 §3.6, case 2: the peer closes first; we may still send.
#[test]
fn closes_second() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.send(Flags::FIN | ACK, PEER_ISS + 1, next, b"bye");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 5);
    assert!(matches!(peer.events.pop(), Some(Event::PeerFinished { .. })));
    assert_eq!(streamed(&mut peer), b"bye");
    stream(&mut peer, connection, b"and");
    assert_eq!(peer.expect_one().payload, b"and");
    peer.command(Command::Close { connection });
    peer.settle();
    let fin = peer.expect_one();
    assert_eq!((fin.header.flags, fin.header.seq), (Flags::FIN | ACK, next + 3));
    peer.send(ACK, PEER_ISS + 5, next + 4, &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Closed { reason: CloseReason::Finished, .. })));
    peer.pass_s(1);
    peer.send(ACK, PEER_ISS + 5, next + 4, &[]);
    assert!(peer.expect_one().header.flags.contains(Flags::RST), "LAST-ACK leaves nothing behind");
}

/// RFC 9293 §3.6, case 3: both close at once.
#[test]
fn closes_simultaneously() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.command(Command::Close { connection });
    peer.settle();
    peer.expect_one();
    peer.send(Flags::FIN | ACK, PEER_ISS + 1, next, &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 2);
    peer.send(ACK, PEER_ISS + 2, next + 1, &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Closed { reason: CloseReason::Finished, .. })));
}

/// A FIN that is lost is sent again; a FIN that comes before the data before it waits for it.
#[test]
fn fins_are_reliable_and_in_order() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.send(Flags::FIN | ACK, PEER_ISS + 4, next, &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1, "three octets are missing");
    assert!(peer.events.is_empty());
    peer.send(ACK, PEER_ISS + 1, next, b"abc");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 5);
    peer.command(Command::Close { connection });
    peer.settle();
    let fin = peer.expect_one();
    peer.pass_ms(300);
    assert_eq!(peer.expect_one().header, fin.header);
}

/// RFC 5961 §3: only a RST at the very place expected resets; others in the window are challenged.
#[test]
fn a_blind_reset_is_challenged() {
    let (mut peer, next, _) = accepted(Options::default());
    peer.send(Flags::RST, PEER_ISS + 500, SeqNumber(0), &[]);
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1);
    peer.send(Flags::RST, PEER_ISS - 500, SeqNumber(0), &[]);
    peer.expect_nothing();
    assert!(peer.events.is_empty());
    // RFC 5961 §4: nor does a SYN.
    peer.send(Flags::SYN, PEER_ISS + 1, next, &[]);
    assert_eq!(peer.expect_one().header.flags, ACK);
    peer.send(Flags::RST, PEER_ISS + 1, SeqNumber(0), &[]);
    assert!(matches!(peer.events.pop(), Some(Event::Closed { reason: CloseReason::Reset, .. })));
}

/// RFC 9293 §3.10.7.4: an acknowledgement of what was never sent is answered and otherwise ignored.
#[test]
fn an_impossible_ack_is_refused() {
    let (mut peer, next, connection) = accepted(Options::default());
    stream(&mut peer, connection, b"hello");
    peer.expect_one();
    peer.send(ACK, PEER_ISS + 1, next + 6, b"poison");
    assert_eq!(peer.expect_one().header.ack, PEER_ISS + 1);
    assert_eq!(peer.core.statistics().dropped(DropCause::BadAck), 1);
    assert!(peer.events.is_empty());
}

#[test]
fn an_abort_sends_a_reset() {
    let (mut peer, next, connection) = accepted(Options::default());
    peer.command(Command::Abort { connection });
    peer.settle();
    let reset = peer.expect_one();
    assert!(reset.header.flags.contains(Flags::RST));
    assert_eq!(reset.header.seq, next);
    assert!(matches!(peer.events.pop(), Some(Event::Closed { reason: CloseReason::Aborted, .. })));
}

/// Damaged frames are dropped, each under its own cause, and nothing else happens.
#[test]
fn damage_is_counted_by_cause() {
    let (mut peer, next, _) = accepted(Options::default());
    let good = RawPeer::segment(&peer.header(ACK, PEER_ISS + 1, next), b"payload");
    let damage = |at: usize, octets: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + octets.len()].copy_from_slice(octets);
        frame
    };
    let ip = ethernet::Header::LEN;
    let cases = [
        (damage(0, &[2, 9, 9, 9, 9, 9]), DropCause::OtherMac),
        (damage(12, &[0x88, 0xcc]), DropCause::OtherProtocol),
        (damage(ip, &[0x65]), DropCause::Malformed),
        (damage(ip + 2, &[0xff, 0xff]), DropCause::Malformed),
        (damage(ip + 10, &[0, 0]), DropCause::IpChecksum),
        (damage(ip + 20 + 16, &[0, 0]), DropCause::TcpChecksum),
        (damage(good.len() - 1, b"!"), DropCause::TcpChecksum),
        (good[..ip + 10].to_vec(), DropCause::Malformed),
        (good[..good.len() - 1].to_vec(), DropCause::Malformed),
        // The wire pads to 60 octets: an address that is not ours.
        (good[..5].to_vec(), DropCause::OtherMac),
    ];
    for (frame, cause) in cases {
        let before = peer.core.statistics().dropped(cause);
        peer.inject(&frame);
        peer.settle();
        assert_eq!(peer.core.statistics().dropped(cause), before + 1, "{cause:?}: {frame:02x?}");
    }
    peer.expect_nothing();
    assert!(peer.events.is_empty());
    peer.inject(&good);
    peer.pass_ms(50);
    assert_eq!(streamed(&mut peer), b"payload");
}

/// Segments from random octets: no panic, no event, the connection lives.
#[test]
fn garbage_does_no_harm() {
    let (mut peer, next, _) = accepted(Options::default());
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let mut header = peer.header(
            Flags::from_bits_retain(rng.u8(..)) - Flags::RST,
            PEER_ISS + 1 + rng.u32(..400_000),
            next - rng.u32(..100_000),
        );
        header.window = rng.u16(..);
        let mut frame = RawPeer::segment(&header, &vec![rng.u8(..); rng.usize(..600)]);
        if rng.bool() {
            for _ in 0..rng.usize(..8) {
                let at = rng.usize(..frame.len());
                frame[at] = rng.u8(..);
            }
        }
        frame.truncate(rng.usize(..=frame.len() * 2).min(frame.len()));
        peer.inject(&frame);
        peer.settle();
        peer.sent.clear();
    }
    assert!(!peer.events.iter().any(|event| matches!(event, Event::Closed { .. })));
}

/// RFC 826, and RFC 1122 §3.2.2.6.
#[test]
fn answers_arp_and_ping() {
    let mut peer = RawPeer::new();
    let mut frame = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
    ethernet::Header { destination: MacAddress::BROADCAST, source: PEER_MAC, ethertype: EtherType::ARP }
        .emit(&mut frame);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: PEER_MAC,
        sender_ip: address(2),
        target_mac: MacAddress::default(),
        target_ip: address(1),
    }
    .emit(&mut frame[ethernet::Header::LEN..]);
    peer.inject(&frame);
    peer.settle();
    let answer = peer.other.pop_front().unwrap();
    let reply = arp::Packet::parse(&answer[ethernet::Header::LEN..]).unwrap();
    assert_eq!((reply.operation, reply.sender_mac), (arp::Operation::Reply, OUR_MAC));
    assert_eq!((reply.sender_ip, reply.target_ip, reply.target_mac), (address(1), address(2), PEER_MAC));

    let mut echo = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    echo.extend_from_slice(b"are you there");
    let sum = checksum::sum(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let frame = RawPeer::packet(Protocol::ICMP, &echo);
    peer.inject(&frame);
    peer.settle();
    let answer = peer.other.pop_front().unwrap();
    let packet = &answer[ethernet::Header::LEN..];
    let (header, transport) = ipv4::Header::parse(packet).unwrap();
    assert_eq!((header.source, header.destination), (address(1), address(2)));
    let reply = icmp::Message::parse(&packet[transport..usize::from(header.total_len)]).unwrap();
    assert!(
        matches!(reply, icmp::Message::EchoReply { id: 0x1234, seq: 1, payload } if payload == b"are you there"),
        "{reply:?}"
    );
    echo[10] ^= 1;
    let frame = RawPeer::packet(Protocol::ICMP, &echo);
    peer.inject(&frame);
    peer.settle();
    assert_eq!(peer.core.statistics().dropped(DropCause::IcmpChecksum), 1);
}

/// An address that nobody has: the request is repeated once a second and the open fails in the end.
#[test]
fn an_unreachable_peer_fails_the_open() {
    let mut peer = RawPeer::new();
    peer.answers_arp = false;
    peer.command(Command::Connect {
        token: 4,
        remote: std::net::SocketAddr::new(address(77).into(), 1),
        timeout_ns: 10 * SECOND,
    });
    peer.pass_s(15);
    assert!((9..=11).contains(&peer.other.len()), "{} requests", peer.other.len());
    peer.expect_nothing();
    let error = ConnectError::Closed(CloseReason::TimedOut);
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 4, error: e }) if e == error));
    peer.command(Command::Connect {
        token: 5,
        remote: std::net::SocketAddr::new([203, 0, 113, 1].into(), 1),
        timeout_ns: SECOND,
    });
    peer.settle();
    let error = ConnectError::NoRoute;
    assert!(matches!(peer.events.pop(), Some(Event::ConnectFailed { token: 5, error: e }) if e == error));
}
