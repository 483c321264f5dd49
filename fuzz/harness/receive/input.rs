//! An input is octets; every input is valid. Octets missing at its end read as zero.

/// Reads an input from its front.
pub struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    pub fn new(octets: &'i [u8]) -> Self {
        Self(octets)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn octet(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    pub fn i16(&mut self) -> i16 {
        self.u16().cast_signed()
    }

    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// A choice below `choices`.
    pub fn below(&mut self, choices: usize) -> usize {
        usize::from(self.octet()) % choices
    }

    /// Octets preceded by their number, in one octet or, after 255, in two more; as many as there are, at
    /// most `most`.
    pub fn octets(&mut self, most: usize) -> &'i [u8] {
        let octets = match self.octet() {
            255 => usize::from(self.u16()),
            octets => usize::from(octets),
        };
        let (taken, rest) = self.0.split_at(octets.min(most).min(self.0.len()));
        self.0 = rest;
        taken
    }
}
