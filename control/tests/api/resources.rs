//! Tests of limited resources: control allocates them, reports exhaustion, and reclaims them.

use crate::common::{End, Pair, eventually_unused};
use warpline::cm::{CmError, EventChannel};
use warpline::{CompletionQueue, CreateError, ListenConfig, ListenError, QpConfig, Status, TcpListenConfig};
use warpline_dataplane::limits;

/// If all queue pairs are allocated, creation fails. Existing ones continue, and a freed one can be allocated
/// again.
// Requirements: DDP-8.3-06, DDP-8.3.2-01, DDP-8.3.2-02, DDP-8.3.2-03, RDMAP-8.1.2-01
#[test]
fn queue_pairs_run_out_and_come_back() {
    // One domain may have them all here.
    const QUEUE_PAIRS: usize = 100;
    let pair = Pair::with(|config| {
        config.capacity.queue_pairs = QUEUE_PAIRS;
        config.quotas.queue_pairs_per_domain = QUEUE_PAIRS;
    });
    let (near, far) = pair.connect();
    let domain = pair.near.protection_domain();
    let completions = CompletionQueue::new(1);
    let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
    let make = || domain.queue_pair(&config, &completions, &completions);
    let mut queue_pairs: Vec<_> = (1..QUEUE_PAIRS).map(|_| make().unwrap()).collect();
    assert_eq!(make().unwrap_err(), CreateError::TooManyQueuePairs);
    near.memory.fill(3);
    near.write(1, &far, 1000);
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.memory.to_vec(0, 1000).unwrap(), [3; 1000]);
    let number = queue_pairs.pop().unwrap().number();
    let again = make().unwrap();
    assert_eq!(again.number(), number, "there was no other");
    assert_eq!(make().unwrap_err(), CreateError::TooManyQueuePairs);
    drop((queue_pairs, again, near, far));
    eventually_unused(&pair.near);
}

/// The same for listeners, however they are created.
#[test]
fn listeners_run_out_and_come_back() {
    const FIRST: u16 = 5000;
    const LISTENERS: usize = 64;
    let pair = Pair::with(|config| config.capacity.listeners = LISTENERS);
    let config = ListenConfig::default();
    let last = FIRST + LISTENERS as u16;
    let mut listeners: Vec<_> = (FIRST..last).map(|port| pair.far.listen(port, &config).unwrap()).collect();
    assert_eq!(pair.far.listen(last, &config).unwrap_err(), ListenError::TooManyListeners);
    let channel = EventChannel::new([pair.far.clone()]).unwrap();
    let id = channel.create_id();
    id.bind_addr((crate::common::FAR, last).into()).unwrap();
    assert_eq!(id.listen(&config), Err(CmError::Listen(ListenError::TooManyListeners)));
    assert_eq!(pair.far.listen(FIRST, &config).unwrap_err(), ListenError::PortInUse(FIRST));
    listeners.pop();
    id.listen(&config).unwrap();
    // Every listener is reachable, however many there are.
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    std::thread::scope(|scope| {
        let qp = near.control();
        let connecting = scope.spawn(move || {
            qp.connect((crate::common::FAR, FIRST).into(), &warpline::ConnectConfig::default())
        });
        listeners[0].accept(crate::common::PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    drop((listeners, id, near, far));
    eventually_unused(&pair.far);
}

/// A request above the maximum returns an error or gets the maximum; the device continues for all other
/// users.
// Requirements: DDP-8.3.2-01, RDMAP-8.1.2-01
#[test]
fn what_cannot_be_is_no_harm() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let domain = pair.near.protection_domain();
    let completions = CompletionQueue::new(8);
    let most = limits::WORK_REQUESTS_PER_QUEUE;
    let make = |send_depth, receive_depth| {
        let config = QpConfig { send_depth, receive_depth, ..QpConfig::default() };
        domain.queue_pair(&config, &completions, &completions)
    };
    for depth in [most + 1, 1 << 32, usize::MAX] {
        let too_deep = CreateError::TooDeep { depth, most };
        assert_eq!(make(depth, 1).unwrap_err(), too_deep);
        assert_eq!(make(1, depth).unwrap_err(), too_deep);
        let receives = domain.shared_receive_queue(8);
        let config = QpConfig { receive_depth: depth, ..QpConfig::default() };
        let sharing = domain.queue_pair_sharing(&receives, &config, &completions, &completions);
        assert_eq!(sharing.unwrap_err(), too_deep);
    }
    let deepest = make(most, most).unwrap();

    let everything = CompletionQueue::new(usize::MAX);
    assert_eq!(everything.capacity(), limits::COMPLETIONS_PER_QUEUE);
    assert_eq!(CompletionQueue::with_events(usize::MAX).unwrap().capacity(), limits::COMPLETIONS_PER_QUEUE);
    let receives = domain.shared_receive_queue(usize::MAX);
    assert_eq!(receives.depth(), limits::RECEIVES_PER_SHARED_QUEUE);

    let backlog = u32::MAX;
    let listener = pair.near.listen(5000, &ListenConfig { backlog, ..ListenConfig::default() }).unwrap();
    let streams = TcpListenConfig { backlog, ..TcpListenConfig::default() };
    let streams = pair.near.listen_streams(5001, &streams).unwrap();

    // The other users are not affected.
    near.memory.fill(3);
    near.write(1, &far, 1000);
    assert_eq!(near.completion().status, Status::Success);
    assert_eq!(far.memory.to_vec(0, 1000).unwrap(), [3; 1000]);
    drop((make(1, 1).unwrap(), deepest, listener, streams, near, far));
    eventually_unused(&pair.near);
}
