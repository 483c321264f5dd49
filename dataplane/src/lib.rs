//! The protocols and the poll loop of warpline, a software RNIC: RDMAP over DDP over MPA over its own TCP.
//!
//! Octets rise from a [`device`] through the IP host ([`net`]) and the connection table (`conn`) to their
//! `endpoint`, and there through [`tcp`], [`mpa`], [`ddp`] and [`rdmap`] to a user buffer in [`memory`] and
//! a completion in [`qp`]. Work requests go down the same way. [`core`] connects the layers in one poll loop,
//! [`ring`] is what control sends to it and receives from it. A lower layer never names a higher one.
//!
//! The checks that come before the first octet of a segment is placed are in the receive half of the queue
//! pair, which has the stream's state that they need: `qp/receiver/place.rs` asks whether all of them pass.
//! Where one does not, `qp/receiver/explain.rs` names the fault in the order of the documents: the checks of
//! DDP (RFC 5041 §7.1), and those of RDMAP after them (RFC 5040 §7.2). Read and Atomic Requests have theirs
//! in `qp/receiver/requests.rs`. STag, access rights and bounds are checked by [`memory::StagTable`].
//! [`ddp`] and [`rdmap`] hold what needs no state: segmentation, messages, errors.
//!
//! Protocol code does no I/O and reads no clock: the caller passes `now`, and every state machine returns its
//! next deadline. So the whole stack runs in virtual time over [`device::sim`].

#![cfg_attr(feature = "testing", deny(unreachable_pub))]

pub mod byte_stream;
mod cold;
mod conn;
pub mod core;
mod counters;
pub mod crc32c;
pub mod ddp;
pub mod device;
mod drops;
mod endpoint;
mod inbox;
mod keyed_hash;
pub mod limits;
pub mod locked;
pub mod memory;
pub mod mpa;
mod named;
pub mod net;
pub mod notify;
mod ordered;
mod pool;
pub mod qp;
mod rate_limit;
pub mod rdmap;
pub mod ring;
mod secret;
pub mod statistics;
pub mod steering;
#[cfg_attr(loom, expect(unreachable_pub, reason = "public items have the model's queue as their type"))]
mod sync;
mod tally;
pub mod tcp;
pub mod time;
pub mod waker;
pub mod wire;

/// Items that only tests reach.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::cold::ColdBranches;
    pub use crate::endpoint::Connection;
}

/// Has errors print their sentence by `Debug` as by `Display`: a program whose `main` returns an error shows
/// that, and `unwrap` does.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($($error:ty),+ $(,)?) => {
        $(
            impl ::core::fmt::Debug for $error {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    ::core::fmt::Display::fmt(self, f)
                }
            }
        )+
    };
}

debug_as_display!(
    ddp::DdpError,
    mpa::MpaError,
    net::addresses::NotCidr,
    qp::error::StreamError,
    qp::shared::BadRequest,
    qp::shared::PostError,
    qp::work::TooLongForInline,
    qp::work::TooManySlices,
    rdmap::RdmapError,
    tcp::CloseReason,
    tcp::congestion::UnknownAlgorithm,
    wire::mpa::StartupError,
);
