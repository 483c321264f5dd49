//! Brings the events of the device to the descriptors of the program, on a thread of their own.

use std::mem;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use warpline::{AsyncEvent, QpNumber};

use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use crate::errno::Errno;
use crate::registry::{Objects, Running};

/// Starts the thread. It ends with the process, or with the device.
pub(crate) fn start(running: &Arc<Running>) -> Result<(), Errno> {
    let running = Arc::downgrade(running);
    let builder = thread::Builder::new().name("warpline-events".into());
    let mut lost = 0;
    builder.spawn(move || while wait(&running, &mut lost).is_some() {}).map(|_| ()).map_err(Errno::from)
}

/// Waits for events, and brings them on. `None` if the device has gone.
fn wait(running: &Weak<Running>, lost: &mut u64) -> Option<()> {
    let running = running.upgrade()?;
    let (ids, events) = (running.ids.as_fd(), running.device.event_fd());
    let mut fds = [PollFd::new(&ids, PollFlags::IN), PollFd::new(events, PollFlags::IN)];
    // A signal, or no memory for the moment: look, and wait again.
    let _ = poll(&mut fds, None);
    while let Some(event) = running.ids.poll() {
        let id = running.registry.lock().ids.get(&event.id).cloned();
        // That of an id which was destroyed meanwhile is nobody's; a request is rejected so.
        if let Some(id) = id {
            id.report(event.kind);
        }
    }
    running.device.event_fd().clear();
    bring(&running, lost);
    Some(())
}

/// Brings the asynchronous events on. `lost` are those that were lost when this was called before: if there
/// are more, each queue pair whose program does not know all of its end says what has become of it.
fn bring(running: &Running, lost: &mut u64) {
    while let Some(event) = running.device.poll_event() {
        report(&mut running.registry.lock(), event);
    }
    let lost_before = mem::replace(lost, running.device.events_lost());
    if *lost != lost_before {
        let mut objects = running.registry.lock();
        for listed in objects.queue_pairs.values_mut().filter(|listed| !listed.has_told_all()) {
            let ends = listed.queue_pair.end_events().filter_map(of_queue_pair);
            ends.for_each(|(_, kind)| listed.report(kind));
        }
    }
}

/// Returns the queue pair and the number of an event about a queue pair.
const fn of_queue_pair(event: AsyncEvent) -> Option<(QpNumber, u32)> {
    Some(match event {
        AsyncEvent::CommunicationEstablished { qp } => (qp, IBV_EVENT_COMM_EST),
        AsyncEvent::QpFatal { qp, .. } => (qp, IBV_EVENT_QP_FATAL),
        AsyncEvent::QpRequestError { qp, .. } => (qp, IBV_EVENT_QP_REQ_ERR),
        AsyncEvent::QpAccessError { qp, .. } => (qp, IBV_EVENT_QP_ACCESS_ERR),
        AsyncEvent::LastReceiveReached { qp } => (qp, IBV_EVENT_QP_LAST_WQE_REACHED),
        _ => return None,
    })
}

/// Brings an asynchronous event to the context of its object.
fn report(objects: &mut Objects, event: AsyncEvent) {
    if let Some((number, kind)) = of_queue_pair(event) {
        if let Some(listed) = objects.queue_pairs.get_mut(&number) {
            listed.report(kind);
        }
        return;
    }
    match event {
        AsyncEvent::SharedReceiveLimit { srq } => {
            if let Some(srq) = objects.receive_queues.get(&srq) {
                srq.report(IBV_EVENT_SRQ_LIMIT_REACHED);
            }
        }
        AsyncEvent::CompletionQueueOverflow { cq } => {
            if let Some(cq) = objects.completion_queues.get(&cq) {
                cq.report(IBV_EVENT_CQ_ERR);
            }
        }
        AsyncEvent::DeviceFatal => {
            for context in &objects.contexts {
                context.report(IBV_EVENT_DEVICE_FATAL);
            }
        }
        // Of the link and of cores: verbs have no word for them.
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use warpline::{CompletionQueue, QpConfig, SharedCompletionQueue, SharedQueuePair, limits};

    use super::*;
    use crate::registry::{ListedQueuePair, Registry, Reports};
    use crate::testing;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// Counts what is reported.
    #[derive(Default)]
    struct Counted {
        last_receives: AtomicUsize,
        others: AtomicUsize,
    }

    impl Reports for Counted {
        fn report(&self, kind: u32) {
            let of_kind =
                if kind == IBV_EVENT_QP_LAST_WQE_REACHED { &self.last_receives } else { &self.others };
            of_kind.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each queue pair of many that end together says once that its last receive is complete, also if the
    /// device has no room for so many events.
    #[test]
    fn no_last_receive_is_lost() {
        let (device, turns) = testing::device();
        let ids = warpline::cm::EventChannel::new([device.clone()]).unwrap();
        let (registry, shared_domain) = (Registry::default(), OnceLock::new());
        let running = Running { device, turns, ids, registry, shared_domain };
        let domain = running.device.protection_domain();
        let queue = SharedCompletionQueue::new(CompletionQueue::new(16));
        let receives = domain.shared_receive_queue(4);
        let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
        let count = limits::ASYNC_EVENTS_OF_QUEUE_PAIRS + 200;
        let counted: Vec<_> = (0..count).map(|_| Arc::new(Counted::default())).collect();
        for counted in &counted {
            let qp = domain.queue_pair_sharing(&receives, &config, &queue, &queue).unwrap();
            let (number, qp) = (qp.number(), SharedQueuePair::new(qp));
            qp.abort();
            let listed = ListedQueuePair::new(qp, counted.clone());
            running.registry.lock().queue_pairs.insert(number, listed);
        }
        let start = Instant::now();
        while running.device.events_lost() < 200 {
            assert!(start.elapsed() < PATIENCE, "{} events were lost", running.device.events_lost());
            running.turns.turn();
        }
        let mut lost = 0;
        for _ in 0..2 {
            bring(&running, &mut lost);
            for counted in &counted {
                assert_eq!(counted.last_receives.load(Ordering::Relaxed), 1);
                assert_eq!(counted.others.load(Ordering::Relaxed), 0);
            }
            // What is said again is known.
            lost = 0;
        }
    }
}
