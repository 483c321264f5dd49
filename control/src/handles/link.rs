//! Link devices, which carry the frames of a device: the trait of all link devices, and those that need no
//! DPDK.
//!
//! [`Device::start`](crate::Device::start) takes any of these. [`sim`] is a link in memory between two
//! devices of a process, for tests; [`tap`] wraps a link device and writes its frames to a capture; [`fault`]
//! wraps one and loses, delays, reorders, duplicates and damages frames. DPDK's are in [`open`](crate::open).
//! A device of a program's own has frames of one of these, or its own kind, which is then a [`CoreFrame`].

pub use warpline_dataplane::core::CoreFrame;
pub use warpline_dataplane::device::boxed::{BoxedDevice, boxed};
pub use warpline_dataplane::device::packet::HeardPorts;
pub use warpline_dataplane::device::{
    Capabilities, ChecksumRequest, ChecksumStatus, Device, Frame, IpVersion, ReceivedChecksums, RxInterrupt,
    RxTrigger, fault, sim, tap,
};
pub use warpline_dataplane::waker::Waker;
