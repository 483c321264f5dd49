//! Where an id listens: a port of each device that has its address.

use std::sync::{Arc, OnceLock, Weak};

use crossbeam::channel::Receiver;
use warpline_dataplane::ring::ListenAddress;

use super::channel::{Entry, IdNumber, Queue};
use super::id::CmError;
use crate::engine::interface::request::{Arrival, Request, arrival_queue};
use crate::handles::device::Device;
use crate::vocabulary::device::Stopped;
use crate::vocabulary::listen::{ListenConfig, ListenError};

/// A port of a device that an id listens at.
pub(super) struct ListeningAt {
    pub(super) id: IdNumber,
    /// The device's place in the channel.
    pub(super) device: usize,
    /// Where; of port 0 until control has chosen one.
    at: OnceLock<ListenAddress>,
    /// There from the beginning: a peer may arrive before the reply of the engine is received.
    pub(super) arrivals: Receiver<Arrival>,
}

/// Where the port arrives, or why there is none.
type ListenReply = Receiver<Result<u16, ListenError>>;

/// Puts an entry for a listener on a channel: after each arrival, and at last when the listener was dropped.
struct Bell {
    queue: Arc<Queue>,
    at: Weak<ListeningAt>,
}

impl Bell {
    fn ring(&self) {
        self.queue.push(Entry::Arrival(self.at.clone()));
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

impl ListeningAt {
    /// Has `on`, the device at place `device` of the channel that `queue` is of, listen at `local` for `id`.
    ///
    /// # Errors
    ///
    /// [`CmError::Listen`], [`CmError::Stopped`], the latter also in a callback; there is no listener then.
    pub(super) fn new(
        id: IdNumber,
        queue: &Arc<Queue>,
        device: usize,
        on: &Device,
        local: ListenAddress,
        config: ListenConfig,
    ) -> Result<Arc<Self>, CmError> {
        on.context.check_may_wait()?;
        let (at, answer) = Self::begin(id, queue, device, on, local, config)?;
        let port = on.context.wait_for(&answer)??;
        let _ = at.at.set(ListenAddress { port, ..local });
        Ok(at)
    }

    /// Begins to listen without waiting for control's reply.
    fn begin(
        id: IdNumber,
        queue: &Arc<Queue>,
        device: usize,
        on: &Device,
        local: ListenAddress,
        config: ListenConfig,
    ) -> Result<(Arc<Self>, ListenReply), Stopped> {
        let arrivals = arrival_queue(&config);
        let at = Arc::new(Self { id, device, at: OnceLock::new(), arrivals: arrivals.1.clone() });
        if local.port != 0 {
            let _ = at.at.set(local);
        }
        let bell = Bell { queue: queue.clone(), at: Arc::downgrade(&at) };
        let notify = Some(Box::new(move || bell.ring()) as Box<dyn Fn() + Send>);
        let answer =
            on.context.begin(|reply| Request::Listen { at: local, config, arrivals, notify, reply })?;
        Ok((at, answer))
    }

    /// Returns its port, once it listens.
    pub(super) fn port(&self) -> Option<u16> {
        self.at.get().map(|at| at.port)
    }
}

/// Listens no more. A thread that has not taken the arrivals yet finds nothing any more.
pub(super) fn unlisten(devices: &[Device], listening: Vec<Arc<ListeningAt>>) {
    let places: Vec<_> = listening.iter().filter_map(|at| Some((at.device, *at.at.get()?))).collect();
    // Before the engine drops its end, and the bell rings the channel.
    drop(listening);
    for (device, at) in places {
        if let Some(device) = devices.get(device) {
            // A stopped device listens no more.
            let _ = device.context.send(Request::Unlisten { at });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};
    use warpline_dataplane::device::sim::{self, EndConfig};

    use super::*;
    use crate::handles::cm::{EventChannel, EventKind};
    use crate::{
        CompletionQueue, ConnectConfig, ConnectError, DeviceConfig, PollThread, QpConfig, QueuePairControl,
    };

    const PATIENCE: Duration = Duration::from_secs(30);
    const PORT: u16 = 4711;
    const FAR: [u8; 4] = [198, 18, 0, 2];

    fn devices() -> (Device, Device) {
        let (near, far) = sim::link(1, EndConfig::a(), EndConfig::b());
        let start = |device, address: [u8; 4]| {
            Device::start(device, &DeviceConfig::new(address, 24), PollThread::default()).unwrap()
        };
        (start(near, [198, 18, 0, 1]), start(far, FAR))
    }

    fn wait_for_entries(channel: &EventChannel, entries: usize) {
        let start = Instant::now();
        while channel.waiting() < entries {
            assert!(start.elapsed() < PATIENCE, "nothing was reported");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A peer may have sent its Request, and another thread polled the channel, before the thread that
    /// listens has its reply.
    #[test]
    fn requests_that_come_before_the_answer_are_not_lost() {
        let (near, far) = devices();
        let channel = EventChannel::new([far.clone()]).unwrap();
        let id = channel.create_id();
        let everywhere = ListenAddress::everywhere(PORT);
        let (at, answer) =
            ListeningAt::begin(id.number(), channel.queue(), 0, &far, everywhere, ListenConfig::default())
                .unwrap();
        let completions = CompletionQueue::new(8);
        let config = QpConfig { send_depth: 1, receive_depth: 1, ..QpConfig::default() };
        let qp = near.protection_domain().queue_pair(&config, &completions, &completions).unwrap();
        let qp: &QueuePairControl = &qp;
        std::thread::scope(|scope| {
            let connect = || loop {
                // Until the core has the command.
                match qp.connect(SocketAddr::from((FAR, PORT)), &ConnectConfig::default()) {
                    Err(ConnectError::Refused) => {}
                    outcome => return outcome,
                }
            };
            let connecting = scope.spawn(connect);
            let event = channel.wait(PATIENCE).expect("the request");
            assert_eq!(event.id, id.number());
            assert!(matches!(event.kind, EventKind::ConnectRequest(_)), "{event:?}");
            drop(event);
            assert!(matches!(connecting.join().unwrap(), Err(ConnectError::Rejected { .. })));
        });
        assert_eq!(answer.recv(), Ok(Ok(PORT)));
        unlisten(&[far], vec![at]);
    }

    /// A listener that is dropped while another thread looks at it, or that is refused, is no sign that its
    /// device has gone; when that has gone it is.
    #[test]
    fn only_the_end_of_a_device_is_its_removal() {
        let (device, _peer) = sim::link(1, EndConfig::a(), EndConfig::b());
        let (device, mut driver) = Device::start_manual(device, &DeviceConfig::new(FAR, 24)).unwrap();
        let channel = EventChannel::new([device.clone()]).unwrap();
        let begin = |port| {
            let id = channel.create_id().number();
            let at = ListenAddress::everywhere(port);
            ListeningAt::begin(id, channel.queue(), 0, &device, at, ListenConfig::default()).unwrap()
        };
        let (first, answer) = begin(PORT);
        assert_eq!(answer.recv(), Ok(Ok(PORT)));
        // The port has a listener: control drops the resources of the refused request.
        let (refused, answer) = begin(PORT);
        assert_eq!(answer.recv(), Ok(Err(ListenError::PortInUse(PORT))));
        wait_for_entries(&channel, 1);
        assert!(channel.poll().is_none());
        // A thread that polls holds it meanwhile.
        unlisten(std::slice::from_ref(&device), vec![first.clone()]);
        wait_for_entries(&channel, 1);
        assert!(channel.poll().is_none());
        drop((first, refused));

        let (last, answer) = begin(PORT);
        assert_eq!(answer.recv(), Ok(Ok(PORT)));
        driver.poll_once();
        drop(driver);
        let event = channel.wait(PATIENCE).expect("the device has gone");
        assert!(matches!(event.kind, EventKind::DeviceRemoval), "{event:?}");
        assert_eq!(event.id, last.id);
    }
}
