//! What there is a limited number of: control gives it out, says when there is no more, and takes it back.

use crate::common::{End, Pair, eventually_unused};
use warpline::cm::{CmError, EventChannel};
use warpline::{CompletionQueue, CreateError, ListenConfig, ListenError, QpConfig, Status};
use warpline_dataplane::limits;

/// DDP-8.3-06, DDP-8.3.2-01, DDP-8.3.2-02, DDP-8.3.2-03, RDMAP-8.1.2-01: queue pairs run out for who asks for one more; who has
/// one does not notice, and what is given back can be had again.
#[test]
fn queue_pairs_run_out_and_come_back() {
    // One domain may have them all here.
    let pair = Pair::with(|config| config.quotas.queue_pairs_per_domain = limits::QPS_PER_CORE);
    let (near, far) = pair.connect();
    let domain = pair.near.protection_domain();
    let completions = CompletionQueue::new(1);
    let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
    let make = || domain.queue_pair(&config, &completions, &completions);
    let mut queue_pairs: Vec<_> = (1..limits::QPS_PER_CORE).map(|_| make().unwrap()).collect();
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

/// The same for listeners, whoever asks for one.
#[test]
fn listeners_run_out_and_come_back() {
    const FIRST: u16 = 5000;
    let pair = Pair::new();
    let config = ListenConfig::default();
    let last = FIRST + limits::LISTENERS_PER_CORE as u16;
    let mut listeners: Vec<_> = (FIRST..last).map(|port| pair.far.listen(port, &config).unwrap()).collect();
    assert_eq!(pair.far.listen(last, &config).unwrap_err(), ListenError::TooManyListeners);
    let channel = EventChannel::new([pair.far.clone()]).unwrap();
    let id = channel.create_id();
    id.bind_addr((crate::common::FAR, last).into()).unwrap();
    assert_eq!(id.listen(&config), Err(CmError::Listen(ListenError::TooManyListeners)));
    assert_eq!(pair.far.listen(FIRST, &config).unwrap_err(), ListenError::PortInUse(FIRST));
    listeners.pop();
    id.listen(&config).unwrap();
    // What listens is heard, however many there are.
    let (near, far) = (End::new(&pair.near), End::new(&pair.far));
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            near.qp.connect((crate::common::FAR, FIRST).into(), &warpline::ConnectConfig::default())
        });
        listeners[0].accept(crate::common::PATIENCE).unwrap().accept(&far.qp, b"").unwrap();
        connecting.join().unwrap().unwrap();
    });
    drop((listeners, id, near, far));
    eventually_unused(&pair.far);
}
