//! HTTP/1.1 over byte streams, with the TCP RDMA option where the other end has it
//! (draft-csapuntz-tcprdma-00): a server of files, and a client in whose buffers they land.
//!
//! ```text
//! http                                           both in this process, joined by a wire in memory
//! http server [DEVICE] DIRECTORY                 serves the files of a directory at port 80
//! http client [DEVICE] SERVER:PORT get DIRECTORY TARGET...   gets files into a directory
//! http client [DEVICE] SERVER:PORT post FILE TARGET          posts a file
//! ```
//!
//! DEVICE names the device and its address: `af_packet:eth1,address=198.18.0.1/24`. Without it, the
//! environment variable `WARPLINE_DEVICE` does. With `--pcap FILE` the frames of the end that runs go to a
//! capture; of both in this process, those of the clients with the option.
//!
//! It is an example. It can be left running, and clients can neither leave its directory nor take its memory,
//! but it has no TLS, no access control and no log, and everybody who reaches it may write to the directory.

mod client;
mod conditions;
#[path = "../ends/mod.rs"]
mod ends;
mod files;
mod message;
mod server;
mod session;
mod transfer;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::Client;
use ends::{Outcome, capture};
use files::Directory;
use server::{Patience, Site};
use warpline::Device;

/// The port of HTTP.
const PORT: u16 = 80;

fn main() -> Outcome {
    let arguments = with_device(capture::arguments()?)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            for rdma_option in [true, false] {
                demonstrate(rdma_option)?;
            }
            Ok(())
        }
        ["server", device, directory] => {
            let directory = Directory::open(Path::new(directory))?;
            let (device, turns) = capture::open_shared(&device.parse()?)?;
            let listener = server::listen(&device, PORT, true)?;
            eprintln!("ready");
            let totals = server::Totals::default();
            let site = Site { directory: &directory, totals: &totals, patience: Patience::default() };
            server::serve(&listener, turns.as_ref(), &site, &AtomicBool::new(false))
        }
        ["client", device, server, "get", directory, ref targets @ ..] => {
            let (device, server) = (capture::open(&device.parse()?)?, server.parse()?);
            let mut client = Client::new(&device, server, true);
            client::save(&mut client, Path::new(directory), targets)?;
            report(client);
            Ok(())
        }
        ["client", device, server, "post", file, target] => {
            let (device, server) = (capture::open(&device.parse()?)?, server.parse()?);
            let mut client = Client::new(&device, server, true);
            let mut file = File::open(file)?;
            let bytes = file.metadata()?.len();
            let status = client.post(target, &mut file, bytes)?;
            report(client);
            println!("{bytes} bytes posted, status {status}");
            if matches!(status, 201 | 204) { Ok(()) } else { Err(format!("status {status}").into()) }
        }
        _ => Err("arguments: none; server [DEVICE] DIRECTORY; client [DEVICE] SERVER:PORT get DIRECTORY \
                  TARGET...; client [DEVICE] SERVER:PORT post FILE TARGET"
            .into()),
    }
}

/// Returns the arguments with the device that the environment names, where they name none.
fn with_device(mut arguments: Vec<String>) -> Outcome<Vec<String>> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if matches!(words[..], ["server", _] | ["client", _, "get" | "post", ..]) {
        arguments.insert(1, ends::device_name(None)?.to_string());
    }
    Ok(arguments)
}

fn report(mut client: Client<'_>) {
    let option = if client.has_rdma_option() { "with" } else { "without" };
    client.close();
    let client::Totals { responses, connections, body_bytes, placed_bytes, copied_bytes } = client.totals();
    println!(
        "{responses} responses, {connections} connections, the last one {option} the option: {body_bytes} \
         bytes of bodies, {placed_bytes} placed, {copied_bytes} copied"
    );
}

/// The files that are served.
const FILES: [(&str, usize); 5] =
    [("empty", 0), ("one", 1), ("page", 4096), ("picture", 777_777), ("film", 20_000_001)];
/// The files that are posted: the first ones fit the server's buffers for unsolicited transfers.
const POSTED: [(&str, usize); 4] =
    [("note", 100), ("letter", 200_000), ("photograph", transfer::UNSOLICITED_BYTES), ("record", 3_000_000)];

/// Serves, gets and posts files, and compares them.
fn demonstrate(rdma_option: bool) -> Outcome {
    let directory = tempfile::Builder::new().prefix("warpline-http-").tempdir()?;
    for (name, bytes) in FILES {
        fs::write(directory.path().join(name), contents(bytes))?;
    }
    let (stop, totals) = (AtomicBool::new(false), server::Totals::default());
    let serve = |device: &Device| {
        let listener = server::listen(device, PORT, rdma_option)?;
        let directory = Directory::open(directory.path())?;
        let site = Site { directory: &directory, totals: &totals, patience: Patience::default() };
        server::serve(&listener, None, &site, &stop)
    };
    let ask = |device: &Device, server: SocketAddr| {
        let server = SocketAddr::new(server.ip(), PORT);
        let clients = thread::scope(|scope| {
            // Several connections at a time.
            let clients = [(); 3].map(|()| scope.spawn(|| one_client(device, server, rdma_option)));
            clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
        });
        stop.store(true, Ordering::Relaxed);
        clients?;
        for (name, bytes) in POSTED {
            if fs::read(directory.path().join(name))? != contents(bytes) {
                return Err(format!("{name} came changed").into());
            }
        }
        Ok(())
    };
    ends::both(serve, ask)?;
    let [sent, received, placed] = [&totals.sent_bytes, &totals.received_bytes, &totals.placed_bytes]
        .map(|total| total.load(Ordering::Relaxed));
    println!("the server: {sent} bytes sent, {received} received, {placed} of them placed");
    Ok(())
}

fn one_client(device: &Device, server: SocketAddr, rdma_option: bool) -> Outcome {
    let mut client = Client::new(device, server, rdma_option);
    let targets = FILES.map(|(name, _)| format!("/{name}"));
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let mut got: Vec<Vec<u8>> = vec![Vec::new(); targets.len()];
    client.get(&targets, |number, body| {
        match body {
            client::Body::Part(part) => got[number].extend_from_slice(part),
            client::Body::Buffer(memory) => {
                got[number].resize(memory.len(), 0);
                assert!(memory.read(0, &mut got[number]));
            }
        }
        Ok(())
    })?;
    for ((name, bytes), got) in FILES.iter().zip(&got) {
        if *got != contents(*bytes) {
            return Err(format!("{name} came changed").into());
        }
    }
    for (name, bytes) in POSTED {
        match client.post(&format!("/{name}"), &mut &contents(bytes)[..], bytes as u64)? {
            201 | 204 => {}
            status => return Err(format!("{name}: status {status}").into()),
        }
    }
    report(client);
    Ok(())
}

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
