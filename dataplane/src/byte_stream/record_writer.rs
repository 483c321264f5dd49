//! The records that report to the application what is not in the ring: as few as may be are pushed.

use super::shared::SharedByteStream;
use super::transfers::{Record, RecordKind};

/// The core's end of the ring of records.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    /// The next record: octets that were placed last, and may continue.
    placed_last: Option<Record>,
    /// How many records may be pushed, at least: the application, which makes more room, writes other cache
    /// lines, so it is asked only where this does not suffice.
    left: usize,
}

impl RecordWriter {
    /// Writes a record, as one with that before it where octets that were placed continue: the segments of a
    /// burst need no more room than one.
    pub(super) fn write(&mut self, record: Record, shared: &SharedByteStream) {
        if let Some(longer) = self.placed_last.as_ref().and_then(|last| last.joined(&record)) {
            self.placed_last = Some(longer);
            return;
        }
        self.flush(shared);
        if matches!(record.kind, RecordKind::Placed { .. }) {
            self.placed_last = Some(record);
        } else {
            self.push(record, shared);
        }
    }

    /// Pushes the record that waited for octets to continue it.
    pub(super) fn flush(&mut self, shared: &SharedByteStream) {
        if let Some(record) = self.placed_last.take() {
            self.push(record, shared);
        }
    }

    fn push(&mut self, record: Record, shared: &SharedByteStream) {
        self.left = self.left.saturating_sub(1);
        let pushed = shared.records.push(record);
        debug_assert!(pushed.is_ok(), "room for two was seen, and nobody else pushes");
    }

    /// Whether there is room for `count` records more.
    #[inline]
    pub(super) fn has_room_for(&mut self, count: usize, shared: &SharedByteStream) -> bool {
        let count = count + usize::from(self.placed_last.is_some());
        if count > self.left {
            let records = &shared.records;
            self.left = records.capacity() - records.len();
        }
        count <= self.left
    }

    /// Whether octets that were placed last wait for others to continue them.
    pub(super) const fn may_continue(&self) -> bool {
        self.placed_last.is_some()
    }

    /// Adds `octets` to those that were placed last, which they continue.
    pub(super) fn continue_by(&mut self, octets: u32) {
        let placed = self.placed_last.as_mut().map(|record| &mut record.kind);
        debug_assert!(matches!(placed, Some(RecordKind::Placed { .. })), "it is of the transfer");
        if let Some(RecordKind::Placed { octets: placed, .. }) = placed {
            *placed += octets;
        }
    }
}
