//! One queue pair of `ping`, with the small buffers for its messages of 16 bytes.

use std::time::Duration;

use warpline::{
    Access, Advertisement, Completion, CompletionKind, CompletionQueue, Device, MemoryRegion,
    ProtectionDomain, QpConfig, QpState, QueuePair, Status,
};

use crate::error::BenchError;

/// Identifier of the work requests that carry messages; those of Writes are below.
pub const MESSAGE: u64 = u64::MAX;
/// Messages of the other end that may wait for us.
const INBOX_MESSAGES: usize = 4;

/// A queue pair and its message buffers.
pub struct Lane {
    /// The queue pair.
    pub qp: QueuePair,
    /// Completions of sends and receives.
    pub completions: CompletionQueue,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    /// The Protection Domain.
    pub domain: ProtectionDomain,
}

impl Lane {
    /// Returns a queue pair for `depth` Writes outstanding, which may share segments if `packing`, with
    /// receives posted. A peer that is silent for `timeout` is given up.
    ///
    /// # Errors
    ///
    /// [`BenchError::Setup`], [`BenchError::Memory`].
    pub fn new(device: &Device, depth: u32, packing: bool, timeout: Duration) -> Result<Self, BenchError> {
        let domain = device.protection_domain();
        let memory = |octets, access| {
            domain.allocate(octets, access).map_err(|error| BenchError::Memory(error.to_string()))
        };
        let inbox = memory(INBOX_MESSAGES * Advertisement::MESSAGE_LEN, Access::LOCAL_WRITE)?;
        let outbox = memory(Advertisement::MESSAGE_LEN, Access::empty())?;
        let depth = depth as usize;
        let completions = CompletionQueue::new(depth + 1 + INBOX_MESSAGES);
        let config =
            QpConfig { send_depth: depth + 1, receive_depth: INBOX_MESSAGES, packing, ..QpConfig::default() };
        let config = config.give_up_after(timeout);
        let qp = domain
            .queue_pair(&config, &completions, &completions)
            .map_err(|error| BenchError::Setup(error.to_string()))?;
        let lane = Self { qp, completions, inbox, outbox, domain };
        (0..INBOX_MESSAGES).try_for_each(|slot| lane.post_receive(slot))?;
        Ok(lane)
    }

    fn post_receive(&self, slot: usize) -> Result<(), BenchError> {
        let octets = Advertisement::MESSAGE_LEN;
        let local = self.inbox.slice(slot * octets, octets as u32);
        self.qp.post_receive(slot as u64, local).map_err(|error| self.failed(&error.to_string()))
    }

    /// Sends a message. The one before it must have been answered.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`].
    pub fn send(&self, message: &Advertisement) -> Result<(), BenchError> {
        let encoded = message.encode();
        let fits = self.outbox.write(0, &encoded);
        debug_assert!(fits, "the outbox holds a message");
        let local = self.outbox.slice(0, encoded.len() as u32);
        self.qp.post_send(MESSAGE, local).map_err(|error| self.failed(&error.to_string()))
    }

    /// Returns the message in a completed receive, whose buffer is posted again; `None` for completed sends.
    ///
    /// # Errors
    ///
    /// [`BenchError::Peer`] when the work failed.
    pub fn message(&self, completion: &Completion) -> Result<Option<Advertisement>, BenchError> {
        if completion.status != Status::Success {
            return Err(self.failed(&format!("{:?} ended with {:?}", completion.kind, completion.status)));
        }
        if completion.kind != CompletionKind::Receive {
            return Ok(None);
        }
        let mut octets = [0; Advertisement::MESSAGE_LEN];
        let slot = completion.id as usize;
        let fits = self.inbox.read(slot * octets.len(), &mut octets);
        debug_assert!(fits, "receives name a slot of the inbox");
        let message = Advertisement::decode(&octets[..completion.byte_len as usize])
            .map_err(|error| self.failed(&error.to_string()))?;
        self.post_receive(slot)?;
        Ok(Some(message))
    }

    /// Returns true if the connection is over, and ended as it should.
    pub fn is_closed(&self) -> bool {
        self.qp.state() == QpState::Error && self.qp.error().is_none()
    }

    /// Returns the error for `what`, with the stream's own error where there is one.
    pub fn failed(&self, what: &str) -> BenchError {
        match self.qp.error() {
            Some(error) => BenchError::Peer(format!("{error} ({what})")),
            None => BenchError::Peer(what.into()),
        }
    }
}
