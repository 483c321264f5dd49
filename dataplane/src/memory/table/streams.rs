//! Which slots belong to one stream, so that they can be found when it is no more.

/// No stream: no queue pair has this number.
const NONE: u32 = u32::MAX;

/// The stream of each slot. Beside the slots and not in them: all of them are looked at for the end of one
/// stream, and these fit a cache.
#[derive(Debug)]
pub(super) struct Streams {
    of_slot: Vec<u32>,
    /// Slots that have one.
    count: usize,
}

impl Streams {
    pub(super) fn new(slots: usize) -> Self {
        Self { of_slot: vec![NONE; slots], count: 0 }
    }

    pub(super) fn set(&mut self, index: usize, stream: Option<u32>) {
        let Some(place) = self.of_slot.get_mut(index) else { return };
        let was = core::mem::replace(place, stream.unwrap_or(NONE));
        self.count += usize::from(*place != NONE);
        self.count -= usize::from(was != NONE);
    }

    /// A slot of `stream`, from `from` on.
    pub(super) fn find(&self, stream: u32, from: usize) -> Option<usize> {
        if self.count == 0 || stream == NONE {
            return None;
        }
        let place = self.of_slot.get(from..)?.iter().position(|&of| of == stream)?;
        Some(from + place)
    }
}
