//! STags: names under which peers reach registered memory, and the checks before every access.

use core::fmt;

use bitflags::bitflags;

use super::Region;
use crate::limits;

/// A Steering Tag (RFC 5041 §2): 16 bits that name a slot of the [`StagTable`] and 16 bits of key that must match what
/// the slot holds, so that stale and guessed STags fail. Zero is never given out: some adapters refuse it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct STag(pub u32);

impl STag {
    /// The STag of slot `index` with `key`.
    pub const fn new(index: u16, key: u16) -> Self {
        Self((key as u32) << 16 | index as u32)
    }

    const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    const fn key(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "STag({:#010x})", self.0)
    }
}

/// A Protection Domain (RFC 5041 §8.2): streams reach only memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtectionDomainId(pub u32);

/// Who asks for an access: a stream, and the Protection Domain it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accessor {
    /// Its Protection Domain.
    pub pd: ProtectionDomainId,
    /// Its number among the streams of the core: that of its queue pair.
    pub stream: u32,
}

bitflags! {
    /// Rights to a registered buffer. Reading it locally is always allowed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// The stack may place received messages here.
        const LOCAL_WRITE = 1;
        /// Peers may read it.
        const REMOTE_READ = 2;
        /// Peers may write it.
        const REMOTE_WRITE = 4;
        /// Peers may carry out Atomic Operations on it (RFC 7306).
        const REMOTE_ATOMIC = 8;
    }
}

/// Why an access is refused, in the order of the checks (RFC 5041 §7.1, ambiguity A-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// No such STag.
    InvalidStag,
    /// The STag belongs to another Protection Domain.
    NotAssociated,
    /// The STag does not grant this kind of access.
    Rights,
    /// Offset plus length wraps at 2^64.
    Wrap,
    /// The range is not inside the registration.
    Bounds,
}

/// What an STag grants.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The memory.
    pub region: Region,
    /// The Protection Domain whose streams may use it.
    pub pd: ProtectionDomainId,
    /// The Tagged Offset of the region's first octet.
    pub base_to: u64,
    /// What is allowed.
    pub access: Access,
}

/// Who invalidates an STag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// This end, by a work request.
    Local,
    /// The peer, by a Send with Invalidate.
    Remote,
}

/// The table has no free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

struct Slot {
    key: u16,
    grant: Grant,
    /// Send descriptors that still read from this memory.
    readers: u32,
    /// Whether it is open to those who do not read already.
    valid: bool,
}

/// A checked range inside a region: the only way from a Tagged Offset to octets.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    region: &'t Region,
    offset: usize,
    octets: usize,
}

impl<'t> Target<'t> {
    /// Places `source` at `at` octets from the start of the range. `false`, and nothing written, when it does not fit
    /// the range that was checked.
    #[must_use]
    #[inline]
    pub fn write(&self, at: usize, source: &[u8]) -> bool {
        match at.checked_add(source.len()) {
            Some(end) if end <= self.octets => self.region.write(self.offset + at, source),
            _ => false,
        }
    }

    /// Octets of the range.
    #[inline]
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Copies from `at` octets after the start of the range; `false` as for [`write`](Self::write).
    #[must_use]
    #[inline]
    pub fn read(&self, at: usize, target: &mut [u8]) -> bool {
        match at.checked_add(target.len()) {
            Some(end) if end <= self.octets => self.region.read(self.offset + at, target),
            _ => false,
        }
    }

    /// The one atomic read-modify-write of the whole range, see [`Region::fetch_modify`]; `None`, and nothing written, unless
    /// it is 8 aligned octets.
    #[inline]
    pub fn fetch_modify(&self, f: impl FnMut(u64) -> u64) -> Option<u64> {
        if self.octets != size_of::<u64>() {
            return None;
        }
        self.region.fetch_modify(self.offset, f)
    }

    /// Gives `f` a look at the whole range, see [`Region::inspect`].
    #[inline]
    pub fn inspect<T>(&self, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.region.inspect(self.offset, self.octets, f)
    }

    /// The region and the offset of the range in it.
    pub fn region(&self) -> (&'t Region, usize) {
        (self.region, self.offset)
    }
}

/// The STags one core knows. Each core has its own table; the control thread keeps them alike.
pub struct StagTable {
    slots: Vec<Option<Slot>>,
}

impl StagTable {
    /// An empty table of every slot an STag can name.
    pub fn new() -> Self {
        Self::with_slots(limits::REGIONS_PER_CORE)
    }

    /// An empty table of `slots` slots: STags that name later ones are not taken.
    pub fn with_slots(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| None).collect() }
    }

    /// Registers `grant` under `stag`, which the caller chose.
    ///
    /// # Errors
    ///
    /// [`TableFull`] when the slot does not exist or is taken.
    pub fn insert(&mut self, stag: STag, grant: Grant) -> Result<(), TableFull> {
        match self.slots.get_mut(stag.index()) {
            Some(slot @ None) if stag.0 != 0 => {
                *slot = Some(Slot { key: stag.key(), grant, readers: 0, valid: true });
                Ok(())
            }
            _ => Err(TableFull),
        }
    }

    /// Takes `stag` back. The memory is no longer reachable when this returns (DDP-8.3.1-07). `None` when there is no
    /// such STag or a send still reads from it.
    pub fn remove(&mut self, stag: STag) -> Option<Grant> {
        let slot = self.slots.get_mut(stag.index())?;
        match slot {
            Some(held) if held.key == stag.key() && held.readers == 0 => slot.take().map(|slot| slot.grant),
            _ => None,
        }
    }

    fn slot(&self, stag: STag) -> Result<&Slot, AccessError> {
        match self.slots.get(stag.index()) {
            Some(Some(slot)) if slot.key == stag.key() => Ok(slot),
            _ => Err(AccessError::InvalidStag),
        }
    }

    /// Checks an access of `octets` octets at Tagged Offset `to` by `accessor`.
    ///
    /// # Errors
    ///
    /// The first check that fails, in the order of [`AccessError`]. DDP-4.2-05, DDP-7.1-10 to DDP-7.1-14, DDP-8.2-01.
    #[inline]
    pub fn check(
        &self,
        stag: STag,
        accessor: Accessor,
        access: Access,
        to: u64,
        octets: usize,
    ) -> Result<Target<'_>, AccessError> {
        let grant = &self.slot(stag)?.grant;
        if grant.pd != accessor.pd {
            return Err(AccessError::NotAssociated);
        }
        if !grant.access.contains(access) {
            return Err(AccessError::Rights);
        }
        // A sum of exactly 2^64 wraps too (ambiguity A-14).
        to.checked_add(octets as u64).ok_or(AccessError::Wrap)?;
        let offset = to.checked_sub(grant.base_to).ok_or(AccessError::Bounds)?;
        let offset = usize::try_from(offset).map_err(|_| AccessError::Bounds)?;
        if !grant.region.contains(offset, octets) {
            return Err(AccessError::Bounds);
        }
        Ok(Target { region: &grant.region, offset, octets })
    }

    /// Makes `stag` invalid.
    ///
    /// # Errors
    ///
    /// [`AccessError`] when it is not there or not the accessor's.
    pub fn invalidate(
        &mut self,
        stag: STag,
        accessor: Accessor,
        _by: Invalidation,
    ) -> Result<(), AccessError> {
        match self.slots.get_mut(stag.index()) {
            Some(Some(slot)) if slot.key == stag.key() && slot.valid => {
                if slot.grant.pd != accessor.pd {
                    return Err(AccessError::NotAssociated);
                }
                slot.valid = false;
                Ok(())
            }
            _ => Err(AccessError::InvalidStag),
        }
    }

    /// Counts one more send descriptor that reads from `stag`, so that [`remove`](Self::remove) refuses until
    /// [`release`](Self::release).
    pub fn retain(&mut self, stag: STag) {
        if let Some(Some(slot)) = self.slots.get_mut(stag.index())
            && slot.key == stag.key()
        {
            slot.readers += 1;
        }
    }

    /// Takes one [`retain`](Self::retain) back.
    pub fn release(&mut self, stag: STag) {
        if let Some(Some(slot)) = self.slots.get_mut(stag.index())
            && slot.key == stag.key()
        {
            debug_assert!(slot.readers > 0, "release without retain");
            slot.readers = slot.readers.saturating_sub(1);
        }
    }
}

impl Default for StagTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: ProtectionDomainId = ProtectionDomainId(1);
    const WHO: Accessor = Accessor { pd: PD, stream: 0 };
    const STAG: STag = STag::new(3, 0xbeef);

    fn table(base_to: u64, access: Access) -> StagTable {
        let mut table = StagTable::new();
        let region = Region::heap(4096).unwrap();
        table.insert(STAG, Grant { region, pd: PD, base_to, access }).unwrap();
        table
    }

    fn check(table: &StagTable, to: u64, octets: usize) -> Result<(), AccessError> {
        table.check(STAG, WHO, Access::REMOTE_WRITE, to, octets).map(drop)
    }

    /// DDP-7.1-12, DDP-7.1-13, DDP-8.1-01: bounds hold to the octet.
    #[test]
    fn bounds_hold_to_the_octet() {
        let table = table(1000, Access::REMOTE_WRITE);
        assert_eq!(check(&table, 1000, 4096), Ok(()));
        assert_eq!(check(&table, 1000, 4097), Err(AccessError::Bounds));
        assert_eq!(check(&table, 999, 1), Err(AccessError::Bounds));
        assert_eq!(check(&table, 5095, 1), Ok(()));
        assert_eq!(check(&table, 5096, 1), Err(AccessError::Bounds));
        assert_eq!(check(&table, 5096, 0), Ok(()), "an empty range at the end is inside");
    }

    /// RDMAPX-5-02.
    #[test]
    fn an_atomic_is_of_exactly_what_was_checked() {
        let table = table(0, Access::REMOTE_WRITE);
        let target = |to, octets| table.check(STAG, WHO, Access::REMOTE_WRITE, to, octets).unwrap();
        assert_eq!(target(8, 8).fetch_modify(|value| value + 7), Some(0));
        assert_eq!(target(8, 8).fetch_modify(|value| value), Some(7));
        for (to, octets) in [(8, 7), (8, 9), (8, 0), (12, 8)] {
            assert_eq!(target(to, octets).fetch_modify(|_| 0), None, "{octets} at {to}");
        }
        assert_eq!(target(8, 8).fetch_modify(|value| value), Some(7));
    }

    /// DDP-7.1-14, A-14: the sum must not reach 2^64.
    #[test]
    fn the_sum_does_not_wrap() {
        let table = table(u64::MAX - 4095, Access::REMOTE_WRITE);
        assert_eq!(check(&table, u64::MAX - 4095, 4095), Ok(()));
        assert_eq!(check(&table, u64::MAX - 4095, 4096), Err(AccessError::Wrap));
        assert_eq!(check(&table, u64::MAX, 2), Err(AccessError::Wrap));
    }

    /// DDP-7.1-10, DDP-8.2-01, DDP-8.3.1-02, DDP-8.3.1-06.
    #[test]
    fn stag_domain_and_rights_must_match() {
        let table = table(0, Access::REMOTE_READ);
        assert_eq!(check(&table, 0, 1), Err(AccessError::Rights));
        let access = Access::REMOTE_READ;
        assert!(table.check(STAG, WHO, access, 0, 1).is_ok());
        let stale = STag::new(3, 0xbeee);
        assert_eq!(table.check(stale, WHO, access, 0, 1).err(), Some(AccessError::InvalidStag));
        let other = ProtectionDomainId(2);
        assert_eq!(
            table.check(STAG, Accessor { pd: other, ..WHO }, access, 0, 1).err(),
            Some(AccessError::NotAssociated)
        );
    }

    /// DDP-8.3.1-07: after revocation nothing is reachable, and memory that a send reads is not revoked under it.
    #[test]
    fn revocation_waits_for_readers() {
        let mut table = table(0, Access::REMOTE_WRITE);
        table.retain(STAG);
        assert!(table.remove(STAG).is_none());
        table.release(STAG);
        assert!(table.remove(STAG).is_some());
        assert_eq!(check(&table, 0, 1), Err(AccessError::InvalidStag));
    }

    #[test]
    fn a_target_writes_only_what_was_checked() {
        let table = table(0, Access::REMOTE_WRITE);
        let target = table.check(STAG, WHO, Access::REMOTE_WRITE, 10, 5).unwrap();
        assert!(target.write(0, b"hello"));
        assert!(!target.write(1, b"hello"), "past the checked range, though inside the region");
        let mut back = [0; 7];
        assert!(table.check(STAG, WHO, Access::REMOTE_WRITE, 9, 7).unwrap().read(0, &mut back));
        assert_eq!(&back, b"\0hello\0");
    }
}
