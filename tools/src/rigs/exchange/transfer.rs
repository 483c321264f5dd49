//! The exchange itself.

use std::time::{Duration, Instant};

use warpline::{
    Access, Addressing, Advertisement, CloseError, CompletionKind, CompletionQueue, Device, MemoryRegion,
    ProtectionDomain, QpConfig, QpState, QueuePair, Region, STag, Status,
};
use warpline_tools::interrupt;

use super::arguments::ExchangeArguments;
use super::opening::{self, Agreed};
use crate::failure::Failure;

/// Largest RDMA Write.
const MESSAGE_OCTETS: usize = 1 << 20;
/// RDMA Writes under way.
const WRITES: usize = 16;
const MESSAGE: u32 = Advertisement::MESSAGE_LEN as u32;
/// How long the peer may be silent, within the time for everything.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a connection that failed may take to close.
const CLOSE: Duration = Duration::from_secs(10);

/// The buffer that the peer writes to, between two guards that it must not reach.
pub struct Target {
    buffer: MemoryRegion,
    /// Both guards and, between them, the buffer.
    whole: Region,
}

impl Target {
    const GUARD_OCTETS: usize = 1 << 16;
    const GUARD: u8 = 0xa5;

    pub fn new(device: &Device, domain: &ProtectionDomain, octets: u32) -> Result<Self, Failure> {
        let octets = octets as usize;
        let whole = device.config().memory.allocate(octets + 2 * Self::GUARD_OCTETS).ok_or_else(|| {
            Failure::local("no memory for the buffer: more memory for the EAL (--eal), or a smaller buffer")
        })?;
        let guard = vec![Self::GUARD; Self::GUARD_OCTETS];
        let guarded = whole.write(0, &guard) && whole.write(Self::GUARD_OCTETS + octets, &guard);
        let part = whole.part(Self::GUARD_OCTETS, octets).filter(|_| guarded);
        let part = part.ok_or_else(|| Failure::local("the buffer is smaller than it should be"))?;
        let buffer =
            domain.register(part, Access::REMOTE_WRITE, Addressing::Address).map_err(Failure::local)?;
        Ok(Self { buffer, whole })
    }

    /// Returns the number of octets of the guards that have changed.
    pub fn octets_outside(&self) -> usize {
        let mut guard = vec![0; Self::GUARD_OCTETS];
        let mut changed = 0;
        for offset in [0, Self::GUARD_OCTETS + self.buffer.len()] {
            let read = self.whole.read(offset, &mut guard);
            assert!(read, "the guards lie inside the whole");
            changed += guard.iter().filter(|octet| **octet != Self::GUARD).count();
        }
        changed
    }

    /// Returns the first `octets` octets of the buffer.
    pub fn content(&self, octets: u32) -> Result<Vec<u8>, Failure> {
        self.buffer.to_vec(0, octets as usize).ok_or_else(|| {
            Failure::rule(format!("{octets} bytes cannot have been written: the buffer has fewer"))
        })
    }

    fn advertisement(&self) -> Advertisement {
        let octets = u32::try_from(self.buffer.len()).unwrap_or(u32::MAX);
        Advertisement { to: self.buffer.to(0), stag: self.buffer.stag(), len: octets }
    }
}

/// The names of our work requests.
mod id {
    pub const ADVERTISEMENT: u64 = 1;
    pub const DONE: u64 = 2;
    /// The receives; their messages lie one after the other.
    pub const RECEIVES: [u64; 2] = [0, 1];
}

/// Returns memory with the file, from which it is sent; constant, if that is to be by reference.
fn source(
    device: &Device,
    domain: &ProtectionDomain,
    file: &[u8],
    by_reference: bool,
) -> Result<MemoryRegion, Failure> {
    let whole = device.config().memory.allocate(file.len().max(1));
    let whole = whole.ok_or_else(|| Failure::local("no memory for the file: more for the EAL (--eal)"))?;
    if !whole.write(0, file) {
        return Err(Failure::local("the file does not fit its memory"));
    }
    let whole = if by_reference {
        whole.freeze().map_err(|_| Failure::local("the file's memory is still in use"))?
    } else {
        whole
    };
    domain.register(whole, Access::empty(), Addressing::Address).map_err(Failure::local)
}

/// One end of the exchange on an open connection.
pub struct Exchange<'a> {
    qp: QueuePair,
    completions: CompletionQueue,
    /// The file, for RDMA Writes.
    file: MemoryRegion,
    file_octets: usize,
    /// Two messages that are received, two that are sent.
    messages: MemoryRegion,
    target: &'a Target,
    initiator: bool,
    agreed: Agreed,
    deadline: Instant,
    /// The peer's buffer, once it is known.
    peer: Option<Advertisement>,
    /// Octets of the file posted.
    posted: usize,
    /// RDMA Writes under way.
    writing: usize,
    done_posted: bool,
    done_completed: bool,
    /// The number of bytes that the peer says it wrote, once it has.
    received: Option<u32>,
}

impl<'a> Exchange<'a> {
    /// Opens the connection, either way.
    pub fn connect(
        arguments: &ExchangeArguments,
        device: &Device,
        domain: &ProtectionDomain,
        target: &'a Target,
        file: &[u8],
    ) -> Result<Self, Failure> {
        let deadline = Instant::now() + arguments.timeout;
        let completions = CompletionQueue::new(2 * WRITES);
        let config = QpConfig { send_depth: WRITES + 2, receive_depth: 2, ..QpConfig::default() };
        let config = config.give_up_after(arguments.timeout.min(SILENCE));
        let qp = domain.queue_pair(&config, &completions, &completions).map_err(Failure::local)?;
        let source = source(device, domain, file, arguments.by_reference)?;
        let messages =
            domain.allocate(4 * Advertisement::MESSAGE_LEN, Access::LOCAL_WRITE).map_err(Failure::local)?;
        for id in id::RECEIVES {
            let slice = messages.slice(id as usize * Advertisement::MESSAGE_LEN, MESSAGE);
            qp.post_receive(id, slice).map_err(Failure::local)?;
        }
        let agreed = opening::open(arguments, device, &qp)?;
        Ok(Self {
            qp,
            completions,
            file: source,
            file_octets: file.len(),
            messages,
            target,
            initiator: arguments.initiator(),
            agreed,
            deadline,
            peer: None,
            posted: 0,
            writing: 0,
            done_posted: false,
            done_completed: false,
            received: None,
        })
    }

    /// Makes the whole exchange and closes. Returns the number of bytes that the peer wrote, and the
    /// agreement on the connection.
    pub fn run(mut self) -> Result<(u32, Agreed), Failure> {
        match self.exchange() {
            Ok(received) => {
                if self.initiator {
                    self.qp.disconnect();
                }
                self.qp.wait_closed(self.time_left())?;
                Ok((received, self.agreed))
            }
            Err(failure) => {
                self.qp.disconnect();
                match self.qp.wait_closed(CLOSE) {
                    // The error of the stream says more than a flushed request.
                    Err(CloseError::Failed(error)) => Err(error.into()),
                    _ => Err(failure),
                }
            }
        }
    }

    fn exchange(&mut self) -> Result<u32, Failure> {
        if self.initiator {
            self.send(id::ADVERTISEMENT, self.target.advertisement())?;
        }
        loop {
            if let (true, Some(received)) = (self.done_completed, self.received) {
                return Ok(received);
            }
            // Before the completions: what came before the end is still taken.
            let state = self.qp.state();
            match self.completions.wait(Duration::from_millis(10)) {
                Some(completion) if completion.status != Status::Success => {
                    return Err(self.qp.error().map_or_else(|| completion.status.into(), Failure::from));
                }
                Some(completion) => match (completion.kind, completion.id) {
                    (CompletionKind::Receive, id) => self.on_message(id, completion.byte_len)?,
                    (CompletionKind::Write, _) => self.writing -= 1,
                    // Sends are all else that it posts.
                    (_, id) => self.done_completed |= id == id::DONE,
                },
                None if state != QpState::ReadyToSend => return Err(Failure::early_close()),
                None if interrupt::is_requested() => return Err(Failure::local("interrupted")),
                None if Instant::now() >= self.deadline => {
                    return Err(Failure::of("the exchange was not over in time", "tcp:timeout"));
                }
                None => {}
            }
            self.write_file()?;
        }
    }

    fn on_message(&mut self, id: u64, octets: u32) -> Result<(), Failure> {
        let message = self.messages.to_vec(id as usize * Advertisement::MESSAGE_LEN, octets as usize);
        let message = Advertisement::decode(&message.unwrap_or_default()).map_err(Failure::rule)?;
        if self.peer.is_some() {
            if (message.to, message.stag) != (0, STag(0)) {
                return Err(Failure::rule("the peer's last message has a Tagged Offset or an STag"));
            }
            self.received = Some(message.len);
            return Ok(());
        }
        if (message.len as usize) < self.file_octets {
            let text = format!("the peer's buffer has {} bytes, our file {}", message.len, self.file_octets);
            return Err(Failure::rule(text));
        }
        self.peer = Some(message);
        if !self.initiator {
            self.send(id::ADVERTISEMENT, self.target.advertisement())?;
        }
        Ok(())
    }

    /// Posts as much of the file as the queue takes, and after all of it the message that says so.
    fn write_file(&mut self) -> Result<(), Failure> {
        let Some(peer) = self.peer else { return Ok(()) };
        while self.posted < self.file_octets && self.writing < WRITES {
            let octets = MESSAGE_OCTETS.min(self.file_octets - self.posted);
            let source = self.file.slice(self.posted, octets as u32);
            let posted = self.qp.post_write(0, source, &peer, self.posted as u64);
            if posted.is_err() && self.qp.state() != QpState::ReadyToSend {
                return Ok(());
            }
            posted.map_err(Failure::local)?;
            self.posted += octets;
            self.writing += 1;
        }
        if self.posted == self.file_octets && !self.done_posted {
            self.done_posted = true;
            let octets = self.file_octets as u32;
            self.send(id::DONE, Advertisement { to: 0, stag: STag(0), len: octets })?;
        }
        Ok(())
    }

    fn send(&self, id: u64, message: Advertisement) -> Result<(), Failure> {
        // After the two that are received.
        let offset = (1 + id as usize) * Advertisement::MESSAGE_LEN;
        if !self.messages.write(offset, &message.encode()) {
            return Err(Failure::local("no place for a message"));
        }
        match self.qp.post_send(id, self.messages.slice(offset, MESSAGE)) {
            Err(error) if self.qp.state() == QpState::ReadyToSend => Err(Failure::local(error)),
            // An end that has come meanwhile shows in the completions.
            _ => Ok(()),
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
