//! Connections that end with work outstanding: a queue pair is dropped, or its connection is aborted, or its
//! host starts again. How much was carried out is open; each request completes at most once, in order, and no
//! success follows a failure.

use warpline_dataplane::qp::work::{Completion, CompletionKind, Status};

use super::half::Ends;
use super::play::Play;
use super::stack::World;

impl<W: World> Play<W> {
    /// From now on it is open how much of what is outstanding on a connection is carried out. Nothing more is
    /// posted on it.
    pub(crate) fn cut_off(&mut self, number: usize) {
        self.take_completions();
        for half in &mut self.halves[number] {
            half.over = true;
            half.cut_off = true;
        }
    }

    /// The connection is over at that side, and everything was reported.
    pub(crate) fn expect_flushed(&mut self, number: usize, side: usize) {
        self.take_completions();
        let half = &mut self.halves[number][side];
        let unreported = half.due.iter().find(|due| due.signaled);
        assert!(unreported.is_none(), "seed {}, connection {number}, side {side}: {unreported:?}", self.seed);
        half.due.clear();
        let own = half.due_receives.iter().find(|due| due.receive.is_some());
        assert!(own.is_none(), "seed {}, connection {number}, side {side}: {own:?}", self.seed);
        assert!(half.receives.is_empty(), "seed {}, connection {number}, side {side}", self.seed);
        half.due_receives.clear();
    }

    pub(super) fn take_of_cut_off(&mut self, number: usize, side: usize, completion: &Completion) {
        match (completion.kind, completion.status) {
            (CompletionKind::Receive, Status::Success) => self.dequeue_receive(number, side, completion),
            (CompletionKind::Receive, _) => self.take_flushed_receive(number, side, completion),
            _ => self.take_send_of_cut_off(number, side, completion),
        }
    }

    fn take_send_of_cut_off(&mut self, number: usize, side: usize, completion: &Completion) {
        let what = self.what(number, side, completion);
        let half = &mut self.halves[number][side];
        // Those before it that report no success are complete too (RDMAP-5.5-08).
        while half.due.front().is_some_and(|due| !due.signaled && due.id != completion.id) {
            assert!(!half.failed, "{what}: all that follow a failure are reported");
            half.due.pop_front();
        }
        let due = half.due.pop_front().unwrap_or_else(|| panic!("{what}: nothing is outstanding"));
        assert_eq!((completion.id, completion.kind), (due.id, due.kind), "{what}, not {due:?}");
        if completion.status == Status::Success {
            assert!(!half.failed, "{what}: a success after a failure");
            assert_eq!(Ends::Done(completion.byte_len), due.ends, "{what}");
        }
        half.failed |= completion.status != Status::Success;
    }

    fn take_flushed_receive(&mut self, number: usize, side: usize, completion: &Completion) {
        let what = self.what(number, side, completion);
        let half = &mut self.halves[number][side];
        if !half.shares {
            let begun = half.due_receives.pop_front().map(|due| due.receive.expect("its own"));
            let receive = begun.or_else(|| half.receives.pop_front());
            assert_eq!(Some(completion.id), receive.map(|receive| receive.id), "{what}");
            return;
        }
        // It had taken that for a message that has not come whole: any octets of it may be there.
        let receive = self.take_shared(number, side, completion.id, &what);
        let pool = &mut self.pools[self.world.host_of(number, side)];
        receive.pieces.iter().for_each(|piece| pool.memory.accept(piece));
        pool.release(&receive);
    }
}
