//! A core on a link whose other end is the test: the test writes and reads every frame, and nothing answers
//! automatically.

use std::collections::VecDeque;

use warpline_dataplane::core::{Config, CoreSetup};
use warpline_dataplane::device::sim::{self, EndConfig, SimDevice};
use warpline_dataplane::device::{Device, Frame};
use warpline_dataplane::net::notice::Notice;
use warpline_dataplane::ring::{Command, Event, Rings};
use warpline_dataplane::statistics::DropCause;
use warpline_dataplane::time::{Instant, MILLISECOND};
use warpline_dataplane::wire::arp::{self, Operation};
use warpline_dataplane::wire::ethernet::{self, EtherType, MacAddress};
use warpline_dataplane::wire::icmpv6;
use warpline_dataplane::wire::ipv4::{self, Protocol};
use warpline_dataplane::wire::ipv6;
use warpline_dataplane::wire::tcp::{self, Header};
use warpline_dataplane::wire::{Malformed, checksum};

use super::{TestCore, core_on};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A frame, without the padding that the link adds.
pub type Octets = Vec<u8>;

pub struct Link {
    pub core: TestCore,
    rings: Rings,
    pub now: Instant,
    device: SimDevice,
    pub frames: VecDeque<Octets>,
    pub events: Vec<Event>,
}

impl Link {
    /// A core with the hardware address `mac`.
    pub fn new(config: Config, mac: MacAddress) -> Self {
        let (device, peer) = sim::link(1, EndConfig { mac, ..EndConfig::a() }, EndConfig::b());
        let rings = Rings::new();
        Self {
            core: core_on(device, CoreSetup::new(config, rings.clone())),
            rings,
            now: Instant::from_nanos(1),
            device: peer,
            frames: VecDeque::new(),
            events: Vec::new(),
        }
    }

    pub fn command(&self, command: Command) {
        assert!(self.rings.commands.push(command).is_ok());
    }

    /// Puts a frame on the wire and polls the core for its answer.
    pub fn inject(&mut self, octets: &[u8]) {
        let mut frame = self.device.allocate().unwrap();
        frame.append(octets.len()).unwrap().copy_from_slice(octets);
        self.device.transmit(self.now, &mut vec![frame]);
        self.settle();
    }

    /// Lets everything happen that happens within 10 microseconds.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            self.core.poll_once(self.now);
            let mut frames = Vec::new();
            self.device.receive(self.now, &mut frames, 64);
            self.frames.extend(frames.iter().map(|frame| frame.piece(0).unwrap().to_vec()));
            self.events.extend(std::iter::from_fn(|| self.rings.events.pop()));
            self.now += 1000;
        }
    }

    /// Lets time pass in steps of ten milliseconds.
    pub fn pass_ms(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds * MILLISECOND;
        while self.now < end {
            self.settle();
            self.now = (self.now + 10 * MILLISECOND).min(end);
        }
        self.settle();
    }

    /// The one frame the core has sent since the last look.
    #[track_caller]
    pub fn one(&mut self) -> Octets {
        assert_eq!(self.frames.len(), 1, "{:02x?}", self.frames);
        self.frames.pop_front().unwrap()
    }

    #[track_caller]
    pub fn nothing(&self) {
        assert!(self.frames.is_empty(), "{:02x?}", self.frames);
    }

    pub fn dropped(&self, cause: DropCause) -> u64 {
        self.core.statistics().dropped(cause)
    }
}

/// A frame with `payload` after an Ethernet header.
pub fn frame(destination: MacAddress, source: MacAddress, ethertype: EtherType, payload: &[u8]) -> Octets {
    let mut octets = vec![0; ethernet::Header::LEN];
    ethernet::Header { destination, source, ethertype }.emit(&mut octets);
    octets.extend_from_slice(payload);
    octets
}

/// An ARP packet from `sender` about `target`, in a frame to `destination`.
pub fn arp_frame(
    destination: MacAddress,
    operation: Operation,
    sender: (MacAddress, Ipv4Addr),
    target: (MacAddress, Ipv4Addr),
) -> Octets {
    let mut octets = [0; arp::Packet::LEN];
    arp::Packet {
        operation,
        sender_mac: sender.0,
        sender_ip: sender.1,
        target_mac: target.0,
        target_ip: target.1,
    }
    .emit(&mut octets);
    frame(destination, sender.0, EtherType::ARP, &octets)
}

/// Returns the destination of a frame, and the ARP packet in it.
#[track_caller]
pub fn arp_in(octets: &[u8]) -> (MacAddress, arp::Packet) {
    let (header, network) = ethernet::Header::parse(octets).unwrap();
    assert_eq!(header.ethertype, EtherType::ARP, "{octets:02x?}");
    (header.destination, arp::Packet::parse(&octets[network..]).unwrap())
}

/// An IP packet of either family.
pub fn ip_packet(
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    hop_limit: u8,
    payload: &[u8],
) -> Octets {
    let mut octets = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut octets = vec![0; ipv4::Header::LEN];
            ipv4::Header {
                source,
                destination,
                protocol,
                ttl: hop_limit,
                total_len: (ipv4::Header::LEN + payload.len()) as u16,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                identification: 7,
                ecn: 0,
                dscp: 0,
            }
            .emit(&mut octets);
            octets
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut octets = vec![0; ipv6::Header::LEN];
            ipv6::Header {
                source,
                destination,
                next_header: protocol,
                hop_limit,
                payload_len: payload.len() as u16,
                flow_label: 0,
                ecn: 0,
                dscp: 0,
            }
            .emit(&mut octets);
            octets
        }
        _ => panic!("two families"),
    };
    octets.extend_from_slice(payload);
    octets
}

/// A TCP segment with its checksum.
pub fn segment(source: IpAddr, destination: IpAddr, header: &Header, payload: &[u8]) -> Octets {
    let mut octets = vec![0; header.header_len()];
    header.emit(&mut octets);
    octets.extend_from_slice(payload);
    let mut sum = checksum::pseudo_header(source, destination, Protocol::TCP.0, octets.len() as u16);
    sum.add(&octets);
    tcp::set_checksum(&mut octets, sum.finish());
    octets
}

/// Returns the header of an IPv6 frame, and its payload.
#[track_caller]
pub fn ipv6_in(octets: &[u8]) -> (ipv6::Header, &[u8]) {
    let (header, network) = ethernet::Header::parse(octets).unwrap();
    assert_eq!(header.ethertype, EtherType::IPV6, "{octets:02x?}");
    let ip = ipv6::Header::parse(&octets[network..]).unwrap();
    (ip, &octets[network + ipv6::Header::LEN..][..usize::from(ip.payload_len)])
}

/// The TCP segment in an IPv6 frame, its checksum verified.
#[track_caller]
pub fn tcp_in(octets: &[u8]) -> (ipv6::Header, Header, Octets) {
    let (ip, rest) = ipv6_in(octets);
    assert_eq!(ip.next_header, Protocol::TCP, "{octets:02x?}");
    let mut sum = checksum::ipv6_pseudo_header(ip.source, ip.destination, Protocol::TCP.0, rest.len() as u32);
    sum.add(rest);
    assert_eq!(sum.finish(), 0, "TCP checksum");
    let (header, offset) = Header::parse(rest).unwrap();
    (ip, header, rest[offset..].to_vec())
}

/// The ICMPv6 message in a frame, and the header before it.
pub fn icmpv6_in(octets: &[u8]) -> Result<(ipv6::Header, icmpv6::Message<'_>), Malformed> {
    let (ip, rest) = ipv6_in(octets);
    assert_eq!(ip.next_header, Protocol::ICMPV6, "{octets:02x?}");
    Ok((ip, icmpv6::Message::parse(rest, ip.source, ip.destination)?))
}

/// An ICMPv6 message with its checksum, in a frame.
pub fn icmpv6_frame(
    (destination_mac, source_mac): (MacAddress, MacAddress),
    (source, destination): (Ipv6Addr, Ipv6Addr),
    hop_limit: u8,
    message: &[u8],
) -> Octets {
    let mut message = message.to_vec();
    icmpv6::set_checksum(&mut message, source, destination);
    let packet = ip_packet(source.into(), destination.into(), Protocol::ICMPV6, hop_limit, &message);
    frame(destination_mac, source_mac, EtherType::IPV6, &packet)
}

/// Takes the core's reports of other stations with its addresses: the address, the station, and whether the
/// address was given up.
pub fn conflicts(link: &mut Link) -> Vec<(IpAddr, MacAddress, bool)> {
    let conflict = |event: Event| match event {
        Event::Notice(Notice::AddressConflict { address, mac, abandoned }) => (address, mac, abandoned),
        other => panic!("{other:?}"),
    };
    link.events.drain(..).map(conflict).collect()
}
