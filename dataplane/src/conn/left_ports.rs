//! Ports that a listener has just left, of a host that shares its addresses.
//!
//! A program that serves one peer after the other may leave its port for a moment, and a peer that is quick
//! would be refused in between. Its SYN waits for the next listener instead, and is refused if none comes.

use arrayvec::ArrayVec;

use crate::limits;
use crate::net::input::Ingress;
use crate::time::Instant;

/// A SYN to a port that was left, in its frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldSyn<F> {
    pub(crate) frame: F,
    /// Where the frame came from: one of the host itself has no checksum.
    pub(crate) ingress: Ingress,
}

/// A SYN while it waits for a listener.
struct WaitingSyn<F> {
    port: u16,
    /// When it is refused.
    until: Instant,
    syn: HeldSyn<F>,
}

/// The ports that were left last, and the SYNs that wait for a listener there.
pub(crate) struct LeftPorts<F> {
    /// Each with the time from which it counts as any other, in the order of these.
    ports: ArrayVec<(u16, Instant), { limits::LEFT_PORTS }>,
    /// No more than there was room for at first.
    syns: Vec<WaitingSyn<F>>,
    /// When a SYN is to be refused next.
    deadline: Instant,
}

impl<F> LeftPorts<F> {
    pub(crate) fn new() -> Self {
        let syns = Vec::with_capacity(limits::HELD_SYNS);
        Self { ports: ArrayVec::new(), syns, deadline: Instant::NEVER }
    }

    /// Returns when a SYN is to be [taken back](Self::pop), unless somebody listens before.
    #[inline]
    pub(crate) const fn next_deadline(&self) -> Instant {
        self.deadline
    }

    /// Has SYNs to `port` wait from now on. The port that was left first is forgotten for it if there are
    /// many.
    pub(crate) fn leave(&mut self, now: Instant, port: u16) {
        self.ports.retain(|(left, until)| *left != port && *until > now);
        if self.ports.is_full() {
            self.ports.remove(0);
        }
        self.ports.push((port, now + limits::LEFT_PORT_NS));
    }

    /// Keeps a SYN to `port`.
    ///
    /// # Errors
    ///
    /// `syn`, if the port was not left lately, or there is no room.
    pub(crate) fn hold(&mut self, now: Instant, port: u16, syn: HeldSyn<F>) -> Result<(), HeldSyn<F>> {
        let was_left = self.ports.iter().any(|(left, until)| *left == port && *until > now);
        if !was_left || self.syns.len() == limits::HELD_SYNS {
            return Err(syn);
        }
        let until = now + limits::HELD_SYN_NS;
        self.deadline = self.deadline.min(until);
        self.syns.push(WaitingSyn { port, until, syn });
        Ok(())
    }

    /// Ends the wait at `port`, where somebody listens again.
    pub(crate) fn listen(&mut self, port: u16) {
        self.ports.retain(|(left, _)| *left != port);
        let here = self.syns.iter_mut().filter(|waiting| waiting.port == port);
        here.for_each(|waiting| waiting.until = Instant::ZERO);
    }

    /// Takes back the first SYN that has waited long enough, or for which somebody listens. Its port counts
    /// as any other from now on.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<HeldSyn<F>> {
        let Some(over) = self.syns.iter().position(|waiting| waiting.until <= now) else {
            self.deadline = self.syns.iter().map(|waiting| waiting.until).min().unwrap_or(Instant::NEVER);
            return None;
        };
        let WaitingSyn { port, syn, .. } = self.syns.remove(over);
        self.ports.retain(|(left, _)| *left != port);
        Some(syn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLISECOND;

    const PORT: u16 = 7471;

    fn hold(left: &mut LeftPorts<u32>, now: Instant, port: u16, frame: u32) -> Result<(), u32> {
        // Frames of the host itself have even numbers.
        let ingress = if frame.is_multiple_of(2) { Ingress::Loopback } else { Ingress::Wire };
        left.hold(now, port, HeldSyn { frame, ingress }).map_err(|syn| syn.frame)
    }

    fn popped(left: &mut LeftPorts<u32>, now: Instant) -> Vec<u32> {
        let syns = core::iter::from_fn(|| left.pop(now));
        syns.map(|HeldSyn { frame, ingress }| {
            assert_eq!(ingress.is_loopback(), frame.is_multiple_of(2), "frame {frame} comes from elsewhere");
            frame
        })
        .collect()
    }

    #[test]
    fn a_syn_waits_for_a_listener_or_its_time() {
        let mut left = LeftPorts::new();
        let start = Instant::ZERO + MILLISECOND;
        assert_eq!(hold(&mut left, start, PORT, 1), Err(1), "nobody was there");
        left.leave(start, PORT);
        assert_eq!(hold(&mut left, start, PORT + 1, 1), Err(1));
        assert_eq!(left.next_deadline(), Instant::NEVER, "nobody waits");
        assert_eq!(
            (hold(&mut left, start, PORT, 2), hold(&mut left, start + MILLISECOND, PORT, 3)),
            (Ok(()), Ok(()))
        );
        let end = start + limits::HELD_SYN_NS;
        assert_eq!(left.next_deadline(), end);
        left.listen(PORT + 1);
        assert_eq!(popped(&mut left, start), []);
        left.listen(PORT);
        assert_eq!(popped(&mut left, start), [2, 3]);
        assert_eq!((left.next_deadline(), hold(&mut left, start, PORT, 4)), (Instant::NEVER, Err(4)));
        // Each for its own time, from when it has come.
        left.leave(start, PORT);
        assert_eq!(
            (hold(&mut left, start, PORT, 5), hold(&mut left, start + MILLISECOND, PORT, 6)),
            (Ok(()), Ok(()))
        );
        assert_eq!(popped(&mut left, end), [5]);
        assert_eq!(hold(&mut left, end, PORT, 5), Err(5), "it has waited in vain");
        assert_eq!(left.next_deadline(), end + MILLISECOND);
        assert_eq!(popped(&mut left, end + MILLISECOND), [6]);
        assert_eq!(left.next_deadline(), Instant::NEVER);
        // As long as the port counts as left.
        left.leave(start, PORT);
        let last = start + (limits::LEFT_PORT_NS - 1);
        assert_eq!((hold(&mut left, last, PORT, 7), hold(&mut left, last + 1, PORT, 8)), (Ok(()), Err(8)));
        assert_eq!(left.next_deadline(), last + limits::HELD_SYN_NS);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut left = LeftPorts::new();
        for port in 0..2 * limits::LEFT_PORTS as u16 {
            left.leave(Instant::ZERO, port);
        }
        assert_eq!(hold(&mut left, Instant::ZERO, 0, 0), Err(0), "the first are forgotten");
        let last = 2 * limits::LEFT_PORTS as u16 - 1;
        for syn in 0..limits::HELD_SYNS as u32 {
            assert_eq!(hold(&mut left, Instant::ZERO, last, syn), Ok(()));
        }
        assert_eq!(hold(&mut left, Instant::ZERO, last, 99), Err(99));
        left.listen(last);
        assert_eq!(popped(&mut left, Instant::ZERO).len(), limits::HELD_SYNS);
    }
}
