//! The model's plain memory beside the stack's registered memory.

use warpline_dataplane::memory::{ProtectionDomainId, Region, STag};

use super::hazards::Span;

/// The Protection Domain of everything.
pub const PD: ProtectionDomainId = ProtectionDomainId(1);

/// A region that holds `octets`.
pub fn region_of(octets: &[u8]) -> Region {
    let region = Region::heap(octets.len()).expect("memory");
    assert!(region.write(0, octets));
    region
}

/// Registered memory, and its expected contents.
pub struct Memory {
    /// Its first name.
    pub stag: STag,
    pub region: Region,
    pub content: Vec<u8>,
}

impl Memory {
    /// Writes `octets` to `spans` of it, one after the other, as far as there are octets.
    pub fn scatter(&mut self, spans: &[Span], mut octets: &[u8]) {
        for span in spans {
            let (here, rest) = octets.split_at(span.range.len().min(octets.len()));
            self.content[span.range.start..][..here.len()].copy_from_slice(here);
            octets = rest;
        }
    }

    /// Asserts that `spans` hold the octets of the model.
    #[track_caller]
    pub fn expect(&self, spans: &[Span], what: &str) {
        for span in spans {
            let mut found = vec![0; span.range.len()];
            assert!(self.region.read(span.range.start, &mut found));
            assert!(found == self.content[span.range.clone()], "{what}: {span:?} holds other octets");
        }
    }

    /// Whether all of it does.
    #[track_caller]
    pub fn expect_all(&self, what: &str) {
        let mut found = vec![0; self.content.len()];
        assert!(self.region.read(0, &mut found));
        let differs = found.iter().zip(&self.content).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{what}: it differs from that octet on");
    }
}
