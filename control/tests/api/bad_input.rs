//! Tests of application errors: each mistake returns its documented error, no octet is misplaced, and no
//! other queue pair is affected.

use std::thread;

use crate::common::{End, PATIENCE, PORT, Pair};
use warpline::{
    Access, Advertisement, CloseError, CloseReason, CompletionQueue, ConnectConfig, DeviceName, InlineData,
    ListenConfig, Operation, Payload, PostError, QpConfig, QpState, ReadDepths, Revision, SendRequest, Slice,
    SliceList, Status, StreamError, Terms, TooLongForInline, TooManySlices, WcStatus,
};
use warpline_dataplane::limits;
use warpline_dataplane::rdmap::RdmapError;

/// Two connections between the same devices: one for the mistakes, one that must not notice.
struct Neighbours {
    pair: Pair,
    near: End,
    far: End,
    other: (End, End),
    rounds: u64,
}

impl Neighbours {
    fn new() -> Self {
        let pair = Pair::new();
        let ((near, far), other) = (pair.connect(), pair.connect());
        far.memory.fill(0xee);
        Self { pair, near, far, other, rounds: 0 }
    }

    /// Nothing of the far end's memory was written, and the other connection carries messages both ways.
    fn nobody_suffers(&mut self) {
        let untouched = self.far.memory.to_vec(0, End::OCTETS).unwrap();
        assert!(untouched.iter().all(|octet| *octet == 0xee), "an octet has gone astray");
        let (a, b) = &self.other;
        for (from, to) in [(a, b), (b, a)] {
            self.rounds += 1;
            from.memory.fill(self.rounds as u8);
            to.qp.post_receive(self.rounds, to.memory.slice(0, 100)).unwrap();
            from.qp.post_send(self.rounds, from.memory.slice(0, 100)).unwrap();
            for end in [from, to] {
                let done = end.completion();
                assert_eq!((done.id, done.qp, done.status), (self.rounds, end.qp.number(), Status::Success));
            }
            assert_eq!(to.memory.to_vec(0, 100).unwrap(), [self.rounds as u8; 100]);
        }
    }

    /// A new connection for the next mistake.
    fn again(&mut self) {
        (self.near, self.far) = self.pair.connect();
        self.far.memory.fill(0xee);
    }
}

fn refused<T>(error: PostError) -> Result<T, PostError> {
    Err(error)
}

/// A request that is invalid on its own is refused when it is posted. It has no effect, not even on the queue
/// pair it was posted to.
#[test]
fn what_is_wrong_by_itself_is_not_taken() {
    let mut neighbours = Neighbours::new();
    let Neighbours { near, far, .. } = &neighbours;
    let (stag, to) = (far.memory.stag(), far.memory.to(0));
    let slice = near.memory.slice(0, 8);

    let slices = [slice; limits::SCATTER_GATHER_ELEMENTS + 1];
    assert_eq!(SliceList::try_from(&slices[..]), Err(TooManySlices(slices.len())));
    let octets = [0; limits::INLINE_BYTES + 1];
    assert_eq!(InlineData::try_from(&octets[..]), Err(TooLongForInline(octets.len())));

    let two: Payload = SliceList::try_from(&slices[..2]).unwrap().into();
    let inline: Payload = InlineData::try_from(&octets[..8]).unwrap().into();
    let short: Payload = near.memory.slice(0, 4).into();
    let huge: Payload = SliceList::try_from(&[Slice { len: u32::MAX, ..slice }; 2][..]).unwrap().into();
    let read = Operation::Read { stag, to };
    let add = Operation::FetchAdd { stag, to, add: 1, mask: 0 };
    let immediate = Operation::Immediate { immediate: 1, solicited: false };
    let cases = [
        (read, two, PostError::LocalShape),
        (read, inline, PostError::LocalShape),
        (add, two, PostError::LocalShape),
        (add, inline, PostError::LocalShape),
        (add, short, PostError::LocalShape),
        (immediate, short, PostError::LocalShape),
        (Operation::LocalInvalidate { stag }, short, PostError::LocalShape),
        (Operation::SEND, huge, PostError::TooLong),
        (Operation::Write { stag, to }, huge, PostError::TooLong),
    ];
    for (operation, local, error) in cases {
        assert_eq!(near.qp.post(SendRequest::new(1, operation, local)), refused(error), "{operation:?}");
    }
    let target = far.memory.advertisement(0, 100).unwrap();
    let outside = Err(PostError::OutsideAdvertisement { advertised: 100 });
    assert_eq!(near.qp.post_write(1, slice, &target, 93), outside);
    assert_eq!(near.qp.post_read(1, slice, &target, 93), outside);
    assert_eq!(near.qp.post_write(1, two, &target, 85), outside);

    near.qp.post_read(2, slice, &target, 92).unwrap();
    assert_eq!(near.completion().status, Status::Success, "nothing was posted, and nothing is wrong");
    assert_eq!(near.memory.to_vec(0, 8).unwrap(), [0xee; 8]);
    neighbours.nobody_suffers();
}

/// Reads and Atomic Operations where the ends agreed on none.
#[test]
fn reads_without_agreement_are_not_taken() {
    let mut neighbours = Neighbours::new();
    let (near, far) = (End::new(&neighbours.pair.near), End::new(&neighbours.pair.far));
    let none = Terms { depths: ReadDepths { ird: 0, ord: 0 }, ..Terms::initiator() };
    let config = ConnectConfig { revision: Revision::Two, terms: none, ..ConnectConfig::default() };
    let listener = neighbours.pair.far.listen(PORT, &ListenConfig::default()).unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(near.connecting_with(&config));
        listener.accept(PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        assert_eq!(connecting.join().unwrap().unwrap().depths.ord, 0);
    });
    let target = far.memory.advertisement(0, 100).unwrap();
    let no_reads = refused(PostError::NoReads);
    assert_eq!(near.qp.post_read(1, near.memory.slice(0, 8), &target, 0), no_reads);
    let (stag, to) = (far.memory.stag(), far.memory.to(0));
    for operation in
        [Operation::Swap { stag, to, swap: 1, mask: 1 }, Operation::FetchAdd { stag, to, add: 1, mask: 0 }]
    {
        assert_eq!(near.qp.post(SendRequest::new(1, operation, near.memory.slice(0, 8))), no_reads);
    }
    near.write(2, &far, 100);
    assert_eq!(near.completion().status, Status::Success);
    neighbours.nobody_suffers();
}

/// A full queue refuses only its own user, and a queue pair accepts work only in the states that allow it.
// Requirements: RDMAP-8.1.1-04, RDMAP-8.1.2-02
#[test]
fn full_queues_and_wrong_times() {
    let mut neighbours = Neighbours::new();
    let domain = neighbours.pair.near.protection_domain();
    let memory = domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    let (slice, completions) = (memory.slice(0, 8), CompletionQueue::new(3));
    let config = QpConfig { send_depth: 2, receive_depth: 2, ..QpConfig::default() };
    let idle = domain.queue_pair(&config, &completions, &completions).unwrap();
    assert_eq!(idle.post_send(1, slice), refused(PostError::WrongState(QpState::Idle)));
    idle.post_receive(1, slice).unwrap();
    idle.post_receive(2, slice).unwrap();
    assert_eq!(idle.post_receive(3, slice), refused(PostError::QueueFull));
    let same_queue = domain.queue_pair(&config, &completions, &completions).unwrap();
    same_queue.post_receive(4, slice).unwrap();
    assert_eq!(same_queue.post_receive(5, slice), refused(PostError::CompletionQueueFull));
    neighbours.nobody_suffers();

    neighbours.near.qp.abort();
    let near = &neighbours.near;
    crate::common::eventually("it is over", || near.qp.state() == QpState::Error);
    near.qp.post_send(1, near.memory.slice(0, 8)).unwrap();
    assert_eq!((near.completion().id, near.completions.poll()), (1, None));
    near.qp.post_receive(2, near.memory.slice(0, 8)).unwrap();
    assert_eq!(near.completion().status, Status::Flushed);
    neighbours.nobody_suffers();
}

/// A request on memory that the application may not use ends the stream before any octet of it is sent, and
/// the Terminate tells the peer that the fault is not the peer's.
#[test]
fn memory_that_may_not_be_used_ends_one_stream() {
    let mut neighbours = Neighbours::new();
    let foreign = neighbours.pair.near.protection_domain().allocate(64, Access::LOCAL_WRITE).unwrap();
    for case in 0..6 {
        let Neighbours { near, far, .. } = &neighbours;
        let freed = near.domain.allocate(64, Access::LOCAL_WRITE).unwrap();
        let freed_slice = freed.slice(0, 8);
        freed.deregister(PATIENCE).unwrap();
        let readonly = near.domain.allocate(64, Access::empty()).unwrap();
        let write = Operation::Write { stag: far.memory.stag(), to: far.memory.to(0) };
        let read = Operation::Read { stag: far.memory.stag(), to: far.memory.to(0) };
        let (operation, local): (_, Payload) = match case {
            0 => (write, freed_slice.into()),
            1 => (write, foreign.slice(0, 8).into()),
            2 => (write, near.memory.slice(End::OCTETS - 7, 8).into()),
            3 => (read, readonly.slice(0, 8).into()),
            // The first range alone would do.
            4 => (write, SliceList::try_from(&[near.memory.slice(0, 8), freed_slice][..]).unwrap().into()),
            _ => (Operation::SEND, Slice { to: u64::MAX - 3, ..near.memory.slice(0, 8) }.into()),
        };
        near.qp.post(SendRequest::new(7, operation, local)).unwrap();
        near.qp.post(SendRequest::new(8, write, near.memory.slice(0, 8))).unwrap();
        let ends = [near.completion(), near.completion()];
        assert_eq!(
            ends.map(|end| (end.id, end.status)),
            [(7, Status::LocalProtection), (8, Status::Flushed)]
        );
        let words = [WcStatus::LocalProtection, WcStatus::WorkRequestFlushed];
        assert_eq!(ends.map(|end| end.status.wc_status()), words);
        assert_eq!(near.qp.error(), Some(StreamError::Rdmap(RdmapError::LocalCatastrophic)), "case {case}");
        crate::common::eventually("the peer is told", || far.qp.error().is_some());
        let told = StreamError::Terminated { layer: 0, error_type: 0, code: 0 };
        assert_eq!(far.qp.error(), Some(told));
        neighbours.nobody_suffers();
        neighbours.again();
    }
}

/// A receive whose memory may not be written, or is deregistered, is an error of its owner, and is detected
/// when a message arrives.
#[test]
fn receives_that_may_not_be_written_end_one_stream() {
    let mut neighbours = Neighbours::new();
    for case in 0..3 {
        let Neighbours { near, far, .. } = &neighbours;
        let readonly = near.domain.allocate(64, Access::empty()).unwrap();
        let freed = near.domain.allocate(64, Access::LOCAL_WRITE).unwrap();
        let slice = match case {
            0 => readonly.slice(0, 64),
            1 => freed.slice(0, 64),
            _ => near.memory.slice(End::OCTETS - 63, 64),
        };
        near.qp.post_receive(1, slice).unwrap();
        near.qp.post_receive(2, near.memory.slice(0, 64)).unwrap();
        freed.deregister(PATIENCE).unwrap();
        far.qp.post_receive(1, far.memory.slice(0, 8)).unwrap();
        near.qp.post_send(9, Slice::default()).unwrap();
        assert_eq!((near.completion().id, far.completion().id), (9, 1));
        far.qp.post_send(1, far.memory.slice(0, 64)).unwrap();
        let ends = [near.completion(), near.completion()];
        assert_eq!(
            ends.map(|end| (end.id, end.status)),
            [(1, Status::LocalProtection), (2, Status::Flushed)]
        );
        assert_eq!(readonly.to_vec(0, 64).unwrap(), [0; 64]);
        neighbours.nobody_suffers();
        neighbours.again();
    }
}

/// A program whose `main` returns an error shows it by `Debug`: a sentence, not the name of a variant.
#[test]
fn errors_are_sentences_by_debug_too() {
    fn same(error: &dyn std::error::Error) {
        let (debug, display) = (format!("{error:?}"), error.to_string());
        assert_eq!(debug, display);
        assert!(display.contains(' '), "{display} is no sentence");
    }
    let pair = Pair::new();
    let end = End::new(&pair.near);
    let memory = |octets: u32| end.memory.slice(0, octets);
    let advertised = end.memory.advertisement(0, 10).unwrap();
    same(&end.qp.post_write(1, memory(20), &advertised, 0).unwrap_err());
    same(&end.qp.post_send(1, memory(u32::MAX)).unwrap_err());
    let nowhere = end.qp.connect("203.0.113.1:1".parse().unwrap(), &ConnectConfig::default());
    same(&nowhere.unwrap_err());
    let listener = pair.near.listen(PORT, &ListenConfig::default()).unwrap();
    same(&pair.near.listen(PORT, &ListenConfig::default()).unwrap_err());
    same(&listener.accept(std::time::Duration::ZERO).unwrap_err());
    let too_deep = QpConfig { send_depth: usize::MAX, ..QpConfig::default() };
    same(&end.domain.queue_pair(&too_deep, &end.completions, &end.completions).unwrap_err());
    same(&end.qp.wait_closed(std::time::Duration::ZERO).unwrap_err());
    same(&CloseError::Failed(StreamError::Tcp(CloseReason::TimedOut)));
    same(&"teleport".parse::<DeviceName>().unwrap_err());
    same(&Advertisement::decode(b"short").unwrap_err());
    same(&"198.18.0.1/99".parse::<warpline::Cidr>().unwrap_err());
    same(&InlineData::try_from(&[0; 1000][..]).unwrap_err());
    same(&warpline::Stopped);
}
