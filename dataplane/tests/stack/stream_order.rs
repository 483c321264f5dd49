//! Tests that control's events of a connection before Full Operation arrive in order and are never lost, even
//! if control is slow.

use std::sync::Arc;

use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PD, QP};
use warpline_dataplane::limits;
use warpline_dataplane::qp::shared::{CompletionRing, CompletionRings, QueueDepths, SharedQp};
use warpline_dataplane::ring::{AfterStream, Command, Event, FullOperation};
use warpline_dataplane::wire::tcp::{Flags, Options, SeqNumber};

const SPOKEN: &[u8] = b"spoken while nobody listened";

/// A core with an open connection, whose full event ring is not read and has no room for further events.
fn behind() -> (RawPeer, SeqNumber) {
    let mut peer = RawPeer::new();
    let ack = peer.accept(Options::default());
    for _ in 0..=limits::EVENTS / 2 {
        peer.command(Command::ReportStatistics);
        peer.core.poll_once(peer.now);
    }
    (peer, ack)
}

fn speak(peer: &mut RawPeer, flags: Flags, ack: SeqNumber) {
    let frame = RawPeer::segment(&peer.header(flags | Flags::ACK, PEER_ISS + 1, ack), SPOKEN);
    peer.inject(&frame);
    for _ in 0..10 {
        peer.core.poll_once(peer.now);
        peer.now += 1000;
    }
}

/// Returns control's events, except statistics, once it reads again. No frame arrives meanwhile.
fn heard(peer: &mut RawPeer) -> Vec<Event> {
    let mut heard = Vec::new();
    for _ in 0..4 {
        while let Some(event) = peer.rings.events.pop() {
            if !matches!(event, Event::Statistics(_)) {
                heard.push(event);
            }
        }
        peer.now += limits::HAND_UP_RETRY_NS;
        peer.core.poll_once(peer.now);
    }
    heard
}

#[test]
fn octets_go_up_once_there_is_room() {
    let (mut peer, ack) = behind();
    speak(&mut peer, Flags::PSH, ack);
    let heard = heard(&mut peer);
    assert!(matches!(&heard[..], [Event::Stream { octets, .. }] if octets[..] == *SPOKEN), "{heard:?}");
}

#[test]
fn the_end_is_told_after_the_octets_before_it() {
    let (mut peer, ack) = behind();
    speak(&mut peer, Flags::FIN, ack);
    let heard = heard(&mut peer);
    let [Event::Stream { octets, .. }, Event::PeerFinished { .. }] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(octets[..], *SPOKEN);
}

#[test]
fn a_closed_connection_says_nothing_more() {
    let (mut peer, ack) = behind();
    speak(&mut peer, Flags::PSH, ack);
    while peer.rings.events.pop().is_some() {}
    peer.command(Command::Abort { connection: peer.accepted.unwrap() });
    peer.core.poll_once(peer.now);
    let heard = heard(&mut peer);
    assert!(matches!(&heard[..], [Event::Closed { .. }]), "{heard:?}");
}

/// Octets that arrived early are processed when Full Operation begins, though no further frame arrives: here
/// they are no FPDU.
#[test]
fn octets_and_end_that_came_before_full_operation_are_taken_in_it() {
    let (mut peer, ack) = behind();
    speak(&mut peer, Flags::FIN, ack);
    let completions = Arc::new(CompletionRing::new(4));
    let rings = CompletionRings::shared(completions);
    let doorbells = peer.rings.doorbells.clone();
    let qp = Arc::new(SharedQp::new(QP, PD, QueueDepths { send: 1, receive: 1 }, rings, doorbells));
    let operation = FullOperation::new(false);
    let then = AfterStream::FullOperation { qp, operation };
    let connection = peer.accepted.unwrap();
    peer.command(Command::Stream { connection, octets: Box::new([1, 2, 3, 4]), then });
    peer.core.poll_once(peer.now);
    let heard = heard(&mut peer);
    assert!(matches!(&heard[..], [Event::Operating { .. }, Event::StreamFailed { .. }]), "{heard:?}");
}
