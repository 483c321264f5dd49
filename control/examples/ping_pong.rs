//! Sends there and back: a server that returns every message, and a client that takes the time.

mod ends;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ends::{Outcome, PATIENCE, PORT, connect, next};
use warpline::{Access, CompletionKind, CompletionQueue, Device, ListenConfig, QpConfig, QpState};

const MESSAGE_BYTES: u32 = 64;
const ROUNDS: u64 = 1000;
/// Receives that the server has ready.
const RECEIVES: u64 = 16;

fn server(device: &Device) -> Outcome {
    let domain = device.protection_domain();
    let memory = domain.allocate((RECEIVES * u64::from(MESSAGE_BYTES)) as usize, Access::LOCAL_WRITE)?;
    let buffer = |id: u64| memory.slice((id * u64::from(MESSAGE_BYTES)) as usize, MESSAGE_BYTES);
    let completions = CompletionQueue::new(64);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    // A message that finds no receive ends the stream: so they are posted before there is a connection.
    for id in 0..RECEIVES {
        qp.post_receive(id, buffer(id))?;
    }
    let listener = device.listen(PORT, &ListenConfig::default())?;
    listener.accept(PATIENCE)?.accept(&qp, b"")?;
    while qp.state() == QpState::ReadyToSend {
        let Some(completion) = completions.wait(Duration::from_millis(10)) else { continue };
        match completion.kind {
            // Back from where it came to.
            CompletionKind::Receive if completion.byte_len > 0 => {
                qp.post_send(completion.id, buffer(completion.id))?;
            }
            // It is out: there is room for another.
            CompletionKind::Send => {
                qp.post_receive(completion.id, buffer(completion.id))?;
            }
            _ => break,
        }
    }
    Ok(qp.wait_closed(PATIENCE)?)
}

fn client(device: &Device, server: SocketAddr) -> Outcome {
    let domain = device.protection_domain();
    let bytes = MESSAGE_BYTES as usize;
    let memory = domain.allocate(2 * bytes, Access::LOCAL_WRITE)?;
    let completions = CompletionQueue::new(64);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    connect(&qp, server)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let message: Vec<u8> = (0..bytes).map(|at| (round + at as u64) as u8).collect();
        assert!(memory.write(0, &message));
        let begin = Instant::now();
        qp.post_receive(round, memory.slice(bytes, MESSAGE_BYTES))?;
        qp.post_send(round, memory.slice(0, MESSAGE_BYTES))?;
        // Both are to complete; which is first does not matter.
        next(&completions)?;
        next(&completions)?;
        times.push(begin.elapsed());
        if memory.to_vec(bytes, bytes).as_deref() != Some(&message) {
            return Err(format!("round {round} came back changed").into());
        }
    }
    qp.disconnect();
    qp.wait_closed(PATIENCE)?;
    times.sort_unstable();
    println!("{ROUNDS} messages of {bytes} bytes there and back, median {:?}", times[times.len() / 2]);
    Ok(())
}

fn main() -> Outcome {
    ends::run(server, client)
}
