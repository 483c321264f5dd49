//! Streams that end because one end breaks a rule: the requests before it are carried out, the requests after
//! it are not, both ends report the reason, and every request completes once.

use warpline_dataplane::ddp::DdpError;
use warpline_dataplane::limits;
use warpline_dataplane::memory::STag;
use warpline_dataplane::qp::error::StreamError;
use warpline_dataplane::qp::shared::QpState;
use warpline_dataplane::qp::work::{
    Completion, CompletionKind, Operation, Payload, SendRequest, Slice, Status,
};
use warpline_dataplane::rdmap::{RdmapError, layer};
use warpline_dataplane::tcp::CloseReason;
use warpline_dataplane::time::SECOND;

use super::faults::Fault;
use super::half::{Due, Ends, Half};
use super::hazards::{Area, Touches};
use super::play::{NOWHERE, Play};
use super::stack::World;

/// Places in the peer's memory for the Writes after a fault, and the offset of their octets in the source.
const BEHIND: [usize; 2] = [5000, 6000];
const BEHIND_OCTETS: usize = 100;

impl<W: World> Play<W> {
    /// One end of an idle connection posts valid work, a request that its peer must refuse, and more.
    pub(crate) fn end_badly(&mut self, number: usize, side: usize) {
        for side in [0, 1] {
            self.complete_all(number, side);
        }
        self.until("all receives are complete", |this| {
            // Queue pairs that share receives may take the one intended for this message.
            let shared = this.halves[number].iter().any(|half| half.shares);
            let mut halves = this.halves.iter().enumerate().filter(|(other, _)| shared || *other == number);
            halves.all(|(_, halves)| halves.iter().all(|half| half.due_receives.is_empty()))
        });
        let ours = self.rng.u32(..3) == 0;
        let (operation, local, ends, error) = if ours {
            self.tally.local_faults += 1;
            let (operation, local, status) = self.local_fault(number, side);
            let error = StreamError::Rdmap(RdmapError::LocalCatastrophic);
            (operation, local, Ends::Locally(status), error)
        } else {
            self.tally.remote_faults += 1;
            let (operation, local, error) = self.any_fault(number, side);
            (operation, local, Ends::Done(0), error)
        };
        for half in &mut self.halves[number] {
            half.over = true;
        }
        let shared = self.halves[number][1 - side].memory(Area::Shared).stag;
        let source = self.halves[number][side].memory(Area::Source).stag;
        let before = self.rng.u64(..3);
        // Before the fault: Writes of the octets that are already there, so that the time of a later Read of
        // them does not matter.
        let mut there_before = Vec::new();
        for place in 0..before {
            let span = self.halves[number][side].span(&mut self.rng, Area::Source, 100);
            let octets = self.halves[number][side].gather(std::slice::from_ref(&span));
            let local = self.halves[number][side].slice(&span);
            let to = 1000 * place;
            let there = &mut self.halves[number][1 - side].memory_mut(Area::Shared).content;
            there_before.push((to as usize, there[to as usize..][..100].to_vec()));
            there[to as usize..][..100].copy_from_slice(&octets);
            self.post_ending(
                number,
                side,
                Operation::Write { stag: shared, to },
                local.into(),
                Ends::Done(100),
            );
        }
        let began = self.world.seconds();
        self.post_ending(number, side, operation, local, ends);
        for to in BEHIND.map(|to| to as u64) {
            let octets = BEHIND_OCTETS as u32;
            let local = Slice { stag: source, to, len: octets }.into();
            self.post_ending(number, side, Operation::Write { stag: shared, to }, local, Ends::Done(octets));
            let local = self.sink(number, side, 8).into();
            self.post_ending(number, side, Operation::Read { stag: shared, to }, local, Ends::Done(8));
        }
        self.until("both ends know", |this| {
            // An end with nothing outstanding has nothing to flush when it learns of it.
            let knows = |side: usize| {
                this.halves[number][side].is_flushed() && this.world.qp(number, side).error().is_some()
            };
            knows(0) && knows(1)
        });
        let qp = |side: usize| self.world.qp(number, side);
        let finder = if ours { side } else { 1 - side };
        let host = self.world.host_of(number, finder);
        let other = of_another_core(error).filter(|_| !self.world.knows_all_names(host));
        let error = other.filter(|other| qp(finder).error() == Some(*other)).unwrap_or(error);
        assert_eq!(qp(finder).error(), Some(error), "seed {}: {operation:?}", self.seed);
        // The Terminate of a core that stalls may be lost until there is no more time for it.
        let is_given_up = qp(1 - finder).error() == Some(StreamError::Tcp(CloseReason::Reset))
            && self.world.seconds() - began >= limits::TERMINATE_LINGER_NS / SECOND;
        let is_told = qp(1 - finder).error() == Some(told(error));
        // What was sent before it may be lost with it.
        let before_may_be_lost = ours && !is_told;
        assert!(
            is_told || is_given_up,
            "seed {}: {operation:?} ended with {:?}, not {:?}",
            self.seed,
            qp(1 - finder).error(),
            told(error)
        );
        for side in [0, 1] {
            assert!(matches!(qp(side).state(), QpState::Terminate | QpState::Error));
        }
        self.drain(number);
        if before_may_be_lost {
            for (to, was) in there_before {
                self.may_be_lost(number, side, to, &was);
            }
        }
        if self.world.has_markers(number) && !ours {
            for to in BEHIND {
                self.may_be_placed(number, side, to);
            }
        }
    }

    /// Verbs' way to drain a queue pair in error: markers are accepted, and flushed.
    fn drain(&mut self, number: usize) {
        for side in [0, 1] {
            self.post_ending(number, side, Operation::SEND, Slice::default().into(), Ends::Done(0));
            let half = &mut self.halves[number][side];
            if half.shares {
                continue;
            }
            if let Some(receive) = half.receive(&mut self.rng) {
                let request = receive.request(half.memory(Area::Inbox).stag);
                self.world.qp(number, side).post_receive(request).expect("flushed in its turn");
                half.receives.push_back(receive);
            }
        }
        self.until("the markers are flushed", |this| this.halves[number].iter().all(Half::is_flushed));
    }

    /// Octets after the fault in the stream may have been placed if they arrived before it, beyond a gap:
    /// Placement has no order (DDP-5.3-04), and only octets that arrive after an error is found are dropped
    /// (DDP-7.1-17). Without Markers nothing is placed beyond gaps.
    fn may_be_placed(&mut self, number: usize, side: usize, to: usize) {
        let written = self.halves[number][side].memory(Area::Source).content[to..to + BEHIND_OCTETS].to_vec();
        let there = self.halves[number][1 - side].memory_mut(Area::Shared);
        let mut found = vec![0; BEHIND_OCTETS];
        assert!(there.region.read(to, &mut found));
        if found == written {
            there.content[to..to + BEHIND_OCTETS].copy_from_slice(&written);
        }
    }

    /// The octets of a Write at `to` may be there, or those that `was` there before.
    fn may_be_lost(&mut self, number: usize, side: usize, to: usize, was: &[u8]) {
        let there = self.halves[number][1 - side].memory_mut(Area::Shared);
        let mut found = vec![0; was.len()];
        assert!(there.region.read(to, &mut found));
        if found == was {
            there.content[to..to + was.len()].copy_from_slice(was);
        }
    }

    pub(crate) fn sink(&self, number: usize, side: usize, octets: u32) -> Slice {
        Slice { stag: self.halves[number][side].memory(Area::Sink).stag, to: 0, len: octets }
    }

    fn post_ending(&mut self, number: usize, side: usize, operation: Operation, local: Payload, ends: Ends) {
        let id = self.halves[number][side].id();
        let request = SendRequest::new(id, operation, local);
        // It may have ended meanwhile: then it is flushed.
        self.world.qp(number, side).post_send(request).expect("accepted in every state");
        let (kind, touches) = (operation.kind(), Touches::default());
        self.halves[number][side].due.push_back(Due { id, kind, ends, signaled: true, touches });
        for _ in 0..self.rng.u32(..3) {
            self.world.step();
        }
    }

    /// A request that breaks a rule, and the error that it is.
    fn any_fault(&mut self, number: usize, side: usize) -> Fault {
        let through = if self.rng.bool() { self.fault_through(number, side) } else { None };
        self.tally.name_faults += u64::from(through.is_some());
        let fault = through.unwrap_or_else(|| self.fault(number, side));
        if let Operation::Send { invalidate: Some(_), .. } = fault.0 {
            // It is placed before it is Delivered.
            let octets = self.halves[number][side].memory(Area::Source).content[7..23].to_vec();
            let there = &mut self.halves[number][1 - side];
            if there.shares {
                there.begun = Some(octets);
            } else {
                let pieces = there.receives[0].pieces.clone();
                there.scatter(&pieces, &octets);
            }
        }
        fault
    }

    fn fault(&mut self, number: usize, side: usize) -> Fault {
        let ddp = StreamError::Ddp;
        let rdmap = StreamError::Rdmap;
        let (here, there) = (&self.halves[number][side], &self.halves[number][1 - side]);
        let shared = there.memory(Area::Shared);
        let (stag, end) = (shared.stag, shared.content.len() as u64);
        let source = Slice { stag: here.memory(Area::Source).stag, to: 7, len: 16 };
        let sink = self.sink(number, side, 16);
        let value = self.sink(number, side, 8);
        let write = |stag, to| (Operation::Write { stag, to }, Payload::from(source));
        let read = |stag, to| (Operation::Read { stag, to }, Payload::from(sink));
        let add = |stag, to| (Operation::FetchAdd { stag, to, add: 1, mask: 0 }, Payload::from(value));
        let send = |invalidate| (Operation::Send { invalidate, solicited: false }, Payload::from(source));
        let sink_there = there.memory(Area::Sink).stag;
        let stale = STag(stag.0 ^ 0x1_0000);
        let dead = there.names.iter().find(|named| named.reach.is_none());
        let dead = dead.map_or(NOWHERE, |named| named.stag);
        let waits = self.halves[number][1 - side].shares && self.world.waits_for_shared_receives();
        if waits && self.room(number, side).is_none() {
            self.post_receives(number, 1 - side);
        }
        let receives = self.room(number, side);
        let ((operation, local), error) = match self.rng.u32(..16) {
            0 => (write(stale, 0), ddp(DdpError::InvalidStag)),
            1 => (write(dead, 0), ddp(DdpError::InvalidStag)),
            2 => (write(stag, end - 15), ddp(DdpError::BaseOrBounds)),
            3 => (write(stag, u64::MAX - 15), ddp(DdpError::ToWrap)),
            4 => (write(sink_there, 0), ddp(DdpError::AccessRights)),
            5 => (read(stale, 0), rdmap(RdmapError::InvalidStag)),
            6 => (read(stag, end), rdmap(RdmapError::BaseOrBounds)),
            7 => (read(stag, u64::MAX - 7), rdmap(RdmapError::ToWrap)),
            8 => (read(sink_there, 0), rdmap(RdmapError::AccessRights)),
            9 => (add(stag, 4), rdmap(RdmapError::CatastrophicStream)),
            10 => (add(dead, 0), rdmap(RdmapError::InvalidStag)),
            11 => (add(stag, end), rdmap(RdmapError::BaseOrBounds)),
            12 => (add(sink_there, 0), rdmap(RdmapError::AccessRights)),
            // A registration for all streams of its domain cannot be invalidated by one peer.
            // Requirements: RDMAP-8.1.1-02
            13 if receives.is_some_and(|octets| octets >= 16) => {
                (send(Some(stag)), rdmap(RdmapError::CannotInvalidate))
            }
            14 if receives.is_some_and(|octets| octets >= 16) => {
                (send(Some(dead)), rdmap(RdmapError::CannotInvalidate))
            }
            _ => match receives {
                Some(octets) if octets < 16 => (send(None), ddp(DdpError::TooLong)),
                // At any current depth, there is no room for the request after it.
                Some(_) => (write(stale, 9), ddp(DdpError::InvalidStag)),
                None => (send(None), ddp(DdpError::NoBuffer)),
            },
        };
        (operation, local, error)
    }
}

/// Returns what a core may report instead of `error` of a name that another core has: it does not know that
/// there is such a name, or that it has another key now.
const fn of_another_core(error: StreamError) -> Option<StreamError> {
    Some(match error {
        StreamError::Ddp(DdpError::NotAssociated) => StreamError::Ddp(DdpError::InvalidStag),
        StreamError::Ddp(DdpError::InvalidStag) => StreamError::Ddp(DdpError::NotAssociated),
        StreamError::Rdmap(RdmapError::NotAssociated) => StreamError::Rdmap(RdmapError::InvalidStag),
        StreamError::Rdmap(RdmapError::InvalidStag) => StreamError::Rdmap(RdmapError::NotAssociated),
        _ => return None,
    })
}

/// Returns the error that the other end reports for an error of this end.
fn told(error: StreamError) -> StreamError {
    match error {
        StreamError::Ddp(error) => {
            StreamError::Terminated { layer: layer::DDP, error_type: error.error_type(), code: error.code() }
        }
        StreamError::Rdmap(error) => StreamError::Terminated {
            layer: layer::RDMAP,
            error_type: error.error_type(),
            code: error.code(),
        },
        other => other,
    }
}

impl Half {
    /// Whether every request has been reported.
    fn is_flushed(&self) -> bool {
        self.due.is_empty() && self.receives.is_empty() && self.begun.is_none()
    }

    /// A completion of a stream that has ended, or is about to: in order, each request once, and no success
    /// after a failure.
    pub(crate) fn take_ending(&mut self, completion: &Completion) {
        let due = self.due.pop_front().unwrap_or_else(|| panic!("{completion:?}: nothing is outstanding"));
        assert_eq!((completion.id, completion.kind), (due.id, due.kind), "{completion:?}");
        if let Ends::Locally(status) = due.ends {
            assert_eq!(completion.status, status, "{completion:?}");
            self.failed = true;
        } else if completion.status == Status::Success {
            // A Write is complete when TCP has its acknowledgement, even if the peer refuses it (DDP-5.4-04).
            assert!(!self.failed && completion.kind != CompletionKind::Read, "{completion:?}");
        } else {
            self.failed = true;
        }
    }
}
