//! Marks in the space of sequence numbers that SND.UNA has passed, some of them long ago.
//!
//! One counts as passed while SND.UNA is less than 2^31 octets ahead of it (RFC 9293 §3.4). Most are set anew
//! every round trip, but the end of the last recovery is not, where nothing is lost. So these marks follow
//! SND.UNA into each quarter of the space: as they are set in the window, which is no larger than a quarter,
//! none is ever half of the space behind. Retransmissions that have been acknowledged are forgotten there.
//!
//! Example: the last recovery ended at 1000. When SND.UNA comes to 2^30 + 500, `until` becomes 2^30 + 499.
//! Left where it is, it would lie ahead again from 2^31 + 1000 on, and a third duplicate acknowledgement
//! would begin no recovery for the next 2 GiB.

use crate::limits;
use crate::wire::tcp::SeqNumber;

use super::Connection;

/// The quarter of a number is in so many bits below it.
const QUARTER_BITS: u32 = 30;

const _: () = assert!(limits::CONGESTION_WINDOW_MAX_BYTES <= 1 << QUARTER_BITS);

/// Lets marks that were passed follow SND.UNA, which an acknowledgement has moved from `before`. It is the
/// last step of one: those before it compare with `before` as well.
#[inline]
pub(super) fn renew(tcp: &mut Connection, before: SeqNumber) {
    if (before.0 ^ tcp.send.una.0) >> QUARTER_BITS != 0 {
        renew_marks(tcp);
    }
}

#[cold]
fn renew_marks(tcp: &mut Connection) {
    let passed = tcp.send.una - 1;
    let recovery = &mut tcp.recovery;
    let marks = [
        &mut recovery.until,
        &mut recovery.ecn_until,
        recovery.rack.widened_round_mut(),
        &mut tcp.send.cwnd_limited_until,
    ];
    for mark in marks {
        *mark = mark.later(passed);
    }
    recovery.forget_acknowledged(tcp.send.una);
}

#[cfg(test)]
mod tests;
