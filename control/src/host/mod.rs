//! The machine around a device: its interfaces, and what else uses them. Read when a device is opened, so
//! that what would fail later, without a word, is refused with its remedy.
//!
//! Before a device is opened on an interface of the kernel, `host::survey` lists the interfaces by
//! rtnetlink. An address that the kernel has is refused wherever the kernel has it, because it answers for it
//! on every interface; so are an interface that is down, or that carries smaller packets. A claim to each
//! address is an abstract Unix socket, named by interface, VLAN and address: there is one set of names for
//! each network namespace, a claim goes with its process however that ends, and its owner is known by the
//! socket's credentials. Claims of other users than root and the own do not count, or anybody could keep a
//! device from its user. Where a device does not open, `host::privileges` looks for what the process lacks,
//! because drivers do not say. `host::sockets` probes the path of a vhost-user socket or a memif with a
//! datagram socket: what listens refuses its type, and notices nothing.
//!
//! # Checksums and long packets
//!
//! A TCP segment may arrive intact with a partial checksum, the sum of the pseudo-header: its sender has left
//! the rest to a device, and the frame passed none. The driver of such an interface would say so
//! (`TP_STATUS_CSUMNOTREADY`); DPDK 22.11's do not, so the device looks at the field itself, and vouches for
//! the frame as virtio's driver does. Nothing has damaged what never left the machine's memory, and the CRC
//! of FPDUs is verified all the same. Whether that can be is asked of the kernel when the device is opened
//! (`host::arrivals`, by the family `ethtool` of generic netlink), and packets longer than the MTU are a
//! warning then:
//!
//! | interface | partial checksums, if | packets longer than the MTU, if |
//! |---|---|---|
//! | veth, both ends in this network namespace | the other end's transmit checksum offload is on | the other end's TSO is on and the kernel has an address there |
//! | veth, the other end in another namespace | always: it cannot be asked | not known: the first packet that is cut is a warning |
//! | an adapter, and either veth | GRO or LRO is on: the kernel sums anew what it joins | GRO or LRO is on |
//! | an adapter of virtio | also if it has receive checksum offload: its host passes on what other guests send | as above |
//! | VLAN, bond | the interface beneath, or a member | the interface beneath, or a member |
//! | anything else (bridge, macvlan, tun) | always | not known |
//!
//! Offloads that are changed while a device is open are noticed by what arrives: the first segment dropped
//! for a partial checksum, and the first packet that was cut, are warnings too (`AsyncEvent`). A device in
//! DPDK's notation (`eal:net_af_packet0,iface=e1`) is looked at by the name of its own kind, and by the
//! interface of its port where it stands in the arguments of the EAL. That port is known only when the EAL
//! runs, so what would refuse it does so, and warnings are left out.

mod arrivals;
pub(crate) mod claim;
pub(crate) mod cpus;
pub(crate) mod held_ports;
pub(crate) mod interfaces;
pub(crate) mod kernel_addresses;
mod netlink;
pub(crate) mod offloads;
pub(crate) mod privileges;
#[cfg(feature = "dpdk")]
pub(crate) mod sockets;
pub(crate) mod survey;
