//! How connections in Full Operation are used, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;

use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::work::{Operation, SendRequest, SliceList};
use warpline_dataplane::time::{MILLISECOND, SECOND};

use super::play::{Play, variant};
use super::records::EstablishedEnd;
use crate::engine::interface::request::{NewQueuePair, Request};

impl Play {
    /// Handles a connection between the addresses `key` that is in Full Operation at `side`.
    pub(super) fn on_established(
        &mut self,
        side: usize,
        key: (SocketAddr, SocketAddr),
        initiator: bool,
        qp: &Arc<NewQueuePair>,
        version: u8,
    ) {
        let established = self.established.entry(key).or_default();
        let place = &mut established.ends[usize::from(!initiator)];
        assert!(place.is_none(), "a connection is established twice");
        *place = Some(EstablishedEnd { qp: qp.clone(), version });
        if let [Some(near), Some(far)] = &established.ends {
            assert_eq!(near.version, far.version, "both ends agree on the version");
        }
        // Without it the Responder may send nothing, and gives up in the end.
        let silent = initiator && self.rng.u8(..8) == 0;
        if !silent {
            let operation = Operation::Write { stag: STag(0xfeed_ffff), to: 0 };
            // It is refused by a queue pair whose connection has ended by now.
            let _ = qp.shared.post_send(SendRequest::new(1, operation, SliceList::default()));
        }
        let (delay_ns, qp) = (self.rng.u64(..2 * SECOND), qp.clone());
        let how = self.rng.u8(..8);
        if silent || how < 3 || self.ending {
            self.disturb(key);
        }
        self.after(delay_ns, move |play| match how {
            0 => play.send(side, Request::Abort { qp: qp.shared.number }),
            1 => play.drop_qp(side, &qp),
            2 => {
                play.disconnect(side, &qp);
                let delay_ns = play.rng.u64(..100 * MILLISECOND);
                play.after(delay_ns, move |play| play.drop_qp(side, &qp));
            }
            _ => play.disconnect(side, &qp),
        });
    }

    fn disturb(&mut self, key: (SocketAddr, SocketAddr)) {
        if let Some(established) = self.established.get_mut(&key) {
            established.disturbed = true;
        }
    }

    fn disconnect(&mut self, side: usize, qp: &Arc<NewQueuePair>) {
        self.send(side, Request::Disconnect { qp: qp.shared.clone() });
    }

    /// Drops a queue pair of the application, if the application still has it.
    pub(super) fn drop_qp(&mut self, side: usize, qp: &Arc<NewQueuePair>) {
        let place = self.queue_pairs.iter().position(|(_, other)| Arc::ptr_eq(other, qp));
        if let Some(place) = place {
            self.queue_pairs.remove(place);
            for established in self.established.values_mut() {
                let serves =
                    |end: &Option<EstablishedEnd>| end.as_ref().is_some_and(|end| Arc::ptr_eq(&end.qp, qp));
                established.disturbed |= established.ends.iter().any(serves);
            }
            self.destroy(side, qp);
        }
    }

    /// Destroys a queue pair, and notes how its connection ended.
    pub(super) fn destroy(&mut self, side: usize, qp: &Arc<NewQueuePair>) {
        if let Some(reason) = qp.status.close_state().reason {
            self.record(format!("closed: {}", variant(&reason)));
        }
        let number = qp.shared.number;
        let reply = self.ask(side, |reply| Request::DestroyQp { qp: number, fence: false, reply });
        self.expect("destroy", 0, reply, |_, ()| {});
    }
}
