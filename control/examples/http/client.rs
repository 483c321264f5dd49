//! A client that pipelines its requests. It asks by HEAD how long the files are, has buffers of its device's
//! memory expect them, and finds their bytes there.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use warpline::tcp_rdma::{HttpRid, Rid, RidFormat};
use warpline::{Behaviour, ByteStream, ByteStreamConfig, Device, Region, StreamConfig};

use crate::ends::{Outcome, PATIENCE};
use crate::message::{self, Framing, Response};
use crate::transfer::{self, BodyReader, Collector, FileSender, UNSOLICITED_BYTES};

/// Requests that wait for their responses, at most.
const PIPELINED: usize = 8;
/// The longest body that a buffer is made for. Longer ones are read in parts.
const BUFFER_BYTES_MAX: u64 = 64 << 20;

/// What a client has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub responses: u64,
    pub connections: u64,
    /// Bytes of bodies received.
    pub body_bytes: u64,
    /// Of these, bytes that were placed in their buffer.
    pub placed_bytes: u64,
    /// Bytes copied out of streams, those of heads too.
    pub copied_bytes: u64,
}

/// A client of one server.
pub struct Client<'d> {
    device: &'d Device,
    server: SocketAddr,
    rdma_option: bool,
    /// The server has kept a connection open after a response: requests can follow each other. One that
    /// closes resets what it has not read.
    persistent: bool,
    connection: Option<Connection>,
    head: Collector,
    body: BodyReader,
    totals: Totals,
}

struct Connection {
    stream: ByteStream,
    /// The index of the next request, by which both ends name its transfers.
    next_index: u32,
}

/// A body: in its buffer, or in parts; an empty one is a part without bytes.
pub enum Body<'b> {
    Buffer(&'b Region),
    Part(&'b [u8]),
}

/// A request that was sent and not answered.
struct Pending {
    rid: Rid,
    buffer: Option<Region>,
}

impl<'d> Client<'d> {
    pub fn new(device: &'d Device, server: SocketAddr, rdma_option: bool) -> Self {
        Self {
            device,
            server,
            rdma_option,
            persistent: false,
            connection: None,
            head: Collector::default(),
            body: BodyReader::new(),
            totals: Totals::default(),
        }
    }

    /// Returns what was received so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals;
        totals.copied_bytes +=
            self.connection.as_ref().map_or(0, |connection| connection.stream.reader.bytes_copied());
        totals
    }

    /// Returns true if the connection that is open has the TCP RDMA option.
    pub fn has_rdma_option(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.stream.has_rdma_option())
    }

    /// Gets the files of `targets` in their order. `sink` is called with the number of each, and its body.
    pub fn get(&mut self, targets: &[&str], mut sink: impl FnMut(usize, Body<'_>) -> Outcome) -> Outcome {
        let heads: Vec<_> = targets.iter().map(|target| ("HEAD", *target, None)).collect();
        let mut lengths = Vec::new();
        let note = |_, response: &Response| {
            lengths.push(match response.body {
                Framing::Length(bytes) => Some(bytes),
                _ => None,
            });
            Ok(())
        };
        self.exchange(&heads, note, |_, _| Ok(()))?;
        let requests: Vec<_> =
            targets.iter().zip(&lengths).map(|(target, bytes)| ("GET", *target, *bytes)).collect();
        self.exchange(
            &requests,
            |number, response| match response.status {
                200 => Ok(()),
                status => Err(format!("{}: status {status}", targets[number]).into()),
            },
            &mut sink,
        )
    }

    /// Posts `bytes` bytes of `file` to `target`: as an unsolicited transfer if the server's buffers for such
    /// have room for it. Returns the status.
    pub fn post(&mut self, target: &str, file: &mut impl Read, bytes: u64) -> Outcome<u16> {
        let mut sender = FileSender::default();
        let (device, server, option) = (self.device, self.server, self.rdma_option);
        let Connection { stream, next_index } = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(device, server, option, &mut self.totals)?),
        };
        let index = *next_index;
        *next_index += 1;
        let fits = bytes <= UNSOLICITED_BYTES as u64;
        let unsolicited = if fits { transfer::section(index, bytes, true) } else { None };
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: {}\r\nContent-Length: {bytes}\r\n\r\n", self.server);
        stream.writer.cork();
        stream.writer.write_message(head.as_bytes(), PATIENCE)?;
        let mut sent = 0;
        while sent < bytes {
            let section = unsolicited.map(|section| (section, sent as u32));
            let source = |part: &mut [u8]| file.read_exact(part);
            sent += sender.send(&mut stream.writer, source, bytes - sent, section, PATIENCE)?;
            // The first piece goes with the head.
            stream.writer.uncork();
        }
        stream.writer.uncork();
        let pending = Pending { rid: HttpRid { request_index: index }.into(), buffer: None };
        let mut status = 0;
        let note = |response: &Response| {
            status = response.status;
            Ok(())
        };
        self.receive("POST", pending, note, |_| Ok(()))?;
        Ok(status)
    }

    /// Sends requests, each a method, a target and the length that its body is expected to have, and reads
    /// their responses.
    fn exchange(
        &mut self,
        requests: &[(&str, &str, Option<u64>)],
        mut head: impl FnMut(usize, &Response) -> Outcome,
        mut sink: impl FnMut(usize, Body<'_>) -> Outcome,
    ) -> Outcome {
        let mut done = 0;
        while done < requests.len() {
            let depth = if self.persistent { PIPELINED } else { 1 };
            let batch = &requests[done..requests.len().min(done + depth)];
            let sent = self.send(batch)?;
            for ((method, ..), pending) in batch.iter().zip(sent) {
                let number = done;
                done += 1;
                let open = self.receive(
                    method,
                    pending,
                    |response| head(number, response),
                    |body| sink(number, body),
                )?;
                if !open {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sends requests together. The buffers of the bodies are expected before the server can know of them.
    fn send(&mut self, requests: &[(&str, &str, Option<u64>)]) -> Outcome<Vec<Pending>> {
        let (device, server, option) = (self.device, self.server, self.rdma_option);
        let Connection { stream, next_index } = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Connection::open(device, server, option, &mut self.totals)?),
        };
        let mut sent = Vec::new();
        stream.writer.cork();
        for (method, target, bytes) in requests {
            let rid = HttpRid { request_index: *next_index }.into();
            *next_index += 1;
            let bytes = bytes.filter(|bytes| (1..=BUFFER_BYTES_MAX).contains(bytes));
            let buffer = bytes.and_then(|bytes| buffer(device, bytes as usize));
            if let Some(memory) = &buffer {
                stream.reader.expect(rid, memory, 0..memory.len())?;
            }
            let head = format!("{method} {target} HTTP/1.1\r\nHost: {server}\r\n\r\n");
            stream.writer.write_message(head.as_bytes(), PATIENCE)?;
            sent.push(Pending { rid, buffer });
        }
        stream.writer.uncork();
        Ok(sent)
    }

    /// Reads a response. Returns whether the connection stays open.
    fn receive(
        &mut self,
        method: &str,
        Pending { rid, buffer }: Pending,
        head: impl FnOnce(&Response) -> Outcome,
        mut sink: impl FnMut(Body<'_>) -> Outcome,
    ) -> Outcome<bool> {
        let Connection { stream, .. } = self.connection.as_mut().ok_or("no connection")?;
        let reader = &mut stream.reader;
        let response = loop {
            let response = self.head.read(reader, message::response, PATIENCE)?.ok_or("no response")?;
            if response.status >= 200 {
                break response;
            }
        };
        self.totals.responses += 1;
        head(&response)?;
        let bodiless = method == "HEAD" || matches!(response.status, 204 | 304);
        let framing = if bodiless { Framing::Length(0) } else { response.body };
        if framing == Framing::OtherCoding {
            return Err("the body has a transfer coding that this client does not know".into());
        }
        match buffer {
            Some(memory) if framing == Framing::Length(memory.len() as u64) && response.status == 200 => {
                let placed = reader.read_section(rid, &memory, 0..memory.len(), PATIENCE)?;
                self.totals.placed_bytes += placed as u64;
                self.totals.body_bytes += memory.len() as u64;
                sink(Body::Buffer(&memory))?;
            }
            expected => {
                if expected.is_some() {
                    reader.cancel(rid, PATIENCE)?;
                }
                self.body.begin(framing, u64::MAX);
                self.body.read_all(reader, PATIENCE, |part| sink(Body::Part(part)))?;
                self.totals.body_bytes += self.body.bytes;
                if self.body.bytes == 0 && !bodiless {
                    sink(Body::Part(&[]))?;
                }
            }
        }
        let open = response.keep_alive && framing != Framing::Unsaid;
        self.persistent |= open;
        if !open {
            self.close();
        }
        Ok(open)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        if let Some(Connection { mut stream, .. }) = self.connection.take() {
            self.totals.copied_bytes += stream.reader.bytes_copied();
            stream.writer.finish();
            // How the peer takes it changes nothing: all responses were read.
            let _ = stream.wait_closed(Duration::from_secs(1));
        }
    }
}

impl Connection {
    /// Connects to the server, which may still be setting up.
    fn open(device: &Device, server: SocketAddr, rdma_option: bool, totals: &mut Totals) -> Outcome<Self> {
        let tcp = Some(Behaviour { rdma_option, ..device.config().tcp });
        let begin = Instant::now();
        let stream = loop {
            match device.connect_stream(server, &StreamConfig { tcp, ..StreamConfig::default() }) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        totals.connections += 1;
        let config = ByteStreamConfig { rid_format: RidFormat::Http, ..ByteStreamConfig::default() };
        Ok(Self { stream: stream.into_byte_stream(&config)?, next_index: 0 })
    }
}

/// Memory of the device, or ordinary memory where it has too little.
fn buffer(device: &Device, bytes: usize) -> Option<Region> {
    device.config().memory.allocate(bytes).or_else(|| Region::heap(bytes))
}

/// Writes bodies to files of `directory` that have the last names of their targets.
pub fn save(client: &mut Client<'_>, directory: &Path, targets: &[&str]) -> Outcome {
    let mut open: Option<(usize, File)> = None;
    let mut scratch = vec![0; 256 << 10];
    client.get(targets, |number, body| {
        if open.as_ref().is_none_or(|(of, _)| *of != number) {
            let name = targets[number].rsplit('/').next().filter(|name| !name.is_empty() && *name != "..");
            open = Some((number, File::create(directory.join(name.ok_or("no name")?))?));
        }
        let (_, file) = open.as_mut().ok_or("no file")?;
        match body {
            Body::Part(part) => file.write_all(part)?,
            Body::Buffer(memory) => {
                for at in (0..memory.len()).step_by(scratch.len()) {
                    let part = scratch.len().min(memory.len() - at);
                    if !memory.read(at, &mut scratch[..part]) {
                        return Err("outside the buffer".into());
                    }
                    file.write_all(&scratch[..part])?;
                }
            }
        }
        Ok(())
    })
}
