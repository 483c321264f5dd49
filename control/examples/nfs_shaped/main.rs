//! READ and WRITE in the shape of NFS version 3: calls of ONC RPC over a byte stream, with the TCP RDMA
//! option where the other end has it (draft-csapuntz-tcprdma-00 §5.1). READs land in the client's buffers,
//! by the XID; the data of WRITEs comes unsolicited. Without arguments both ends run in this process.

mod client;
#[path = "../ends/mod.rs"]
mod ends;
mod record;
mod server;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Reply};
use ends::{Outcome, PATIENCE, PORT};
use nfs3_types::nfs3::{self, nfsstat3};
use nfs3_types::xdr_codec::Opaque;
use server::{DATA_BYTES_MAX, Files};
use warpline::tcp_rdma::RidFormat;
use warpline::{Behaviour, ByteStream, ByteStreamConfig, Device, Region, StreamConfig, TcpListenConfig};

/// Bytes of each file; the last block is not a whole one.
const FILE_BYTES: usize = 3_333_333;
const FILES: usize = 2;
/// Bytes of a READ or WRITE.
const BLOCK_BYTES: usize = 64 << 10;
/// Calls without a reply, at most.
const OUTSTANDING: usize = 8;
/// XIDs that pass through zero.
const FIRST_XID: u32 = u32::MAX - 20;

fn behaviour(device: &Device) -> Behaviour {
    Behaviour { rdma_option: true, ..device.config().tcp }
}

fn server(device: &Device) -> Outcome {
    let config = TcpListenConfig { tcp: Some(behaviour(device)), ..TcpListenConfig::default() };
    let listener = device.listen_streams(PORT, &config)?;
    let stream = listener.accept(PATIENCE)?.into_byte_stream(&server::stream_config())?;
    let files = Files((0..FILES).map(|_| Mutex::new(vec![0; FILE_BYTES])).collect());
    let server::Totals { calls, written_bytes, placed_bytes } = server::serve(stream, &files)?;
    println!("the server: {calls} calls, {written_bytes} bytes written, {placed_bytes} of them placed");
    Ok(())
}

fn client(device: &Device, server: SocketAddr) -> Outcome {
    let mut client = Client::new(connect(device, server)?, FIRST_XID);
    // The server answers, so it has made the connection a byte stream: from here on it places.
    let xid = client.call(nfs3::PROGRAM, nfs3::NFS_PROGRAM::NFSPROC3_NULL as u32, &[0; 0])?;
    expect(&client.reply()?, &Reply::Null { xid })?;
    write_files(&mut client)?;
    read_files(&mut client, device)?;
    fail(&mut client)?;
    let (totals, copied) = (client.totals, client.copied_bytes());
    client.close()?;
    println!(
        "{} replies, {} bytes read, {} placed, {} transfers of nothing",
        totals.replies, totals.read_bytes, totals.placed_bytes, totals.empty_transfers
    );
    println!("{} replies out of order, {copied} bytes copied", totals.out_of_order);
    Ok(())
}

/// Connects to the server, which may still be setting up.
fn connect(device: &Device, server: SocketAddr) -> Outcome<ByteStream> {
    let config = StreamConfig { tcp: Some(behaviour(device)), ..StreamConfig::default() };
    let names = ByteStreamConfig { rid_format: RidFormat::Nfs, ..ByteStreamConfig::default() };
    let begin = Instant::now();
    loop {
        match device.connect_stream(server, &config) {
            Ok(stream) => return Ok(stream.into_byte_stream(&names)?),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The blocks of all files: the number of the file, and where each begins and ends.
fn blocks() -> impl Iterator<Item = (u32, usize, usize)> {
    (0..FILES as u32).flat_map(|file| {
        (0..FILE_BYTES)
            .step_by(BLOCK_BYTES)
            .map(move |begin| (file, begin, FILE_BYTES.min(begin + BLOCK_BYTES)))
    })
}

fn contents(file: u32) -> Vec<u8> {
    (0..FILE_BYTES as u32).map(|at| ((at + file).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn write_files(client: &mut Client) -> Outcome {
    let files: Vec<_> = (0..FILES as u32).map(contents).collect();
    for (file, begin, end) in blocks() {
        client.write(&file.to_be_bytes(), begin as u64, &files[file as usize][begin..end])?;
        if client.outstanding() == OUTSTANDING {
            written(&client.reply()?)?;
        }
    }
    while client.outstanding() > 0 {
        written(&client.reply()?)?;
    }
    Ok(())
}

fn written(reply: &Reply) -> Outcome {
    match reply {
        Reply::Written { .. } => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn read_files(client: &mut Client, device: &Device) -> Outcome {
    let memory = device.config().memory.allocate(FILES * FILE_BYTES).ok_or("no memory")?;
    for (file, begin, end) in blocks() {
        let at = file as usize * FILE_BYTES;
        client.read(&file.to_be_bytes(), begin as u64, &memory, at + begin..at + end)?;
        if client.outstanding() == OUTSTANDING {
            client.reply()?;
        }
    }
    while client.outstanding() > 0 {
        client.reply()?;
    }
    for file in 0..FILES as u32 {
        let mut got = vec![0; FILE_BYTES];
        if !memory.read(file as usize * FILE_BYTES, &mut got) || got != contents(file) {
            return Err(format!("file {file} is not what was written").into());
        }
    }
    Ok(())
}

/// Calls that fail, and READs at the end of a file.
fn fail(client: &mut Client) -> Outcome {
    let memory = Region::heap(BLOCK_BYTES).ok_or("no memory")?;
    let (file, end) = (0_u32.to_be_bytes(), FILE_BYTES as u64);
    for (handle, status) in
        [(&[9; 4][..], nfsstat3::NFS3ERR_STALE), (b"nothing", nfsstat3::NFS3ERR_BADHANDLE)]
    {
        let xid = client.read(handle, 0, &memory, 0..BLOCK_BYTES)?;
        expect(&client.reply()?, &Reply::Failed { xid, status })?;
        let xid = client.write(handle, 0, b"data")?;
        expect(&client.reply()?, &Reply::Failed { xid, status })?;
    }
    let xid = client.write(&file, end - 1, b"data")?;
    expect(&client.reply()?, &Reply::Failed { xid, status: nfsstat3::NFS3ERR_FBIG })?;
    // Fewer bytes than the buffer has, and none.
    for (offset, count) in [(end - 5, 5), (end, 0), (u64::MAX, 0)] {
        let xid = client.read(&file, offset, &memory, 0..BLOCK_BYTES)?;
        expect(&client.reply()?, &Reply::Read { xid, count, eof: true })?;
    }
    let [null, read, write, lookup] = [
        nfs3::NFS_PROGRAM::NFSPROC3_NULL,
        nfs3::NFS_PROGRAM::NFSPROC3_READ,
        nfs3::NFS_PROGRAM::NFSPROC3_WRITE,
        nfs3::NFS_PROGRAM::NFSPROC3_LOOKUP,
    ]
    .map(|procedure| procedure as u32);
    for (program, procedure) in [(nfs3::PROGRAM + 1, null), (nfs3::PROGRAM, lookup)] {
        let xid = client.call(program, procedure, &[0; 0])?;
        expect(&client.reply()?, &Reply::Refused { xid })?;
    }
    // Arguments that end early, are too long, or say so.
    let too_long = Opaque::owned(vec![0; DATA_BYTES_MAX as usize]);
    let xid = client.call(nfs3::PROGRAM, read, &too_long)?;
    expect(&client.reply()?, &Reply::Refused { xid })?;
    for (procedure, arguments) in [(read, 1), (write, 1), (write, u32::MAX)] {
        let xid = client.call(nfs3::PROGRAM, procedure, &arguments)?;
        expect(&client.reply()?, &Reply::Refused { xid })?;
    }
    Ok(())
}

fn expect(reply: &Reply, expected: &Reply) -> Outcome {
    if reply == expected { Ok(()) } else { Err(format!("{reply:?} instead of {expected:?}").into()) }
}

fn main() -> Outcome {
    ends::run(server, client)
}
