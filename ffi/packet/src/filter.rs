//! The program of classic BPF that keeps from a socket the frames that are not for it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::sock_filter;

/// The result for a frame that passes: the largest number of octets of it, which is all of them.
const ALL_OCTETS: u32 = u32::MAX;
/// The result for a frame that does not.
const NONE: u32 = 0;

// Where fields are in a frame. The kernel has removed the VLAN tag, if there was one.
const ETHERNET_SOURCE: u32 = 6;
const ETHER_TYPE: u32 = 12;
const IPV4_SOURCE: u32 = 14 + 12;
const IPV4_DESTINATION: u32 = 14 + 16;
const IPV6_SOURCE: u32 = 14 + 8;
const IPV6_DESTINATION: u32 = 14 + 24;

const TPID_8021Q: u32 = 0x8100;
const VID_MASK: u32 = 0x0fff;

// Operations: the class, with the size and mode of a load or the operation of a jump.
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_OCTET: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_STORED: u32 = libc::BPF_LD | libc::BPF_MEM;
const STORE: u32 = libc::BPF_ST;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
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
    /// and as many again where the sources are looked at.
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
        program.0.extend(station_part(addresses, &[]).0);
        Self { program: program.0 }
    }

    /// Returns the same filter for a station that has its addresses from this machine: IP packets that say
    /// they come from one of them are not accepted either. Nobody else on the link may send such packets.
    pub fn addresses_of_this_machine(addresses: &[IpAddr], vlan: Option<u16>) -> Self {
        let mut program = incoming_part();
        program.0.extend(vlan_part(vlan.map_or(0, u32::from) & VID_MASK).0);
        program.0.extend(station_part(addresses, addresses).0);
        Self { program: program.0 }
    }

    /// Returns a filter for the loopback interface: it accepts IP packets to one of the addresses `addresses`
    /// in frames whose source is a hardware address that begins as `sources` does, in its first three octets,
    /// but not those of the source `sources` itself. The kernel's own frames there have no such source.
    pub fn programs_of_this_machine(addresses: &[IpAddr], sources: [u8; 6]) -> Self {
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
        program.0.extend(station_part(addresses, &[]).0);
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

/// Returns the part for a station with the addresses `addresses`, to which none of those in `not_from` sends.
fn station_part(addresses: &[IpAddr], not_from: &[IpAddr]) -> Program {
    let ipv4 = ipv4_part(v4(addresses), v4(not_from));
    let ipv6 = ipv6_part(v6(addresses), v6(not_from));
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
fn ipv4_part(addresses: impl Iterator<Item = Ipv4Addr>, not_from: impl Iterator<Item = Ipv4Addr>) -> Program {
    let mut part = Program::default();
    for (place, address) in not_from.enumerate() {
        if place == 0 {
            part.load(LOAD_WORD, IPV4_SOURCE);
        }
        part.skip_unless(address.to_bits(), 1);
        part.finish(NONE);
    }
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
fn ipv6_part(addresses: impl Iterator<Item = Ipv6Addr>, not_from: impl Iterator<Item = Ipv6Addr>) -> Program {
    let mut part = Program::default();
    let mut not_from = not_from.peekable();
    if not_from.peek().is_some() {
        part.store_ipv6(IPV6_SOURCE);
        part.finish_if_ipv6(not_from, NONE);
    }
    part.load(LOAD_OCTET, IPV6_DESTINATION);
    part.accept_if(0xff);
    part.store_ipv6(IPV6_DESTINATION);
    part.finish_if_ipv6(addresses, ALL_OCTETS);
    part.finish(NONE);
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

    /// Returns `result` if the address in the scratch memory is one of `addresses`.
    fn finish_if_ipv6(&mut self, addresses: impl Iterator<Item = Ipv6Addr>, result: u32) {
        for address in addresses {
            // From the last word, in which addresses of one network differ, to the first: load, compare.
            for word in (0..4_u32).rev() {
                let bits = (address.to_bits() >> (96 - 32 * word)) as u32;
                self.load(LOAD_STORED, word);
                // Past the words still to be compared, two instructions each, and the return.
                self.skip_unless(bits, 2 * word as u8 + 1);
            }
            self.finish(result);
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
