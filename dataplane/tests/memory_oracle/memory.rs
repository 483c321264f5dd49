//! The model's plain memory beside the stack's registered memory.

use fastrand::Rng;
use warpline_dataplane::memory::{ProtectionDomainId, Region, STag};

use super::hazards::Span;

/// The Protection Domain of everything.
pub(crate) const PD: ProtectionDomainId = ProtectionDomainId(1);

/// A region that holds `octets`.
pub(super) fn region_of(octets: &[u8]) -> Region {
    let region = Region::heap(octets.len()).expect("memory");
    assert!(region.write(0, octets));
    region
}

/// Registered memory, and its expected contents.
pub(crate) struct Memory {
    /// Its first name.
    pub stag: STag,
    pub region: Region,
    pub content: Vec<u8>,
    /// What octets were before requests changed them, from an offset on.
    former: Vec<(usize, Vec<u8>)>,
}

impl Memory {
    /// Returns memory whose content is `content`.
    pub(crate) const fn new(stag: STag, region: Region, content: Vec<u8>) -> Self {
        Self { stag, region, content, former: Vec::new() }
    }

    /// All requests so far have been carried out: the octets are those of the model.
    pub(crate) fn settle(&mut self) {
        self.former.clear();
    }

    /// Writes `octets` to `spans` of it, one after the other, as far as there are octets.
    pub(crate) fn scatter(&mut self, spans: &[Span], mut octets: &[u8]) {
        for span in spans {
            let (here, rest) = octets.split_at(span.range.len().min(octets.len()));
            let place = &mut self.content[span.range.start..][..here.len()];
            self.former.push((span.range.start, place.to_vec()));
            place.copy_from_slice(here);
            octets = rest;
        }
    }

    /// Asserts that `spans` hold the octets of the model.
    #[track_caller]
    pub(crate) fn expect(&self, spans: &[Span], what: &str) {
        for span in spans {
            let mut found = vec![0; span.range.len()];
            assert!(self.region.read(span.range.start, &mut found));
            assert!(found == self.content[span.range.clone()], "{what}: {span:?} holds other octets");
        }
    }

    /// Asserts that each octet is that of the model, or one that it was before a request which may not have
    /// been carried out.
    #[track_caller]
    pub(crate) fn expect_any(&self, what: &str) {
        let mut found = vec![0; self.content.len()];
        assert!(self.region.read(0, &mut found));
        if found == self.content {
            return;
        }
        let was = |at: usize, octet: u8| {
            let mut former = self.former.iter();
            former.any(|(start, octets)| {
                at.checked_sub(*start).and_then(|at| octets.get(at)).is_some_and(|former| *former == octet)
            })
        };
        let differs =
            found.iter().enumerate().find(|(at, octet)| self.content[*at] != **octet && !was(*at, **octet));
        assert_eq!(differs, None, "{what}: nobody has written that octet");
    }

    /// Writes to all of it.
    pub(super) fn overwrite(&mut self, rng: &mut Rng) {
        rng.fill(&mut self.content);
        assert!(self.region.write(0, &self.content));
        self.settle();
    }

    /// Takes the octets of `span` as they are.
    pub(crate) fn accept(&mut self, span: &Span) {
        assert!(self.region.read(span.range.start, &mut self.content[span.range.clone()]));
    }

    /// Whether all of it does.
    #[track_caller]
    pub(crate) fn expect_all(&self, what: &str) {
        let mut found = vec![0; self.content.len()];
        assert!(self.region.read(0, &mut found));
        if found == self.content {
            return;
        }
        let differs = found.iter().zip(&self.content).position(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{what}: it differs from that octet on");
    }
}
