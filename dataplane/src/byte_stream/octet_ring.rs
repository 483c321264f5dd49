//! A region as a ring of octets: a position counts from the beginning of a stream, and its octet lies at the
//! remainder by the length of the region. Who may touch which octets is agreed elsewhere.

use crate::memory::Region;

/// The pieces of the ring that hold `octets` octets from `position` on, each from its first octet and with
/// their number: up to the end of the region, and from its beginning.
fn pieces(ring: &Region, position: u64, octets: usize) -> [(usize, usize); 2] {
    let at = (position % ring.len() as u64) as usize;
    let first = octets.min(ring.len() - at);
    [(at, first), (0, octets - first)]
}

/// Writes `octets` from `position` on. Returns false if there are more than the ring has, or its memory is
/// constant.
pub(super) fn write(ring: &Region, position: u64, octets: &[u8]) -> bool {
    let [(first_at, first), (second_at, _)] = pieces(ring, position, octets.len());
    let (head, tail) = octets.split_at(first);
    octets.len() <= ring.len() && ring.write(first_at, head) && ring.write(second_at, tail)
}

/// Reads the octets from `position` on, as many as `out` has. Returns false if those are more than the ring
/// has.
pub(super) fn read(ring: &Region, position: u64, out: &mut [u8]) -> bool {
    let [(first_at, first), (second_at, _)] = pieces(ring, position, out.len());
    let fits = out.len() <= ring.len();
    let (head, tail) = out.split_at_mut(first);
    fits && ring.read(first_at, head) && ring.read(second_at, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_go_round_the_end() {
        let ring = Region::heap(5).unwrap();
        assert!(write(&ring, 3, &[1, 2, 3, 4]));
        let mut all = [0; 5];
        assert!(ring.read(0, &mut all));
        assert_eq!(all, [3, 4, 0, 1, 2]);
        let mut out = [0; 4];
        assert!(read(&ring, 8, &mut out));
        assert_eq!(out, [1, 2, 3, 4]);
        assert!(!write(&ring, 1, &[0; 6]) && !read(&ring, 1, &mut [0; 6]));
    }
}
