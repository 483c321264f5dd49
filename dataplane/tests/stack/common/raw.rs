//! A core that communicates with a peer made of frames: the test writes each segment and reads each answer.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use warpline_dataplane::core::tables::Tables;
use warpline_dataplane::core::testing::visits;
use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice};
use warpline_dataplane::device::{Device, Frame};
use warpline_dataplane::ring::{Command, ConnectionId, Event, Rings};
use warpline_dataplane::time::{Instant, MILLISECOND, SECOND};
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::tcp::{self, Flags, Header, Options, SeqNumber};
use warpline_dataplane::wire::{arp, checksum, icmpv6, ipv6};

use super::{PORT, TABLES, TestCore, WINDOW_OCTETS, address, address_v6, core_on};

pub const OUR_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
pub const PEER_PORT: u16 = 40_000;
/// The peer's first sequence number: close to the wrap.
pub const PEER_ISS: SeqNumber = SeqNumber(0xffff_ff00);

/// A segment the core sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub at: Instant,
    /// The two bits of Explicit Congestion Notification in the IP header.
    pub ecn: u8,
    pub header: Header,
    pub payload: Vec<u8>,
}

pub struct RawPeer {
    pub core: TestCore,
    pub rings: Rings,
    pub now: Instant,
    device: SimDevice,
    pub sent: VecDeque<Sent>,
    /// Frames of the core that are not TCP.
    pub other: VecDeque<Vec<u8>>,
    /// The core's unsolicited announcements of its own addresses.
    pub announcements: VecDeque<Vec<u8>>,
    pub events: Vec<Event>,
    /// The core's port, once known.
    pub core_port: u16,
    /// Answer ARP requests.
    pub answers_arp: bool,
    /// The connection [`accept`](Self::accept) made.
    pub accepted: Option<ConnectionId>,
    /// The most connections, queue pairs and timers that the core has looked at in one poll.
    pub most_visits: u64,
}

impl RawPeer {
    pub fn new() -> Self {
        Self::with(Self::config(), EndConfig::a().mtu_bytes)
    }

    /// How the core of [`new`](Self::new) is set up.
    pub fn config() -> Config {
        Config { window_bytes: WINDOW_OCTETS, ..Config::new(address(1).into(), 24, [1, 2]) }
    }

    /// A core with `config`, on a link of `mtu_octets`.
    pub fn with(config: Config, mtu_octets: usize) -> Self {
        Self::with_tables(config, mtu_octets, TABLES)
    }

    /// The same with tables of other sizes.
    pub fn with_tables(config: Config, mtu_octets: usize, tables: Tables) -> Self {
        let ends = [EndConfig::a(), EndConfig::b()].map(|end| EndConfig { mtu_bytes: mtu_octets, ..end });
        let (device, peer) = sim::link(1, ends[0], ends[1]);
        let rings = Rings::new();
        Self {
            core: core_on(device, CoreSetup::new(config, rings.clone()).with_tables(tables)),
            rings,
            now: Instant::from_nanos(1),
            device: peer,
            sent: VecDeque::new(),
            other: VecDeque::new(),
            announcements: VecDeque::new(),
            events: Vec::new(),
            core_port: PORT,
            answers_arp: true,
            accepted: None,
            most_visits: 0,
        }
    }

    /// A handle on the link.
    pub fn network(&self) -> sim::Network {
        self.device.network()
    }

    pub fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok());
    }

    /// Puts a frame on the wire.
    pub fn inject(&mut self, octets: &[u8]) {
        let mut frame = self.device.allocate().unwrap();
        frame.append(octets.len()).unwrap().copy_from_slice(octets);
        self.device.transmit(self.now, &mut vec![frame]);
    }

    /// An IPv4 packet to the core, in a frame.
    pub fn packet(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
        ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV4 }
            .emit(&mut frame);
        ipv4::Header {
            source: address(2),
            destination: address(1),
            protocol,
            ttl: 64,
            total_len: (ipv4::Header::LEN + payload.len()) as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            identification: 7,
            ecn: 0,
            dscp: 0,
        }
        .emit(&mut frame[ethernet::Header::LEN..]);
        frame.extend_from_slice(payload);
        frame
    }

    /// A segment to the core, in a frame.
    pub fn segment(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0; header.header_len()];
        header.emit(&mut segment);
        segment.extend_from_slice(payload);
        let (from, to): (Ipv4Addr, Ipv4Addr) = (address(2), address(1));
        let mut sum = checksum::ipv4_pseudo_header(from, to, Protocol::TCP.0, segment.len() as u16);
        sum.add(&segment);
        tcp::set_checksum(&mut segment, sum.finish());
        Self::packet(Protocol::TCP, &segment)
    }

    pub fn header(&self, flags: Flags, seq: SeqNumber, ack: SeqNumber) -> Header {
        Header {
            source_port: PEER_PORT,
            destination_port: self.core_port,
            seq,
            ack,
            flags,
            window: 0xffff,
            urgent: 0,
            options: Options::default(),
        }
    }

    pub fn send(&mut self, flags: Flags, seq: SeqNumber, ack: SeqNumber, payload: &[u8]) {
        let frame = Self::segment(&self.header(flags, seq, ack), payload);
        self.inject(&frame);
        self.settle();
    }

    pub fn send_with_window(&mut self, window: u16, seq: SeqNumber, ack: SeqNumber) {
        let header = Header { window, ..self.header(Flags::ACK, seq, ack) };
        let frame = Self::segment(&header, &[]);
        self.inject(&frame);
        self.settle();
    }

    /// A router's word that `sent` does not fit the next link (RFC 1191 §4).
    pub fn say_too_big(&mut self, sent: &Sent, next_hop_mtu: u16) {
        let mut message = vec![3, 4, 0, 0, 0, 0];
        message.extend(next_hop_mtu.to_be_bytes());
        let mut original = [0; ipv4::Header::LEN];
        ipv4::Header {
            source: address(1),
            destination: address(2),
            protocol: Protocol::TCP,
            ttl: 3,
            total_len: (ipv4::Header::LEN + sent.header.header_len() + sent.payload.len()) as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            identification: 77,
            ecn: 0,
            dscp: 0,
        }
        .emit(&mut original);
        message.extend(original);
        message.extend(sent.header.source_port.to_be_bytes());
        message.extend(sent.header.destination_port.to_be_bytes());
        message.extend(sent.header.seq.0.to_be_bytes());
        let sum = checksum::sum(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.inject(&Self::packet(Protocol::ICMP, &message));
        self.settle();
    }

    /// Lets everything happen that happens within 10 microseconds.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            self.poll();
            self.now += 1000;
        }
    }

    /// Polls until no work is left and no frame is in flight; time advances only with frames. Returns true if
    /// it reached that state.
    pub fn come_to_rest(&mut self) -> bool {
        for _ in 0..10_000 {
            let busy = self.poll();
            match self.device.network().next_arrival() {
                Some(arrival) => self.now = arrival.max(self.now),
                None if !busy => return true,
                None => {}
            }
        }
        false
    }

    /// Lets time pass in steps of a millisecond.
    pub fn pass_ms(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds * MILLISECOND;
        while self.now < end {
            self.settle();
            self.now = (self.now + MILLISECOND).min(end);
        }
        self.settle();
    }

    pub fn pass_s(&mut self, seconds: u64) {
        self.pass_ms(seconds * SECOND / MILLISECOND);
    }

    /// Polls once. Returns true if there was anything to do.
    pub fn poll(&mut self) -> bool {
        let before = visits();
        let busy = self.core.poll_once(self.now);
        self.most_visits = self.most_visits.max(visits() - before);
        self.collect();
        busy
    }

    fn collect(&mut self) {
        let mut frames = Vec::new();
        self.device.receive(self.now, &mut frames, 64);
        for frame in frames {
            let octets = frame.piece(0).unwrap().to_vec();
            self.take_frame(octets);
        }
        while let Some(event) = self.rings.events.pop() {
            self.events.push(event);
        }
    }

    fn take_frame(&mut self, octets: Vec<u8>) {
        let (header, network) = ethernet::Header::parse(&octets).unwrap();
        if header.ethertype == EtherType::ARP {
            let request = arp::Packet::parse(&octets[network..]).unwrap();
            if request.sender_ip == request.target_ip {
                self.announcements.push_back(octets);
                return;
            }
            if self.answers_arp && request.operation == arp::Operation::Request {
                self.answer_arp(&request);
            }
            self.other.push_back(octets);
            return;
        }
        let packet = &octets[network..];
        if header.ethertype == EtherType::IPV6 {
            return self.take_ipv6(&octets, packet);
        }
        let (ip, transport) = ipv4::Header::parse(packet).unwrap();
        assert!(ipv4::verify_checksum(&packet[..transport]), "IPv4 checksum");
        if ip.protocol != Protocol::TCP {
            self.other.push_back(octets);
            return;
        }
        let segment = &packet[transport..usize::from(ip.total_len)];
        assert!(ip.dont_fragment, "MPA-A.5-01");
        assert_eq!(ip.identification, 0, "RFC 6864 §4.1: it says nothing of what else was sent");
        self.take_segment((ip.source.into(), ip.destination.into()), ip.ecn, segment);
    }

    fn take_ipv6(&mut self, octets: &[u8], packet: &[u8]) {
        let ip = ipv6::Header::parse(packet).unwrap();
        let rest = &packet[ipv6::Header::LEN..][..usize::from(ip.payload_len)];
        if ip.next_header == Protocol::TCP {
            return self.take_segment((ip.source.into(), ip.destination.into()), ip.ecn, rest);
        }
        if ip.next_header == Protocol::ICMPV6
            && let Ok(icmpv6::Message::NeighborSolicitation(asked)) =
                icmpv6::Message::parse(rest, ip.source, ip.destination)
            && asked.target == address_v6(2)
            && self.answers_arp
        {
            self.advertise(ip.source);
        }
        self.other.push_back(octets.to_vec());
    }

    fn take_segment(&mut self, addresses: (IpAddr, IpAddr), ecn: u8, segment: &[u8]) {
        let mut sum =
            checksum::pseudo_header(addresses.0, addresses.1, Protocol::TCP.0, segment.len() as u16);
        sum.add(segment);
        assert_eq!(sum.finish(), 0, "TCP checksum");
        let (header, offset) = Header::parse(segment).unwrap();
        self.core_port = header.source_port;
        let payload = segment[offset..].to_vec();
        self.sent.push_back(Sent { at: self.now, ecn, header, payload });
    }

    /// Sends the peer's hardware address to `asker` (RFC 4861 §7.2.4).
    fn advertise(&mut self, asker: Ipv6Addr) {
        let mut message = vec![0; icmpv6::NeighborAdvertisement::MAX_LEN];
        let octets = icmpv6::NeighborAdvertisement {
            router: false,
            solicited: true,
            overriding: true,
            target: address_v6(2),
            target_mac: Some(PEER_MAC),
        }
        .emit(&mut message);
        message.truncate(octets);
        icmpv6::set_checksum(&mut message, address_v6(2), asker);
        let mut frame = vec![0; ethernet::Header::LEN + ipv6::Header::LEN];
        ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::IPV6 }
            .emit(&mut frame);
        ipv6::Header {
            source: address_v6(2),
            destination: asker,
            next_header: Protocol::ICMPV6,
            hop_limit: icmpv6::DISCOVERY_HOP_LIMIT,
            payload_len: message.len() as u16,
            flow_label: 0,
            ecn: 0,
            dscp: 0,
        }
        .emit(&mut frame[ethernet::Header::LEN..]);
        frame.extend_from_slice(&message);
        self.inject(&frame);
    }

    fn answer_arp(&mut self, request: &arp::Packet) {
        let mut frame = vec![0; ethernet::Header::LEN + arp::Packet::LEN];
        ethernet::Header { destination: OUR_MAC, source: PEER_MAC, ethertype: EtherType::ARP }
            .emit(&mut frame);
        arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: PEER_MAC,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        }
        .emit(&mut frame[ethernet::Header::LEN..]);
        self.inject(&frame);
    }

    /// The one segment the core has sent since the last look.
    #[track_caller]
    pub fn expect_one(&mut self) -> Sent {
        assert_eq!(self.sent.len(), 1, "{:#?}", self.sent);
        self.sent.pop_front().unwrap()
    }

    #[track_caller]
    pub fn expect_nothing(&self) {
        assert!(self.sent.is_empty(), "{:#?}", self.sent);
    }

    /// Listens and accepts a connection from the peer; returns the core's next sequence number.
    pub fn accept(&mut self, options: Options) -> SeqNumber {
        self.command(Command::Listen { address: None, port: PORT, backlog: 4, tcp: None });
        let syn = Header { options, ..self.header(Flags::SYN, PEER_ISS, SeqNumber(0)) };
        let frame = Self::segment(&syn, &[]);
        self.inject(&frame);
        self.settle();
        let answer = self.expect_one();
        assert_eq!(answer.header.flags, Flags::SYN | Flags::ACK);
        assert_eq!(answer.header.ack, PEER_ISS + 1);
        let next = answer.header.seq + 1;
        self.send(Flags::ACK, PEER_ISS + 1, next, &[]);
        match self.events.pop() {
            Some(Event::Accepted { connection, .. }) => self.accepted = Some(connection),
            event => panic!("not accepted: {event:?}"),
        }
        next
    }

    /// Makes the core connect to the peer; returns its SYN.
    pub fn connect(&mut self) -> Sent {
        self.command(Command::Connect {
            token: 9,
            local: None,
            remote: SocketAddr::new(address(2).into(), PEER_PORT),
            timeout_ns: 200 * SECOND,
            tcp: None,
            octets: Box::default(),
        });
        self.settle();
        self.expect_one()
    }
}
