//! Brings the events of the device to the descriptors of the program, on a thread of their own.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use warpline::AsyncEvent;

use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use crate::errno::Errno;
use crate::registry::Running;

/// Starts the thread. It ends with the process, or with the device.
pub(crate) fn start(running: &Arc<Running>) -> Result<(), Errno> {
    let running = Arc::downgrade(running);
    let builder = thread::Builder::new().name("warpline-events".into());
    builder.spawn(move || while wait(&running).is_some() {}).map(|_| ()).map_err(Errno::from)
}

/// Waits for events, and brings them on. `None` if the device has gone.
fn wait(running: &Weak<Running>) -> Option<()> {
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
    while let Some(event) = running.device.poll_event() {
        report(&running, event);
    }
    Some(())
}

/// Brings an asynchronous event to the context of its object.
fn report(running: &Running, event: AsyncEvent) {
    let objects = running.registry.lock();
    let of_qp = |number, kind| {
        if let Some(listed) = objects.queue_pairs.get(&number) {
            listed.reports.report(kind);
        }
    };
    match event {
        AsyncEvent::CommunicationEstablished { qp } => of_qp(qp, IBV_EVENT_COMM_EST),
        AsyncEvent::QpFatal { qp, .. } => of_qp(qp, IBV_EVENT_QP_FATAL),
        AsyncEvent::QpRequestError { qp, .. } => of_qp(qp, IBV_EVENT_QP_REQ_ERR),
        AsyncEvent::QpAccessError { qp, .. } => of_qp(qp, IBV_EVENT_QP_ACCESS_ERR),
        AsyncEvent::LastReceiveReached { qp } => of_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED),
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
