//! Access rights: Protection Domains, the rights of registrations and windows, and the results of checks.

use bitflags::bitflags;

use super::{Region, STag};

/// A Protection Domain (RFC 5041 §8.2): streams reach only memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtectionDomainId(pub u32);

/// The identity that an access check sees: a stream and its Protection Domain. A peer can influence neither
/// (RFC 5041 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accessor {
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    /// Its number among the streams of the core: that of its queue pair.
    pub stream: u32,
}

bitflags! {
    /// Rights to a registered buffer. Reading it locally is always allowed, save by the STag of a window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// The stack may place received messages here.
        const LOCAL_WRITE = 1;
        /// Peers may read it.
        const REMOTE_READ = 2;
        /// Peers may write it.
        const REMOTE_WRITE = 4;
        /// Peers may do atomics on it (RFC 7306 §5).
        const REMOTE_ATOMIC = 8;
        /// Windows may be bound to it: only for registrations.
        const WINDOW_BIND = 16;
    }
}

impl Access {
    /// All rights that a peer can have.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);
    /// All rights by which bytes change.
    pub const ANY_WRITE: Self = Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);
}

/// The party that invalidates an STag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// This end, by a work request.
    Local,
    /// The peer, by a Send with Invalidate.
    Remote,
}

/// Why an access is refused, in the order of the checks (RFC 5041 §7.1, ambiguity A-30). The error ends the
/// stream, and the application gets it.
// Requirements: DDP-8.3-05
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// No such STag, or one that is not valid now.
    InvalidStag,
    /// The STag belongs to another Protection Domain, or to another stream alone.
    NotAssociated,
    /// Offset plus length wraps at 2^64.
    Wrap,
    /// The range is not inside the registration.
    Bounds,
    /// The STag does not grant this kind of access. This check is the last: the right depends on the opcode,
    /// so RDMAP's version and opcode are checked before (RFC 5040 §7.2).
    Rights,
}

/// The memory and the rights that an STag grants.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The memory.
    pub region: Region,
    /// The Protection Domain whose streams may use it.
    // Requirements: DDP-8.2-01
    pub pd: ProtectionDomainId,
    /// The only stream that may use it, if it is not for all of the domain.
    // Requirements: DDP-8.2-02, DDP-8.3-03
    pub stream: Option<u32>,
    /// The Tagged Offset of the region's first byte.
    pub base_to: u64,
    /// The rights. A [`FastRegistration`] cannot grant more.
    pub access: Access,
}

impl Grant {
    /// `access` to all of `region` for all streams of `pd`; its Tagged Offsets count from `base_to`.
    pub const fn new(region: Region, pd: ProtectionDomainId, base_to: u64, access: Access) -> Self {
        Self { region, pd, stream: None, base_to, access }
    }
}

/// A memory window on a part of a registration, for one stream: the narrowest grant to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The next STag of the window: the slot that was allocated for it, with another key than it has now.
    pub window: STag,
    /// The registration, which must be valid and allow [`Access::WINDOW_BIND`].
    pub registration: STag,
    /// Where the window begins, in Tagged Offsets of the registration.
    pub to: u64,
    /// Its bytes, at least one.
    pub len: u64,
    /// The rights of the peer, only those of [`Access::REMOTE`]. Rights to change bytes need a registration
    /// with [`Access::LOCAL_WRITE`]; the registration needs no remote rights.
    pub access: Access,
    /// If set, Tagged Offsets of the window count from zero, so that the peer does not learn its position;
    /// otherwise they are those of the registration.
    pub zero_based: bool,
}

/// A fast registration: memory that is registered already gets another key, range and rights, without the
/// control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastRegistration {
    /// The next STag of the registration: its slot, with another key than it has now.
    pub stag: STag,
    /// The first byte, counted from the beginning of the memory.
    pub offset: u64,
    /// Bytes, at least one.
    pub len: u64,
    /// The Tagged Offset of the first byte.
    pub base_to: u64,
    /// The rights, at most those of the first registration of the memory.
    pub access: Access,
    /// Whether all streams of the domain may use it, which is refused if several cores of the device have the
    /// memory. If not, only the stream of the queue pair may, and its peer may also invalidate it.
    pub all_streams: bool,
}
