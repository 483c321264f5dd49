//! Ports of the host's own, where it has its addresses from the kernel of its machine.

/// A set of ports.
#[derive(Debug, Default)]
pub(crate) struct PortSet {
    /// A bit for each port, up to the highest in the set.
    words: Vec<u64>,
}

impl PortSet {
    /// Adds a port.
    pub(crate) fn insert(&mut self, port: u16) {
        let word = usize::from(port) / u64::BITS as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (u32::from(port) % u64::BITS);
    }

    /// Returns true if it has the port.
    pub(crate) fn contains(&self, port: u16) -> bool {
        let word = self.words.get(usize::from(port) / u64::BITS as usize);
        word.is_some_and(|word| word & 1 << (u32::from(port) % u64::BITS) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_ports_that_were_inserted() {
        let mut set = PortSet::default();
        assert!(!set.contains(0) && !set.contains(65_535));
        for port in [7471, 63, 64, 65_535] {
            set.insert(port);
        }
        let within: Vec<u16> = (0..=65_535).filter(|port| set.contains(*port)).collect();
        assert_eq!(within, [63, 64, 7471, 65_535]);
    }
}
