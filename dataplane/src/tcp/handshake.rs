//! The state of the SYNs that a connection sends.

/// The SYNs of this end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// SYNs sent.
    pub(super) syn_transmissions: u8,
    /// A SYN is to be sent.
    pub(super) syn_owed: bool,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self { syn_transmissions: 0, syn_owed: true }
    }
}
