//! A client of READ and WRITE with several calls outstanding, whose READs land in the caller's buffers.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use nfs3_types::nfs3::{self, READ3args, nfs_fh3, nfsstat3, post_op_attr, stable_how, wcc_data, writeverf3};
use nfs3_types::rpc::{self, accept_stat_data, msg_body, msg_type, opaque_auth, rejected_reply, reply_stat};
use nfs3_types::xdr_codec::{Opaque, Pack};
use warpline::{ByteStream, ReadItem, Region, TransferBuffer};

use crate::ends::{Outcome, PATIENCE};
use crate::record::{self, Encoder, Record};

/// How long the transfer of nothing that goes with a failed READ is waited for.
const EMPTY_TRANSFER: Duration = Duration::from_millis(10);

/// What a client has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub replies: u64,
    /// Replies that did not come in the order of their calls.
    pub out_of_order: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Of these, bytes that were placed in their buffer.
    pub placed_bytes: u64,
    /// Failed READs that came with a transfer of nothing.
    pub empty_transfers: u64,
}

/// A call without its reply.
enum Pending {
    Read { memory: Region, range: Range<usize> },
    Write,
    Null,
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// How many bytes of the buffer were read, and whether the file ends there.
    Read {
        xid: u32,
        count: u32,
        eof: bool,
    },
    Written {
        xid: u32,
        count: u32,
    },
    Null {
        xid: u32,
    },
    /// NFS failed.
    Failed {
        xid: u32,
        status: nfsstat3,
    },
    /// RPC failed.
    Refused {
        xid: u32,
    },
}

/// A client of one server.
pub struct Client {
    stream: ByteStream,
    xid: u32,
    pending: HashMap<u32, Pending>,
    pub totals: Totals,
}

impl Client {
    /// Returns a client whose first call has the XID `xid`.
    pub fn new(stream: ByteStream, xid: u32) -> Self {
        Self { stream, xid, pending: HashMap::new(), totals: Totals::default() }
    }

    /// Returns how many calls have no reply yet.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Returns how many bytes were copied out of the stream.
    pub fn copied_bytes(&self) -> u64 {
        self.stream.reader.bytes_copied()
    }

    /// Calls READ for the file `handle` from `offset` on, into `range` of `memory`. Returns the XID.
    pub fn read(&mut self, handle: &[u8], offset: u64, memory: &Region, range: Range<usize>) -> Outcome<u32> {
        let xid = self.next_xid();
        // The server answers with this XID: the buffer is there before.
        self.stream.reader.expect(record::rid(xid), memory, range.clone())?;
        let file = nfs_fh3 { data: Opaque::owned(handle.to_vec()) };
        let count = u32::try_from(range.len())?;
        let head = head(xid, nfs3::PROGRAM, nfs3::NFS_PROGRAM::NFSPROC3_READ as u32)?;
        head.item(&READ3args { file, offset, count })?.write(&mut self.stream.writer, None)?;
        self.pending.insert(xid, Pending::Read { memory: memory.clone(), range });
        Ok(xid)
    }

    /// Calls WRITE for the file `handle` from `offset` on. The data is an unsolicited transfer (§5.1.3).
    /// Returns the XID.
    pub fn write(&mut self, handle: &[u8], offset: u64, data: &[u8]) -> Outcome<u32> {
        let xid = self.next_xid();
        let bytes = u32::try_from(data.len())?;
        let transfer = (bytes > 0).then(|| (record::rid(xid), true, data));
        head(xid, nfs3::PROGRAM, nfs3::NFS_PROGRAM::NFSPROC3_WRITE as u32)?
            .item(&nfs_fh3 { data: Opaque::owned(handle.to_vec()) })?
            .item(&offset)?
            .item(&bytes)?
            .item(&stable_how::FILE_SYNC)?
            .item(&bytes)?
            .write(&mut self.stream.writer, transfer)?;
        self.pending.insert(xid, Pending::Write);
        Ok(xid)
    }

    /// Calls procedure `procedure` of `program` with `arguments`. Returns the XID.
    pub fn call(&mut self, program: u32, procedure: u32, arguments: &impl Pack) -> Outcome<u32> {
        let xid = self.next_xid();
        head(xid, program, procedure)?.item(arguments)?.write(&mut self.stream.writer, None)?;
        self.pending.insert(xid, Pending::Null);
        Ok(xid)
    }

    fn next_xid(&mut self) -> u32 {
        let xid = self.xid;
        self.xid = xid.wrapping_add(1);
        xid
    }

    /// Waits for the next reply, to whichever call.
    pub fn reply(&mut self) -> Outcome<Reply> {
        let mut record = Record::next(&mut self.stream.reader, PATIENCE)?.ok_or("the server has finished")?;
        let xid = record.item()?;
        let pending = self.pending.remove(&xid).ok_or("a reply to no call")?;
        self.totals.replies += 1;
        let overtook = self.pending.keys().any(|other| xid.wrapping_sub(*other).cast_signed() > 0);
        self.totals.out_of_order += u64::from(overtook);
        if record.item::<msg_type>()? != msg_type::REPLY {
            return Err("a call to a client".into());
        }
        let reply = accepted(&mut record)?;
        let reply = match (pending, reply) {
            (Pending::Read { memory, range }, Some(accept_stat_data::SUCCESS)) => {
                match record.item::<nfsstat3>()? {
                    nfsstat3::NFS3_OK => read_data(&mut record, xid, (&memory, range), &mut self.totals)?,
                    status => {
                        record.item::<post_op_attr>()?;
                        self.totals.empty_transfers += u64::from(end_transfer(&mut record, xid)?);
                        Reply::Failed { xid, status }
                    }
                }
            }
            (Pending::Write, Some(accept_stat_data::SUCCESS)) => {
                let status = record.item::<nfsstat3>()?;
                record.item::<wcc_data>()?;
                if status == nfsstat3::NFS3_OK {
                    let count = record.item()?;
                    record.item::<stable_how>()?;
                    record.item::<writeverf3>()?;
                    Reply::Written { xid, count }
                } else {
                    Reply::Failed { xid, status }
                }
            }
            (Pending::Null, Some(accept_stat_data::SUCCESS)) => Reply::Null { xid },
            (Pending::Read { .. }, _) => {
                end_transfer(&mut record, xid)?;
                Reply::Refused { xid }
            }
            _ => Reply::Refused { xid },
        };
        if record.skip()? > 0 { Err("a reply that is too long".into()) } else { Ok(reply) }
    }

    /// Closes the connection.
    pub fn close(mut self) -> Outcome {
        self.stream.writer.finish();
        Ok(self.stream.wait_closed(PATIENCE)?)
    }
}

fn head(xid: u32, program: u32, procedure: u32) -> Outcome<Encoder> {
    let call = rpc::call_body {
        rpcvers: rpc::RPC_VERSION_2,
        prog: program,
        vers: nfs3::VERSION,
        proc: procedure,
        cred: opaque_auth::default(),
        verf: opaque_auth::default(),
    };
    Ok(Encoder::new().item(&rpc::rpc_msg { xid, body: msg_body::CALL(call) })?)
}

/// Reads what a server says of a call; `None` if it was denied.
fn accepted(record: &mut Record<'_>) -> Outcome<Option<accept_stat_data>> {
    match record.item::<reply_stat>()? {
        reply_stat::MSG_ACCEPTED => {
            record.authentication()?;
            Ok(Some(record.item()?))
        }
        reply_stat::MSG_DENIED => {
            record.item::<rejected_reply>()?;
            Ok(None)
        }
    }
}

/// Reads the data of a READ, which is in its place as far as it was placed.
fn read_data(
    record: &mut Record<'_>,
    xid: u32,
    (memory, range): (&Region, Range<usize>),
    totals: &mut Totals,
) -> Outcome<Reply> {
    record.item::<post_op_attr>()?;
    let (count, eof) = (record.item::<u32>()?, record.item()?);
    let bytes = record.opaque_len(range.len() as u32)? as usize;
    if bytes != count as usize || record.contiguous()? < bytes {
        return Err("data of another length, or in several fragments".into());
    }
    let range = range.start..range.start + bytes;
    let placed = record.stream.read_section(record::rid(xid), memory, range, PATIENCE)?;
    record.took(bytes);
    totals.read_bytes += u64::from(count);
    totals.placed_bytes += placed as u64;
    if placed < bytes || bytes == 0 {
        end_transfer(record, xid)?;
    }
    record.padding(bytes)?;
    Ok(Reply::Read { xid, count, eof })
}

/// Ends the transfer of a call that has none or another one: nothing more is placed in its buffer. Returns
/// whether the server has sent a transfer of nothing.
fn end_transfer(record: &mut Record<'_>, xid: u32) -> Outcome<bool> {
    let rid = record::rid(xid);
    let item = record.stream.read_item(&mut [], EMPTY_TRANSFER);
    let empty = matches!(item, Ok(ReadItem::Complete { rid: of, total_octets: 0, .. }) if of == rid);
    if record.stream.buffer(rid, TransferBuffer::Expected).is_some() {
        record.stream.cancel(rid, PATIENCE)?;
    }
    Ok(empty)
}
