//! One process, two devices with a wire in memory between them: the far side advertises a buffer in a Send,
//! the near side writes into it and says so by a Send of its own.

use std::error::Error;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use warpline::open::{self, Eal};
use warpline::{
    Access, Advertisement, Cidr, Completion, CompletionKind, CompletionQueue, ConnectConfig, Device,
    DeviceConfig, DeviceKind, DeviceName, ListenConfig, Listener, PollThread, QpConfig, Status,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const PORT: u16 = 4711;
const GREETING: &[u8] = b"written straight into the memory of the peer";

/// The next completion of that kind; anything that failed is an error.
fn next(completions: &CompletionQueue, kind: CompletionKind) -> Outcome<Completion> {
    loop {
        let completion = completions.wait(Duration::from_secs(10)).ok_or("nothing was completed in time")?;
        match completion.status {
            Status::Success if completion.kind == kind => return Ok(completion),
            Status::Success => {}
            failed => return Err(format!("{:?} failed: {failed:?}", completion.kind).into()),
        }
    }
}

/// Waits for the near side's hello, advertises a buffer, and looks into it when the near side is done.
fn far_side(device: &Device, listener: &Listener) -> Outcome<()> {
    let domain = device.protection_domain();
    let buffer = domain.allocate(4096, Access::REMOTE_WRITE)?;
    let messages = domain.allocate(3 * Advertisement::MESSAGE_LEN, Access::LOCAL_WRITE)?;
    let completions = CompletionQueue::new(16);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    qp.post_receive(1, messages.slice(0, 16))?;
    qp.post_receive(2, messages.slice(16, 16))?;
    listener.accept(Duration::from_secs(10))?.accept(&qp, b"")?;
    // MPA lets the side that was connected to speak second.
    next(&completions, CompletionKind::Receive)?;
    let advertisement = buffer.advertisement(0, 4096).ok_or("outside the buffer")?;
    assert!(messages.write(32, &advertisement.encode()));
    qp.post_send(3, messages.slice(32, 16))?;
    next(&completions, CompletionKind::Receive)?;
    assert_eq!(buffer.to_vec(100, GREETING.len()).as_deref(), Some(GREETING));
    Ok(qp.wait_closed(Duration::from_secs(10))?)
}

fn main() -> Outcome<()> {
    // A ring has both ends. WARPLINE_DEVICE may give it options, as in ring,mtu=9000.
    let ring = DeviceName::from_environment()?.map_or_else(|| "ring".parse(), Ok)?;
    if ring.kind() != DeviceKind::Ring {
        return Err(format!("WARPLINE_DEVICE is {ring}, and this example runs on a ring: unset it").into());
    }
    let eal: Eal = open::eal(&[], "")?;
    let (near, far) = open::ring_pair(eal, &open::wire_config(&ring))?;
    let config = |address: Ipv4Addr| DeviceConfig {
        addresses: vec![Cidr::new(address.into(), 24)],
        memory: open::hugepages(eal),
        ..ring.config()
    };
    let near = Device::start(near, &config(Ipv4Addr::new(198, 18, 0, 1)), PollThread::default())?;
    let far = Device::start(far, &config(FAR), PollThread::default())?;
    let listener = far.listen(PORT, &ListenConfig::default())?;
    let far_side = thread::spawn(move || far_side(&far, &listener));

    let domain = near.protection_domain();
    let memory = domain.allocate(4096, Access::LOCAL_WRITE)?;
    assert!(memory.write(16, GREETING));
    let completions = CompletionQueue::new(16);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    qp.post_receive(1, memory.slice(0, 16))?;
    qp.connect((FAR, PORT).into(), &ConnectConfig::default())?;
    qp.post_send(2, memory.slice(0, 0))?;
    next(&completions, CompletionKind::Receive)?;
    let target = Advertisement::decode(&memory.to_vec(0, 16).unwrap_or_default())?;
    qp.post_write(3, memory.slice(16, GREETING.len() as u32), &target, 100)?;
    qp.post_send(4, memory.slice(0, 0))?;
    qp.disconnect();
    far_side.join().map_err(|_| "the far side panicked")??;
    println!("{} bytes written into the peer's memory and verified", GREETING.len());
    Ok(())
}
