//! The client of docs/tutorial.md: it writes into the server's memory, reads it back, counts there, and says
//! so.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use warpline::{
    Access, Advertisement, Completion, CompletionQueue, ConnectConfig, Device, DeviceName, InlineData,
    Operation, QpConfig, SendRequest, Status,
};

const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for the next completion, which must be a success.
fn done(completions: &CompletionQueue) -> Result<Completion, Box<dyn Error>> {
    let completion = completions.wait(PATIENCE).ok_or("nothing was completed in time")?;
    match completion.status {
        Status::Success => Ok(completion),
        failed => Err(format!("{:?} failed: {failed:?}", completion.kind).into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: hello_client DEVICE SERVER-ADDRESS";
    let (name, server) = match &arguments[..] {
        [name, server] => (name.parse()?, server),
        [server] => (DeviceName::from_environment()?.ok_or(usage)?, server),
        _ => return Err(usage.into()),
    };
    let (device, server) = (Device::open(&name)?, server.parse::<IpAddr>()?);
    for warning in device.warnings() {
        eprintln!("warning: {warning}");
    }

    let domain = device.protection_domain();
    let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    let completions = CompletionQueue::with_events(16)?;
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    let connected = qp.connect(SocketAddr::new(server, 7471), &ConnectConfig::default())?;
    let page = Advertisement::decode(&connected.private_data)?;

    // An RDMA Write: five bytes of ours to byte 64 of the page.
    assert!(memory.write(0, b"hello"));
    qp.post_write(1, memory.slice(0, 5), &page, 64)?;
    // An RDMA Read of the same bytes, which follows the Write.
    qp.post_read(2, memory.slice(100, 5), &page, 64)?;
    // An Atomic Operation: the first bytes of the page are a counter.
    let (stag, to) = (page.stag, page.to);
    let count = Operation::FetchAdd { stag, to, add: 1, mask: 0 };
    qp.post(SendRequest::new(3, count, memory.slice(200, 8)))?;
    for id in 1..=3 {
        assert_eq!(done(&completions)?.id, id, "they complete in the order of posting");
    }
    assert_eq!(memory.to_vec(100, 5).as_deref(), Some(&b"hello"[..]));

    // A message, which completes a receive of the server. So few bytes travel in the request itself.
    qp.post_send(4, InlineData::try_from(&b"the client has written"[..])?)?;
    done(&completions)?;
    qp.disconnect();
    qp.wait_closed(PATIENCE)?;
    println!("written, read back and counted");
    Ok(())
}
