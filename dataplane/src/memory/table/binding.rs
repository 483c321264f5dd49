//! Work requests that make a slot grant memory again: binding windows, and fast registration.

use super::errors::BindError;
use super::{GrantedRange, Kind, Slot, StagTable};
use crate::memory::{Access, Accessor, Binding, FastRegistration, Reach, STag};

impl StagTable {
    /// Binds a window to a part of a registration, for the stream of `accessor` alone. It is valid under its
    /// new STag when this returns.
    ///
    /// # Errors
    ///
    /// [`BindError`]; nothing is changed then.
    // Requirements: DDP-8.2-03
    pub fn bind(&mut self, binding: &Binding, accessor: Accessor) -> Result<(), BindError> {
        let &Binding { window, registration, to, len: octets, access, zero_based } = binding;
        self.refresh(window.index());
        self.refresh(registration.index());
        let slot = self.free_slot(window, accessor)?;
        if !matches!(slot.kind, Kind::Window { .. }) {
            return Err(BindError::InvalidStag);
        }
        let below = self.slot(registration).filter(|slot| slot.valid).ok_or(BindError::InvalidStag)?;
        let (Kind::Registration { .. }, Some(granted)) = (below.kind, &below.granted) else {
            return Err(BindError::InvalidStag);
        };
        if below.pd != accessor.pd || granted.stream.is_some_and(|stream| stream != accessor.stream) {
            return Err(BindError::NotAssociated);
        }
        // A peer gets no more rights than the owner has: rights to change octets need the owner's
        // LOCAL_WRITE.
        let writes = access.intersects(Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC));
        let needed = if writes { Access::WINDOW_BIND | Access::LOCAL_WRITE } else { Access::WINDOW_BIND };
        if !Access::REMOTE.contains(access) || !granted.access.contains(needed) {
            return Err(BindError::Rights);
        }
        let octets = usize::try_from(octets).map_err(|_| BindError::Bounds)?;
        to.checked_add(octets as u64).ok_or(BindError::Wrap)?;
        let target = granted.target(to, octets).ok().filter(|_| octets > 0).ok_or(BindError::Bounds)?;
        let granted = GrantedRange {
            region: granted.region.clone(),
            start: target.offset,
            octets,
            base_to: if zero_based { 0 } else { to },
            access,
            stream: Some(accessor.stream),
        };
        let number = match &self.claims {
            Some(claims) => claims.bind(window, registration, below.grant)?,
            None => 0,
        };
        self.count_window(window, registration);
        self.grant(window, number, granted);
        Ok(())
    }

    fn count_window(&mut self, window: STag, registration: STag) {
        if let Some(Some(Slot { kind: Kind::Registration { windows, .. }, .. })) =
            self.slots.get_mut(registration.index())
        {
            *windows += 1;
        }
        if let Some(Some(Slot { kind: Kind::Window { of }, .. })) = self.slots.get_mut(window.index()) {
            *of = registration.index() as u16;
        }
    }

    /// Registers memory again that is registered already, with another key, and possibly another range,
    /// rights and Tagged Offsets. It is valid under its new STag when this returns. Where it is for all
    /// streams of the domain, other cores of the device have to follow: see
    /// [`GrantChange`](crate::memory::GrantChange).
    ///
    /// # Errors
    ///
    /// [`BindError`]; nothing is changed then.
    pub fn register(&mut self, wanted: &FastRegistration, accessor: Accessor) -> Result<Reach, BindError> {
        let &FastRegistration { stag, offset, len: octets, base_to, access, all_streams } = wanted;
        self.refresh(stag.index());
        let slot = self.free_slot(stag, accessor)?;
        let (Kind::Registration { allowed, windows }, Some(granted)) = (slot.kind, &slot.granted) else {
            return Err(BindError::InvalidStag);
        };
        if windows > 0 {
            return Err(BindError::WindowsBound);
        }
        if !allowed.contains(access) {
            return Err(BindError::Rights);
        }
        base_to.checked_add(octets).ok_or(BindError::Wrap)?;
        let start = usize::try_from(offset).map_err(|_| BindError::Bounds)?;
        let octets = usize::try_from(octets).map_err(|_| BindError::Bounds)?;
        if octets == 0 || !granted.region.contains(start, octets) {
            return Err(BindError::Bounds);
        }
        let stream = (!all_streams).then_some(accessor.stream);
        let region = granted.region.clone();
        let number = match &self.claims {
            Some(claims) => claims.take(stag, all_streams)?,
            None => 0,
        };
        self.grant(stag, number, GrantedRange { region, start, octets, base_to, access, stream });
        let is_elsewhere = all_streams && self.claims.is_some();
        let to = is_elsewhere.then_some(*wanted);
        Ok(if is_elsewhere { self.change_elsewhere(stag, to) } else { Reach::ThisCore })
    }

    /// Registers memory as another core has, for all streams of the domain, as the grant of this number,
    /// unless that has ended again.
    pub(super) fn register_too(&mut self, wanted: &FastRegistration, number: u8) -> Result<(), BindError> {
        let &FastRegistration { stag, offset, len: octets, base_to, access, .. } = wanted;
        let (Some(claims), Some(Some(slot))) = (&self.claims, self.slots.get(stag.index())) else {
            return Ok(());
        };
        if slot.valid || slot.revoked || !claims.is_granted(stag, number) {
            return Ok(());
        }
        if slot.readers > 0 {
            return Err(BindError::InUse);
        }
        let (Kind::Registration { windows, .. }, Some(granted)) = (slot.kind, &slot.granted) else {
            return Ok(());
        };
        if windows > 0 {
            return Err(BindError::WindowsBound);
        }
        // The other core has checked the range, of the same memory.
        let (region, start, octets) = (granted.region.clone(), offset as usize, octets as usize);
        self.grant(stag, number, GrantedRange { region, start, octets, base_to, access, stream: None });
        Ok(())
    }

    /// The slot of `accessor` that is to have the STag `name`: it must be invalid, here and at every other
    /// core, have no readers, and have another key. One that control takes back is not there any more.
    fn free_slot(&self, name: STag, accessor: Accessor) -> Result<&Slot, BindError> {
        let slot = match self.slots.get(name.index()) {
            Some(Some(slot)) if name.0 != 0 && !slot.revoked => slot,
            _ => return Err(BindError::InvalidStag),
        };
        if slot.pd != accessor.pd {
            return Err(BindError::NotAssociated);
        }
        match &self.claims {
            // Another core may have given it another key meanwhile.
            Some(claims) => claims.can_take(name)?,
            None if slot.key == name.key() => return Err(BindError::KeyReused),
            None => {}
        }
        if slot.valid {
            return Err(BindError::StillValid);
        }
        if slot.readers > 0 {
            return Err(BindError::InUse);
        }
        Ok(slot)
    }
}
