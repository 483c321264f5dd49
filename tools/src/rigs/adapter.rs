//! An adapter in software: it spreads what a port with one queue receives over a queue for each core, by the
//! hash and the table of RSS, and sends what the cores give to theirs. No port between a program and the
//! kernel has both.
//!
//! The queues are wires in memory: their far end computes which core owns a segment, as an adapter does, and
//! puts it on the wire to that core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use dpdk::WireConfig;
use warpline::DeviceName;
use warpline::link::fault::{Fault, Impairments};
use warpline::open::{self, Eal, OpenedPorts};

use crate::failure::Failure;
use crate::impair::Forwarder;

/// A thread that carries frames between the port and the queues, until this is dropped: then until there are
/// none.
pub struct SoftwareAdapter {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SoftwareAdapter {
    /// Opens the port of `name`, and an adapter before it with a queue for each of `cores` cores.
    ///
    /// # Errors
    ///
    /// [`Failure`] if there is no such port.
    pub fn before(eal: Eal, name: &DeviceName, cores: usize) -> Result<(OpenedPorts, Self), Failure> {
        // Frames leave with all checksums filled in: the port below fills in none for its guests.
        let config = WireConfig { checksum_offload: false, ..open::wire_config(name) };
        let only = |opened: OpenedPorts| opened.into_parts().0.remove(0);
        let port = only(open::ports(eal, name, 1).map_err(Failure::local)?);
        let [queues, outside] = open::ring_pair_of(eal, &config, [cores, 1]).map_err(Failure::local)?;
        let outside = only(outside);
        let port = Fault::new(port, 0, Impairments::default(), Impairments::default());
        let mut forwarder = Forwarder::new(port, outside, warpline::now());
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let ends = ends.clone();
            move || {
                let _lcore = eal.register_thread().ok();
                loop {
                    let was_to_end = ends.load(Ordering::Relaxed);
                    match forwarder.poll(warpline::now()) {
                        Some(_) if was_to_end => break,
                        Some(nap) => thread::sleep(nap),
                        None => {}
                    }
                }
            }
        });
        Ok((queues, Self { ends, thread: Some(thread) }))
    }
}

impl Drop for SoftwareAdapter {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
