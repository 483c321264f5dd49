//! A server on two cores: the connections of its clients are at either, and a thread for each core does what
//! they ask for. The client is in the same process, on a wire in memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use warpline::open::{self, WireConfig};
use warpline::{
    Access, Advertisement, CompletionQueue, ConnectConfig, Device, DeviceConfig, ListenConfig, Listener,
    PollThread, QpConfig,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_mins(1);
const CORES: usize = 2;
const CLIENTS: usize = 8;

fn main() -> Outcome {
    let eal = open::eal(&[], "--no-huge -m 512")?;
    // A wire between one core and two. The steering says which of them has the segments of a connection.
    let [near, far] = open::ring_pair_of(eal, &WireConfig::default(), [1, CORES])?;
    let (devices, steering) = far.into_parts();
    // A thread polls each core. On a port, Device::open takes all these steps: vhost:PATH,cores=2-3.
    let polls = [PollThread::default(); CORES];
    let config = DeviceConfig::new([198, 18, 0, 2], 24);
    let server = Device::start_cores(devices, &steering, &config, &polls)?;
    let (devices, steering) = near.into_parts();
    let config = DeviceConfig::new([198, 18, 0, 1], 24);
    let client = Device::start_cores(devices, &steering, &config, &polls[..1])?;
    let listener = server.listen(7471, &ListenConfig::default())?;
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&server, &listener).map_err(|error| error.to_string()));
        let client = write(&client, ([198, 18, 0, 2], 7471).into());
        serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        client
    })
}

fn serve(device: &Device, listener: &Listener) -> Outcome {
    let domain = device.protection_domain();
    // One page for each client, in one region that both cores reach.
    let memory = Arc::new(domain.allocate(CLIENTS * 4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?);
    // A completion queue for each core: no line of it is written by the other core.
    let queues: Vec<CompletionQueue> = (0..CORES).map(|_| CompletionQueue::new(64)).collect();
    let mut clients = [0; CORES];
    let mut connected = Vec::new();
    for client in 0..CLIENTS {
        let request = listener.accept(PATIENCE)?;
        // The queue pair is made when its core is known, and reports to the queue of that core.
        let core = usize::from(request.core());
        let qp = domain.queue_pair(&QpConfig::default(), &queues[core], &queues[core])?;
        qp.post_receive(client as u64, memory.slice(client * 4096, 0))?;
        let page = memory.advertisement(client * 4096, 4096).ok_or("no such page")?;
        request.accept(&qp, &page.encode())?;
        clients[core] += 1;
        connected.push(qp);
    }
    thread::scope(|scope| {
        for (completions, clients) in queues.into_iter().zip(clients) {
            let memory = memory.clone();
            // The thread of a core's clients: a message says that a page is written.
            scope.spawn(move || {
                for _ in 0..clients {
                    let message = completions.wait(PATIENCE).expect("a message of each client");
                    let first = memory.to_vec(message.id as usize * 4096, 1).expect("a page of the region");
                    assert_eq!(first, [message.id as u8 + 1], "the page was written before the message");
                }
            });
        }
    });
    for qp in connected {
        qp.wait_closed(PATIENCE)?;
    }
    println!("{CLIENTS} clients have written, at {CORES} cores: {clients:?}");
    Ok(())
}

fn write(device: &Device, server: SocketAddr) -> Outcome {
    let domain = device.protection_domain();
    let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    let completions = CompletionQueue::new(64);
    for client in 0..CLIENTS {
        let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
        let connected = qp.connect(server, &ConnectConfig::default())?;
        let page = Advertisement::decode(&connected.private_data)?;
        memory.fill(client as u8 + 1);
        qp.post_write(1, memory.slice(0, 4096), &page, 0)?;
        qp.post_send(2, memory.slice(0, 0))?;
        for _ in 0..2 {
            completions.wait(PATIENCE).ok_or("the server is silent")?;
        }
        qp.disconnect();
        qp.wait_closed(PATIENCE)?;
    }
    Ok(())
}
