//! A packet socket: how it is opened, and its use.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{SOL_PACKET, SOL_SOCKET};

use crate::error::PacketError;
use crate::filter::{Filter, FilterHandle};
use crate::options;
use crate::receive::{RECEIVE_HEADROOM_OCTETS, ReceiveRing, Received};
use crate::ring::{Layout, Mapping, SLOTS_MAX};
use crate::transmit::{Burst, FRAME_LEAST_OCTETS, Transmitter};

/// Bytes of the largest frame of all: a super-frame of an IP packet of 65,535 bytes, with an Ethernet header
/// and a VLAN tag.
pub const FRAME_MAX_OCTETS: usize = 65_535 + 14 + 4;

/// Octets of memory that the kernel counts for a frame on its way, beyond the frame.
const FRAME_OVERHEAD_OCTETS: usize = 2048;

/// How a socket is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The name of an Ethernet interface in the network namespace of the calling thread.
    pub interface: &'a str,
    /// Bytes of the largest frame received or sent, Ethernet header and VLAN tag included: 14 to
    /// [`FRAME_MAX_OCTETS`], which leaves room for any super-frame. Longer frames that arrive are cut.
    pub frame_octets: usize,
    /// Frames that the receive ring has room for, 1 to 1,048,576. The ring is made of blocks, so that it may
    /// have some more ([`PacketSocket::receive_frames`]).
    pub receive_frames: usize,
    /// Frames of the largest size that may be on their way at the same time, as many as `receive_frames` may
    /// be; fewer, if the system limits the memory for them.
    pub transmit_frames: usize,
    /// Joins a fanout group: of the frames of the interface, each socket of the group receives those of some
    /// flows, by a hash that is the same for both directions of a flow. A group belongs to one interface,
    /// which must be up.
    pub fanout: Option<Fanout>,
    /// Keeps out the frames that it does not accept, from the first one on. The sockets of a fanout group
    /// should have the same.
    pub filter: Option<&'a Filter>,
}

/// Which fanout group a socket joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// A new one, whose number ([`PacketSocket::fanout_group`]) no other group of the network namespace has.
    New,
    /// The one of this number, which is made if there is none. Whoever may open packet sockets in the network
    /// namespace can be in it.
    Group(u16),
}

/// A socket for the Ethernet frames of an interface, which lets the kernel have them, too. One thread at a
/// time owns it.
///
/// It receives frames to this station, to all and to all multicast groups, but not those that this machine
/// sends through the interface.
///
/// ```no_run
/// use packet::{Config, Filter, PacketSocket};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = Filter::addresses(&["198.18.0.2".parse()?], None);
/// let mut socket = PacketSocket::open(&Config {
///     interface: "eth1",
///     frame_octets: 1518,
///     receive_frames: 1024,
///     transmit_frames: 1024,
///     fanout: None,
///     filter: Some(&filter),
/// })?;
/// while let Some(received) = socket.receive() {
///     println!("{} bytes", received.octets().len());
/// }
/// let frame = [0; 60];
/// let mut burst = socket.burst();
/// burst.push([&frame[..]].into_iter(), None).expect("an empty burst has room");
/// assert_eq!(burst.send().frames, 1);
/// # Ok(())
/// # }
/// ```
pub struct PacketSocket {
    receive: ReceiveRing,
    transmitter: Transmitter,
    /// The memory of the ring's slots.
    _mapping: Mapping,
    socket: OwnedFd,
    mac: [u8; 6],
    received_frames: Cell<u64>,
    dropped_frames: Cell<u64>,
}

/// The counters of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Frames that the kernel has put into the receive ring.
    pub received_frames: u64,
    /// Frames that the kernel has dropped, because the receive ring was full, or because their offloads
    /// cannot be expressed.
    pub dropped_frames: u64,
    /// Frames taken from the receive ring that were longer than their slots.
    pub cut_frames: u64,
    /// Frames that the kernel has taken to send.
    pub sent_frames: u64,
    /// Frames that were not sent: the kernel found them malformed or longer than the MTU, [`Burst::push`]
    /// refused them, or the interface refused them too often ([`Stopped::Busy`](crate::Stopped::Busy)).
    pub refused_frames: u64,
}

impl PacketSocket {
    /// Opens a socket on an interface.
    ///
    /// # Errors
    ///
    /// [`PacketError`]: a configuration out of range, no such interface, or one that is not Ethernet, no
    /// privilege, or a failed system call. An interface that is down is no error.
    pub fn open(config: &Config<'_>) -> Result<Self, PacketError> {
        Self::open_on(config, libc::ARPHRD_ETHER)
    }

    /// Opens a socket on the loopback interface, whose frames are as those of an Ethernet interface with the
    /// hardware address zero. What is sent comes back to every socket of it, this one included. The interface
    /// that `config` names does not matter.
    ///
    /// # Errors
    ///
    /// [`PacketError`], as for [`open`](Self::open).
    pub fn open_on_loopback(config: &Config<'_>) -> Result<Self, PacketError> {
        Self::open_on(&Config { interface: "lo", ..*config }, libc::ARPHRD_LOOPBACK)
    }

    /// Opens a socket on an interface of the kind `hardware`.
    fn open_on(config: &Config<'_>, hardware: u16) -> Result<Self, PacketError> {
        check(config)?;
        let socket = packet_socket()?;
        let index = interface_index(config.interface)?;
        let layout = set_up(socket.as_fd(), config)?;
        let (mapping, slots) = Mapping::new(socket.as_fd(), &layout)?;
        attach_and_bind(socket.as_fd(), config, index)?;
        let mac = hardware_address(socket.as_fd(), config.interface, hardware)?;
        Ok(Self {
            receive: ReceiveRing::new(slots),
            transmitter: Transmitter::new(config.frame_octets),
            _mapping: mapping,
            socket,
            mac,
            received_frames: Cell::new(0),
            dropped_frames: Cell::new(0),
        })
    }

    /// Returns the hardware address that the interface had when the socket was opened.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the number of the fanout group that the socket has joined, with a system call.
    pub fn fanout_group(&self) -> Option<u16> {
        let group = options::get(self.socket.as_fd(), SOL_PACKET, libc::PACKET_FANOUT, 0).ok()?;
        // The kernel has 0 for none; of a group, the kind and its flags stand above the number.
        (group != 0).then_some(group as u16)
    }

    /// Returns the number of frames that the receive ring has room for.
    pub const fn receive_frames(&self) -> usize {
        self.receive.slots()
    }

    /// Returns true if a frame waits in the receive ring.
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.receive.has_frames()
    }

    /// Returns the next frame of the receive ring, if there is one.
    #[inline]
    pub fn receive(&mut self) -> Option<Received<'_>> {
        self.receive.receive()
    }

    /// Returns an empty burst, for frames to send.
    #[inline]
    pub fn burst<'f>(&mut self) -> Burst<'_, 'f> {
        self.transmitter.burst(self.socket.as_fd())
    }

    /// Puts `filter` in the place of the one before. Frames that the ring holds already stay.
    ///
    /// # Errors
    ///
    /// [`PacketError::FilterSize`], or that of the system call.
    pub fn set_filter(&self, filter: &Filter) -> Result<(), PacketError> {
        options::attach(self.socket.as_fd(), filter)
    }

    /// Returns a handle by which the filter is changed.
    ///
    /// # Errors
    ///
    /// That of the system call.
    pub fn filter_handle(&self) -> Result<FilterHandle, PacketError> {
        let duplicate = self.socket.try_clone();
        let step = "duplicate the descriptor of a packet socket";
        duplicate.map(FilterHandle).map_err(|source| PacketError::Setup { step, source })
    }

    /// Returns the counters since the socket was opened, with a system call.
    pub fn statistics(&self) -> Statistics {
        let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        // The kernel's counters begin anew with each call. It cannot fail for a socket that is open.
        if let Ok(counted) = options::get(self.socket.as_fd(), SOL_PACKET, libc::PACKET_STATISTICS, none) {
            let received = counted.tp_packets.wrapping_sub(counted.tp_drops);
            self.dropped_frames.update(|dropped| dropped + u64::from(counted.tp_drops));
            self.received_frames.update(|frames| frames + u64::from(received));
        }
        Statistics {
            received_frames: self.received_frames.get(),
            dropped_frames: self.dropped_frames.get(),
            cut_frames: self.receive.cut_frames,
            sent_frames: self.transmitter.sent_frames,
            refused_frames: self.transmitter.refused_frames,
        }
    }

    /// Returns and clears the error that the kernel has noted on the socket, if there is one: `ENETDOWN`
    /// after the interface went down or was removed. For a thread that finds `POLLERR`, which stays until
    /// then.
    pub fn take_error(&mut self) -> Option<io::Error> {
        let code = options::get(self.socket.as_fd(), SOL_SOCKET, libc::SO_ERROR, 0).ok()?;
        (code != 0).then(|| io::Error::from_raw_os_error(code))
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl core::fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PacketSocket")
            .field("socket", &self.socket)
            .field("receive_frames", &self.receive_frames())
            .finish_non_exhaustive()
    }
}

fn check(config: &Config<'_>) -> Result<(), PacketError> {
    if !(FRAME_LEAST_OCTETS..=FRAME_MAX_OCTETS).contains(&config.frame_octets) {
        return Err(PacketError::FrameSize {
            octets: config.frame_octets,
            least: FRAME_LEAST_OCTETS,
            most: FRAME_MAX_OCTETS,
        });
    }
    for frames in [config.receive_frames, config.transmit_frames] {
        if !(1..=SLOTS_MAX).contains(&frames) {
            return Err(PacketError::FrameCount { frames, most: SLOTS_MAX });
        }
    }
    Ok(())
}

fn packet_socket() -> Result<OwnedFd, PacketError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Of protocol 0: no frame comes before the socket is bound.
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        let source = io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => PacketError::Denied { source },
            _ => PacketError::Setup { step: "open a packet socket", source },
        });
    }
    // SAFETY: the call has made the descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

fn interface_index(interface: &str) -> Result<libc::c_int, PacketError> {
    let name = CString::new(interface).ok().filter(|name| (1..libc::IFNAMSIZ).contains(&name.count_bytes()));
    let Some(name) = name else {
        return Err(PacketError::InterfaceName { interface: interface.to_owned() });
    };
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index != 0 {
        return Ok(index.cast_signed());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => PacketError::NoInterface { interface: interface.to_owned() },
        _ => PacketError::Setup { step: "look up the interface", source },
    })
}

/// Sets the options of the socket and gives it a receive ring; returns its layout.
fn set_up(socket: BorrowedFd<'_>, config: &Config<'_>) -> Result<Layout, PacketError> {
    let set = |option, value: libc::c_int, step| options::set(socket, SOL_PACKET, option, value, step);
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int, "choose TPACKET_V2")?;
    // Partial checksums and super-frames, in both directions.
    set(libc::PACKET_VNET_HDR, 1, "have headers with offloads")?;
    set(libc::PACKET_IGNORE_OUTGOING, 1, "keep out the frames that this machine sends")?;
    // PACKET_QDISC_BYPASS stays off: past the queueing discipline, the kernel drops frames that a busy
    // interface does not take, and all super-frames that it has to segment itself.
    let layout = Layout::new(RECEIVE_HEADROOM_OCTETS + config.frame_octets, config.receive_frames);
    let step = "make the receive ring; fewer frames may help";
    options::set(socket, SOL_PACKET, libc::PACKET_RX_RING, layout.request(), step)?;
    allow_in_flight(socket, config);
    Ok(layout)
}

/// Lets so many frames be on their way at the same time, or as many as the limit of the system allows without
/// CAP_NET_ADMIN. With fewer, the kernel takes frames as others leave.
fn allow_in_flight(socket: BorrowedFd<'_>, config: &Config<'_>) {
    let octets = config.transmit_frames * (config.frame_octets + FRAME_OVERHEAD_OCTETS);
    let octets = libc::c_int::try_from(octets).unwrap_or(libc::c_int::MAX);
    let set = |option| options::set(socket, SOL_SOCKET, option, octets, "size the send buffer");
    if set(libc::SO_SNDBUFFORCE).is_err() {
        let _ = set(libc::SO_SNDBUF);
    }
}

/// Binds the socket to the interface and joins the fanout group. No frame passes before the filter is there.
fn attach_and_bind(
    socket: BorrowedFd<'_>,
    config: &Config<'_>,
    index: libc::c_int,
) -> Result<(), PacketError> {
    match (config.fanout, config.filter) {
        // Frames of all flows would come before the group has the socket.
        (Some(_), _) => options::attach(socket, &Filter::nothing())?,
        (None, Some(filter)) => options::attach(socket, filter)?,
        (None, None) => (),
    }
    bind(socket, config.interface, index)?;
    if let Some(fanout) = config.fanout {
        // In a group, this flag has the effect of PACKET_IGNORE_OUTGOING, which the group ignores. Older
        // kernels ignore the flag, too: there the filter keeps those frames out.
        let mode = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        let argument = match fanout {
            Fanout::New => (mode | libc::PACKET_FANOUT_FLAG_UNIQUEID) << 16,
            Fanout::Group(number) => u32::from(number) | mode << 16,
        };
        let step = "join the fanout group, whose members are on one interface that is up";
        options::set(socket, SOL_PACKET, libc::PACKET_FANOUT, argument.cast_signed(), step)?;
        options::attach(socket, config.filter.unwrap_or(&Filter::incoming()))?;
    }
    // Neighbour discovery of IPv6 needs some groups; the filter keeps out the others.
    let all_multicast = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let step = "receive multicast frames";
    options::set(socket, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, all_multicast, step)
}

fn bind(socket: BorrowedFd<'_>, interface: &str, index: libc::c_int) -> Result<(), PacketError> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let octets = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives for the call, and has this size.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), octets) };
    if result == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(match source.raw_os_error() {
        Some(libc::ENODEV) => PacketError::NoInterface { interface: interface.to_owned() },
        _ => PacketError::Setup { step: "bind to the interface", source },
    })
}

/// Returns the hardware address of the interface that the socket is bound to, which is of kind `expected`.
fn hardware_address(socket: BorrowedFd<'_>, interface: &str, expected: u16) -> Result<[u8; 6], PacketError> {
    // SAFETY: numbers, of which all zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    let mut octets = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives for the call, and the kernel writes no more than its size.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut octets) };
    if result != 0 {
        return Err(PacketError::last("read the address of the interface"));
    }
    let [first, second, third, fourth, fifth, sixth, ..] = address.sll_addr;
    // The kernel has no type for one that has gone meanwhile.
    match (address.sll_hatype, address.sll_halen) {
        (kind, 6) if kind == expected => Ok([first, second, third, fourth, fifth, sixth]),
        (0, 0) => Err(PacketError::NoInterface { interface: interface.to_owned() }),
        (hardware, _) => Err(PacketError::NotEthernet { interface: interface.to_owned(), hardware }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core opens the socket and moves it to its thread.
    #[test]
    fn socket_moves_to_another_thread() {
        const fn is_send<T: Send>() {}
        is_send::<PacketSocket>();
    }
}
