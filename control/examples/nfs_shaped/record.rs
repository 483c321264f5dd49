//! Records of ONC RPC in a TCP stream (RFC 5531 §11), and what XDR encodes in them, by the crate
//! `nfs3_types`.

use std::io::{self, Read};
use std::time::Duration;

use nfs3_types::rpc::fragment_header;
use nfs3_types::xdr_codec::{Error, Pack, Unpack};
use warpline::tcp_rdma::{NfsRid, Rid};
use warpline::{ByteStreamReader, ByteStreamWriter, Section};

use crate::ends::{Outcome, PATIENCE};

/// The longest record.
const RECORD_BYTES_MAX: u32 = 1 << 20;
/// The longest body of credentials (RFC 5531 §8.2).
const AUTH_BYTES_MAX: u32 = 400;
/// Zero bytes that fill an opaque to a multiple of four.
const PADDING: [u8; 3] = [0; 3];

/// A record that is being read, in one fragment or more. Reads end at its end.
pub struct Record<'r> {
    pub stream: &'r mut ByteStreamReader,
    /// Bytes left of the fragment.
    left: u32,
    last: bool,
    /// Bytes that more fragments may have.
    allowed: u32,
}

impl<'r> Record<'r> {
    /// Waits for the next record for `timeout`; `None` if the peer has finished.
    pub fn next(stream: &'r mut ByteStreamReader, timeout: Duration) -> Outcome<Option<Self>> {
        let mut mark = [0; 4];
        if stream.read(&mut mark[..1], timeout)? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut mark[1..], PATIENCE)?;
        let mut record = Self { stream, left: 0, last: false, allowed: RECORD_BYTES_MAX };
        record.begin_fragment(mark)?;
        Ok(Some(record))
    }

    fn begin_fragment(&mut self, mark: [u8; 4]) -> io::Result<()> {
        let mark = fragment_header::from(mark);
        let bytes = mark.fragment_length();
        // An empty fragment that is not the last one would be a way to keep us busy.
        if bytes > self.allowed || (bytes == 0 && !mark.eof()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record that is too long"));
        }
        (self.left, self.last) = (bytes, mark.eof());
        self.allowed -= bytes;
        Ok(())
    }

    /// Returns how many bytes follow in this fragment; begins the next one if there are none. 0 at the end of
    /// the record.
    pub fn contiguous(&mut self) -> io::Result<usize> {
        while self.left == 0 && !self.last {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark, PATIENCE).map_err(io::Error::other)?;
            self.begin_fragment(mark)?;
        }
        Ok(self.left as usize)
    }

    /// Notes that `bytes` bytes of the fragment were read from [`stream`](Self::stream).
    pub fn took(&mut self, bytes: usize) {
        self.left -= bytes as u32;
    }

    /// Reads an opaque of at most `most` bytes. The crate's own would allocate as many as the peer says.
    pub fn opaque(&mut self, most: u32) -> Result<Vec<u8>, Error> {
        let bytes = self.opaque_len(most)? as usize;
        let mut opaque = vec![0; bytes.next_multiple_of(4)];
        self.read_exact(&mut opaque)?;
        opaque.truncate(bytes);
        Ok(opaque)
    }

    /// Reads the length of an opaque, at most `most`.
    pub fn opaque_len(&mut self, most: u32) -> Result<u32, Error> {
        match self.item()? {
            bytes if bytes <= most => Ok(bytes),
            bytes => Err(Error::InvalidLength(bytes as usize)),
        }
    }

    /// Reads one item of XDR that has no opaque in it.
    pub fn item<T: Unpack>(&mut self) -> Result<T, Error> {
        Ok(T::unpack(self)?.0)
    }

    /// Reads credentials or a verifier; nobody looks at them.
    pub fn authentication(&mut self) -> Result<(), Error> {
        self.item::<u32>()?;
        self.opaque(AUTH_BYTES_MAX).map(drop)
    }

    /// Reads what fills an opaque of `bytes` bytes.
    pub fn padding(&mut self, bytes: usize) -> io::Result<()> {
        self.read_exact(&mut [0; 3][..padding(bytes).len()])
    }

    /// Reads the rest and drops it. Returns how many bytes it had.
    pub fn skip(&mut self) -> Outcome<u64> {
        Ok(io::copy(self, &mut io::sink())?)
    }
}

impl Read for Record<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min(self.contiguous()?);
        let read = self.stream.read(&mut out[..most], PATIENCE).map_err(io::Error::other)?;
        self.took(read);
        Ok(read)
    }
}

/// Returns what fills an opaque of `bytes` bytes.
pub fn padding(bytes: usize) -> &'static [u8] {
    &PADDING[..bytes.next_multiple_of(4) - bytes]
}

/// Encodes items, one after the other, and a mark before them for `more` bytes after them.
pub struct Encoder(Vec<u8>);

impl Encoder {
    pub fn new() -> Self {
        Self(vec![0; 4])
    }

    pub fn item(mut self, item: &impl Pack) -> Result<Self, Error> {
        item.pack(&mut self.0)?;
        Ok(self)
    }

    /// Writes what was encoded as the beginning of a record that `data` ends: an opaque whose length is
    /// written before it, sent as a section of the transfer `rid`.
    pub fn write(mut self, writer: &mut ByteStreamWriter, data: Option<(Rid, bool, &[u8])>) -> Outcome {
        let mut bytes = self.0.len() - 4;
        if let Some((_, _, data)) = data.filter(|(_, _, data)| !data.is_empty()) {
            bytes += data.len().next_multiple_of(4);
        }
        let mark = fragment_header::new(u32::try_from(bytes)?, true);
        self.0[..4].copy_from_slice(&mark.into_xdr_buf());
        writer.cork();
        // The message begins with its mark (draft-csapuntz-tcprdma-00 §5.1.4).
        writer.write_message(&self.0, PATIENCE)?;
        if let Some((rid, unsolicited, data)) = data {
            let section = Section { rid, unsolicited, total_octets: Some(u32::try_from(data.len())?) };
            writer.write_section(section, 0, data, PATIENCE)?;
            writer.write_all(padding(data.len()), PATIENCE)?;
        }
        writer.uncork();
        Ok(())
    }
}

/// The name of the transfer of a READ or WRITE of NFS version 3 (§5.1.1).
pub fn rid(xid: u32) -> Rid {
    NfsRid::of_one_operation(xid).into()
}
