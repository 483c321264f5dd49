//! Applications that register memory.

use std::time::Duration;

use warpline_dataplane::memory::{Access, ProtectionDomainId, Region};
use warpline_dataplane::time::SECOND;

use super::play::{Play, variant};
use crate::engine::interface::request::{DeregisterOutcome, Request};
use crate::vocabulary::duration::nanos;
use crate::vocabulary::memory::Addressing;

impl Play {
    /// Registers memory and allocates windows at `side`, and returns them after a while.
    pub(super) fn use_memory(&mut self, side: usize) {
        for _ in 0..self.rng.u8(..8) {
            let pd = ProtectionDomainId(self.rng.u32(1..3));
            let reply = if self.rng.bool() {
                let region = Region::heap(64).expect("memory");
                let (access, addressing) = (Access::REMOTE_WRITE, Addressing::Address);
                self.ask(side, |reply| Request::Register {
                    region,
                    pd,
                    stream: None,
                    access,
                    addressing,
                    reply,
                })
            } else {
                self.ask(side, |reply| Request::AllocateWindow { pd, reply })
            };
            self.expect("register", 0, reply, move |play, result| match result {
                Ok(stag) => {
                    let delay_ns = play.rng.u64(..5 * SECOND);
                    play.after(delay_ns, move |play| {
                        let patience = play.rng.bool().then_some(Duration::from_secs(1));
                        let reply =
                            play.ask(side, |reply| Request::Deregister { stag, last: stag, patience, reply });
                        let within_ns = patience.map_or(0, nanos);
                        play.expect("deregister", within_ns, reply, |play, outcome| {
                            assert_eq!(outcome, DeregisterOutcome::Done);
                            play.record("memory: deregistered");
                        });
                    });
                }
                Err(error) => play.record(format!("memory: {}", variant(&error))),
            });
        }
    }
}
