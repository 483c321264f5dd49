//! Which octets of a stream have arrived: as TCP's receive queue keeps them, octet by octet.

use warpline_dataplane::byte_stream::Arrived;

pub struct Arrivals {
    arrived: Vec<bool>,
    /// The first octet that is missing.
    next: usize,
}

impl Arrivals {
    pub fn new(octets: usize) -> Self {
        Self { arrived: vec![false; octets], next: 0 }
    }

    /// The position of the first octet that is missing.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// Whether all octets from `from` to `end` have arrived.
    pub fn has(&self, from: u64, end: u64) -> bool {
        self.arrived[from as usize..end as usize].iter().all(|arrived| *arrived)
    }

    /// Takes a segment. Returns what is kept of it: the first of its octets that are new, up to one that came
    /// before. Of octets in order it is all of the segment that is in order now.
    pub fn arrive(&mut self, from: u64, octets: usize, consumed: u64) -> Option<Arrived> {
        let (from, end) = (from as usize, (from as usize + octets).min(self.arrived.len()));
        let payload_octets = end.checked_sub(from).filter(|octets| *octets > 0)?;
        let expected = self.next;
        debug_assert!(consumed <= expected as u64);
        let begin = (from..end).find(|at| !self.arrived[*at])?;
        let to = (begin..end).find(|at| self.arrived[*at]).unwrap_or(end);
        self.arrived[begin..to].fill(true);
        let in_order = begin == expected;
        while self.arrived.get(self.next) == Some(&true) {
            self.next += 1;
        }
        let kept =
            if in_order { (begin as u64, end.min(self.next) as u64) } else { (begin as u64, to as u64) };
        Some(Arrived { payload: from as u64, payload_octets, kept, in_order })
    }

    /// Closes the first gap by a segment without an option.
    pub fn fill(&mut self, consumed: u64) -> Option<Arrived> {
        let octets = 100.min(self.arrived.len() - self.next);
        self.arrive(self.next as u64, octets, consumed)
    }
}
