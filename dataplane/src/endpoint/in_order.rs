//! FPDUs that are next in TCP's receive queue, however the segments they lie in are cut: the rest of those
//! that were consumed where they lay ([`super::consume`]).

use crate::cold;
use crate::device::Frame;
use crate::mpa::contiguous::{ContiguousFpdu, InFrame, Marked, Unmarked};
use crate::mpa::receiver::{Octets, Ulpdu};
use crate::qp::error::StreamError;
use crate::qp::receiver::{Fault, ReceiveContext, Received, Receiver};
use crate::tcp::receive_queue::{HeldPool, ReceiveQueue};
use crate::time::Instant;

use super::consume::handle_rare;
use super::rdmap_stream::{FpduCounts, RdmapStream, Step};
use super::receive_wait::ReceiveWait;

/// The octets of a connection that are in order and not consumed, as MPA reads them.
struct InOrder<'q, F> {
    queue: &'q ReceiveQueue,
    held: &'q HeldPool<F>,
}

impl<F: Frame> Octets for InOrder<'_, F> {
    fn for_each_slice(&self, start: usize, len: usize, f: impl FnMut(&[u8])) {
        self.queue.for_each_slice(self.held, start, len, f);
    }

    fn available(&self) -> usize {
        self.queue.readable(self.held)
    }
}

/// The result of a ULPDU in the receive queue.
enum Consumed {
    /// It is handled.
    Received(Result<Received, Fault>),
    /// It waits for a receive.
    Waits {
        /// The wait begins with it.
        begins: bool,
    },
}

/// Handles a ULPDU, verified by MPA, that is next in order.
#[inline]
fn handle_next<U: Ulpdu>(
    receiver: &mut Receiver,
    context: &mut ReceiveContext<'_>,
    receive_wait: &mut ReceiveWait,
    now: Instant,
    ulpdu: &U,
) -> Consumed {
    if let Some(placed) = receiver.place(context, ulpdu) {
        return Consumed::Received(Ok(Received::First(placed)));
    }
    if let Some(received) = handle_rare(receiver, context, receive_wait, ulpdu) {
        return Consumed::Received(received);
    }
    match receive_wait.wait(now, context.shared.awaits_poster()) {
        Some(begins) => Consumed::Waits { begins },
        // It has waited long enough: the fault is named now.
        None => Consumed::Received(receiver.on_rare(context, ulpdu)),
    }
}

impl<F: Frame> RdmapStream<'_, F> {
    /// Consumes the FPDUs that are in order. Returns how that has ended: not by [`Step::Next`].
    pub(super) fn receive_fpdus(&mut self) -> Step {
        loop {
            match self.receive_fpdu() {
                Step::Next => {}
                last => return last,
            }
        }
    }

    /// Consumes the next FPDU in order, however the segments it lies in are cut.
    // Requirements: MPA-A.4-01, C00-7.4.1-01, DDP-3-04
    fn receive_fpdu(&mut self) -> Step {
        let contiguous = if self.operating.fpdus.has_markers() {
            self.consume_contiguous::<Marked>()
        } else {
            self.consume_contiguous::<Unmarked>()
        };
        let (wire_len, consumed) = match contiguous {
            Some(fpdu) => fpdu,
            None => match self.consume_located() {
                Ok(fpdu) => fpdu,
                Err(step) => return step,
            },
        };
        self.context.statistics.bytes_verified += wire_len as u64;
        let received = match consumed {
            Consumed::Received(received) => received,
            Consumed::Waits { begins } => {
                self.context.statistics.receives_awaited += u64::from(begins);
                self.await_receive();
                return Step::Wait;
            }
        };
        self.operating.fpdus.pass(wire_len);
        self.tcp.consume(&mut self.context.pools, wire_len);
        self.account(&FpduCounts { fpdus: 1, ..FpduCounts::default() });
        self.step(received)
    }

    /// Handles the ULPDU of the next FPDU, if that is contiguous and valid for MPA.
    /// Returns the octets of the FPDU as well.
    #[inline]
    fn consume_contiguous<I: InFrame>(&mut self) -> Option<(usize, Consumed)> {
        let Self { now, tcp, operating, qp, context, .. } = self;
        if cold::is_forced() {
            return None;
        }
        let octets = tcp.received().front_octets(&context.pools.held)?;
        let ContiguousFpdu { wire_len, ulpdu } = I::next(&operating.fpdus, octets)?;
        let (shared, stags, reads) = (&*qp.shared, &mut context.stags, &mut qp.reads);
        let acknowledged = tcp.acknowledged();
        let reach = &mut ReceiveContext { shared, stags, reads, acknowledged };
        Some((wire_len, handle_next(&mut qp.receiver, reach, &mut qp.receive_wait, *now, &ulpdu)))
    }

    /// Handles the ULPDU of the next FPDU as [`consume_contiguous`](Self::consume_contiguous) does, wherever
    /// its octets lie.
    ///
    /// # Errors
    ///
    /// The result of the step, if there is no FPDU that is complete and valid.
    #[inline(never)]
    fn consume_located(&mut self) -> Result<(usize, Consumed), Step> {
        let Self { now, tcp, operating, qp, .. } = self;
        let context = &mut *self.context;
        let octets = InOrder { queue: tcp.received(), held: &context.pools.held };
        let located = match operating.fpdus.next(&octets) {
            Ok(Some(located)) => located,
            // Octets placed beyond a gap are next, unless an FPDU before them is incomplete.
            Ok(None) if octets.available() < octets.queue.available() => return Err(self.deliver_placed()),
            Ok(None) => return Err(Step::Wait),
            Err(error) => {
                let bad_octets = operating.fpdus.needed(&octets);
                let may_be_damage = operating.fpdus.may_be_damage(&octets, error);
                if bad_octets <= octets.available() {
                    context.statistics.bytes_verified += bad_octets as u64;
                }
                if may_be_damage {
                    return Err(self.drop_or_fail(bad_octets, error));
                }
                return Err(Step::Failed(StreamError::Mpa(error), None));
            }
        };
        let (shared, stags, reads) = (&*qp.shared, &mut context.stags, &mut qp.reads);
        let acknowledged = tcp.acknowledged();
        let ulpdu = located.ulpdu(&octets);
        let reach = &mut ReceiveContext { shared, stags, reads, acknowledged };
        let consumed = handle_next(&mut qp.receiver, reach, &mut qp.receive_wait, *now, &ulpdu);
        Ok((located.wire_len(), consumed))
    }
}
