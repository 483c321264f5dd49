//! The text of segments: what becomes of octets that arrive, and the acknowledgements that they are owed (RFC
//! 9293 §3.10.7.4, seventh; RFC 5681 §4.2).

use crate::device::Frame;
use crate::limits;
use crate::time::Instant;
use crate::wire::segment::Segment;
use crate::wire::tcp::{Flags, SeqNumber, SeqRange};

use super::ack_state::{AckState, AckTiming};
use super::counters::Counters;
use super::ecn::{Ecn, EcnField};
use super::input::Payload;
use super::receive_queue::Insertion;
use super::receive_state::ReceiveState;
use super::timers::{Timer, Timers};
use super::unusual::Unusual;
use super::{Changes, Connection, Disposition, Pools, Refusal};

/// What a connection accepts text with.
pub(super) struct Text<'c> {
    receive: &'c mut ReceiveState,
    ack: &'c mut AckState,
    ecn: &'c mut Ecn,
    timers: &'c mut Timers,
    unusual: &'c mut Unusual,
    counters: &'c mut Counters,
}

impl<'c> Text<'c> {
    /// Returns what `tcp` accepts text with.
    #[inline]
    pub(super) fn of(tcp: &'c mut Connection) -> Self {
        Self {
            receive: &mut tcp.receive,
            ack: &mut tcp.ack,
            ecn: &mut tcp.ecn,
            timers: &mut tcp.timers,
            unusual: &mut tcp.unusual,
            counters: &mut tcp.counters,
        }
    }

    /// Accepts the text of a segment, which is next in order, and lies in its frame.
    #[expect(clippy::inline_always, reason = "to pass the parts of the connection takes 30 instructions")]
    #[inline(always)]
    pub(super) fn pass_in_place(&mut self, now: Instant, segment: &Segment) {
        let octets = segment.payload_octets;
        self.record_marks(EcnField::from_bits(segment.ecn), segment.flags.contains(Flags::CWR));
        self.receive.queue.advance_to(self.receive.queue.nxt() + octets as u32);
        // Its frame counts, beside those that wait beyond a gap.
        let frames = self.receive.queue.frames() as u32 + 1;
        self.receive.held_frames_peak = self.receive.held_frames_peak.max(frames);
        self.ack.on_in_order(self.receive.queue.nxt(), self.receive.queue.has_gap());
        self.owe_ack_for_data(now, segment.flags.contains(Flags::PSH) || self.holds_several(octets));
    }

    /// Accepts the ECN marks of a segment with data, and whether its sender has reduced its window.
    #[inline]
    fn record_marks(&mut self, ecn: EcnField, window_reduced: bool) {
        let changed = self.ecn.on_data(ecn == EcnField::CongestionExperienced, window_reduced);
        if changed && self.ack.on_ce_change(self.receive.next(), !self.ecn.is_echoing()) {
            *self.unusual |= Unusual::ECHO_OWED;
            self.timers.clear(Timer::DelayedAck);
        }
    }

    /// Keeps the payload, which begins at `seq`. The FIN after it is recorded if all of the payload fits the
    /// window.
    pub(super) fn keep<P, F: Frame>(
        &mut self,
        now: Instant,
        seq: SeqNumber,
        flags: Flags,
        payload: Payload<F>,
        pools: &mut Pools<P, F>,
    ) -> Disposition {
        let room = (self.receive.edge - seq).max(0) as usize;
        let octets = payload.octets.min(room);
        if octets == payload.octets && flags.contains(Flags::FIN) {
            self.receive.on_fin(seq + octets as u32);
        }
        self.record_marks(payload.ecn, flags.contains(Flags::CWR));
        let queue = &mut self.receive.queue;
        if queue.may_hold(seq) {
            // RFC 2883 §4.2: of several runs of duplicate octets the first is reported.
            let duplicate = queue.first_duplicate(&pools.held, seq, seq + octets as u32);
            duplicate.inspect(|block| self.ack.on_duplicate(*block));
        }
        let insertion = queue.insert(&mut pools.held, seq, payload.offset, octets, payload.frame);
        self.receive.held_frames_peak = self.receive.held_frames_peak.max(self.receive.queue.frames() as u32);
        let refused_in_part = |all: bool| (!all).then_some(Refusal::NoRoom);
        match insertion {
            Insertion::InOrder { filled_gap, all } => {
                if !all {
                    self.ack.on_dropped_after(self.receive.queue.end());
                }
                self.ack.on_in_order(self.receive.queue.nxt(), self.receive.queue.has_gap());
                if filled_gap {
                    self.ack.expect_small_window();
                }
                let many = self.holds_several(octets);
                self.owe_ack_for_data(now, filled_gap || many || flags.contains(Flags::PSH));
                Disposition { refusal: refused_in_part(all), ..Disposition::changed(Changes::DATA) }
            }
            Insertion::OutOfOrder { from, to, last, octets, all } => {
                self.counters.out_of_order_segments += 1;
                self.counters.out_of_order_bytes += u64::from(octets);
                self.on_held(pools, (from, last));
                self.ack.owe_another();
                let refusal = refused_in_part(all);
                Disposition {
                    beyond_gap: Some(SeqRange { from, to }),
                    refusal,
                    ..Disposition::changed(Changes::empty())
                }
            }
            Insertion::Duplicate => {
                if seq >= self.receive.queue.nxt() && octets > 0 {
                    // RFC 2883 §4 (4): the block that it lies in comes next.
                    self.on_held(pools, (seq, seq + octets as u32));
                }
                self.ack.owe_another();
                Disposition::refused(Refusal::Duplicate)
            }
            Insertion::NoRoom => {
                self.ack.owe_another();
                Disposition::refused(Refusal::NoRoom)
            }
        }
    }

    /// Octets beyond a gap are held: the next acknowledgement reports the run that they are in.
    fn on_held<P, F>(&mut self, pools: &Pools<P, F>, mut block: (SeqNumber, SeqNumber)) {
        if self.ack.has_incomplete_blocks() {
            block = self.receive.queue.run_around(&pools.held, block.0, block.1);
        }
        self.ack.on_held(block);
    }

    /// Whether a segment of so many octets was several on the peer's side, which software or a device has
    /// joined: every second one is acknowledged (RFC 5681 §4.2).
    #[inline]
    fn holds_several(&self, octets: usize) -> bool {
        octets > usize::from(self.receive.mss_octets)
    }

    /// RFC 5681 §4.2: a segment that fills a gap, or leaves one, is acknowledged at once. So is one with PSH:
    /// its sender has nothing more to send for now, and an RDMA Write, which has no response, completes with
    /// this ACK.
    #[inline]
    fn owe_ack_for_data(&mut self, now: Instant, at_once: bool) {
        let timing = self.ack.on_data(at_once, self.receive.queue.has_gap());
        if timing == AckTiming::Delayed && !self.timers.is_set(Timer::DelayedAck) {
            self.timers.set(Timer::DelayedAck, now + limits::DELAYED_ACK_NS);
        }
    }
}
