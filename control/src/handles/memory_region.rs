//! Registered memory.

use std::ops::Range;
use std::time::Duration;

use warpline_dataplane::memory::{Access, FastRegistration, Region, STag};
use warpline_dataplane::qp::work::Slice;

use super::registered::Registered;
use crate::engine::interface::request::DeregisterOutcome;
use crate::vocabulary::advertisement::Advertisement;
use crate::vocabulary::core_set::CoreSet;
use crate::vocabulary::memory::{Addressing, Sharing};

/// Why memory is still registered.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeregisterError {
    /// Sends that are not completed read from it.
    #[error("sends still read from the memory: poll their completions, then deregister again")]
    InUse(MemoryRegion),
    /// Windows are bound to it.
    #[error("windows are bound to the memory: invalidate them, then deregister again")]
    WindowsBound(MemoryRegion),
    /// Cores did not answer in time. Where the memory was at several, its name may be invalid already: try
    /// again until it is deregistered.
    #[error("{cores} did not answer: is each of them polled?")]
    Unanswered {
        /// The memory.
        region: MemoryRegion,
        /// The cores.
        cores: CoreSet,
    },
}

impl DeregisterError {
    /// Returns the memory, to try again.
    pub fn into_region(self) -> MemoryRegion {
        match self {
            Self::InUse(region) | Self::WindowsBound(region) | Self::Unanswered { region, .. } => region,
        }
    }
}

/// Registered memory: a peer reaches it by its STag, as far as its [`Access`] goes.
///
/// It is read and written by copy, as a device does; what it holds while a peer writes is not defined before
/// a Delivery (RFC 5040 §5.5). Dropping it deregisters it, see [`deregister`](Self::deregister).
pub struct MemoryRegion {
    registered: Registered,
    region: Region,
    /// The Tagged Offset of the first byte of the memory, though it may not be registered.
    origin_to: u64,
    /// What of the memory is registered: the first byte, and how many.
    range: (usize, usize),
    access: Access,
}

impl MemoryRegion {
    /// Returns all of `region`, registered as `registered`.
    pub(crate) fn new(
        registered: Registered,
        region: Region,
        access: Access,
        addressing: Addressing,
    ) -> Self {
        let origin_to = addressing.base_to(region.address());
        Self { registered, origin_to, range: (0, region.len()), region, access }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Returns true if there is no byte. There always is.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Returns its STag. [`fast_registration`](Self::fast_registration) assigns another one.
    pub const fn stag(&self) -> STag {
        self.registered.stag()
    }

    /// Returns what the STag permits: the rights of the registration, or of the last
    /// [`fast_registration`](Self::fast_registration).
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns true if bytes `range` of the memory are registered: all of it, or what the last
    /// [`fast_registration`](Self::fast_registration) says.
    pub fn is_registered(&self, range: &Range<usize>) -> bool {
        let (first, len) = self.range;
        first <= range.start
            && range.start <= range.end
            && first.checked_add(len).is_some_and(|end| range.end <= end)
    }

    /// Returns true if what is sent from it is copied into frames: the memory may change, or the device
    /// cannot refer to it, or to none ([`Region::is_copied`]). It costs a copy for each byte sent, and
    /// nothing when receiving.
    pub fn is_copied(&self) -> bool {
        self.registered.copies(&self.region)
    }

    /// Returns the Tagged Offset of byte `offset`.
    pub const fn to(&self, offset: usize) -> u64 {
        self.origin_to.wrapping_add(offset as u64)
    }

    /// Returns the memory itself, to share with others or to register again.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Returns bytes `offset..offset + bytes`, for a work request. The stack checks that they lie inside
    /// when it processes the request.
    pub const fn slice(&self, offset: usize, len: u32) -> Slice {
        Slice { stag: self.stag(), to: self.to(offset), len }
    }

    /// Returns the advertisement by which a peer writes to bytes `offset..offset + bytes`; `None` when they
    /// are not all registered.
    pub fn advertisement(&self, offset: usize, len: u32) -> Option<Advertisement> {
        let (first, registered) = self.range;
        let end = offset.checked_add(len as usize)?;
        let inside = first <= offset && end <= first.checked_add(registered)?;
        inside.then(|| Advertisement { to: self.to(offset), stag: self.stag(), len })
    }

    /// Returns the work request to post to register bytes `offset..offset + bytes` of the memory anew,
    /// under another name, which [`stag`](Self::stag) returns from now on: the last one must have been
    /// invalidated by then, by either end. It is valid when the work request is done; a request that is
    /// posted after it on the same queue pair takes effect after that.
    ///
    /// `access` is no more than at first. [`Sharing`] says whether other queue pairs may use it too; if not,
    /// it ends with the one that the work request is posted to. On a device of several cores, a work request
    /// that registers memory for all queue pairs, or invalidates memory that queue pairs at other cores may
    /// use, is done when those cores have followed, and fails if one has not within 5 s.
    #[must_use = "it is a part of a work request"]
    pub fn fast_registration(
        &mut self,
        offset: usize,
        len: usize,
        access: Access,
        addressing: Addressing,
        sharing: Sharing,
    ) -> FastRegistration {
        let stag = self.registered.rename();
        let base_to = addressing.base_to(self.region.address().wrapping_add(offset as u64));
        self.range = (offset, len);
        self.access = access;
        self.origin_to = base_to.wrapping_sub(offset as u64);
        let all_streams = sharing == Sharing::AllStreams;
        FastRegistration { stag, offset: offset as u64, len: len as u64, base_to, access, all_streams }
    }

    /// Copies `source` to byte `offset`. `false`, and nothing written, when it does not fit or the memory is
    /// constant.
    #[must_use]
    pub fn write(&self, offset: usize, source: &[u8]) -> bool {
        self.region.write(offset, source)
    }

    /// Copies from byte `offset` to `target`. `false`, and `target` unchanged, when there are not as many.
    #[must_use]
    pub fn read(&self, offset: usize, target: &mut [u8]) -> bool {
        self.region.read(offset, target)
    }

    /// Returns a copy of `bytes` bytes from `offset`; `None` when there are not as many.
    pub fn to_vec(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        if !self.region.contains(offset, len) {
            return None;
        }
        let mut copy = vec![0; len];
        self.read(offset, &mut copy).then_some(copy)
    }

    /// Writes `value` to every byte, unless the memory is constant.
    pub fn fill(&self, value: u8) {
        const CHUNK_BYTES: usize = 4096;
        let chunk = [value; CHUNK_BYTES];
        for offset in (0..self.len()).step_by(CHUNK_BYTES) {
            let len = CHUNK_BYTES.min(self.len() - offset);
            let written = self.write(offset, &chunk[..len]);
            debug_assert!(written || self.region.is_constant(), "inside by construction");
        }
    }

    /// Takes the memory back: afterwards no core reaches it and its STag names nothing. Tries for `patience`
    /// while sends read from it or windows are bound to it.
    ///
    /// A drop does the same with a wait of at most 100 ms; the engine completes the rest, and the memory
    /// itself stays until then.
    ///
    /// # Errors
    ///
    /// [`DeregisterError`], with the memory, which is still registered.
    // Requirements: DDP-8.3.1-07
    pub fn deregister(mut self, patience: Duration) -> Result<(), DeregisterError> {
        let outcome = self.registered.deregister(patience);
        self.left(outcome)
    }

    /// Takes the memory back from streams that read from it, too. Tries for `patience` as
    /// [`deregister`](Self::deregister) does. Then it resets the connections of the queue pairs that have
    /// Sends, Writes, Reads or responses to the peer under way which use the memory, and of no others; work
    /// that is posted and has not begun fails if it names the memory, which ends its connection. Afterwards
    /// nothing reads or writes the memory: no retransmission, and no message of a peer.
    ///
    /// For memory that is to be freed whatever a peer does, which may acknowledge nothing for as long as it
    /// likes.
    ///
    /// # Errors
    ///
    /// [`DeregisterError`], with the memory, to try again: windows are bound to it, or read by responses that
    /// the peer has not acknowledged (nothing has ended then, if the device has one core), or cores have not
    /// answered for 2 s after `patience`.
    // Requirements: DDP-8.3-02, DDP-8.3.1-07
    pub fn revoke(mut self, patience: Duration) -> Result<(), DeregisterError> {
        let outcome = self.registered.revoke(patience);
        self.left(outcome)
    }

    fn left(self, outcome: DeregisterOutcome) -> Result<(), DeregisterError> {
        match outcome {
            DeregisterOutcome::Done => Ok(()),
            DeregisterOutcome::InUse => Err(DeregisterError::InUse(self)),
            DeregisterOutcome::WindowsBound => Err(DeregisterError::WindowsBound(self)),
            DeregisterOutcome::Unanswered(cores) => Err(DeregisterError::Unanswered { region: self, cores }),
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("stag", &self.stag())
            .field("to", &self.to(self.range.0))
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
