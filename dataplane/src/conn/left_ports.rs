//! Ports that a listener has just left, of a host that shares its addresses.
//!
//! A program that serves one peer after the other may leave its port for a moment, and a peer that is quick
//! would be refused in between. Its SYN waits for the next listener instead, and is refused if none comes.

use arrayvec::ArrayVec;

use crate::limits;
use crate::time::Instant;

/// A SYN to a port that was left, in its frame.
struct HeldSyn<F> {
    port: u16,
    frame: F,
}

/// The ports that were left last, and the SYNs that wait for a listener there.
pub(crate) struct LeftPorts<F> {
    /// Each with the time from which it counts as any other, in the order of these.
    ports: ArrayVec<(u16, Instant), { limits::LEFT_PORTS }>,
    syns: ArrayVec<HeldSyn<F>, { limits::HELD_SYNS }>,
    /// When a SYN is to be refused next.
    deadline: Instant,
}

impl<F> LeftPorts<F> {
    pub(crate) const fn new() -> Self {
        Self { ports: ArrayVec::new_const(), syns: ArrayVec::new_const(), deadline: Instant::NEVER }
    }

    /// Returns when SYNs are to be [given up](Self::expire).
    #[inline]
    pub(crate) const fn next_deadline(&self) -> Instant {
        self.deadline
    }

    /// Has SYNs to `port` wait for some time from now on. The port that was left first is forgotten for it, if
    /// there are many, unless SYNs wait there.
    pub(crate) fn leave(&mut self, now: Instant, port: u16) {
        self.ports.retain(|(left, until)| *left != port && *until > now);
        if self.ports.is_full() {
            let syns = &self.syns;
            let idle = self.ports.iter().position(|(left, _)| syns.iter().all(|syn| syn.port != *left));
            let Some(idle) = idle else { return };
            self.ports.remove(idle);
        }
        self.ports.push((port, now + limits::LEFT_PORT_NS));
    }

    /// Keeps the frame of a SYN to `port`.
    ///
    /// # Errors
    ///
    /// `frame`, if the port was not left just now, or there is no room.
    pub(crate) fn hold(&mut self, now: Instant, port: u16, frame: F) -> Result<(), F> {
        let left = self.ports.iter().find(|(left, until)| *left == port && *until > now);
        let Some((_, until)) = left else { return Err(frame) };
        self.deadline = self.deadline.min(*until);
        self.syns.try_push(HeldSyn { port, frame }).map_err(|full| full.element().frame)
    }

    /// Takes back the frames of SYNs to `port`, where somebody listens again.
    pub(crate) fn listen(&mut self, port: u16) -> ArrayVec<F, { limits::HELD_SYNS }> {
        self.ports.retain(|(left, _)| *left != port);
        self.take(|syn| syn.port == port)
    }

    /// Takes back the frames of SYNs that have waited long enough.
    pub(crate) fn expire(&mut self, now: Instant) -> ArrayVec<F, { limits::HELD_SYNS }> {
        self.ports.retain(|(_, until)| *until > now);
        let ports = self.ports.clone();
        self.take(|syn| ports.iter().all(|(left, _)| *left != syn.port))
    }

    fn take(&mut self, is_over: impl Fn(&HeldSyn<F>) -> bool) -> ArrayVec<F, { limits::HELD_SYNS }> {
        let (over, waiting): (ArrayVec<_, _>, _) =
            core::mem::take(&mut self.syns).into_iter().partition(is_over);
        self.syns = waiting;
        let waits_at = |port: u16| self.syns.iter().any(|syn| syn.port == port);
        let deadlines = self.ports.iter().filter(|(port, _)| waits_at(*port)).map(|(_, until)| *until);
        self.deadline = deadlines.min().unwrap_or(Instant::NEVER);
        over.into_iter().map(|syn: HeldSyn<F>| syn.frame).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLISECOND;

    const PORT: u16 = 7471;

    #[test]
    fn a_syn_waits_for_a_listener_or_its_time() {
        let mut left = LeftPorts::new();
        let start = Instant::ZERO + MILLISECOND;
        assert_eq!(left.hold(start, PORT, 1), Err(1), "nobody was there");
        left.leave(start, PORT);
        assert_eq!(left.hold(start, PORT + 1, 1), Err(1));
        assert_eq!(left.next_deadline(), Instant::NEVER, "nobody waits");
        assert_eq!((left.hold(start, PORT, 2), left.hold(start, PORT, 3)), (Ok(()), Ok(())));
        let end = start + limits::LEFT_PORT_NS;
        assert_eq!(left.next_deadline(), end);
        assert!(left.listen(PORT + 1).is_empty());
        assert_eq!(left.listen(PORT)[..], [2, 3]);
        assert_eq!((left.next_deadline(), left.hold(start, PORT, 4)), (Instant::NEVER, Err(4)));
        // Two ports, of which one is left again meanwhile.
        left.leave(start, PORT);
        left.leave(start, PORT + 1);
        assert_eq!((left.hold(start, PORT, 5), left.hold(start, PORT + 1, 6)), (Ok(()), Ok(())));
        left.leave(start + MILLISECOND, PORT);
        assert!(left.expire(start + MILLISECOND).is_empty());
        assert_eq!(left.expire(end)[..], [6]);
        assert_eq!(left.next_deadline(), end + MILLISECOND);
        assert_eq!(left.hold(end, PORT + 1, 7), Err(7));
        assert_eq!(left.expire(end + MILLISECOND)[..], [5]);
        assert_eq!(left.next_deadline(), Instant::NEVER);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut left = LeftPorts::new();
        for port in 0..2 * limits::LEFT_PORTS as u16 {
            left.leave(Instant::ZERO, port);
        }
        assert_eq!(left.hold(Instant::ZERO, 0, 0), Err(0), "the first are forgotten");
        let last = 2 * limits::LEFT_PORTS as u16 - 1;
        for syn in 0..limits::HELD_SYNS {
            assert_eq!(left.hold(Instant::ZERO, last, syn), Ok(()));
        }
        assert_eq!(left.hold(Instant::ZERO, last, 99), Err(99));
        // Not the port where they wait.
        for port in 100..100 + limits::LEFT_PORTS as u16 {
            left.leave(Instant::ZERO, port);
        }
        assert_eq!(left.listen(last).len(), limits::HELD_SYNS);
    }
}
