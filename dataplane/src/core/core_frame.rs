//! A core whose device is not known where the core is driven.
//!
//! A [`Core`] is generic over its device, and all of the stack is compiled for each. What drives a core need
//! not know which it is: [`PollLoop`] is a core behind a pointer, and its device is
//! [behind one](crate::device::boxed) too. So there is one poll loop for each kind of frames. Those of this
//! crate's frames are compiled here, once, and optimised as this crate is: programs that start cores compile
//! none.

#[cfg(feature = "dpdk")]
use dpdk::Mbuf;

use super::{Core, CoreSetup, PollLoop};
use crate::device::Frame;
use crate::device::boxed::BoxedDevice;
use crate::device::packet::PacketFrame;
use crate::device::sim::SimFrame;

/// Frames that poll loops are compiled for. A crate that has frames of its own has this for them, as it is:
/// their poll loop is compiled in the program that starts a core.
pub trait CoreFrame: Frame {
    /// Returns a core on a `device` of such frames, as [`Core::new`] does.
    fn poll_loop(device: BoxedDevice<Self>, setup: CoreSetup<Self>) -> Box<dyn PollLoop>
    where
        Self: Sized,
    {
        Box::new(Core::new(device, setup))
    }
}

/// Compiles the poll loop of some frames here, where no parameter of a type is left.
macro_rules! compile_poll_loop {
    ($frame:ty) => {
        impl CoreFrame for $frame {
            fn poll_loop(device: BoxedDevice<Self>, setup: CoreSetup<Self>) -> Box<dyn PollLoop> {
                Box::new(Core::new(device, setup))
            }
        }
    };
}

#[cfg(feature = "dpdk")]
compile_poll_loop!(Mbuf);
compile_poll_loop!(PacketFrame);
compile_poll_loop!(SimFrame);
