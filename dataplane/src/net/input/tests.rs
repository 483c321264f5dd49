//! Tests of segments in: one pass over the headers finds what [`Host::receive`] finds field by field.

use std::net::{Ipv6Addr, SocketAddrV6};

use arrayvec::ArrayVec;
use proptest::prelude::*;

use super::*;
use crate::device::sim::{self, EndConfig, SimDevice, SimFrame};
use crate::net::Host;
use crate::net::addresses::{Addresses, Cidr, Presence, Routes};
use crate::net::flow::FlowKey;
use crate::net::host::Config;
use crate::net::inbound::Inbound;
use crate::net::link::Egress;
use crate::net::testing::sums;
use crate::secret::Secret;
use crate::time::Instant;
use crate::wire::flow::FlowV6;
use crate::wire::ipv6;
use crate::wire::tcp::{self, Flags, Options, SeqNumber, Timestamps};
use crate::wire::tcp_rdma::{DEFAULT_KIND, RdmaOption, Rid, Transfer};

const NOW: Instant = Instant::from_nanos(1000);
/// The second IPv6 address of each host.
const OTHER: u16 = 77;
const PAYLOAD: &[u8] = b"octets of a segment that is long enough to be compared";
const VLAN: u16 = 7;

fn v6(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)
}

fn host(device: SimDevice, number: u8, vlan: Option<u16>) -> Host<SimDevice> {
    let mut addresses: Addresses =
        [number.into(), OTHER].map(|host| Cidr::new(v6(host).into(), 64)).into_iter().collect();
    addresses.push(Cidr::new([198, 18, 0, number].into(), 24));
    let config = Config {
        addresses,
        routes: Routes::new(),
        neighbours: ArrayVec::new(),
        presence: Presence::Own,
        duplicate_address_detection: false,
        vlan,
        rdma_option_kind: DEFAULT_KIND,
    };
    let mut host = Host::new(device, config, Secret::new([1, 2]), None);
    assert!(host.detect_duplicates(NOW).is_some());
    host
}

/// The form of a frame with a segment, and where it comes from.
#[derive(Clone, Copy, Debug)]
struct Form {
    over_ipv6: bool,
    vlan: Option<u16>,
    timestamps: bool,
    looped: bool,
}

impl Form {
    /// All forms.
    fn all() -> impl Iterator<Item = Self> {
        (0..16).map(|bits| Self {
            over_ipv6: bits & 1 != 0,
            vlan: (bits & 2 != 0).then_some(VLAN),
            timestamps: bits & 4 != 0,
            looped: bits & 8 != 0,
        })
    }

    /// The sender's view of the flow: to the receiver from another host, or from the receiver itself.
    fn key(self) -> FlowKey {
        let from = if self.looped { 2 } else { 1 };
        let (local, remote) = if self.over_ipv6 {
            (v6(from).into(), v6(2).into())
        } else {
            ([198, 18, 0, from as u8].into(), [198, 18, 0, 2].into())
        };
        FlowKey { local, remote, remote_port: 4791, local_port: 7471 }
    }

    fn header(self, seq: u32, flags: Flags) -> Header {
        let timestamps = self.timestamps.then_some(Timestamps { value: 5, echo: 6 });
        let options = Options { timestamps, ..Options::default() };
        let seq = SeqNumber(seq);
        Header {
            seq,
            ack: SeqNumber(9),
            flags: Flags::ACK | flags,
            window: 501,
            options,
            ..Header::default()
        }
    }

    /// Where its frames come from, if nothing has verified their checksums.
    const fn ingress(self) -> Ingress {
        if self.looped { Ingress::Loopback } else { Ingress::Wire }
    }

    /// Where its IP header begins.
    const fn network(self) -> usize {
        if self.vlan.is_some() { TAGGED_LINK } else { LINK }
    }

    /// Where its TCP header begins.
    const fn transport(self) -> usize {
        self.network() + if self.over_ipv6 { ipv6::Header::LEN } else { ipv4::Header::LEN }
    }
}

/// Returns the segment that `host` finds in `frame`.
fn segment_in(host: &Host<SimDevice>, frame: &SimFrame, ingress: Ingress) -> Option<Segment> {
    let mut segment = Segment::NONE;
    host.parser.find(&mut segment, frame, ingress).then_some(segment)
}

/// A host, and another on its link.
struct Pair {
    sender: Host<SimDevice>,
    receiver: Host<SimDevice>,
}

impl Pair {
    fn new(vlan: Option<u16>) -> Self {
        // The host computes all checksums.
        let end = EndConfig { transmit_ip_checksums: false, ..EndConfig::a() };
        let (near, far) = sim::link(1, end, EndConfig { transmit_ip_checksums: false, ..EndConfig::b() });
        Self { sender: host(near, 1, vlan), receiver: host(far, 2, vlan) }
    }

    /// The octets of a segment of `key` to the hardware address of the receiver.
    fn octets(&mut self, key: &FlowKey, egress: Egress, header: &Header, payload: &[u8]) -> Vec<u8> {
        let from = if egress.is_loopback() { &mut self.receiver } else { &mut self.sender };
        let mut template = from.new_template(key, egress);
        let headers = template.octets_with(header);
        let mut frame = from.interface.empty_frame().expect("a frame");
        frame.append(headers + payload.len()).expect("room")[headers..].copy_from_slice(payload);
        template.write_header(&mut frame, header, payload.len(), 0b10, DEFAULT_KIND);
        frame.piece(0).expect("octets").to_vec()
    }

    /// The octets of a segment in this form.
    fn segment(&mut self, form: Form, header: &Header) -> Vec<u8> {
        let egress =
            if form.looped { Egress::Loopback } else { Egress::Wire(self.receiver.interface.link.mac) };
        self.octets(&form.key(), egress, header, PAYLOAD)
    }

    /// A frame of the receiver with these octets.
    fn frame(&mut self, octets: &[u8]) -> SimFrame {
        let mut frame = self.receiver.interface.empty_frame().expect("a frame");
        frame.append(octets.len()).expect("room").copy_from_slice(octets);
        frame
    }

    /// Returns the segment that one pass finds in `octets` from `ingress`, and its header. Fails if
    /// [`Host::receive`] finds another, or finds one in a packet without IP options or extension headers
    /// where one pass finds none.
    fn found(&mut self, octets: &[u8], ingress: Ingress) -> Option<(Segment, Header)> {
        let frame = self.frame(octets);
        let host = &mut self.receiver;
        let flow_ahead = host.interface.flow_of(&frame);
        let found = segment_in(host, &frame, ingress)
            .filter(|segment| host.neighbourhood.may_have_connection(&segment.flow, ingress))
            .map(|segment| (segment, host.parser.header_of(&segment, &frame)));
        let received = match host.receive(NOW, frame, ingress) {
            Ok(Inbound::Segment(segment, header, _)) => Some((segment, header)),
            _ => None,
        };
        host.interface.flush(NOW);
        let Some((by_field, full)) = received else {
            assert_eq!(found, None, "{ingress:?}: not received as a segment");
            return None;
        };
        let Some((segment, header)) = found else {
            assert!(is_left_to_receive(host, octets, &by_field), "{ingress:?}: {by_field:?} is not found");
            return None;
        };
        assert_eq!(flow_ahead, Some(segment.flow), "what looks ahead reads the same flow");
        // The urgent pointer, which this TCP does not read, is parsed with other options only; timestamps
        // that stand otherwise than after two NOPs are among those.
        assert_eq!(Header { urgent: 0, ..header.clone() }, Header { urgent: 0, ..full.clone() });
        assert!(segment.has_other_options || segment.rdma_octets > 0 || !by_field.has_other_options);
        let Segment { timestamps, rdma_octets, has_other_options, .. } = segment;
        assert!(has_other_options || timestamps == full.options.timestamps);
        let rdma = segment.rdma_option(octets);
        assert!(rdma_octets == 0 || rdma.is_some() && rdma == full.options.rdma);
        assert_eq!(segment, Segment { timestamps, rdma_octets, has_other_options, ..by_field });
        Some((segment, header))
    }
}

/// Returns true if the packet of `segment`, which was received field by field, is one that a pass over the
/// usual headers leaves: it has options or extension headers of IP, or the reserved flag of IPv4.
fn is_left_to_receive(host: &Host<SimDevice>, frame: &[u8], segment: &Segment) -> bool {
    let network = if host.interface.link.vlan.is_some() { TAGGED_LINK } else { LINK };
    let has_more = segment.transport != network + segment.flow.network_octets();
    has_more || matches!(segment.flow, Flow::V4(_)) && frame[network + 6] & 0x80 != 0
}

/// Corrects the checksums of a frame in `form` whose headers and lengths are those it had.
fn correct(form: Form, octets: &mut [u8]) {
    let (network, transport) = (form.network(), form.transport());
    let (before, segment) = octets.split_at_mut(transport);
    let ip = &mut before[network..];
    let addresses = if form.over_ipv6 { 8 } else { 12 };
    let mut pseudo = checksum::sum(&ip[addresses..]);
    pseudo.add(&[0, Protocol::TCP.0]);
    pseudo.add(&(segment.len() as u16).to_be_bytes());
    if !form.over_ipv6 {
        ip[10..12].fill(0);
        let sum = checksum::sum(ip).finish();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    tcp::set_checksum(segment, 0);
    pseudo.add(segment);
    tcp::set_checksum(segment, pseudo.finish());
}

/// A segment is found in all forms, with the fields that [`wire::tcp`](crate::wire::tcp) finds; and so it is
/// with any octet changed: with checksums verified, not verified, and corrected after the change. With the
/// wrong checksum only octets that no checksum covers may be changed.
#[test]
fn a_found_segment_is_received_as_the_same() {
    for form in Form::all() {
        let mut pair = Pair::new(form.vlan);
        let sent = form.header(7, Flags::PSH);
        let octets = pair.segment(form, &sent);
        let (segment, header) = pair.found(&octets, form.ingress()).expect("a segment");
        let key = form.key();
        assert_eq!(header, Header { source_port: key.local_port, destination_port: key.remote_port, ..sent });
        assert_eq!((segment.transport, segment.ecn, segment.flags), (form.transport(), 0b10, header.flags));
        assert_eq!(&octets[segment.payload_offset..segment.end()], PAYLOAD, "{form:?}");
        for at in 0..octets.len() {
            // The addresses of IPv6 are covered, its other fields are not.
            let ip = if form.over_ipv6 { 8 } else { 0 };
            let covered = at >= form.network() + ip;
            for bits in [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x41, 0xff] {
                let mut octets = octets.clone();
                octets[at] ^= bits;
                if form.looped {
                    pair.found(&octets, Ingress::Loopback);
                    continue;
                }
                pair.found(&octets, Ingress::Verified);
                let found = pair.found(&octets, Ingress::Wire);
                assert!(found.is_none() || !covered, "{form:?}: octet {at} ^ {bits:#x}");
                correct(form, &mut octets);
                pair.found(&octets, Ingress::Wire);
            }
        }
    }
}

proptest! {
    /// The same with octets changed at random, several at a time.
    #[test]
    fn a_segment_changed_at_random_is_received_as_the_same(
        form in proptest::sample::select(Form::all().collect::<Vec<_>>()),
        changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
    ) {
        let mut pair = Pair::new(form.vlan);
        let mut octets = pair.segment(form, &form.header(7, Flags::PSH));
        for (at, value) in changes {
            let at = at % octets.len();
            octets[at] = value;
        }
        pair.found(&octets, form.ingress());
        if !form.looped {
            pair.found(&octets, Ingress::Verified);
            correct(form, &mut octets);
            pair.found(&octets, Ingress::Wire);
        }
    }
}

/// Any control bits and options do not hide a segment: `header_of` has all of them.
#[test]
fn segments_with_other_options_are_found() {
    let clock = Some(Timestamps { value: 1, echo: 2 });
    let none = Options::default;
    let blocks = [(SeqNumber(70), SeqNumber(80))];
    let options = [
        Options { mss: Some(1460), window_scale: Some(7), timestamps: clock, ..none() },
        Options { sack: blocks.into_iter().collect(), timestamps: clock, ..none() },
        Options { sack: blocks.into_iter().collect(), ..none() },
    ];
    for (form, options) in
        Form::all().flat_map(|form| options.iter().map(move |options| (form, options.clone())))
    {
        let mut pair = Pair::new(form.vlan);
        let control = [Flags::SYN, Flags::FIN, Flags::RST, Flags::ECE, Flags::CWR, Flags::empty()];
        for flags in control {
            let sent = Header { options: options.clone(), ..form.header(7, flags) };
            let octets = pair.segment(form, &sent);
            let (segment, header) = pair.found(&octets, form.ingress()).expect("a segment");
            assert!(segment.has_other_options && segment.timestamps.is_none());
            assert_eq!((segment.flags, header.flags, &header.options), (sent.flags, sent.flags, &options));
        }
    }
}

/// The TCP RDMA option, of the host's kind, is found without others and after timestamps; beside others it is
/// one of them, and so is the offer of a SYN.
#[test]
fn an_rdma_option_is_found() {
    let transfer = |total_octets| {
        let (rid, data_octets) = (Rid::new(0x2abc_dead_beef).expect("46 bits"), 40);
        RdmaOption::Transfer(Transfer {
            rid,
            message_aligned: true,
            unsolicited: false,
            buffer_offset: 7,
            data_offset: 2,
            data_octets,
            total_octets,
        })
    };
    let aligned = RdmaOption::Aligned { message_aligned: true, unsolicited: true };
    for option in [transfer(None), transfer(Some(9000)), aligned, RdmaOption::Permitted] {
        for timestamps in [None, Some(Timestamps { value: 1, echo: 2 })] {
            for form in Form::all() {
                let mut pair = Pair::new(form.vlan);
                let rdma = Some(option);
                let alone = Options { timestamps, rdma, ..Options::default() };
                let sent = Header { options: alone.clone(), ..form.header(7, Flags::empty()) };
                let octets = pair.segment(form, &sent);
                let (segment, header) = pair.found(&octets, form.ingress()).expect("a segment");
                let offers = option == RdmaOption::Permitted;
                assert_eq!(segment.has_other_options, offers, "{option:?}");
                assert_eq!(segment.rdma_option(&octets).filter(|_| !offers), rdma.filter(|_| !offers));
                assert_eq!(
                    (&header.options, segment.timestamps.is_none()),
                    (&alone, offers || timestamps.is_none())
                );
                let blocks = [(SeqNumber(70), SeqNumber(80))].into_iter().collect();
                let beside = Options { sack: blocks, ..alone };
                if option.len() == RdmaOption::MAX_LEN && timestamps.is_some() {
                    // There is no room for a block beside them.
                    continue;
                }
                let sent = Header { options: beside.clone(), ..sent };
                let octets = pair.segment(form, &sent);
                let (segment, header) = pair.found(&octets, form.ingress()).expect("a segment");
                assert!(segment.has_other_options && segment.rdma_octets == 0);
                assert_eq!(header.options, beside);
            }
        }
    }
}

/// Padding belongs to no segment, and a frame that is cut off, or not in one piece, has none.
#[test]
fn a_segment_is_complete_and_contiguous() {
    for form in Form::all() {
        let mut pair = Pair::new(form.vlan);
        let octets = pair.segment(form, &form.header(7, Flags::PSH));
        let found = pair.found(&octets, form.ingress());
        assert!(found.is_some());
        assert_eq!(pair.found(&[&octets[..], &[0xee; 5]].concat(), form.ingress()), found, "{form:?}");
        for length in 0..octets.len() {
            for ingress in [form.ingress(), Ingress::Verified] {
                assert_eq!(pair.found(&octets[..length], ingress), None, "{length}");
            }
        }
    }
    let far = EndConfig { receive_piece_octets: 76, ..EndConfig::b() };
    let (near, far) = sim::link(1, EndConfig::a(), far);
    let mut pair = Pair { sender: host(near, 1, None), receiver: host(far, 2, None) };
    let form = Form { over_ipv6: true, vlan: None, timestamps: false, looped: false };
    let octets = pair.segment(form, &form.header(7, Flags::PSH));
    let mut frame = pair.sender.interface.empty_frame().expect("a frame");
    frame.append(octets.len()).expect("room").copy_from_slice(&octets);
    pair.sender.interface.queue_reply(frame);
    pair.sender.interface.flush(NOW);
    let mut burst = pair.receiver.interface.dequeue_burst(NOW + 1_000_000).expect("a burst");
    let frame = burst.pop().expect("a frame");
    burst.clear();
    pair.receiver.interface.end_burst(burst);
    assert_eq!((frame.piece(0).map(<[u8]>::len), frame.len()), (Some(76), octets.len()));
    assert_eq!(segment_in(&pair.receiver, &frame, Ingress::Wire), None);
    assert!(matches!(pair.receiver.receive(NOW, frame, Ingress::Wire), Ok(Inbound::Segment(..))));
}

/// Frames with the tag of another VLAN, without one, and with one where the host has none.
#[test]
fn a_segment_is_in_the_vlan_of_the_host() {
    for over_ipv6 in [false, true] {
        let form = |vlan| Form { over_ipv6, vlan, timestamps: true, looped: false };
        let vlans = [None, Some(VLAN), Some(VLAN + 1)];
        for (sent, own) in vlans.into_iter().flat_map(|sent| vlans.map(|own| (sent, own))) {
            let octets = Pair::new(sent).segment(form(sent), &form(sent).header(7, Flags::PSH));
            let found = Pair::new(own).found(&octets, Ingress::Wire);
            assert_eq!(found.is_some(), sent == own, "{sent:?} to {own:?}");
        }
    }
}

/// The checksum of a segment from the wire is computed once, and never of one that is verified or looped:
/// when it is found, and when it follows another.
#[test]
fn a_checksum_is_computed_once() {
    for form in Form::all() {
        let mut pair = Pair::new(form.vlan);
        let frames = [(7, Flags::empty()), (7 + PAYLOAD.len() as u32, Flags::PSH)]
            .map(|(seq, flags)| pair.segment(form, &form.header(seq, flags)))
            .map(|octets| pair.frame(&octets));
        let [first, next] = frames;
        for (ingress, computed) in [(form.ingress(), u64::from(!form.looped)), (Ingress::Verified, 0)] {
            let copy = first.copy_part(0, first.len()).expect("a frame");
            let before = sums();
            let mut segment = segment_in(&pair.receiver, &copy, ingress).expect("a segment");
            assert_eq!(sums() - before, computed, "{form:?}, {ingress:?}");
            pair.receiver.parser.begin_following(&segment, &copy);
            assert!(pair.receiver.parser.follow(&mut segment, &next, ingress));
            assert_eq!(sums() - before, 2 * computed, "{form:?}, {ingress:?}");
        }
    }
}

/// The device's word holds for each checksum, and if it has none, the checksum is computed.
#[test]
fn the_device_tells_whether_checksums_hold() {
    use ChecksumStatus::{Bad, Good, Unknown};
    for form in Form::all().filter(|form| !form.looped) {
        let mut pair = Pair::new(form.vlan);
        let octets = pair.segment(form, &form.header(7, Flags::PSH));
        let (segment, _) = pair.found(&octets, Ingress::Wire).expect("a segment");
        let network = form.network();
        let changed = |at: usize| {
            let mut octets = octets.clone();
            octets[at] ^= 1;
            octets
        };
        // The time to live, which only the IPv4 header's checksum covers, and an octet of payload.
        let frames = [(octets.clone(), true, true), (changed(octets.len() - 1), true, false)]
            .into_iter()
            .chain((!form.over_ipv6).then(|| (changed(network + 8), false, true)));
        for (octets, ip_holds, tcp_holds) in frames {
            for (ip, tcp) in
                [Unknown, Good, Bad].into_iter().flat_map(|ip| [Unknown, Good, Bad].map(|t| (ip, t)))
            {
                let agrees = |status, holds| status == Good || status == Unknown && holds;
                let expected = (form.over_ipv6 || agrees(ip, ip_holds)) && agrees(tcp, tcp_holds);
                let device = ReceivedChecksums { ip, tcp };
                let holds = unverified_checksums_hold(device, &segment, network, &octets);
                assert_eq!(holds, expected, "{form:?}, {device:?}, {ip_holds}, {tcp_holds}");
            }
        }
    }
}

/// A segment follows the one whose headers it is compared with; with any bit of its frame changed it is
/// refused, or the one that is found in the frame.
#[test]
fn a_segment_that_follows_is_found_as_the_same() {
    for form in Form::all() {
        let mut pair = Pair::new(form.vlan);
        let first = pair.segment(form, &form.header(7, Flags::empty()));
        let next = pair.segment(form, &form.header(7 + PAYLOAD.len() as u32, Flags::PSH));
        let (first_frame, next_frame) = (pair.frame(&first), pair.frame(&next));
        let (parsed, _) = pair.found(&first, form.ingress()).expect("a segment");
        let mut segment = parsed;
        assert!(
            !pair.receiver.parser.follow(&mut segment, &next_frame, form.ingress()),
            "compared with none"
        );
        pair.receiver.parser.begin_following(&parsed, &first_frame);
        assert!(pair.receiver.parser.follow(&mut segment, &next_frame, form.ingress()), "{form:?}");
        assert_eq!(Some(segment), segment_in(&pair.receiver, &next_frame, form.ingress()));
        assert_ne!(segment, parsed);
        let headers = segment.payload_offset;
        for bit in 0..8 * next.len() {
            let mut octets = next.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            let ingresses: &[Ingress] =
                if form.looped { &[Ingress::Loopback] } else { &[Ingress::Wire, Ingress::Verified] };
            for ingress in ingresses {
                let frame = pair.frame(&octets);
                let mut segment = parsed;
                if !pair.receiver.parser.follow(&mut segment, &frame, *ingress) {
                    let refused = *ingress == Ingress::Wire || bit / 8 < headers;
                    assert!(refused, "{form:?}, {ingress:?}: bit {bit} of the payload");
                    continue;
                }
                // No checksum covers the ECN bits of IPv6.
                let is_mark = form.over_ipv6 && segment.ecn != parsed.ecn;
                assert!(
                    *ingress != Ingress::Wire || is_mark,
                    "bit {bit}: a checksum is wrong, or an address differs"
                );
                let found = segment_in(&pair.receiver, &frame, *ingress);
                assert_eq!(found, Some(segment), "{form:?}, {ingress:?}: bit {bit}");
            }
        }
    }
}

/// A frame from the wire with the addresses of a connection of the host to itself is found, has a good
/// checksum, and belongs to no connection; one from the host itself with another source neither.
#[test]
fn a_looped_connection_accepts_nothing_from_the_wire() {
    for form in Form::all() {
        let mut pair = Pair::new(form.vlan);
        let own = Egress::Wire(pair.receiver.interface.link.mac);
        let octets = pair.octets(&form.key(), own, &form.header(7, Flags::PSH), PAYLOAD);
        let frame = pair.frame(&octets);
        for ingress in [Ingress::Wire, Ingress::Verified, Ingress::Loopback] {
            let segment = segment_in(&pair.receiver, &frame, ingress).expect("a segment");
            let may = pair.receiver.neighbourhood.may_have_connection(&segment.flow, ingress);
            assert_eq!(may, ingress.is_loopback() == form.looped, "{form:?}, {ingress:?}");
            assert_eq!(pair.found(&octets, ingress).is_some(), may);
        }
    }
}

/// A tentative address has no connection, neither as destination nor as source: it may become the host's own,
/// or never.
#[test]
fn tentative_addresses_have_no_connection() {
    let flow = |source: u16, destination: u16| {
        Flow::V6(FlowV6::new(
            SocketAddrV6::new(v6(source), 1, 0, 0),
            SocketAddrV6::new(v6(destination), 2, 0, 0),
        ))
    };
    let (_near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
    let mut host = Host::new(
        far,
        Config {
            addresses: [2, OTHER].map(|host| Cidr::new(v6(host).into(), 64)).into_iter().collect(),
            routes: Routes::new(),
            neighbours: ArrayVec::new(),
            presence: Presence::Own,
            duplicate_address_detection: true,
            vlan: None,
            rdma_option_kind: DEFAULT_KIND,
        },
        Secret::new([1, 2]),
        None,
    );
    let usable = |host: &Host<SimDevice>| {
        for (source, destination) in [(2, OTHER), (OTHER, 2)] {
            let flow = flow(source, destination);
            assert!(
                !host.neighbourhood.may_have_connection(&flow, Ingress::Wire),
                "an own address is no source"
            );
            // Both are in use only when the second is.
            let both = [source, destination].map(|own| host.neighbourhood.own.contains(v6(own).into()));
            assert_eq!(host.neighbourhood.may_have_connection(&flow, Ingress::Loopback), both == [true; 2]);
        }
        [2, OTHER].map(|own| host.neighbourhood.may_have_connection(&flow(1, own), Ingress::Wire))
    };
    assert!(host.detect_duplicates(NOW).is_some());
    let mut seen = vec![usable(&host)];
    while host.neighbourhood.own.next_due() != Instant::NEVER {
        host.detect_duplicates(host.neighbourhood.own.next_due());
        seen.push(usable(&host));
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "one address after the other: {seen:?}");
    assert_eq!((seen[0], seen[2]), ([false; 2], [true; 2]));
}
