//! The halves of a byte stream that a connection carries.

use std::sync::Arc;

use crate::byte_stream::{Inbound, Outbound, SharedByteStream};
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// Both halves of a byte stream at its core.
#[derive(Debug)]
pub struct StreamHalves {
    pub(super) shared: Arc<SharedByteStream>,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// When the connection is reset, because its application has left; [`Instant::NEVER`] while it is there.
    pub(super) orphan_until: Instant,
}

impl StreamHalves {
    /// Returns the halves of `shared`, whose first octet is sent with the sequence number `start`. What its
    /// application says about octets goes on the wire if it `annotates`.
    pub fn new(shared: Arc<SharedByteStream>, start: SeqNumber, annotates: bool) -> Self {
        let inbound = Inbound::new(shared.clone());
        let outbound = Outbound::new(shared.clone(), start, annotates);
        Self { shared, inbound, outbound, orphan_until: Instant::NEVER }
    }
}
