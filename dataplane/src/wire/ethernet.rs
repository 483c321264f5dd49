//! Ethernet II frames.

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MacAddress(pub [u8; 6]);
