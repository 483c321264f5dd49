//! The halves of a byte stream that a connection carries.

use std::sync::Arc;

use crate::byte_stream::{Inbound, Outbound, SharedByteStream};
use crate::tcp::receive_queue::WindowPromise;
use crate::tcp::{self, Pools};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

use super::chunk::Chunk;

/// Both halves of a byte stream at its core.
#[derive(Debug)]
pub struct StreamHalves {
    pub(super) shared: Arc<SharedByteStream>,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// Frames for the octets that the window offers and the application has no room for.
    pub(super) promise: WindowPromise,
    /// Segments may say more about their octets, which then wait for room among the records, too.
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

    /// Frees what the peer has acknowledged.
    pub(super) fn release<F>(&mut self, tcp: &tcp::Connection, pools: &Pools<Chunk, F>) {
        self.outbound.on_acknowledged(tcp.acknowledged());
        self.outbound.release(tcp.oldest_kept(pools));
    }

    /// Offers as much window as the ring and the frames of the core hold, now that octets were handed over.
    ///
    /// While an application reads, an annotated stream has room for records, and the ring holds what comes.
    /// While it pauses, records may run out before the ring is full, and octets wait in frames. So once half
    /// of the records are used, the ring counts for what was offered before, and no more.
    ///
    /// Example: 512 KiB are offered, of which frames are promised for 64 KiB, and a segment of 8928 octets
    /// comes. With room among the records 512 KiB are offered again; without, the right edge stays where it
    /// is, until 64 KiB are left.
    #[inline]
    pub fn renew_window<P, F>(&mut self, tcp: &mut tcp::Connection, pools: &mut Pools<P, F>) {
        let room = self.inbound.room_octets();
        if !self.annotates && self.inbound.may_grow() {
            // As its reader reads, it gives a longer ring: the window is as long as that. Frames stand in for
            // what is not read, or nobody would learn that there is room again.
            let most = self.inbound.ring_octets();
            return tcp.promise_window(pools, &mut self.promise, room, most);
        }
        let in_ring = if !self.annotates || self.inbound.may_give_up() && self.inbound.has_many_records() {
            room
        } else {
            self.in_ring_of_offered(tcp, room)
        };
        tcp.promise_window(pools, &mut self.promise, in_ring, u32::MAX);
    }

    /// Returns how many octets of the window that the peer was offered go to the ring, which has `room`.
    #[cold]
    fn in_ring_of_offered(&self, tcp: &tcp::Connection, room: u32) -> u32 {
        if !self.inbound.may_give_up() {
            // Octets wait for records, whatever there is of them.
            return 0;
        }
        room.min(tcp.offered_octets().saturating_sub(self.promise.octets()))
    }
}
