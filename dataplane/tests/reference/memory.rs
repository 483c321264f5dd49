//! Registered memory, as the checks of RFC 5041 §7.1 and RFC 5040 §7.2 see it.

/// What a registration allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// This end may place messages and responses there.
    pub local_write: bool,
    pub remote_read: bool,
    pub remote_write: bool,
    pub remote_atomic: bool,
}

/// What somebody wants to do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// Why it is refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    InvalidStag,
    NotAssociated,
    Wrap,
    Bounds,
    Rights,
}

/// The streams that may use a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Association {
    /// All of the Protection Domain.
    Domain,
    /// This one alone.
    Stream,
    /// One of another domain, or another one of this.
    Elsewhere,
}

/// A registration and its octets.
#[derive(Clone, Debug)]
pub struct Region {
    pub stag: u32,
    pub association: Association,
    /// The Tagged Offset of the first octet.
    pub base: u64,
    pub rights: Rights,
    pub valid: bool,
    pub octets: Vec<u8>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Memory(pub Vec<Region>);

/// A place that was checked: which region, and the octet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub region: usize,
    pub at: usize,
}

impl Memory {
    /// Checks `octets` octets at `to` of `stag`.
    pub fn check(&self, stag: u32, to: u64, octets: usize, wish: Wish) -> Result<Place, Refusal> {
        let found = self.0.iter().position(|region| region.stag == stag && region.valid);
        let number = found.ok_or(Refusal::InvalidStag)?;
        let region = &self.0[number];
        if region.association == Association::Elsewhere {
            return Err(Refusal::NotAssociated);
        }
        // a sum of exactly 2^64 has wrapped.
        let end = u128::from(to) + octets as u128;
        if end >= 1 << 64 {
            return Err(Refusal::Wrap);
        }
        if to < region.base || end > u128::from(region.base) + region.octets.len() as u128 {
            return Err(Refusal::Bounds);
        }
        let Rights { local_write, remote_read, remote_write, remote_atomic } = region.rights;
        let allowed = match wish {
            Wish::LocalWrite => local_write,
            Wish::RemoteRead => remote_read,
            Wish::RemoteWrite => remote_write,
            Wish::RemoteAtomic => remote_atomic,
        };
        if !allowed {
            return Err(Refusal::Rights);
        }
        Ok(Place { region: number, at: (to - region.base) as usize })
    }

    pub fn write(&mut self, place: Place, octets: &[u8]) {
        for (n, octet) in octets.iter().enumerate() {
            self.0[place.region].octets[place.at + n] = *octet;
        }
    }

    pub fn read(&self, place: Place, octets: usize) -> Vec<u8> {
        (0..octets).map(|n| self.0[place.region].octets[place.at + n]).collect()
    }

    /// The peer invalidates `stag`: it must be valid, for this stream alone (RDMAP-8.1.1-02), and grant the
    /// peer something. Returns whether it may.
    pub fn invalidate(&mut self, stag: u32) -> bool {
        let Some(region) = self.0.iter_mut().find(|region| region.stag == stag && region.valid) else {
            return false;
        };
        let Rights { remote_read, remote_write, remote_atomic, .. } = region.rights;
        let granted = remote_read || remote_write || remote_atomic;
        let allowed = region.association == Association::Stream && granted;
        region.valid = !allowed;
        allowed
    }
}
