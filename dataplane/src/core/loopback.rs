//! Frames to ourselves. A connection to an address of our own sends frames to our own hardware address; they
//! are delivered here, in the next poll, and never reach the device (RFC 1122 §3.3.1.1 leaves the host's own
//! address to the host).
//!
//! What looks like such a frame on the wire is no such frame: there our own address is no valid source (RFC
//! 1122 §3.2.1.3).

use std::collections::VecDeque;
use std::net::IpAddr;

use super::Core;
use super::statistics::DropCause;
use crate::device::{Device, Frame};
use crate::limits;
use crate::time::Instant;
use crate::wire::ethernet::{self, EtherType, MacAddress, Tag};

/// Where a frame came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// From the device.
    Wire,
    /// From this core. Nobody else had its octets, so its checksums are as good as verified; they are not
    /// computed.
    Loopback,
}

/// Frames on their way from the core to itself.
pub(super) struct Loopback<F> {
    frames: VecDeque<F>,
    capacity: usize,
}

impl<F> Loopback<F> {
    /// A queue for the core of a device that has `device_frames`: it takes no more than a quarter of them.
    pub(super) fn new(device_frames: usize) -> Self {
        let capacity = limits::LOOPBACK_FRAMES.min(device_frames / 4);
        Self { frames: VecDeque::with_capacity(capacity), capacity }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether a connection may add a frame. A quarter of the queue is left to answers, which do not come
    /// again by themselves.
    pub(super) fn has_room(&self) -> bool {
        self.frames.len() < self.capacity - self.capacity / 4
    }

    /// Appends a frame.
    ///
    /// # Errors
    ///
    /// `frame`, when there is no room.
    fn push(&mut self, frame: F) -> Result<(), F> {
        if self.frames.len() >= self.capacity {
            return Err(frame);
        }
        self.frames.push_back(frame);
        Ok(())
    }
}

impl<D: Device> Core<D> {
    /// Returns true if frames to `remote`, whose next hop has `mac`, are for ourselves. Our hardware address
    /// alone does not say so: the kernel's end of a net_tap has the same one.
    #[inline]
    pub(super) fn loops_back(&self, remote: IpAddr, mac: MacAddress) -> bool {
        mac == self.mac && self.is_own(remote)
    }

    /// Queues a frame for ourselves.
    pub(super) fn loop_back(&mut self, frame: D::Frame) {
        if self.loopback.push(frame).is_err() {
            self.statistics.count(DropCause::NoTransmitBuffer);
        }
    }

    /// Delivers what was queued for ourselves before, a burst at most.
    pub(super) fn receive_looped(&mut self, now: Instant) -> bool {
        let count = self.loopback.frames.len().min(limits::RECEIVE_BURST_FRAMES);
        for _ in 0..count {
            let Some(frame) = self.loopback.frames.pop_front() else { break };
            self.statistics.frames_looped += 1;
            if let Err(cause) = self.on_looped(now, frame) {
                self.statistics.count(cause);
            }
        }
        count > 0
    }

    fn on_looped(&mut self, now: Instant, frame: D::Frame) -> Result<(), DropCause> {
        let octets = frame.piece(0).unwrap_or_default();
        let (header, mut network) = ethernet::Header::parse(octets).map_err(|_| DropCause::Malformed)?;
        let mut ethertype = header.ethertype;
        if ethertype == EtherType::VLAN {
            let tag = Tag::parse(&octets[network..]).map_err(|_| DropCause::Malformed)?;
            (ethertype, network) = (tag.ethertype, network + Tag::LEN);
        }
        match ethertype {
            EtherType::IPV4 => self.on_ipv4(now, frame, network, Arrival::Loopback),
            EtherType::IPV6 => self.on_ipv6(now, frame, network, false, Arrival::Loopback),
            _ => Err(DropCause::OtherProtocol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Config;
    use crate::core::ring::{Command, Rings};
    use crate::device::sim::{self, EndConfig, SimDevice};
    use crate::net::addresses::Cidr;
    use crate::net::neighbours::StaticNeighbour;
    use crate::wire::ipv4::{self, Protocol};
    use crate::wire::{checksum, icmp, icmpv6, ipv6};

    const V4: [u8; 4] = [198, 18, 0, 1];
    const V6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

    fn core() -> (Core<SimDevice>, SimDevice) {
        let (device, wire) = sim::link(1, EndConfig::a(), EndConfig::b());
        let mut config = Config::new(V4.into(), 24, [1, 2]);
        config.addresses.push(Cidr::new(V6.into(), 64));
        config.duplicate_address_detection = false;
        let mut core = Core::new(device, config, Rings::new());
        core.poll_once(Instant::from_nanos(1));
        (core, wire)
    }

    /// An echo request from ourselves to ourselves, behind its Ethernet header.
    fn request(v6: bool) -> Vec<u8> {
        let mut message = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1, b'h', b'i'];
        if v6 {
            icmpv6::set_checksum(&mut message, V6, V6);
            let mut packet = vec![0; ipv6::Header::LEN];
            ipv6::Header {
                source: V6,
                destination: V6,
                next_header: Protocol::ICMPV6,
                hop_limit: 64,
                payload_len: message.len() as u16,
                flow_label: 0,
                ecn: 0,
                dscp: 0,
            }
            .emit(&mut packet);
            return [packet, message].concat();
        }
        let sum = checksum::sum(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = vec![0; ipv4::Header::LEN];
        ipv4::Header {
            source: V4.into(),
            destination: V4.into(),
            protocol: Protocol::ICMP,
            ttl: 64,
            total_len: (ipv4::Header::LEN + message.len()) as u16,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            identification: 0,
            ecn: 0,
            dscp: 0,
        }
        .emit(&mut packet);
        [packet, message].concat()
    }

    /// On a net_tap the port and the kernel's interface share a hardware address. What is for the kernel goes
    /// there.
    #[test]
    fn a_neighbour_with_our_hardware_address_is_reached_over_the_wire() {
        let (device, mut wire) = sim::link(1, EndConfig::a(), EndConfig::b());
        let mut config = Config::new(V4.into(), 24, [1, 2]);
        let neighbour = IpAddr::from([198, 18, 0, 2]);
        config.neighbours.push(StaticNeighbour { address: neighbour, mac: device.mac() });
        let rings = Rings::new();
        let mut core = Core::new(device, config, rings.clone());
        let remote = (neighbour, 7471).into();
        let connect = Command::Connect { token: 1, local: None, remote, timeout_ns: 1 << 40, tcp: None };
        assert!(rings.commands.push(connect).is_ok());
        core.poll_once(Instant::from_nanos(1));
        let mut frames = Vec::new();
        wire.receive(Instant::from_nanos(1 << 30), &mut frames, 64);
        let is_syn = |frame: &<SimDevice as Device>::Frame| {
            let octets = frame.piece(0).unwrap_or_default();
            octets.get(12..14) == Some(&[8, 0]) && octets.get(23) == Some(&6) && octets.get(47) == Some(&2)
        };
        assert_eq!(frames.iter().filter(|frame| is_syn(frame)).count(), 1, "of {} frames", frames.len());
        assert_eq!(core.statistics.frames_looped, 0);
    }

    /// RFC 1122 §3.2.2.6, RFC 4443 §4.2: a ping of ourselves is answered to ourselves.
    #[test]
    fn an_echo_request_to_ourselves_is_answered_inside() {
        let now = Instant::from_nanos(1000);
        for v6 in [false, true] {
            let (mut core, mut wire) = core();
            wire.receive(now + 1_000_000, &mut Vec::new(), 64);
            let packet = request(v6);
            let mut frame = core.device.allocate().unwrap();
            let room = frame.append(core.link_octets() + packet.len()).unwrap();
            let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
            core.write_link(room, core.mac, ethertype);
            room[ethernet::Header::LEN..].copy_from_slice(&packet);
            core.loop_back(frame);
            assert!(core.poll_once(now));
            assert_eq!(core.next_deadline(), Instant::ZERO, "the answer waits to be delivered");
            let answer = core.loopback.frames.front().expect("an answer").piece(0).unwrap();
            let header_octets = packet.len() - 10;
            let message = &answer[ethernet::Header::LEN + header_octets..];
            if v6 {
                let parsed = icmpv6::Message::parse(message, V6, V6);
                assert!(!matches!(parsed, Ok(icmpv6::Message::EchoRequest { .. }) | Err(_)));
                assert_eq!(message[0], 129);
            } else {
                let expected = icmp::Message::EchoReply { id: 0x1234, seq: 1, payload: b"hi" };
                assert_eq!(icmp::Message::parse(message), Ok(expected));
            }
            core.poll_once(now);
            assert!(core.loopback.is_empty() && !core.poll_once(now));
            assert_eq!(core.statistics.frames_looped, 2);
            assert_eq!(wire.receive(now + 1_000_000, &mut Vec::new(), 64), 0, "nothing has left");
        }
    }
}
