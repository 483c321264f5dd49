//! What the control thread and a core send each other, over bounded lock-free rings.

mod command;
mod event;
mod events;
mod operation;

use std::sync::Arc;

use crate::limits;
use crate::qp::shared::Doorbells;
use crate::sync::ArrayQueue;

pub use crate::conn::{ConnectionId, ListenAddress, Scope};
pub use crate::net::flow::FlowKey;
pub use command::{AfterStream, Command};
pub use event::{ConnectError, Event};
pub use events::Events;
pub use operation::{Direction, FullOperation};

/// The rings between control and one core, and the doorbells of applications.
#[derive(Clone)]
pub struct Rings {
    /// Control to core.
    pub commands: Arc<ArrayQueue<Command>>,
    /// Core to control.
    pub events: Arc<ArrayQueue<Event>>,
    /// Applications to core.
    pub doorbells: Arc<Doorbells>,
}

impl Rings {
    /// Returns empty rings, for a core with tables of the default size that is always polled.
    pub fn new() -> Self {
        let doorbells = Doorbells::new(limits::QPS_PER_CORE);
        Self::with(doorbells.with_byte_streams(limits::CONNECTIONS_PER_CORE))
    }

    /// Returns empty rings, for a core with `doorbells`. If these wake its thread, a thread that pushes a
    /// command calls [`Doorbells::wake`].
    pub fn with(doorbells: Doorbells) -> Self {
        Self {
            commands: Arc::new(ArrayQueue::new(limits::COMMANDS)),
            events: Arc::new(ArrayQueue::new(limits::EVENTS)),
            doorbells: Arc::new(doorbells),
        }
    }
}

impl Default for Rings {
    fn default() -> Self {
        Self::new()
    }
}
