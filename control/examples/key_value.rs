//! A key-value store whose server does nothing: clients find, lock, write and read its slots themselves, by
//! RDMA Writes, Reads and Atomic Operations.

mod ends;

use std::net::SocketAddr;
use std::thread;

use ends::{Outcome, PATIENCE, PORT, connect, next};
use warpline::{
    Access, Advertisement, CompletionQueue, Device, ListenConfig, MemoryRegion, Operation, QpConfig,
    QueuePair,
};

/// A slot: a version of eight bytes, odd while a client writes; then key and value.
const SLOT_BYTES: u32 = 64;
const VERSION_BYTES: u32 = 8;
const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 32;
const SLOTS: u64 = 1024;
const CLIENTS: u64 = 3;

fn server(device: &Device) -> Outcome {
    let domain = device.protection_domain();
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let table = domain.allocate((SLOTS * u64::from(SLOT_BYTES)) as usize, rights)?;
    let advertisement = table.advertisement(0, table.len() as u32).ok_or("outside the table")?;
    let listener = device.listen(PORT, &ListenConfig::default())?;
    let completions = CompletionQueue::new(64);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
        // Where the table is, the client learns from the answer to its Request.
        listener.accept(PATIENCE)?.accept(&qp, &advertisement.encode())?;
        clients.push(qp);
    }
    clients.iter().try_for_each(|qp| Ok(qp.wait_closed(PATIENCE)?))
}

/// A client's end of the store.
struct Store {
    qp: QueuePair,
    completions: CompletionQueue,
    /// The slot that is written or read, and the answer of an Atomic Operation after it.
    memory: MemoryRegion,
    table: Advertisement,
}

impl Store {
    fn connect(device: &Device, server: SocketAddr) -> Outcome<Self> {
        let domain = device.protection_domain();
        let memory = domain.allocate(2 * SLOT_BYTES as usize, Access::LOCAL_WRITE)?;
        let completions = CompletionQueue::new(16);
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
        let connected = connect(&qp, server)?;
        let table = Advertisement::decode(&connected.private_data)?;
        Ok(Self { qp, completions, memory, table })
    }

    /// Where the slot of `key` begins in the table.
    fn slot(key: &str) -> u64 {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash % SLOTS * u64::from(SLOT_BYTES)
    }

    /// Performs an Atomic Operation; returns the earlier value.
    fn atomic(&self, operation: Operation) -> Outcome<u64> {
        let answer = self.memory.slice(SLOT_BYTES as usize, VERSION_BYTES);
        self.qp.post(warpline::SendRequest::new(0, operation, answer))?;
        while next(&self.completions)?.id != 0 {}
        let bytes = self.memory.to_vec(SLOT_BYTES as usize, 8).unwrap_or_default();
        Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| "eight bytes")?))
    }

    fn put(&self, key: &str, value: &str) -> Outcome {
        let (stag, to) = (self.table.stag, self.table.to + Self::slot(key));
        loop {
            let version = self.atomic(Operation::FetchAdd { stag, to, add: 0, mask: 0 })? & !1;
            let lock = Operation::CompareSwap {
                stag,
                to,
                compare: version,
                compare_mask: u64::MAX,
                swap: version + 1,
                swap_mask: u64::MAX,
            };
            if self.atomic(lock)? == version {
                break;
            }
        }
        let mut bytes = [0; KEY_BYTES + VALUE_BYTES];
        bytes[..key.len()].copy_from_slice(key.as_bytes());
        bytes[KEY_BYTES..KEY_BYTES + value.len()].copy_from_slice(value.as_bytes());
        assert!(self.memory.write(VERSION_BYTES as usize, &bytes));
        let slot = self.memory.slice(VERSION_BYTES as usize, bytes.len() as u32);
        let place = Self::slot(key) + u64::from(VERSION_BYTES);
        self.qp.post_write(1, slot, &self.table, place)?;
        // Unlocked when the Write is there: requests are carried out in their order.
        self.atomic(Operation::FetchAdd { stag, to, add: 1, mask: 0 })?;
        Ok(())
    }

    fn get(&self, key: &str) -> Outcome<Option<String>> {
        loop {
            self.qp.post_read(2, self.memory.slice(0, SLOT_BYTES), &self.table, Self::slot(key))?;
            while next(&self.completions)?.id != 2 {}
            let slot = self.memory.to_vec(0, SLOT_BYTES as usize).unwrap_or_default();
            if slot[0] & 1 != 0 {
                continue; // Somebody writes it.
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
            let (found, value) = slot[VERSION_BYTES as usize..].split_at(KEY_BYTES);
            return Ok((text(found) == key).then(|| text(value)));
        }
    }
}

fn one_client(device: &Device, server: SocketAddr, number: u64) -> Outcome {
    let store = Store::connect(device, server)?;
    for round in 0..50 {
        let key = format!("client {number} key {}", round % 5);
        store.put(&key, &format!("value {round}"))?;
        assert_eq!(store.get(&key)?, Some(format!("value {round}")));
    }
    assert_eq!(store.get("nobody's key")?, None);
    store.put("everybody's key", &format!("of client {number}"))?;
    store.qp.disconnect();
    Ok(store.qp.wait_closed(PATIENCE)?)
}

fn client(device: &Device, server: SocketAddr) -> Outcome {
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || one_client(device, server, number))).collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
    })?;
    println!(
        "{CLIENTS} clients put and got {} values; the server's processor had no part in it",
        CLIENTS * 50
    );
    Ok(())
}

fn main() -> Outcome {
    ends::run(server, client)
}
