//! Prints what a device finds out about its link while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use warpline::{AsyncEvent, Device};
use warpline_tools::output::note;

/// How often a device is asked.
const INTERVAL: Duration = Duration::from_millis(200);

/// A thread that prints the notices of a device, until this is dropped: before the last handle of the device,
/// which it keeps.
pub struct Notices {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Notices {
    /// Prints the notices of `device`.
    pub fn print(device: &Device) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (stop, device) = (stop.clone(), device.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    print_waiting(&device);
                    thread::park_timeout(INTERVAL);
                }
                // What was found last is often why the run failed, which is printed next.
                print_waiting(&device);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

fn print_waiting(device: &Device) {
    while let Some(event) = device.poll_event() {
        if concerns_link(event) {
            note!("warning: {event}");
        }
    }
}

/// Returns true for events that no measurement reports by itself.
const fn concerns_link(event: AsyncEvent) -> bool {
    matches!(
        event,
        AsyncEvent::AddressConflict { .. }
            | AsyncEvent::PartialChecksum { .. }
            | AsyncEvent::OversizedPacket { .. }
            | AsyncEvent::AdapterDiffers
    )
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has reported its own panic.
            let _ = thread.join();
        }
    }
}
