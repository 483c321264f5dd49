//! Tests against the network stack of the kernel at the other end of a veth pair, and against its queues.
//! They need root.
#![allow(missing_docs)]
#![expect(unsafe_code, reason = "namespaces and taps have no safe interface")]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use common::frames::{ICMP, Segment, UDP, ip, parse_ip, pattern, pseudo_sum, sum, udp};
use common::{config, eventually, in_namespace, make_veth, next, offer, open, run, send, send_all};
use packet::{
    Checksum, Config, FRAME_MAX_OCTETS, Fanout, Filter, Offload, PacketSocket, Received, Sent, Stopped,
};

const NEAR: [&str; 2] = ["198.18.0.2", "fd00::2"];
const FAR: [&str; 2] = ["198.18.0.1", "fd00::1"];

const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;

/// Opens a socket on `near` for super-frames to the addresses of `NEAR`.
fn open_near() -> PacketSocket {
    let filter = Filter::addresses(&NEAR.map(|address| address.parse().unwrap()), None);
    open(&Config { frame_octets: FRAME_MAX_OCTETS, filter: Some(&filter), ..config("near") })
}

/// Waits for the next frame with a packet of `protocol`, past the kernel's reports of its multicast groups
/// and its neighbour discovery; returns what `look` makes of it.
fn next_of<T>(protocol: u8, socket: &mut PacketSocket, look: impl Fn(&Received<'_>) -> T) -> T {
    loop {
        let found = next(socket, |received| {
            let is_it = parse_ip(received.octets()).is_some_and(|(_, _, found, _)| found == protocol);
            is_it.then(|| look(received))
        });
        if let Some(found) = found {
            return found;
        }
    }
}

#[test]
fn datagrams_cross_both_ways() {
    in_namespace(|| {
        make_veth();
        let mut socket = open_near();
        assert_eq!(socket.mac(), [2, 0, 0, 0, 0, 2]);
        for (near, far) in NEAR.into_iter().zip(FAR) {
            let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
            let kernel = UdpSocket::bind((far, 5000)).unwrap();
            kernel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            kernel.connect((near, 4000)).unwrap();
            for octets in [0, 1, 63, 1000, 1400] {
                let payload = pattern(octets, octets);
                kernel.send(&payload).unwrap();
                next_of(UDP, &mut socket, |received| {
                    let (.., transport) = parse_ip(received.octets()).unwrap();
                    assert_eq!(received.checksum(), Checksum::Partial);
                    let pseudo = pseudo_sum(far, near, UDP, transport.len());
                    assert_eq!(transport[6..8], pseudo.to_be_bytes());
                    assert_eq!(transport[8..], payload);
                });
                for partial in [false, true] {
                    let checksum_start = if near.is_ipv6() { 54 } else { 34 };
                    let offload = Offload { checksum_start, checksum_offset: 6, segmentation: None };
                    let frame = udp((near, 4000), (far, 5000), &payload, partial);
                    send(&mut socket, &frame, partial.then_some(offload));
                    let mut buffer = [0; 2000];
                    let received = kernel.recv(&mut buffer).unwrap();
                    assert_eq!(buffer[..received], payload);
                }
            }
        }
    });
}

#[test]
fn kernel_answers_an_echo_request() {
    in_namespace(|| {
        make_veth();
        let mut socket = open_near();
        let (near, far) = (NEAR[0].parse().unwrap(), FAR[0].parse().unwrap());
        let mut request = [&[8, 0, 0, 0, 0x12, 0x34, 0, 1][..], &pattern(1000, 5)].concat();
        let checksum = !sum(&request);
        request[2..4].copy_from_slice(&checksum.to_be_bytes());
        send(&mut socket, &ip(near, far, ICMP, &request), None);
        next_of(ICMP, &mut socket, |received| {
            let (source, destination, protocol, reply) = parse_ip(received.octets()).unwrap();
            assert_eq!((source, destination, protocol), (far, near, ICMP));
            assert_eq!((reply[0], &reply[4..]), (0, &request[4..]));
            assert_eq!(sum(reply), 0xffff);
            assert_ne!(received.checksum(), Checksum::Partial);
        });
    });
}

/// A connection to a listener of the kernel, by hand: in order, and without loss.
struct Connection<'a> {
    socket: &'a mut PacketSocket,
    near: SocketAddr,
    far: SocketAddr,
    /// The next octet to send, and the next to receive.
    sequence: u32,
    acknowledgment: u32,
    /// Super-frames received.
    super_frames: usize,
}

impl Connection<'_> {
    fn segment(&self, flags: u8, payload: Vec<u8>) -> Segment {
        Segment {
            source: (self.near.ip(), self.near.port()),
            destination: (self.far.ip(), self.far.port()),
            sequence: self.sequence,
            acknowledgment: self.acknowledgment,
            flags,
            payload,
        }
    }

    fn send(&mut self, flags: u8, payload: Vec<u8>, segment_octets: u16) {
        let segment = self.segment(flags, payload);
        send(self.socket, &segment.frame(), Some(segment.offload(segment_octets, 0)));
        self.sequence = self.sequence.wrapping_add(segment.payload.len() as u32);
    }

    /// Waits for the next segment of the connection.
    fn next(&mut self) -> Segment {
        loop {
            let (segment, segment_octets) = next(self.socket, |received| {
                assert!(!received.is_cut());
                let partial = received.checksum() == Checksum::Partial;
                (Segment::parse(received.octets(), partial), received.segment_octets())
            });
            let Some(segment) = segment else {
                continue;
            };
            assert_eq!(segment.destination, (self.near.ip(), self.near.port()));
            if let Some(octets) = segment_octets {
                self.super_frames += 1;
                assert!(segment.payload.len() > usize::from(octets));
                assert!((500..=1460).contains(&octets), "{octets}");
            }
            return segment;
        }
    }

    fn connect(&mut self) {
        self.send(SYN, Vec::new(), 0);
        let reply = self.next();
        assert_eq!(reply.flags & (SYN | ACK), SYN | ACK);
        self.sequence = self.sequence.wrapping_add(1);
        assert_eq!(reply.acknowledgment, self.sequence);
        self.acknowledgment = reply.sequence.wrapping_add(1);
        self.send(ACK, Vec::new(), 0);
    }

    /// Receives to the end of the stream; returns what came.
    fn receive_all(&mut self) -> Vec<u8> {
        let mut stream = Vec::new();
        loop {
            let segment = self.next();
            let is_end = segment.flags & FIN != 0;
            if segment.sequence == self.acknowledgment {
                self.acknowledgment = self.acknowledgment.wrapping_add(segment.payload.len() as u32);
                stream.extend(segment.payload);
                self.acknowledgment = self.acknowledgment.wrapping_add(u32::from(is_end));
                self.send(ACK, Vec::new(), 0);
                if is_end {
                    return stream;
                }
            }
        }
    }
}

#[test]
fn super_frames_cross_both_ways() {
    in_namespace(|| {
        make_veth();
        let mut socket = open_near();
        for (near, far) in NEAR.into_iter().zip(FAR) {
            let (near, far): (IpAddr, IpAddr) = (near.parse().unwrap(), far.parse().unwrap());
            let listener = TcpListener::bind((far, 5000)).unwrap();
            let outgoing = pattern(300_000, 9);
            let incoming = pattern(60_000, 4);
            thread::scope(|scope| {
                let kernel = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut found = vec![0; incoming.len()];
                    stream.read_exact(&mut found).unwrap();
                    assert!(found == incoming, "the stream is another one");
                    stream.write_all(&outgoing).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                let mut connection = Connection {
                    socket: &mut socket,
                    near: (near, 4000).into(),
                    far: (far, 5000).into(),
                    sequence: 1_000_000,
                    acknowledgment: 0,
                    super_frames: 0,
                };
                connection.connect();
                // One frame. The kernel's window is no smaller.
                connection.send(ACK, incoming.clone(), 1000);
                assert!(connection.receive_all() == outgoing, "the stream is another one");
                assert!(connection.super_frames > 0, "only single segments came");
                kernel.join().unwrap();
            });
        }
        assert_eq!(socket.statistics().dropped_frames, 0);
        assert_eq!(socket.statistics().refused_frames, 0);
    });
}

/// The number in a datagram of a test.
fn numbered(number: u32, octets: usize) -> Vec<u8> {
    let payload = [&number.to_be_bytes()[..], &pattern(octets - 4, number as usize)].concat();
    let (near, far) = (NEAR[0].parse().unwrap(), FAR[0].parse().unwrap());
    udp((near, 4000), (far, 5000), &payload, false)
}

/// Sends datagrams of so many octets, numbered from 0 on, in a burst.
fn send_numbered(socket: &mut PacketSocket, octets: &[usize]) {
    let frames: Vec<_> = (0..).zip(octets).map(|(number, octets)| numbered(number, *octets)).collect();
    let frames: Vec<_> = frames.iter().map(|frame| (&frame[..], None)).collect();
    send_all(socket, &frames);
}

fn kernel_socket() -> UdpSocket {
    let kernel = UdpSocket::bind((FAR[0], 5000)).unwrap();
    kernel.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    kernel
}

fn number_received(kernel: &UdpSocket) -> u32 {
    let mut buffer = [0; 2000];
    let octets = kernel.recv(&mut buffer).unwrap();
    let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
    assert_eq!(buffer[4..octets], pattern(octets - 4, number as usize));
    number
}

#[test]
fn full_queue_loses_no_frame() {
    in_namespace(|| {
        make_veth();
        // 60 frames of 1000 octets at 4 Mbit/s, in a queue for three of them; UDP holds 90 for its reader.
        run("tc", "qdisc add dev near root tbf rate 4mbit burst 2000 limit 3200");
        let kernel = kernel_socket();
        let mut socket = open_near();
        let frames: Vec<_> = (0..60).map(|number| numbered(number, 1000)).collect();
        let frames: Vec<_> = frames.iter().map(|frame| (&frame[..], None)).collect();
        let (mut taken, mut waits) = (0, 0);
        eventually("the kernel to take all frames", || {
            let sent = offer(&mut socket, &frames[taken..]);
            taken += sent.frames;
            waits += usize::from(sent.stopped == Some(Stopped::Busy));
            (taken == frames.len()).then_some(())
        });
        // All arrive in their order; on a machine that stands still for long, one may be given up.
        let statistics = socket.statistics();
        let given_up = statistics.refused_frames;
        assert_eq!(statistics.sent_frames + given_up, 60);
        let arrived: Vec<u32> = (given_up..60).map(|_| number_received(&kernel)).collect();
        assert!(arrived.is_sorted_by(|one, next| one < next), "{arrived:?}");
        assert!(waits > 0, "the queue was never full");
    });
}

#[test]
fn frame_that_no_queue_takes_is_given_up() {
    in_namespace(|| {
        make_veth();
        // No frame of more than 600 octets passes.
        run("tc", "qdisc add dev near root tbf rate 100mbit burst 600 limit 10000");
        let kernel = kernel_socket();
        let mut socket = open_near();
        send_numbered(&mut socket, &[100, 1000, 100]);
        assert_eq!([number_received(&kernel), number_received(&kernel)], [0, 2]);
        assert_eq!(socket.statistics().refused_frames, 1);
    });
}

#[test]
fn frame_beyond_the_mtu_stops_nothing() {
    in_namespace(|| {
        make_veth();
        let kernel = kernel_socket();
        let mut socket = open_near();
        send_numbered(&mut socket, &[100, 1800, 100]);
        assert_eq!([number_received(&kernel), number_received(&kernel)], [0, 2]);
    });
}

#[test]
fn frames_without_a_carrier_are_given_up() {
    in_namespace(|| {
        make_veth();
        let kernel = kernel_socket();
        let mut socket = open_near();
        run("ip", "link set far down");
        send_numbered(&mut socket, &[100, 100]);
        run("ip", "link set far up");
        // Frames are lost until the kernel has noticed the carrier.
        kernel.set_nonblocking(true).unwrap();
        eventually("a frame to arrive", || {
            send(&mut socket, &numbered(2, 100), None);
            let mut buffer = [0; 200];
            let octets = kernel.recv(&mut buffer).ok()?;
            assert_eq!(buffer[..octets], numbered(2, 100)[42..]);
            Some(())
        });
    });
}

#[test]
fn nothing_is_taken_while_the_interface_is_down() {
    in_namespace(|| {
        make_veth();
        let kernel = kernel_socket();
        let mut socket = open_near();
        send(&mut socket, &numbered(0, 100), None);
        assert_eq!(number_received(&kernel), 0);
        for number in 1..3 {
            run("ip", "link set near down");
            let frame = numbered(number, 100);
            for _ in 0..2 {
                let sent = offer(&mut socket, &[(&frame, None)]);
                assert_eq!(sent, Sent { frames: 0, stopped: Some(Stopped::Down) });
            }
            let error = socket.take_error().expect("the kernel notes it on the socket");
            assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
            assert!(socket.take_error().is_none());
            run("ip", "link set near up");
            send(&mut socket, &frame, None);
            assert_eq!(number_received(&kernel), number);
            // It receives again, too, once the other end has noticed that it has a carrier.
            eventually("a frame", || {
                kernel.send_to(b"up again", (NEAR[0], 4000)).unwrap();
                let received = socket.receive()?;
                received.octets().ends_with(b"up again").then_some(())
            });
        }
    });
}

/// The socket remembers that the interface was down: that holds up nothing once it is up.
#[test]
fn an_interface_that_is_up_again_takes_the_first_frame() {
    in_namespace(|| {
        make_veth();
        let kernel = kernel_socket();
        let mut socket = open_near();
        for number in 0..3 {
            run("ip", "link set near down");
            let frame = numbered(number, 100);
            for _ in 0..2 {
                let sent = offer(&mut socket, &[(&frame, None)]);
                assert_eq!(sent, Sent { frames: 0, stopped: Some(Stopped::Down) });
            }
            run("ip", "link set near up");
            assert_eq!(offer(&mut socket, &[(&frame, None)]), Sent { frames: 1, stopped: None });
            assert_eq!(number_received(&kernel), number);
        }
    });
}

#[test]
fn socket_outlives_its_interface() {
    in_namespace(|| {
        make_veth();
        let mut socket = open_near();
        let kernel = kernel_socket();
        kernel.send_to(b"last words", (NEAR[0], 4000)).unwrap();
        eventually("the frame", || socket.has_frames().then_some(()));
        run("ip", "link delete near");
        // What has arrived stays.
        next_of(UDP, &mut socket, |received| assert!(received.octets().ends_with(b"last words")));
        while socket.receive().is_some() {}
        let frame = numbered(0, 100);
        let gone = Sent { frames: 0, stopped: Some(Stopped::Gone) };
        assert_eq!(offer(&mut socket, &[(&frame, None)]), gone);
        assert!(socket.receive().is_none());
        assert_eq!(socket.take_error().and_then(|error| error.raw_os_error()), Some(libc::ENETDOWN));
        // Another interface of the name is another interface.
        make_veth();
        assert_eq!(offer(&mut socket, &[(&frame, None)]), gone);
        assert_eq!(socket.statistics().sent_frames, 0);
        let mut another = open_near();
        send(&mut another, &numbered(2, 100), None);
        // The kernel's socket stays bound to its address, which is there again.
        assert_eq!(number_received(&kernel), 2);
    });
}

#[test]
fn group_shares_the_flows() {
    in_namespace(|| {
        make_veth();
        let near: Vec<IpAddr> = vec![NEAR[0].parse().unwrap()];
        let filter = Filter::addresses(&near, None);
        let new = Config { filter: Some(&filter), receive_frames: 512, ..config("near") };
        assert_eq!(open(&new).fanout_group(), None);
        let new = Config { fanout: Some(Fanout::New), ..new };
        let first = open(&new);
        let group = first.fanout_group().expect("a group");
        // Another group has another number, and the frames of all flows too.
        let mut other = open(&new);
        assert_ne!(other.fanout_group(), Some(group));
        let second = open(&Config { fanout: Some(Fanout::Group(group)), ..new });
        assert_eq!(second.fanout_group(), Some(group));
        let mut sockets = [first, second];
        let kernel = kernel_socket();
        for _ in 0..3 {
            // An odd number of flows: in turns, each would change sockets.
            for port in 6000..6063 {
                kernel.send_to(b"of a flow", (NEAR[0], port)).unwrap();
            }
        }
        let mut owners = vec![Vec::new(); 63];
        let mut count = 0;
        eventually("all frames", || {
            for (index, socket) in sockets.iter_mut().enumerate() {
                while let Some(received) = socket.receive() {
                    let Some((_, _, UDP, transport)) = parse_ip(received.octets()) else {
                        continue;
                    };
                    let port = u16::from_be_bytes([transport[2], transport[3]]);
                    owners[usize::from(port - 6000)].push(index);
                    count += 1;
                }
            }
            (count == 3 * 63).then_some(())
        });
        for owners in &owners {
            assert!(owners == &[0; 3] || owners == &[1; 3], "{owners:?}");
        }
        assert!(owners.iter().any(|owners| owners[0] == 0) && owners.iter().any(|owners| owners[0] == 1));
        let mut all = 0;
        while let Some(received) = other.receive() {
            all += usize::from(matches!(parse_ip(received.octets()), Some((_, _, UDP, _))));
        }
        assert_eq!(all, count);
    });
}

#[test]
fn own_machine_is_not_received() {
    in_namespace(|| {
        make_veth();
        // On the kernel's own interface, alone and in a group.
        let mut alone = open(&config("far"));
        let mut member = open(&Config { fanout: Some(Fanout::Group(78)), ..config("far") });
        let mut near = open_near();
        let kernel = kernel_socket();
        kernel.send_to(b"outgoing", (NEAR[0], 4000)).unwrap();
        next_of(UDP, &mut near, |received| assert!(received.octets().ends_with(b"outgoing")));
        send(&mut near, &numbered(0, 100), None);
        for socket in [&mut alone, &mut member] {
            next_of(UDP, socket, |received| assert_eq!(received.octets(), numbered(0, 100)));
        }
    });
}
