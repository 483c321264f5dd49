//! What became of the octets that options of segments describe.

// Not those of `sync`: nothing is handed over by a counter, and a model of memory need not see each store.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::counters;

/// Defines the counters of a core, and what it publishes of them.
macro_rules! transfer_counters {
    ($($(#[$attribute:meta])* $name:ident,)*) => {
        counters! {
            /// What became of annotated segments, by cause. All octets were read from the stream where
            /// nothing was placed.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[non_exhaustive]
            pub struct TransferCounters {
                sums { $($(#[$attribute])* pub $name: u64,)* }
                peaks {}
            }
        }

        /// The counters of one stream, where its application sees them. Only its core writes.
        #[derive(Debug, Default)]
        pub(super) struct PublishedCounters {
            $($name: AtomicU64,)*
        }

        impl PublishedCounters {
            pub(super) fn publish(&self, counters: &TransferCounters) {
                $(self.$name.store(counters.$name, Ordering::Relaxed);)*
            }

            pub(super) fn read(&self) -> TransferCounters {
                TransferCounters { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

transfer_counters! {
    /// Segments of which octets were placed.
    segments_placed,
    /// Of these, beyond a gap.
    segments_placed_out_of_order,
    /// Octets placed.
    octets_placed,
    /// Of these, the ones that were handed to the application in their buffer. Those of a placement that was
    /// revoked, or of a transfer that was cancelled, are read from the stream.
    octets_delivered,
    /// Octets of segments that say which transfer they belong to, and that were not placed for one of the
    /// causes from `unknown_rid` on.
    octets_refused,
    /// Segments whose data offset or length exceeded the payload.
    // Requirements: TRO-3.1.2-01, TRO-3.1.3-01
    outside_payload,
    /// Segments whose name was not known, and which the peer did not call unsolicited: no buffer is expected.
    unknown_rid,
    /// Segments whose octets would have left the buffer, or exceeded the total.
    // Requirements: TRO-6.1-01
    out_of_bounds,
    /// Segments whose total was not the one of before, or less than what had been placed, and those after.
    // Requirements: TRO-3.1.4-01
    total_changed,
    /// Segments of which octets of the buffer were to be written for a second place of the stream.
    overlapping,
    /// Segments of an unsolicited transfer that found no buffer, or no place for its name.
    // Requirements: TRO-6.1-03
    over_quota,
    /// Segments with one separate piece too many for the transfer or the connection.
    too_scattered,
    /// Times that octets earlier in the stream took the place of placements beyond a gap.
    placements_revoked,
    /// Complete messages handed out before their turn.
    // Requirements: TRO-3.1.6-03
    messages_early,
    /// Complete messages beyond a gap that found no room, and are read in their turn.
    messages_early_refused,
}
