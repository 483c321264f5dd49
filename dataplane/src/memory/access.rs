//! Who may reach which octets how: the words that grants and checks are made of.

use bitflags::bitflags;

use super::{Region, STag};

/// A Protection Domain (RFC 5041 §8.2): streams reach only memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtectionDomainId(pub u32);

/// Who asks for an access: a stream, and the Protection Domain it belongs to. A peer has no say in either
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
    /// All that a peer can be allowed.
    pub const REMOTE: Self = Self::REMOTE_READ.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);
    /// All rights by which octets change.
    pub const ANY_WRITE: Self = Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_ATOMIC);
}

/// Why an access is refused, in the order of the checks (RFC 5041 §7.1, ambiguity A-30). Whoever's stream it
/// is hears of it, as the error that ends the stream.
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
    /// The STag does not grant this kind of access. The last check: which right is needed depends on the
    /// opcode, so RDMAP's version and opcode come before it (RFC 5040 §7.2).
    Rights,
}

/// What an STag is to grant.
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
    /// The Tagged Offset of the region's first octet.
    pub base_to: u64,
    /// What is allowed. A [`FastRegistration`] allows no more.
    pub access: Access,
}

impl Grant {
    /// `access` to all of `region` for all streams of `pd`; its Tagged Offsets count from `base_to`.
    pub const fn new(region: Region, pd: ProtectionDomainId, base_to: u64, access: Access) -> Self {
        Self { region, pd, stream: None, base_to, access }
    }
}

/// A window on a part of a registration, for one stream: the narrowest thing a peer can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The window under its next name: the slot that was allocated for it, and another key than it has now.
    pub window: STag,
    /// The registration, which must be valid and allow [`Access::WINDOW_BIND`].
    pub registration: STag,
    /// Where the window begins, in Tagged Offsets of the registration.
    pub to: u64,
    /// Its octets, at least one.
    pub octets: u64,
    /// What the peer may do: of [`Access::REMOTE`] only. What changes octets needs a registration that allows
    /// [`Access::LOCAL_WRITE`]; remote rights of its own it needs none.
    pub access: Access,
    /// Tagged Offsets of the window count from zero, so that the peer does not learn where it lies; else they
    /// are those of the registration.
    pub zero_based: bool,
}

/// A registration anew, without going through control: of memory that is registered already, under another
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastRegistration {
    /// The registration under its next name: its slot, and another key than it has now.
    pub stag: STag,
    /// The first octet, counted from the beginning of the memory.
    pub offset: u64,
    /// Octets, at least one.
    pub octets: u64,
    /// The Tagged Offset of the first octet.
    pub base_to: u64,
    /// What is allowed: no more than when the memory was first registered.
    pub access: Access,
    /// For all streams of the domain. `false`: for that of the queue pair alone, whose peer may then
    /// invalidate it too.
    pub all_streams: bool,
}
