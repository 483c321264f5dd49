//! A file goes to a server, which fetches it by RDMA Reads: the client says by a Send where it lies in
//! memory, what it is called and what its SHA-256 is, and hears by another when it is there.

mod ends;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, fs, io};

use ends::{Outcome, PATIENCE, PORT, connect, next, next_of};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use warpline::{
    Access, Addressing, Advertisement, CompletionKind, CompletionQueue, Device, ListenConfig, QpConfig,
    Region,
};

/// The longest message: advertisement, digest, name.
const MESSAGE_BYTES: u32 = 512;
const DIGEST_BYTES: usize = 32;
/// Octets that one Read fetches.
const CHUNK_BYTES: u32 = 256 * 1024;

/// Returns where files come from and go to: what `WARPLINE_DIRECTORY` names, or else a directory made for
/// this process, which stays. Its name cannot be foreseen, so that no other user has made it first.
fn directory() -> Outcome<PathBuf> {
    static OWN: OnceLock<io::Result<PathBuf>> = OnceLock::new();
    if let Some(named) = env::var_os("WARPLINE_DIRECTORY") {
        return Ok(named.into());
    }
    let make = || tempfile::Builder::new().prefix("warpline-file-transfer-").tempdir().map(TempDir::keep);
    Ok(OWN.get_or_init(make).as_ref().map_err(ToString::to_string)?.clone())
}

fn server(device: &Device) -> Outcome {
    let domain = device.protection_domain();
    let messages = domain.allocate(MESSAGE_BYTES as usize, Access::LOCAL_WRITE)?;
    let completions = CompletionQueue::new(256);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    qp.post_receive(0, messages.slice(0, MESSAGE_BYTES))?;
    let listener = device.listen(PORT, &ListenConfig::default())?;
    listener.accept(PATIENCE)?.accept(&qp, b"")?;

    let received = next_of(&completions, CompletionKind::Receive)?;
    let message = messages.to_vec(0, received.byte_len as usize).unwrap_or_default();
    let (advertisement, rest) =
        message.split_at_checked(Advertisement::MESSAGE_LEN).ok_or("a short message")?;
    let (digest, name) = rest.split_at_checked(DIGEST_BYTES).ok_or("a short message")?;
    let file = Advertisement::decode(advertisement)?;
    let name = PathBuf::from(String::from_utf8(name.to_vec())?);
    // The name alone: a peer has no say in where it goes.
    let name = name.file_name().ok_or("no name")?;

    let memory = domain.allocate(file.len.max(1) as usize, Access::LOCAL_WRITE)?;
    let chunks = (0..file.len).step_by(CHUNK_BYTES as usize);
    let mut under_way = 0;
    for offset in chunks {
        let bytes = CHUNK_BYTES.min(file.len - offset);
        // As many as the queue takes; how many of them the peer sees at once was agreed on when it connected.
        if under_way == QpConfig::default().send_depth {
            next(&completions)?;
            under_way -= 1;
        }
        qp.post_read(1, memory.slice(offset as usize, bytes), &file, offset.into())?;
        under_way += 1;
    }
    for _ in 0..under_way {
        next(&completions)?;
    }
    let bytes = memory.to_vec(0, file.len as usize).unwrap_or_default();
    if Sha256::digest(&bytes).as_slice() != digest {
        return Err("the file came changed".into());
    }
    let target = directory()?.join("received");
    fs::create_dir_all(&target)?;
    fs::write(target.join(name), &bytes)?;
    eprintln!("received: {}", target.join(name).display());
    qp.post_send(2, messages.slice(0, 0))?;
    Ok(qp.wait_closed(PATIENCE)?)
}

fn client(device: &Device, server: SocketAddr) -> Outcome {
    let path = env::var_os("WARPLINE_FILE").map(PathBuf::from);
    let path = match path {
        Some(path) => path,
        None => sample()?,
    };
    let bytes = fs::read(&path)?;
    let digest = Sha256::digest(&bytes);
    let count = bytes.len();
    let domain = device.protection_domain();
    // The file's own memory is registered as it is.
    let region = Region::owned(bytes).ok_or("an empty file")?;
    let file = domain.register(region, Access::REMOTE_READ, Addressing::ZeroBased)?;
    let advertisement = file.advertisement(0, u32::try_from(count)?).ok_or("outside the file")?;
    let name = path.file_name().ok_or("no name")?.to_string_lossy().into_owned();
    let message = [&advertisement.encode()[..], digest.as_slice(), name.as_bytes()].concat();

    let messages = domain.allocate(MESSAGE_BYTES as usize, Access::LOCAL_WRITE)?;
    if !messages.write(0, &message) {
        return Err("the file's name is too long".into());
    }
    let completions = CompletionQueue::new(16);
    let qp = domain.queue_pair(&QpConfig::default(), &completions, &completions)?;
    qp.post_receive(0, messages.slice(0, 0))?;
    connect(&qp, server)?;
    qp.post_send(1, messages.slice(0, message.len() as u32))?;
    next_of(&completions, CompletionKind::Receive)?;
    qp.disconnect();
    qp.wait_closed(PATIENCE)?;
    println!("{name}: {count} bytes fetched by the server and verified");
    Ok(())
}

/// A file to send where none is named.
fn sample() -> Outcome<PathBuf> {
    let directory = directory()?;
    fs::create_dir_all(&directory)?;
    let path = directory.join("sample");
    fs::write(&path, (0..5_000_001_u32).map(|at| (at * 7 / 8) as u8).collect::<Vec<_>>())?;
    Ok(path)
}

fn main() -> Outcome {
    ends::run(server, client)
}
