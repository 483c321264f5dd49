//! A safe face for the packet sockets of Linux (packet(7)): whole Ethernet frames, to and from an interface
//! of the kernel, received without a system call and sent with one for many of them.
//!
//! A [`PacketSocket`] has a receive ring, which the kernel and this process share. The kernel puts each frame
//! of the interface that the [`Filter`] accepts into the next slot of it; [`PacketSocket::receive`] finds it
//! there. [`PacketSocket::burst`] gathers frames, and [`Burst::send`] has the kernel send them from where
//! they are. The kernel computes checksums and cuts super-frames into segments where the interface does not
//! ([`Offload`]).
//!
//! # Waiting
//!
//! The descriptor ([`AsFd`](std::os::fd::AsFd)) is level-triggered: it is readable (`POLLIN`) for as long as
//! a frame waits in the receive ring. It reports `POLLERR` after the interface has gone down, until
//! [`PacketSocket::take_error`] is called, or a frame is sent when it is up again. `POLLOUT` does not say
//! that frames can be sent: a thread whose burst was [stopped](Sent::stopped) by a busy interface offers the
//! rest again after a while.
//!
//! # The kernel's own stack
//!
//! It receives each frame too, and answers for an address that it has. A program that uses such an address
//! holds the ports that it uses there ([`PortShadow`]).

#![deny(unreachable_pub)]
// The crate is a wall around system calls and memory shared with the kernel: this is where the workspace's
// unsafe code belongs.
#![allow(unsafe_code)]

mod error;
mod filter;
mod offload;
mod options;
mod receive;
mod ring;
mod shadow;
mod socket;
mod transmit;
mod watch;

pub use error::PacketError;
pub use filter::{Filter, FilterHandle};
pub use offload::{Offload, Segmentation};
pub use receive::{Checksum, Received, SLOT_SPARE_OCTETS};
pub use shadow::{PortShadow, hold_row};
pub use socket::{Config, FRAME_MAX_OCTETS, Fanout, PacketSocket, Statistics};
pub use transmit::{Burst, NotPushed, Sent, Stopped};
pub use watch::watch;
