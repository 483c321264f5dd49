//! What the thousand send each other, and memory that is deregistered meanwhile.

use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use crossbeam::channel::Receiver;
use warpline_dataplane::memory::{Access, Region, STag};
use warpline_dataplane::qp::completion_queue::CompletionRing;
use warpline_dataplane::qp::payload::Slice;
use warpline_dataplane::qp::shared::CompletionRings;
use warpline_dataplane::qp::work::{CompletionKind, Operation, ReceiveRequest, SendRequest, Status};

use super::opening::Fate;
use super::{CONNECTIONS, Crowd, PD};
use crate::engine::interface::request::{DeregisterOutcome, Request};
use crate::vocabulary::memory::Addressing;

/// The longest RDMA Write: two segments of an Ethernet frame.
const WRITTEN_OCTETS: usize = 2000;
/// The longest Send.
const SENT_OCTETS: usize = 500;
/// The part of a queue pair in the memory of its host: what is written, then what is sent.
const SLOT_OCTETS: usize = WRITTEN_OCTETS + SENT_OCTETS;
/// One connection in so many fails.
const ONE_FAILS_OF: usize = 50;
/// Completions of a host that wait to be taken: a Write, a Send and a receive of each queue pair.
pub(super) const COMPLETIONS: usize = 4 * CONNECTIONS;

/// Returns how many connections fail in the second round.
pub(super) const fn failures() -> usize {
    CONNECTIONS / ONE_FAILS_OF
}

/// Returns the queue of a host as that of sends and receives.
pub(super) fn rings(completions: &Arc<CompletionRing>) -> CompletionRings {
    CompletionRings::shared(completions.clone())
}

/// Memory of a host with a slot for each of its queue pairs.
pub(super) struct Memory {
    side: usize,
    region: Region,
    stag: STag,
}

impl Memory {
    fn new(crowd: &mut Crowd, side: usize, access: Access) -> Self {
        let mut content = vec![0; CONNECTIONS * SLOT_OCTETS];
        crowd.rng.fill(&mut content);
        let region = Region::heap(content.len()).expect("memory");
        assert!(region.write(0, &content));
        let (registered, addressing) = (region.clone(), Addressing::ZeroBased);
        let register =
            |reply| Request::Register { region: registered, pd: PD, stream: None, access, addressing, reply };
        let stag = crowd.ask(side, "a registration", register).expect("room for it");
        Self { side, region, stag }
    }

    /// Returns memory that peers write to, and that Sends arrive in.
    pub(super) fn target(crowd: &mut Crowd, side: usize) -> Self {
        Self::new(crowd, side, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
    }

    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = vec![0; self.region.len()];
        assert!(self.region.read(0, &mut content));
        content
    }

    fn slice(&self, range: &Range<usize>) -> Slice {
        Slice { stag: self.stag, to: range.start as u64, len: range.len() as u32 }
    }
}

/// A queue pair that takes part in a round.
#[derive(Clone, Copy)]
struct Party {
    number: usize,
    end: usize,
    side: usize,
    /// Where its slot begins, in the memory of both hosts.
    slot: usize,
}

impl Party {
    /// Returns the name of a work request.
    fn id(&self, kind: CompletionKind) -> u64 {
        ((self.number * 2 + self.end) as u64) << 8 | kind as u64
    }
}

impl Crowd {
    /// Returns both ends of the connections that are open, with a slot for each connection.
    fn parties(&self) -> Vec<Party> {
        let served = (0..self.attempts.len()).filter(|number| self.attempts[*number].fate == Fate::Served);
        let parties = served.enumerate().flat_map(|(index, number)| {
            let slot = index * SLOT_OCTETS;
            [0, 1].map(|end| Party { number, end, side: self.attempts[number].host_of(end), slot })
        });
        parties.collect()
    }

    /// Takes the completions of both hosts.
    pub(super) fn take_completions(&mut self) {
        for side in 0..2 {
            while let Some(completion) = self.completions[side].poll() {
                (self.now.as_nanos(), side, completion.id).hash(&mut self.trace);
                let is_flushed = completion.status == Status::Flushed;
                assert!(is_flushed || completion.status == Status::Success, "{completion:?}");
                if !is_flushed {
                    assert!(self.completed.insert((side, completion.id)), "{completion:?} comes twice");
                }
            }
        }
    }

    /// Has `parties` exchange what is in `sources`, and notes what is expected to arrive in `targets`.
    fn post_round(
        &mut self,
        parties: &[Party],
        sources: &[Memory; 2],
        targets: &[Memory; 2],
        expected: &mut [Vec<u8>; 2],
    ) {
        self.completed.clear();
        for party in parties {
            let buffer = party.slot + WRITTEN_OCTETS..party.slot + SLOT_OCTETS;
            let receive =
                ReceiveRequest::new(party.id(CompletionKind::Receive), targets[party.side].slice(&buffer));
            let posted = self.qp(party.number, party.end).shared.post_receive(receive);
            assert_eq!(posted, Ok(()));
        }
        let contents = [0, 1].map(|side| sources[side].content());
        for party in parties {
            let written = party.slot..party.slot + self.rng.usize(1..=WRITTEN_OCTETS);
            let sent =
                party.slot + WRITTEN_OCTETS..party.slot + WRITTEN_OCTETS + self.rng.usize(1..=SENT_OCTETS);
            let (source, target) = (&sources[party.side], &targets[1 - party.side]);
            let write = Operation::Write { stag: target.stag, to: written.start as u64 };
            let posts = [
                SendRequest::new(party.id(CompletionKind::Write), write, source.slice(&written)),
                SendRequest::new(party.id(CompletionKind::Send), Operation::SEND, source.slice(&sent)),
            ];
            let posted = self.qp(party.number, party.end).shared.post_sends(&posts);
            assert!(posted.is_ok(), "{posted:?}");
            for range in [written, sent] {
                expected[1 - party.side][range.clone()].copy_from_slice(&contents[party.side][range]);
            }
        }
    }

    fn is_complete(&self, party: &Party, kind: CompletionKind) -> bool {
        self.completed.contains(&(party.side, party.id(kind)))
    }

    /// Waits until all of a round is complete, and compares memory.
    fn finish_round(&mut self, parties: &[Party], targets: &[Memory; 2], expected: &[Vec<u8>; 2]) {
        self.until("a round", |crowd| crowd.completed.len() == 3 * parties.len());
        for (target, expected) in targets.iter().zip(expected) {
            let content = target.content();
            let differs = content.iter().zip(expected).position(|(octet, expected)| octet != expected);
            assert_eq!(differs, None, "octets of host {}", target.side);
        }
    }

    /// Exchanges data on all connections, and deregisters what is sent from as soon as it is posted.
    pub(super) fn exchange_and_deregister(&mut self, targets: &[Memory; 2], expected: &mut [Vec<u8>; 2]) {
        let (parties, sources) =
            (self.parties(), [0, 1].map(|side| Memory::new(self, side, Access::empty())));
        self.post_round(&parties, &sources, targets, expected);
        let mut waiting = sources.each_ref().map(|memory| {
            let (stag, last) = (memory.stag, memory.stag);
            let deregister = |reply| Request::Deregister { stag, last, patience: None, reply };
            Some(self.hosts[memory.side].begin(self.now, deregister))
        });
        self.until("memory that is sent from is free", |crowd| {
            for (side, place) in waiting.iter_mut().enumerate() {
                let Some(Ok(outcome)) = place.as_ref().map(Receiver::try_recv) else { continue };
                assert_eq!(outcome, DeregisterOutcome::Done);
                // Nothing reads the memory any more: every request that it was to be read for is complete.
                let mut of_host = parties.iter().filter(|party| party.side == side);
                assert!(of_host.all(|party| crowd.is_complete(party, CompletionKind::Send)));
                *place = None;
            }
            waiting.iter().all(Option::is_none)
        });
        self.finish_round(&parties, targets, expected);
    }

    /// Exchanges data on all connections but some, which write to memory that is `withdrawn`: they fail.
    pub(super) fn exchange_beside_failures(
        &mut self,
        targets: &[Memory; 2],
        expected: &mut [Vec<u8>; 2],
        withdrawn: &[Memory; 2],
    ) {
        let sources = [0, 1].map(|side| Memory::new(self, side, Access::empty()));
        let before = withdrawn.each_ref().map(Memory::content);
        let fails = |party: &Party| (party.slot / SLOT_OCTETS).is_multiple_of(ONE_FAILS_OF);
        let (failing, parties): (Vec<_>, Vec<_>) = self.parties().into_iter().partition(fails);
        self.post_round(&parties, &sources, targets, expected);
        for party in failing.iter().filter(|party| party.end == 0) {
            let octets = party.slot..party.slot + WRITTEN_OCTETS;
            let write = Operation::Write { stag: withdrawn[1 - party.side].stag, to: octets.start as u64 };
            let local = sources[party.side].slice(&octets);
            let mut request = SendRequest::new(party.id(CompletionKind::Write), write, local);
            // TCP may have the acknowledgement before the Terminate arrives.
            request.signaled = false;
            assert_eq!(self.qp(party.number, party.end).shared.post_send(request), Ok(()));
        }
        self.finish_round(&parties, targets, expected);
        self.until("connections fail", |crowd| {
            failing.iter().all(|party| {
                let qp = crowd.qp(party.number, party.end);
                qp.shared.error().is_some() && qp.status.close_state().reason.is_some()
            })
        });
        assert!(parties.iter().all(|party| self.qp(party.number, party.end).shared.error().is_none()));
        for (memory, before) in withdrawn.iter().zip(&before) {
            assert!(memory.content() == *before, "memory was written to after its deregistration");
        }
        for party in &failing {
            self.destroy(party.number, party.end);
            self.attempts[party.number].fate = Fate::Failed;
        }
        self.until("failed queue pairs are destroyed", |crowd| {
            let connections = |side: usize| crowd.hosts[side].core_usage().connections;
            [0, 1].map(connections) == [CONNECTIONS - failures(); 2]
        });
        self.deregister(&sources);
    }

    /// Deregisters memory of both hosts, which nothing uses.
    pub(super) fn deregister(&mut self, memory: &[Memory; 2]) {
        for Memory { side, stag, .. } in memory {
            let (stag, last) = (*stag, *stag);
            let deregister = |reply| Request::Deregister { stag, last, patience: None, reply };
            assert_eq!(self.ask(*side, "a deregistration", deregister), DeregisterOutcome::Done);
        }
    }
}
