//! The content of pings: text, as rping's servers write back no more than a text up to its NUL.

use crate::pattern::{shift, shifted_bytes};

/// Printable octets, the least of them, and how many there are.
const PRINTABLE: (u8, u8) = (b'!', b'~' - b'!' + 1);

/// The texts of a client.
pub struct Content {
    octets: Vec<u8>,
    text: Vec<u8>,
}

impl Content {
    /// Texts of `octets` octets, the NUL included.
    pub fn new(octets: usize) -> Self {
        let (first, count) = PRINTABLE;
        let printable = shifted_bytes(octets).iter().map(|octet| first + octet % count).collect();
        Self { octets: printable, text: vec![0; octets] }
    }

    /// Returns the text of ping `ping`, which differs from the text before it and from every other place.
    pub fn of(&mut self, ping: u64) -> &[u8] {
        if let Some((_nul, text)) = self.text.split_last_mut() {
            text.copy_from_slice(&self.octets[shift(ping)..][..text.len()]);
        }
        &self.text
    }

    /// Returns how many octets of `got` are not those of the last text.
    pub fn corrupt_bytes(&self, got: &[u8]) -> u64 {
        let wrong = self.text.iter().zip(got).filter(|(text, got)| text != got).count();
        (wrong + self.text.len().abs_diff(got.len())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printable_end_in_nul_and_differ() {
        let mut content = Content::new(64);
        let texts: Vec<_> = (0..100).map(|ping| content.of(ping).to_vec()).collect();
        for text in &texts {
            assert!(text.len() == 64 && text[63] == 0);
            assert!(text[..63].iter().all(|octet| (b'!'..=b'~').contains(octet)), "{text:?}");
        }
        assert!(texts.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(Content::new(1).of(3), [0]);
    }

    #[test]
    fn wrong_octets_and_missing_ones_are_counted() {
        let mut content = Content::new(64);
        let mut text = content.of(5).to_vec();
        assert_eq!(content.corrupt_bytes(&text), 0);
        text[7] ^= 1;
        assert_eq!(content.corrupt_bytes(&text), 1);
        assert_eq!(content.corrupt_bytes(&text[..60]), 5);
    }
}
