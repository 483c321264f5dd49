//! How connections end, and what must be left of them.

use std::sync::Arc;

use warpline_dataplane::core::tables::Usage;
use warpline_dataplane::ring::ListenAddress;
use warpline_dataplane::tcp::CloseReason;

use super::super::records::MPA_PORT;
use super::Crowd;
use super::opening::Fate;
use crate::engine::interface::request::Request;

/// How the applications end a connection. Ends are those of Initiator and Responder.
#[derive(Clone, Copy, Debug)]
enum How {
    /// One end closes it in an orderly way.
    Disconnect(usize),
    /// Both do so at the same time.
    DisconnectBoth,
    /// One end resets it. The other may not learn of it, as a reset can be lost.
    Abort(usize),
    /// One end closes it, and drops its queue pair at once.
    Leave(usize),
    /// One end drops its queue pair.
    Drop(usize),
}

impl How {
    const ALL: [Self; 9] = [
        Self::Disconnect(0),
        Self::Disconnect(1),
        Self::DisconnectBoth,
        Self::Abort(0),
        Self::Abort(1),
        Self::Leave(0),
        Self::Leave(1),
        Self::Drop(0),
        Self::Drop(1),
    ];

    /// Returns true if both ends see an orderly close.
    const fn is_orderly(self) -> bool {
        matches!(self, Self::Disconnect(_) | Self::DisconnectBoth)
    }
}

impl Crowd {
    /// Ends every connection that is open, each in one of all ways.
    pub(super) fn close_all(&mut self) {
        let open: Vec<usize> =
            (0..self.attempts.len()).filter(|number| self.attempts[*number].fate == Fate::Served).collect();
        let mut ends = Vec::new();
        for number in open {
            let how = How::ALL[self.rng.usize(..How::ALL.len())];
            self.close(number, how);
            ends.push((number, how));
        }
        self.until("connections are closed", |crowd| {
            let reason = |number: usize, end: usize| crowd.qp(number, end).status.close_state().reason;
            ends.iter().all(|(number, how)| match how {
                How::Abort(end) => reason(*number, *end).is_some(),
                how if how.is_orderly() => [0, 1].iter().all(|end| reason(*number, *end).is_some()),
                How::Leave(end) => reason(*number, 1 - end).is_some(),
                _ => true,
            })
        });
        for (number, how) in ends {
            for end in 0..2 {
                let Some(qp) = &self.attempts[number].ends[end] else { continue };
                let (reason, error) = (qp.status.close_state().reason, qp.shared.error());
                if how.is_orderly() {
                    assert_eq!((reason, error), (Some(CloseReason::Finished), None), "{number}: {how:?}");
                }
                self.destroy(number, end);
            }
        }
    }

    fn close(&mut self, number: usize, how: How) {
        match how {
            How::Disconnect(end) => self.disconnect(number, end),
            How::DisconnectBoth => [0, 1].into_iter().for_each(|end| self.disconnect(number, end)),
            How::Abort(end) => {
                let (side, qp) = (self.attempts[number].host_of(end), self.qp(number, end).shared.number);
                self.hosts[side].send(self.now, Request::Abort { qp });
            }
            How::Leave(end) => {
                self.disconnect(number, end);
                self.destroy(number, end);
            }
            How::Drop(end) => self.destroy(number, end),
        }
    }

    fn disconnect(&mut self, number: usize, end: usize) {
        let (side, qp) = (self.attempts[number].host_of(end), self.qp(number, end).shared.clone());
        self.hosts[side].send(self.now, Request::Disconnect { qp });
    }

    /// Drops the listeners, and asserts that nothing is left at either host once TIME-WAIT is over.
    pub(super) fn expect_unused(&mut self) {
        for host in &mut self.hosts {
            host.send(self.now, Request::Unlisten { at: ListenAddress::everywhere(MPA_PORT) });
        }
        self.until("nothing is left", |crowd| {
            crowd
                .hosts
                .iter()
                .all(|host| !host.engine.has_business() && host.core_usage() == Usage::default())
        });
        for host in &mut self.hosts {
            assert_eq!(host.engine.assert_unused(), 0, "no quota was reached");
        }
        assert!(self.destroyed.iter().all(|reply| reply.try_recv() == Ok(())), "one reply each");
        for qp in &self.dropped {
            assert_eq!((Arc::strong_count(&qp.shared), Arc::strong_count(&qp.status)), (1, 1));
        }
    }
}
