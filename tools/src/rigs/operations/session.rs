//! A queue pair, its memory and its connection.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use warpline::{
    Access, Addressing, CloseError, Completion, CompletionKind, CompletionQueue, ConnectConfig, Device,
    ListenConfig, Listener, MemoryRegion, ProtectionDomain, QpConfig, QueuePair, ReadDepths, Region,
    Revision, STag, Status, Terms,
};

use super::requests;
use super::words::{Words, octets};
use crate::failure::Failure;

const GUARD_OCTETS: usize = 4096;
const GUARD: u8 = 0xa5;
const COMPLETIONS: usize = 256;

/// Registered memory between two guards.
struct Memory {
    registered: MemoryRegion,
    /// Both guards and what lies between them.
    whole: Region,
}

/// What comes and goes with a connection.
pub struct Session {
    device: Device,
    qp: QueuePair,
    completions: CompletionQueue,
    memory: BTreeMap<String, Memory>,
    domain: ProtectionDomain,
    depths: ReadDepths,
    markers: bool,
    /// How long the other end may be silent.
    timeout: Duration,
}

impl Session {
    /// Returns a queue pair in a Protection Domain of its own.
    pub fn new(device: &Device, timeout: Duration, words: &mut Words<'_>) -> Result<Self, Failure> {
        let mut depths = ReadDepths { ird: 0, ord: 0 };
        if let Some(ird) = words.option("ird=") {
            depths.ird = super::words::number(ird)?;
        }
        if let Some(ord) = words.option("ord=") {
            depths.ord = super::words::number(ord)?;
        }
        let markers = words.has("markers");
        let domain = device.protection_domain();
        let completions = CompletionQueue::new(COMPLETIONS);
        let config = QpConfig::default().give_up_after(timeout);
        let qp = domain.queue_pair(&config, &completions, &completions).map_err(Failure::local)?;
        let (device, memory) = (device.clone(), BTreeMap::new());
        Ok(Self { device, qp, completions, memory, domain, depths, markers, timeout })
    }

    /// Returns `config` with the session's own choices for a listener.
    pub fn listen(&self, config: ListenConfig) -> ListenConfig {
        ListenConfig {
            markers: self.markers,
            terms: Terms { depths: self.depths, ..Terms::responder() },
            ..config
        }
    }

    pub fn accept(&self, listener: &Listener) -> Result<Value, Failure> {
        let accepted = listener.accept(self.timeout)?.accept(&self.qp, b"")?;
        Ok(json!({"ird": accepted.depths.ird, "ord": accepted.depths.ord}))
    }

    pub fn connect(&self, words: &mut Words<'_>) -> Result<Value, Failure> {
        let remote = words.next("an address")?;
        let remote = remote.parse().map_err(|_| Failure::local(format!("'{remote}' is not ADDR:PORT")))?;
        let config = ConnectConfig {
            revision: Revision::Two,
            terms: Terms { depths: self.depths, ..Terms::initiator() },
            markers: self.markers,
            timeout: self.timeout,
            ..ConnectConfig::default()
        };
        let connected = self.qp.connect(remote, &config)?;
        Ok(json!({"ird": connected.depths.ird, "ord": connected.depths.ord}))
    }

    pub fn register(&mut self, words: &mut Words<'_>) -> Result<Value, Failure> {
        let name = words.next("a name")?;
        let octets: usize = words.number("octets")?;
        let (mut access, mut addressing) = (Access::empty(), Addressing::Address);
        let (mut domain, mut stream) = (None, false);
        while let Some(word) = words.another() {
            match word {
                "local-write" => access |= Access::LOCAL_WRITE,
                "remote-write" => access |= Access::REMOTE_WRITE,
                "remote-read" => access |= Access::REMOTE_READ,
                "remote-atomic" => access |= Access::REMOTE_ATOMIC,
                "zero" => addressing = Addressing::ZeroBased,
                "stream" => stream = true,
                "other" => domain = Some(self.device.protection_domain()),
                _ => return Err(Failure::local(format!("'{word}' is no right"))),
            }
        }
        // 16 at the front of the guard are left, so that what is registered is aligned to 64 bits.
        let whole_octets = octets.checked_add(2 * GUARD_OCTETS);
        let whole_octets = whole_octets.ok_or_else(|| Failure::local("no memory is that large"))?;
        let memory = self.device.config().memory.allocate(whole_octets);
        let whole = memory.ok_or_else(|| Failure::local("no memory"))?;
        let guard = [GUARD; GUARD_OCTETS];
        let guarded = whole.write(0, &guard) && whole.write(GUARD_OCTETS + octets, &guard);
        let part = whole.part(GUARD_OCTETS, octets).filter(|_| guarded);
        let part = part.ok_or_else(|| Failure::local("no such part"))?;
        let domain = domain.as_ref().unwrap_or(&self.domain);
        let registered = if stream {
            domain.register_for(&self.qp, part, access, addressing)
        } else {
            domain.register(part, access, addressing)
        };
        let registered = registered.map_err(Failure::local)?;
        let answer = json!({"stag": registered.stag().0, "to": registered.to(0)});
        self.memory.insert(name.to_owned(), Memory { registered, whole });
        Ok(answer)
    }

    fn memory(&self, words: &mut Words<'_>) -> Result<&MemoryRegion, Failure> {
        let name = words.next("a name")?;
        let memory = self.memory.get(name).ok_or_else(|| Failure::local(format!("no memory '{name}'")))?;
        Ok(&memory.registered)
    }

    pub fn set(&self, words: &mut Words<'_>) -> Result<Value, Failure> {
        let memory = self.memory(words)?;
        let offset = words.number("an offset")?;
        let written = memory.write(offset, &octets(words.next("octets")?)?);
        if written { Ok(json!({})) } else { Err(Failure::local("outside the memory")) }
    }

    pub fn get(&self, words: &mut Words<'_>) -> Result<Value, Failure> {
        let memory = self.memory(words)?;
        let octets = memory.to_vec(words.number("an offset")?, words.number("octets")?);
        let octets = octets.ok_or_else(|| Failure::local("outside the memory"))?;
        Ok(json!({"octets": super::words::digits(&octets)}))
    }

    /// Returns the number of octets of all guards that have changed.
    pub fn octets_outside(&self) -> usize {
        let mut guard = [0; GUARD_OCTETS];
        let mut changed = 0;
        for memory in self.memory.values() {
            for offset in [0, GUARD_OCTETS + memory.registered.len()] {
                let read = memory.whole.read(offset, &mut guard);
                assert!(read, "the guards lie inside the whole");
                changed += guard.iter().filter(|octet| **octet != GUARD).count();
            }
        }
        changed
    }

    fn find(&self, name: &str) -> Option<(STag, u64)> {
        self.memory.get(name).map(|memory| (memory.registered.stag(), memory.registered.to(0)))
    }

    pub fn post(&self, request: &str, words: &mut Words<'_>) -> Result<Value, Failure> {
        if request == "receive" {
            let id = words.number("an ID")?;
            let local = requests::slices(words.next("a buffer")?, |name| self.find(name))?;
            self.qp.post_receive(id, local).map_err(Failure::local)?;
        } else {
            let request = requests::send(request, words, |name| self.find(name))?;
            self.qp.post(request).map_err(Failure::local)?;
        }
        Ok(json!({}))
    }

    pub fn wait(&self, patience: Duration) -> Value {
        self.completions.wait(patience).map_or_else(|| json!({"timeout": true}), |found| as_json(&found))
    }

    /// Returns how the connection has ended; closes our half if the peer has closed its.
    pub fn ended(&self, patience: Duration) -> Result<Value, Failure> {
        match self.qp.wait_closed(patience) {
            Ok(()) => Ok(json!({"error_code": null})),
            Err(error @ CloseError::NotYet) => Err(Failure::local(error)),
            Err(error) => {
                let failure = Failure::from(error);
                Ok(json!({"error": failure.text, "error_code": failure.code}))
            }
        }
    }

    pub fn close(&self) -> Value {
        self.qp.disconnect();
        json!({})
    }
}

fn as_json(completion: &Completion) -> Value {
    let kind = match completion.kind {
        CompletionKind::Send => "send",
        CompletionKind::Write => "write",
        CompletionKind::Read => "read",
        CompletionKind::FetchAdd => "fetch-add",
        CompletionKind::CompareSwap => "compare-swap",
        CompletionKind::LocalInvalidate => "local-invalidate",
        CompletionKind::Receive => "receive",
        _ => "other",
    };
    let status = match completion.status {
        Status::Success => "success",
        Status::LocalLength => "local-length",
        Status::LocalOperation => "local-operation",
        Status::LocalProtection => "local-protection",
        Status::Failed(_) => "failed",
        Status::Flushed => "flushed",
        Status::Bind => "bind",
        _ => "other",
    };
    json!({
        "id": completion.id,
        "kind": kind,
        "status": status,
        "octets": completion.byte_len,
        "immediate": completion.immediate,
        "invalidated": completion.invalidated.map(|stag| stag.0),
        "solicited": completion.solicited,
    })
}
