//! The halves of a byte stream that a connection carries.

use std::sync::Arc;

use crate::byte_stream::{Inbound, Outbound, SharedByteStream};
use crate::tcp::receive_queue::WindowPromise;
use crate::tcp::{self, Pools};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Both halves of a byte stream at its core.
#[derive(Debug)]
pub struct StreamHalves {
    pub(super) shared: Arc<SharedByteStream>,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// Frames for the octets that the window offers and the application has no room for.
    pub(super) promise: WindowPromise,
    /// Segments may say more about their octets, which then wait for other things than room in the ring.
    annotates: bool,
    /// When the connection is reset, because its application has left; [`Instant::NEVER`] while it is there.
    pub(super) orphan_until: Instant,
}

impl StreamHalves {
    /// Returns the halves of `shared`, whose first octet is sent with the sequence number `start`. What its
    /// application says about octets goes on the wire if it `annotates`.
    pub fn new(shared: Arc<SharedByteStream>, start: SeqNumber, annotates: bool) -> Self {
        let inbound = Inbound::new(shared.clone());
        let outbound = Outbound::new(shared.clone(), start, annotates);
        Self {
            shared,
            inbound,
            outbound,
            promise: WindowPromise::default(),
            annotates,
            orphan_until: Instant::NEVER,
        }
    }

    /// Offers as much window as the ring and the frames of the core hold, now that octets were handed over.
    #[inline]
    pub fn renew_window<P, F>(&mut self, tcp: &mut tcp::Connection, pools: &mut Pools<P, F>) {
        let in_ring = if self.annotates { 0 } else { self.inbound.room_octets() };
        tcp.promise_window(pools, &mut self.promise, in_ring);
    }
}
