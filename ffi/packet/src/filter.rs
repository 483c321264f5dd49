//! The program of classic BPF that keeps from a socket the frames that are not for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};

use libc::sock_filter;

use crate::error::PacketError;
use crate::options;

/// The result for a frame that passes: the largest number of octets of it, which is all of them.
const ALL_OCTETS: u32 = u32::MAX;
/// The result for a frame that does not.
const NONE: u32 = 0;

// Where fields are in a frame. The kernel has removed the VLAN tag, if there was one.
const ETHERNET_SOURCE: u32 = 6;
const ETHER_TYPE: u32 = 12;
const IPV4: u32 = 14;
const IPV4_FRAGMENT: u32 = IPV4 + 6;
const IPV4_PROTOCOL: u32 = IPV4 + 9;
const IPV4_SOURCE: u32 = IPV4 + 12;
const IPV4_DESTINATION: u32 = IPV4 + 16;
const IPV6: u32 = 14;
const IPV6_NEXT_HEADER: u32 = IPV6 + 6;
const IPV6_SOURCE: u32 = IPV6 + 8;
const IPV6_DESTINATION: u32 = IPV6 + 24;
const IPV6_OCTETS: u32 = 40;
/// In a TCP header.
const DESTINATION_PORT: u32 = 2;

const FRAGMENT_OFFSET: u32 = 0x1fff;

const TPID_8021Q: u32 = 0x8100;
const VID_MASK: u32 = 0x0fff;

// Operations: the class, with the size and mode of a load or the operation of a jump.
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_OCTET: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_STORED: u32 = libc::BPF_LD | libc::BPF_MEM;
const LOAD_HALF_INDEXED: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
const LOAD_IPV4_OCTETS: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
const STORE: u32 = libc::BPF_ST;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JUMP_IF_ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const JUMP_IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A program that decides which frames a socket receives.
///
/// The kernel runs it for each frame of the interface, before the frame takes a slot of the receive ring.
#[derive(Clone)]
pub struct Filter {
    program: Vec<sock_filter>,
}

impl Filter {
    /// Instructions that the kernel takes (`BPF_MAXINSNS`). An IPv4 address has two, an IPv6 address nine,
    /// and as many again where the sources are looked at; a range of ports has four.
    pub const INSTRUCTIONS_MAX: usize = 4096;

    /// Returns a filter for a station with the addresses `addresses` on the VLAN `vlan`, or on none.
    ///
    /// It accepts ARP packets; IPv4 packets to one of the addresses, to 255.255.255.255 or to a multicast
    /// group; IPv6 packets to one of the addresses or to a multicast group. Frames with a VLAN tag pass if
    /// its VLAN identifier is `vlan`, and those without a tag or with the identifier 0 if that is `None` or
    /// 0. An IPv4-mapped IPv6 address counts as the IPv6 address that it is.
    ///
    /// ```
    /// use packet::Filter;
    ///
    /// let own = ["198.18.0.2".parse()?, "fd00::2".parse()?];
    /// let untagged = Filter::addresses(&own, None);
    /// let of_vlan_5 = Filter::addresses(&own, Some(5));
    /// # Ok::<(), core::net::AddrParseError>(())
    /// ```
    pub fn addresses(addresses: &[IpAddr], vlan: Option<u16>) -> Self {
        let mut program = incoming_part();
        program.0.extend(vlan_part(vlan.map_or(0, u32::from) & VID_MASK).0);
        program.0.extend(station_part(addresses).0);
        Self { program: program.0 }
    }

    /// Returns a filter for a station that has its addresses from this machine, as other programs of it do,
    /// and has the TCP ports `ports` for itself.
    ///
    /// It accepts ARP packets; to one of the addresses, TCP segments to one of the ports and ICMP; and ICMPv6
    /// to a multicast group. IP packets that say they come from one of the addresses are not accepted: nobody
    /// else on the link may send such packets. Fragments, and IPv6 packets with extension headers, pass where
    /// the port is not in sight.
    pub fn ports_of_this_machine(
        addresses: &[IpAddr],
        vlan: Option<u16>,
        ports: &[RangeInclusive<u16>],
    ) -> Self {
        let mut program = incoming_part();
        program.0.extend(vlan_part(vlan.map_or(0, u32::from) & VID_MASK).0);
        program.0.extend(shared_part(addresses, addresses, ports).0);
        Self { program: program.0 }
    }

    /// Returns a filter for the loopback interface: it accepts packets as
    /// [`ports_of_this_machine`](Self::ports_of_this_machine) does, from one of the addresses too, in frames
    /// whose source is a hardware address that begins as `sources` does, in its first three octets, but not
    /// those of the source `sources` itself. The kernel's own frames there have no such source.
    pub fn programs_of_this_machine(
        addresses: &[IpAddr],
        sources: [u8; 6],
        ports: &[RangeInclusive<u16>],
    ) -> Self {
        let [first, second, third, ..] = sources;
        let third = u32::from(third) << 24;
        let [_, _, own @ ..] = sources;
        let mut program = incoming_part();
        program.load(LOAD_HALF, ETHERNET_SOURCE);
        program.push(JUMP_IF_EQUAL, u32::from(u16::from_be_bytes([first, second])), 1, 0);
        program.finish(NONE);
        program.load(LOAD_WORD, ETHERNET_SOURCE + 2);
        program.skip_unless(u32::from_be_bytes(own), 1);
        program.finish(NONE);
        program.push(AND, 0xff00_0000, 0, 0);
        program.push(JUMP_IF_EQUAL, third, 1, 0);
        program.finish(NONE);
        program.0.extend(shared_part(addresses, &[], ports).0);
        Self { program: program.0 }
    }

    /// Returns a filter that accepts all frames but those that this machine sends.
    pub(crate) fn incoming() -> Self {
        let mut program = incoming_part();
        program.finish(ALL_OCTETS);
        Self { program: program.0 }
    }

    /// Returns a filter that accepts nothing.
    pub fn nothing() -> Self {
        let mut program = Program::default();
        program.finish(NONE);
        Self { program: program.0 }
    }

    /// Returns the instructions.
    pub(crate) fn program(&self) -> &[sock_filter] {
        &self.program
    }
}

/// A handle by which another thread than that of a socket changes its filter. It keeps the socket open.
#[derive(Debug)]
pub struct FilterHandle(pub(crate) OwnedFd);

impl FilterHandle {
    /// Puts `filter` in the place of the one before. Frames that the ring holds already stay.
    ///
    /// # Errors
    ///
    /// [`PacketError::FilterSize`], or that of the system call.
    pub fn set(&self, filter: &Filter) -> Result<(), PacketError> {
        options::attach(self.0.as_fd(), filter)
    }
}

/// Returns the part that drops the frames that this machine sends: a fanout group of a kernel without
/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING` passes them on.
fn incoming_part() -> Program {
    let mut part = Program::default();
    part.load(LOAD_HALF, ancillary(libc::SKF_AD_PKTTYPE));
    part.skip_unless(u32::from(libc::PACKET_OUTGOING), 1);
    part.finish(NONE);
    part
}

/// Returns the part that drops the frames of all VLANs but `vlan`; 0 is that of frames without a tag.
fn vlan_part(vlan: u32) -> Program {
    let mut part = Program::default();
    part.load(LOAD_HALF, ancillary(libc::SKF_AD_VLAN_TAG_PRESENT));
    if vlan == 0 {
        // Without a tag: past the four that look at it.
        part.push(JUMP_IF_EQUAL, 0, 4, 0);
    } else {
        part.skip_unless(0, 1);
        part.finish(NONE);
        part.load(LOAD_HALF, ancillary(libc::SKF_AD_VLAN_TPID));
        part.push(JUMP_IF_EQUAL, TPID_8021Q, 1, 0);
        part.finish(NONE);
    }
    part.load(LOAD_HALF, ancillary(libc::SKF_AD_VLAN_TAG));
    part.push(AND, VID_MASK, 0, 0);
    part.push(JUMP_IF_EQUAL, vlan, 1, 0);
    part.finish(NONE);
    part
}

/// Returns the part for a station with the addresses `addresses`.
fn station_part(addresses: &[IpAddr]) -> Program {
    by_family(ipv4_part(v4(addresses)), ipv6_part(v6(addresses)))
}

/// Returns the part for a station that shares the addresses `addresses`, to which none of those in `not_from`
/// sends, and has the TCP ports `ports` of them.
fn shared_part(addresses: &[IpAddr], not_from: &[IpAddr], ports: &[RangeInclusive<u16>]) -> Program {
    let ports = ports_part(ports);
    by_family(
        shared_ipv4_part(v4(addresses), v4(not_from), &ports),
        shared_ipv6_part(v6(addresses), v6(not_from), &ports),
    )
}

/// Returns the part that accepts ARP and goes on with one of these for IP packets. They do not end by
/// themselves, but with a result.
fn by_family(ipv4: Program, ipv6: Program) -> Program {
    let mut others = Program::default();
    others.accept_if(libc::ETH_P_ARP as u32);
    others.finish(NONE);
    let mut program = Program::default();
    program.load(LOAD_HALF, ETHER_TYPE);
    // The offset of a conditional jump has 8 bits, that of an unconditional one 32: only the latter leads
    // past a list of addresses.
    program.skip_unless(libc::ETH_P_IP as u32, 1);
    program.push(JUMP, 2 + others.len(), 0, 0);
    program.skip_unless(libc::ETH_P_IPV6 as u32, 1);
    program.push(JUMP, others.len() + ipv4.len(), 0, 0);
    for part in [others, ipv4, ipv6] {
        program.0.extend(part.0);
    }
    program
}

fn v4(addresses: &[IpAddr]) -> impl Iterator<Item = Ipv4Addr> {
    addresses.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    })
}

fn v6(addresses: &[IpAddr]) -> impl Iterator<Item = Ipv6Addr> {
    addresses.iter().filter_map(|address| match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(*address),
    })
}

/// Returns the part for IPv4 packets.
fn ipv4_part(addresses: impl Iterator<Item = Ipv4Addr>) -> Program {
    let mut part = Program::default();
    part.load(LOAD_WORD, IPV4_DESTINATION);
    for address in addresses {
        part.accept_if(address.to_bits());
    }
    part.accept_if(Ipv4Addr::BROADCAST.to_bits());
    part.push(AND, 0xf000_0000, 0, 0);
    part.accept_if(Ipv4Addr::new(224, 0, 0, 0).to_bits());
    part.finish(NONE);
    part
}

/// Returns the part for IPv6 packets.
fn ipv6_part(addresses: impl Iterator<Item = Ipv6Addr>) -> Program {
    let mut part = Program::default();
    part.load(LOAD_OCTET, IPV6_DESTINATION);
    part.accept_if(0xff);
    part.store_ipv6(IPV6_DESTINATION);
    part.on_ipv6(addresses, |part| part.finish(ALL_OCTETS));
    part.finish(NONE);
    part
}

/// Returns the part for IPv4 packets to a station that shares its addresses, with the part that looks at the
/// port.
fn shared_ipv4_part(
    addresses: impl Iterator<Item = Ipv4Addr>,
    not_from: impl Iterator<Item = Ipv4Addr>,
    ports: &Program,
) -> Program {
    let mut part = Program::default();
    part.load(LOAD_WORD, IPV4_SOURCE);
    for address in not_from {
        part.skip_unless(address.to_bits(), 1);
        part.finish(NONE);
    }
    part.load(LOAD_WORD, IPV4_DESTINATION);
    let addresses: Vec<_> = addresses.collect();
    // Past the comparisons that are left, two instructions each, and the result of none.
    for (left, address) in (0..addresses.len() as u32).rev().zip(&addresses) {
        part.skip_unless(address.to_bits(), 1);
        part.push(JUMP, 2 * left + 1, 0, 0);
    }
    part.finish(NONE);
    part.load(LOAD_OCTET, IPV4_PROTOCOL);
    part.accept_if(libc::IPPROTO_ICMP as u32);
    part.push(JUMP_IF_EQUAL, libc::IPPROTO_TCP as u32, 1, 0);
    part.finish(NONE);
    part.load(LOAD_HALF, IPV4_FRAGMENT);
    part.push(JUMP_IF_SET, FRAGMENT_OFFSET, 0, 1);
    part.finish(ALL_OCTETS);
    part.load(LOAD_IPV4_OCTETS, IPV4);
    part.load(LOAD_HALF_INDEXED, IPV4 + DESTINATION_PORT);
    part.0.extend(&ports.0);
    part
}

/// Returns the part for IPv6 packets to a station that shares its addresses, with the part that looks at the
/// port.
fn shared_ipv6_part(
    addresses: impl Iterator<Item = Ipv6Addr>,
    not_from: impl Iterator<Item = Ipv6Addr>,
    ports: &Program,
) -> Program {
    let mut transport = Program::default();
    transport.load(LOAD_OCTET, IPV6_NEXT_HEADER);
    transport.skip_unless(libc::IPPROTO_UDP as u32, 1);
    transport.finish(NONE);
    transport.push(JUMP_IF_EQUAL, libc::IPPROTO_TCP as u32, 1, 0);
    transport.finish(ALL_OCTETS);
    transport.load(LOAD_HALF, IPV6 + IPV6_OCTETS + DESTINATION_PORT);
    transport.0.extend(&ports.0);

    let mut to_group = Program::default();
    to_group.load(LOAD_OCTET, IPV6_NEXT_HEADER);
    to_group.accept_if(libc::IPPROTO_ICMPV6 as u32);
    to_group.finish(NONE);

    let mut part = Program::default();
    part.store_ipv6(IPV6_SOURCE);
    part.on_ipv6(not_from, |part| part.finish(NONE));
    part.load(LOAD_OCTET, IPV6_DESTINATION);
    part.push(JUMP_IF_EQUAL, 0xff, 0, to_group.len() as u8);
    part.0.extend(to_group.0);
    part.store_ipv6(IPV6_DESTINATION);
    let addresses: Vec<_> = addresses.collect();
    let mut left = addresses.len() as u32;
    part.on_ipv6(addresses.into_iter(), |part| {
        left -= 1;
        part.push(JUMP, left * Program::IPV6_COMPARISON + 1, 0, 0);
    });
    part.finish(NONE);
    part.0.extend(transport.0);
    part
}

/// Returns the part that accepts a packet if the port in the accumulator is in one of `ports`, which are in
/// order and do not overlap: a search by halves, of which conditional jumps would not reach the second.
fn ports_part(ports: &[RangeInclusive<u16>]) -> Program {
    /// Ranges that are looked at one after the other.
    const ROW: usize = 4;
    let mut part = Program::default();
    if ports.len() <= ROW {
        for range in ports {
            part.push(JUMP_IF_AT_LEAST, u32::from(*range.start()), 0, 2);
            part.push(JUMP_IF_ABOVE, u32::from(*range.end()), 1, 0);
            part.finish(ALL_OCTETS);
        }
        part.finish(NONE);
        return part;
    }
    let (lower, upper) = ports.split_at(ports.len() / 2);
    let [lower_part, upper_part] = [lower, upper].map(ports_part);
    part.push(JUMP_IF_AT_LEAST, u32::from(*upper[0].start()), 0, 1);
    part.push(JUMP, lower_part.len(), 0, 0);
    for half in [lower_part, upper_part] {
        part.0.extend(half.0);
    }
    part
}

/// A program, or a part of one, as it grows.
#[derive(Default)]
struct Program(Vec<sock_filter>);

impl Program {
    fn len(&self) -> u32 {
        self.0.len() as u32
    }

    fn load(&mut self, operation: u32, offset: u32) {
        self.push(operation, offset, 0, 0);
    }

    /// Skips `count` instructions unless the accumulator is `value`.
    fn skip_unless(&mut self, value: u32, count: u8) {
        self.push(JUMP_IF_EQUAL, value, 0, count);
    }

    /// Puts the words of an address into the scratch memory: a load from there is one instruction of the
    /// kernel's own, one from the frame a dozen, and the kernel bounds their sum (net.core.optmem_max).
    fn store_ipv6(&mut self, offset: u32) {
        for word in 0..4 {
            self.load(LOAD_WORD, offset + 4 * word);
            self.push(STORE, word, 0, 0);
        }
    }

    /// Instructions that compare an IPv6 address, with the one that follows.
    const IPV6_COMPARISON: u32 = 9;

    /// Goes on with the instruction that `then` adds if the address in the scratch memory is that one of
    /// `addresses`.
    fn on_ipv6(&mut self, addresses: impl Iterator<Item = Ipv6Addr>, mut then: impl FnMut(&mut Self)) {
        for address in addresses {
            // From the last word, in which addresses of one network differ, to the first: load, compare.
            for word in (0..4_u32).rev() {
                let bits = (address.to_bits() >> (96 - 32 * word)) as u32;
                self.load(LOAD_STORED, word);
                // Past the words still to be compared, two instructions each, and the one that follows.
                self.skip_unless(bits, 2 * word as u8 + 1);
            }
            then(self);
        }
    }

    fn accept_if(&mut self, value: u32) {
        self.skip_unless(value, 1);
        self.finish(ALL_OCTETS);
    }

    fn finish(&mut self, result: u32) {
        self.push(RETURN, result, 0, 0);
    }

    fn push(&mut self, operation: u32, k: u32, jt: u8, jf: u8) {
        self.0.push(sock_filter { code: operation as u16, jt, jf, k });
    }
}

/// Returns the offset at which a load finds something that the kernel has noted on the frame.
const fn ancillary(what: libc::c_int) -> u32 {
    (libc::SKF_AD_OFF + what) as u32
}

impl core::fmt::Debug for Filter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Filter").field("instructions", &self.program.len()).finish_non_exhaustive()
    }
}
