//! The server of docs/tutorial.md: it lends a page of memory to whoever connects, and shows what became of
//! it.

use std::error::Error;
use std::time::Duration;

use warpline::{Access, CompletionQueue, Device, DeviceName, ListenConfig, QpConfig, Status};

const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> Result<(), Box<dyn Error>> {
    // A device: a port, addresses, and a thread that polls it. Without an argument, WARPLINE_DEVICE names it.
    let name = match std::env::args().nth(1) {
        Some(name) => name.parse()?,
        None => DeviceName::from_environment()?.ok_or("usage: hello_server DEVICE")?,
    };
    let device = Device::open(&name)?;
    for warning in device.warnings() {
        eprintln!("warning: {warning}");
    }

    // Memory that a peer may write, read, and count in.
    let domain = device.protection_domain();
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let page = domain.allocate(4096, rights)?;
    let advertisement = page.advertisement(0, 4096).ok_or("outside the page")?;

    // A queue pair with a buffer for the one message that the client sends.
    let completions = CompletionQueue::with_events(16)?;
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    let inbox = domain.allocate(64, Access::LOCAL_WRITE)?;
    qp.post_receive(1, inbox.slice(0, 64))?;

    // A connection. The answer to its Request says where the page is.
    let listener = device.listen(7471, &ListenConfig::default())?;
    println!("listening on {name}");
    let request = listener.accept(PATIENCE)?;
    request.accept(&qp, &advertisement.encode())?;

    // This thread sleeps until the client's message has come: the Writes before it are in place then.
    let message = completions.wait(PATIENCE).ok_or("the client said nothing")?;
    if message.status != Status::Success {
        return Err(format!("no message: {:?}", message.status).into());
    }
    let said = inbox.to_vec(0, message.byte_len as usize).unwrap_or_default();
    let written = page.to_vec(64, 5).unwrap_or_default();
    println!("{}: {}", String::from_utf8_lossy(&said), String::from_utf8_lossy(&written));
    qp.wait_closed(PATIENCE)?;
    Ok(())
}
