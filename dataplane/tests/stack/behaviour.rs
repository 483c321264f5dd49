//! Tests that the segments follow the options that a user chooses for a connection or for a whole core.

use crate::common::raw::{PEER_ISS, PEER_PORT, RawPeer};
use crate::common::{PORT, address};
use warpline_dataplane::ring::{Command, Event};
use warpline_dataplane::tcp::congestion::Algorithm;
use warpline_dataplane::tcp::{Behaviour, EcnPolicy};
use warpline_dataplane::time::SECOND;
use warpline_dataplane::wire::tcp::{Flags, Header, Options, SeqNumber, Timestamps};

/// Everything that a SYN can offer.
fn all_options() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { value: 1, echo: 0 }),
        ..Options::default()
    }
}

/// The core's SYN when it is asked to connect with `tcp`.
fn syn(tcp: Option<Behaviour>) -> Header {
    let mut peer = RawPeer::new();
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
    peer.expect_one().header
}

/// The core's answer to a SYN with all options and a wish for ECN, at a port where it listens with `tcp`.
fn answer(tcp: Option<Behaviour>) -> Header {
    let mut peer = RawPeer::new();
    peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp });
    let flags = Flags::SYN | Flags::ECE | Flags::CWR;
    let syn = Header { options: all_options(), ..peer.header(flags, PEER_ISS, SeqNumber(0)) };
    let frame = RawPeer::segment(&syn, &[]);
    peer.inject(&frame);
    peer.settle();
    peer.expect_one().header
}

/// RFC 2018 §2, RFC 7323 §3.2, RFC 3168 §6.1.1: a disabled option is neither offered nor accepted.
#[test]
fn options_follow_the_choice() {
    let bare = Behaviour { sack: false, timestamps: false, ecn: EcnPolicy::Off, ..Behaviour::default() };
    for (header, wanted) in [(syn(None), true), (syn(Some(bare)), false)] {
        assert_eq!(header.options.sack_permitted, wanted);
        assert_eq!(header.options.timestamps.is_some(), wanted);
        assert_eq!(header.flags, Flags::SYN, "ECN is accepted, not asked for");
    }
    for (header, wanted) in [(answer(None), true), (answer(Some(bare)), false)] {
        assert_eq!(header.options.sack_permitted, wanted);
        assert_eq!(header.options.timestamps.is_some(), wanted);
        assert_eq!(header.flags.contains(Flags::ECE), wanted);
    }
}

/// RFC 8257 §3: DCTCP needs ECN, so it asks for it.
#[test]
fn dctcp_asks_for_ecn() {
    let dctcp = Behaviour { congestion: Algorithm::Dctcp, ..Behaviour::default() };
    assert_eq!(syn(Some(dctcp)).flags, Flags::SYN | Flags::ECE | Flags::CWR);
    let request = Behaviour { ecn: EcnPolicy::Request, ..Behaviour::default() };
    assert_eq!(syn(Some(request)).flags, Flags::SYN | Flags::ECE | Flags::CWR);
}

/// Connections use the congestion control of their listening port, whatever the core's default is.
#[test]
fn each_port_has_its_algorithm() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno, Algorithm::Dctcp] {
        let mut peer = RawPeer::new();
        let tcp = Some(Behaviour { congestion, ..Behaviour::default() });
        peer.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp });
        peer.send(Flags::SYN, PEER_ISS, SeqNumber(0), &[]);
        let next = peer.expect_one().header.seq + 1;
        peer.send(Flags::ACK, PEER_ISS + 1, next, &[]);
        let Some(Event::Accepted { connection: accepted, .. }) = peer.events.pop() else {
            panic!("not accepted: {:?}", peer.events)
        };
        let tcp = peer.core.tcp(accepted).expect("the connection is there");
        assert_eq!(tcp.snapshot().congestion, congestion);
    }
}
