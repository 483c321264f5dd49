//! A server of READ and WRITE for files in memory.
//!
//! It reads calls in their order, takes the data of WRITEs as it reads, and answers those calls that have
//! come in the reverse order, as a server whose disk decides may.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nfs3_types::nfs3::{self, READ3args, nfs_fh3, nfsstat3, post_op_attr, stable_how, wcc_data, writeverf3};
use nfs3_types::rpc::{self, accept_stat_data, accepted_reply, msg_body, msg_type, opaque_auth, reply_body};
use nfs3_types::xdr_codec::{Error, Opaque};
use warpline::tcp_rdma::RidFormat;
use warpline::{
    ByteStream, ByteStreamConfig, ByteStreamError, ByteStreamReader, ByteStreamWriter, ReadItem,
    TransferBuffer, UnsolicitedConfig,
};

use crate::ends::{Outcome, PATIENCE};
use crate::record::{self, Encoder, Record};

/// Bytes of a READ or a WRITE, at most: rtmax and wtmax.
pub const DATA_BYTES_MAX: u32 = 128 << 10;
/// WRITEs that have a buffer at a time. The data of more is read from the stream.
const UNSOLICITED_BUFFERS: usize = 16;
/// RFC 1813 §2.4.
const HANDLE_BYTES_MAX: u32 = 64;
/// How long the end of a transfer is waited for whose length the peer has not said.
const END_OF_TRANSFER: Duration = Duration::from_millis(10);
/// Calls that were read and not answered, at most.
const CALLS: usize = 64;
/// Calls that are gathered, to be answered in reverse order, and for how long.
const GATHERED: (usize, Duration) = (8, Duration::from_millis(2));

/// The files: the handle of each is its number.
pub struct Files(pub Vec<Mutex<Vec<u8>>>);

/// What a server has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub calls: u64,
    /// Bytes that were written to files.
    pub written_bytes: u64,
    /// Of these, bytes that were placed in a buffer.
    pub placed_bytes: u64,
}

/// What a call is answered with.
enum Answer {
    Read(nfsstat3, bool, Vec<u8>),
    Written(nfsstat3, u32),
    /// Only what the call became: success of NULL, or an error of RPC.
    Accepted(accept_stat_data),
    WrongRpcVersion,
}

/// Returns how the byte stream of a server is set up.
pub fn stream_config() -> ByteStreamConfig {
    let unsolicited = UnsolicitedConfig { count: UNSOLICITED_BUFFERS, bytes: DATA_BYTES_MAX as usize };
    let rid_format = RidFormat::Nfs;
    ByteStreamConfig { unsolicited: Some(unsolicited), rid_format, ..ByteStreamConfig::default() }
}

/// Serves one client until it finishes.
pub fn serve(stream: ByteStream, files: &Files) -> Outcome<Totals> {
    let ByteStream { mut reader, mut writer } = stream;
    let (answers, gathered) = sync_channel(CALLS);
    thread::scope(|scope| {
        // Calls that cannot be answered any more are not read either.
        let answering = scope.spawn(move || answer_all(&gathered, &mut writer));
        let totals = read_calls(&mut reader, files, &answers);
        drop(answers);
        answering.join().map_err(|_| "the thread that answers panicked")??;
        totals
    })
}

fn answer_all(answers: &Receiver<(u32, Answer)>, writer: &mut ByteStreamWriter) -> Outcome {
    let (most, time) = GATHERED;
    while let Ok(first) = answers.recv() {
        let mut gathered = vec![first];
        while gathered.len() < most
            && let Ok(next) = answers.recv_timeout(time)
        {
            gathered.push(next);
        }
        while let Some((xid, answer)) = gathered.pop() {
            reply(writer, xid, answer)?;
        }
    }
    writer.finish();
    Ok(())
}

fn reply(writer: &mut ByteStreamWriter, xid: u32, answer: Answer) -> Outcome {
    let head = |reply_data| {
        let accepted = accepted_reply { verf: opaque_auth::default(), reply_data };
        let body = msg_body::REPLY(reply_body::MSG_ACCEPTED(accepted));
        Encoder::new().item(&rpc::rpc_msg { xid, body })
    };
    match answer {
        Answer::Read(nfsstat3::NFS3_OK, eof, data) => head(accept_stat_data::SUCCESS)?
            .item(&nfsstat3::NFS3_OK)?
            .item(&post_op_attr::None)?
            .item(&(data.len() as u32))?
            .item(&eof)?
            .item(&(data.len() as u32))?
            .write(writer, Some((record::rid(xid), false, &data))),
        // §5.1.2: a READ that failed has a transfer of nothing.
        Answer::Read(status, ..) => head(accept_stat_data::SUCCESS)?
            .item(&status)?
            .item(&post_op_attr::None)?
            .write(writer, Some((record::rid(xid), false, &[]))),
        Answer::Written(nfsstat3::NFS3_OK, count) => head(accept_stat_data::SUCCESS)?
            .item(&nfsstat3::NFS3_OK)?
            .item(&wcc_data::default())?
            .item(&count)?
            .item(&stable_how::FILE_SYNC)?
            .item(&writeverf3::default())?
            .write(writer, None),
        Answer::Written(status, _) => {
            head(accept_stat_data::SUCCESS)?.item(&status)?.item(&wcc_data::default())?.write(writer, None)
        }
        Answer::Accepted(reply_data) => head(reply_data)?.write(writer, None),
        Answer::WrongRpcVersion => {
            let two = rpc::RPC_VERSION_2;
            let denied = reply_body::MSG_DENIED(rpc::rejected_reply::rpc_mismatch(two, two));
            let message = rpc::rpc_msg { xid, body: msg_body::REPLY(denied) };
            Encoder::new().item(&message)?.write(writer, None)
        }
    }
}

fn read_calls(
    reader: &mut ByteStreamReader,
    files: &Files,
    answers: &SyncSender<(u32, Answer)>,
) -> Outcome<Totals> {
    let mut totals = Totals::default();
    while let Some(mut record) = Record::next(reader, PATIENCE)? {
        totals.calls += 1;
        let (xid, kind) = (record.item::<u32>()?, record.item::<msg_type>()?);
        if kind != msg_type::CALL {
            return Err("a reply to a server".into());
        }
        let answer = match call(&mut record, files, &mut totals) {
            Ok(answer) => answer,
            Err(Error::Io(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(error.into());
            }
            Err(_) => Answer::Accepted(accept_stat_data::GARBAGE_ARGS),
        };
        let answer = match record.skip()? {
            0 => answer,
            // What it did not understand it does not answer as if it had.
            _ if matches!(answer, Answer::Read(..)) => Answer::Accepted(accept_stat_data::GARBAGE_ARGS),
            _ => answer,
        };
        answers.send((xid, answer))?;
    }
    Ok(totals)
}

/// Reads a call after its XID and type, and does what it asks.
fn call(record: &mut Record<'_>, files: &Files, totals: &mut Totals) -> Result<Answer, Error> {
    if record.item::<u32>()? != rpc::RPC_VERSION_2 {
        return Ok(Answer::WrongRpcVersion);
    }
    let [program, version, procedure] = [record.item::<u32>()?, record.item()?, record.item()?];
    for _credentials_and_verifier in 0..2 {
        record.authentication()?;
    }
    if program != nfs3::PROGRAM {
        return Ok(Answer::Accepted(accept_stat_data::PROG_UNAVAIL));
    }
    if version != nfs3::VERSION {
        let (low, high) = (nfs3::VERSION, nfs3::VERSION);
        return Ok(Answer::Accepted(accept_stat_data::PROG_MISMATCH { low, high }));
    }
    match nfs3::NFS_PROGRAM::try_from(procedure) {
        Ok(nfs3::NFS_PROGRAM::NFSPROC3_NULL) => Ok(Answer::Accepted(accept_stat_data::SUCCESS)),
        Ok(nfs3::NFS_PROGRAM::NFSPROC3_READ) => {
            let data = Opaque::owned(record.opaque(HANDLE_BYTES_MAX)?);
            let (offset, count) = (record.item()?, record.item()?);
            Ok(read(files, &READ3args { file: nfs_fh3 { data }, offset, count }))
        }
        Ok(nfs3::NFS_PROGRAM::NFSPROC3_WRITE) => write(record, files, totals),
        _ => Ok(Answer::Accepted(accept_stat_data::PROC_UNAVAIL)),
    }
}

fn file<'f>(files: &'f Files, handle: &[u8]) -> Result<&'f Mutex<Vec<u8>>, nfsstat3> {
    let number = handle.try_into().map(u32::from_be_bytes).map_err(|_| nfsstat3::NFS3ERR_BADHANDLE)?;
    files.0.get(number as usize).ok_or(nfsstat3::NFS3ERR_STALE)
}

fn read(files: &Files, arguments: &READ3args) -> Answer {
    let file = match file(files, &arguments.file.data) {
        Ok(file) => file,
        Err(status) => return Answer::Read(status, false, Vec::new()),
    };
    let Ok(file) = file.lock() else { return Answer::Read(nfsstat3::NFS3ERR_IO, false, Vec::new()) };
    let begin = usize::try_from(arguments.offset).unwrap_or(usize::MAX).min(file.len());
    let end = begin.saturating_add(arguments.count.min(DATA_BYTES_MAX) as usize).min(file.len());
    // A copy: the file may be written before the peer has acknowledged this.
    Answer::Read(nfsstat3::NFS3_OK, end == file.len(), file[begin..end].to_vec())
}

fn write(record: &mut Record<'_>, files: &Files, totals: &mut Totals) -> Result<Answer, Error> {
    let handle = record.opaque(HANDLE_BYTES_MAX)?;
    let (offset, count) = (record.item::<u64>()?, record.item::<u32>()?);
    record.item::<stable_how>()?;
    let bytes = record.opaque_len(DATA_BYTES_MAX)?;
    if bytes != count {
        return Err(Error::InvalidLength(bytes as usize));
    }
    let mut data = Vec::with_capacity(bytes as usize);
    let placed = read_data(record, bytes as usize, &mut data)?;
    record.padding(bytes as usize)?;
    let file = match file(files, &handle) {
        Ok(file) => file,
        Err(status) => return Ok(Answer::Written(status, 0)),
    };
    let Ok(mut file) = file.lock() else { return Ok(Answer::Written(nfsstat3::NFS3ERR_IO, 0)) };
    // The files do not grow.
    let begin = usize::try_from(offset).unwrap_or(usize::MAX);
    match file.get_mut(begin..begin.saturating_add(data.len())) {
        Some(place) => place.copy_from_slice(&data),
        None => return Ok(Answer::Written(nfsstat3::NFS3ERR_FBIG, 0)),
    }
    totals.written_bytes += u64::from(bytes);
    totals.placed_bytes += placed;
    Ok(Answer::Written(nfsstat3::NFS3_OK, bytes))
}

/// Reads the data of a WRITE, wherever it is, and gives the buffers back that it was in. Returns how many
/// bytes were in one.
fn read_data(record: &mut Record<'_>, bytes: usize, data: &mut Vec<u8>) -> std::io::Result<u64> {
    let mut scratch = [0; 16 << 10];
    let (mut placed, mut held) = (0, Vec::new());
    while data.len() < bytes {
        let contiguous = record.contiguous()?;
        let most = contiguous.min(bytes - data.len());
        if most == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let room = most.min(scratch.len());
        let item = record.stream.read_item(&mut scratch[..room], PATIENCE).map_err(std::io::Error::other)?;
        let read = match item {
            ReadItem::Octets(octets) => {
                data.write_all(&scratch[..octets])?;
                octets
            }
            ReadItem::Placed { rid, buffer, offset, octets } => {
                let octets = octets as usize;
                let found = record.stream.buffer(rid, buffer).filter(|_| octets <= most);
                let (memory, start) =
                    found.ok_or_else(|| std::io::Error::other("not the data of a WRITE"))?;
                let at = data.len();
                data.resize(at + octets, 0);
                if !memory.read(start + offset as usize, &mut data[at..]) {
                    return Err(std::io::Error::other("a transfer outside its buffer"));
                }
                placed += octets as u64;
                if let TransferBuffer::Unsolicited(buffer) = buffer
                    && !held.contains(&buffer)
                {
                    held.push(buffer);
                }
                octets
            }
            ReadItem::Complete { buffer: TransferBuffer::Unsolicited(buffer), total_octets: 0, .. } => {
                held.push(buffer);
                0
            }
            ReadItem::Finished => return Err(std::io::Error::other("the peer has finished")),
            _ => 0,
        };
        record.took(read);
    }
    give_back(record.stream, held)?;
    Ok(placed)
}

/// Gives buffers back: when their transfers are complete, or after a moment if the peer has not said how long
/// they are.
fn give_back(stream: &mut ByteStreamReader, mut held: Vec<u16>) -> std::io::Result<()> {
    while !held.is_empty() {
        let given = match stream.read_item(&mut [], END_OF_TRANSFER) {
            Ok(ReadItem::Complete { buffer: TransferBuffer::Unsolicited(buffer), .. }) => {
                held.retain(|of| *of != buffer);
                vec![buffer]
            }
            // The buffer may have the beginning of what follows the data.
            Ok(ReadItem::Placed { .. }) => return Err(std::io::Error::other("not the data of a WRITE")),
            Ok(ReadItem::Complete { .. }) => Vec::new(),
            Ok(_) | Err(ByteStreamError::TimedOut) => std::mem::take(&mut held),
            Err(error) => return Err(std::io::Error::other(error)),
        };
        for buffer in given {
            stream.release(buffer, PATIENCE).map_err(std::io::Error::other)?;
        }
    }
    Ok(())
}
