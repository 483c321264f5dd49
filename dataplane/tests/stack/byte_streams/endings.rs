//! The end of a connection while its reader is behind: octets that were acknowledged are not lost.

use super::{attach, config, with_option};
use crate::common::raw::{PEER_ISS, RawPeer};
use crate::common::{PORT, pattern};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::wire::tcp::{Flags, Header, Options};

const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags::FIN;
const OCTETS: usize = 200_000;

/// Both ends finish, and the reader, whose ring is small, still has most to read. In TIME-WAIT it reads on:
/// the peer, which may be gone, gets no window updates, and a RST of it changes nothing (RFC 1337 §3).
#[test]
fn octets_outlive_time_wait() {
    for resets in [false, true] {
        let mut peer = RawPeer::new();
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: Some(with_option()) });
        let options = Options { mss: Some(1460), window_scale: Some(3), ..Options::default() };
        let syn = Header {
            options,
            ..peer.header(Flags::SYN, PEER_ISS, warpline_dataplane::wire::tcp::SeqNumber(0))
        };
        peer.inject(&RawPeer::segment(&syn, &[]));
        peer.settle();
        let next = peer.expect_one().header.seq + 1;
        peer.send(ACK, PEER_ISS + 1, next, &[]);
        let Some(Event::Accepted { connection, .. }) = peer.events.pop() else { panic!("not accepted") };
        let (mut writer, mut reader) = attach(&peer.rings, connection, config(64, 100));
        writer.finish();
        peer.settle();
        // Our FIN is acknowledged, then theirs comes.
        let stream = pattern(3, OCTETS);
        for (index, payload) in stream.chunks(1000).enumerate() {
            let seq = PEER_ISS + 1 + 1000 * index as u32;
            peer.send(ACK, seq, next + 1, payload);
        }
        let end = PEER_ISS + 1 + OCTETS as u32;
        peer.send(FIN | ACK, end, next + 1, &[]);
        peer.pass_ms(50);
        assert_eq!(peer.sent.back().expect("an answer").header.ack, end + 1, "everything is acknowledged");
        peer.sent.clear();
        let (mut read, mut out) = (0, vec![0; OCTETS]);
        while read < OCTETS {
            let octets = reader.read_plain(&mut out[read..]);
            assert!(octets > 0 || !reader.is_finished(), "{read} octets: {:?}", reader.shared().end());
            read += octets;
            peer.settle();
            assert_eq!(peer.sent, [], "the peer needs no window");
            if resets && read > OCTETS / 2 {
                let rst = peer.header(Flags::RST, end + 1, next + 1);
                peer.inject(&RawPeer::segment(&rst, &[]));
                peer.settle();
            }
        }
        assert!(out == stream);
        assert!(reader.is_finished());
    }
}
