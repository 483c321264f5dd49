//! A server of the files of a directory: GET and HEAD, POST and PUT.
//!
//! The body of the response to request n of a connection is transfer n (draft-csapuntz-tcprdma-00 §5.2.1): a
//! client that expects it finds it in its buffer. Bodies of requests that come as unsolicited transfers
//! (§5.2.3) are written to their files from the buffers for such. To a peer without the option all of this is
//! HTTP/1.1 as ever.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpline::{
    Behaviour, ByteStream, Device, Section, TcpListenConfig, TcpListener, TcpStream, TcpStreamError,
};

use crate::ends::{Outcome, PATIENCE};
use crate::files::Directory;
use crate::message::{self, Method, Refused, Request};
use crate::transfer::{self, BodyReader, FileSender};

/// Connections that are served at a time. More wait in the backlog.
const CONNECTIONS_MAX: usize = 64;
/// The longest body that is taken.
const UPLOAD_BYTES_MAX: u64 = 4 << 30;
/// How long and for how many bytes a client may go on sending after a response that ends the connection: it
/// must not be reset before it has read why.
const LINGER: (Duration, u64) = (Duration::from_millis(500), 4 << 20);

/// What a server has done.
#[derive(Debug, Default)]
pub struct Totals {
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    /// Bytes of bodies that were sent.
    pub sent_bytes: AtomicU64,
    /// Bytes of bodies that were received.
    pub received_bytes: AtomicU64,
    /// Of these, bytes that were placed in a buffer.
    pub placed_bytes: AtomicU64,
}

/// Listens at `port`, offering the option or not.
pub fn listen(device: &Device, port: u16, rdma_option: bool) -> Outcome<TcpListener> {
    let tcp = Some(Behaviour { rdma_option, ..device.config().tcp });
    Ok(device.listen_streams(port, &TcpListenConfig { tcp, ..TcpListenConfig::default() })?)
}

/// Serves `directory` until `stop` is set.
pub fn serve(
    device: &Device,
    listener: &TcpListener,
    directory: &Directory,
    (stop, totals): (&AtomicBool, &Totals),
) -> Outcome {
    let served = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            if served.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let stream = match listener.accept(Duration::from_millis(50)) {
                Ok(stream) => stream,
                Err(TcpStreamError::TimedOut) => continue,
                Err(error) => return Err(error.into()),
            };
            served.fetch_add(1, Ordering::Relaxed);
            let served = &served;
            scope.spawn(move || {
                let peer = stream.remote();
                if let Err(error) = Connection::serve(device, stream, directory, totals) {
                    eprintln!("{peer}: {error}");
                }
                served.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Ok(())
    })
}

/// A connection that is served.
struct Connection<'s> {
    stream: ByteStream,
    directory: &'s Directory,
    totals: &'s Totals,
    sender: FileSender,
    body: BodyReader,
}

/// Whether another request is read.
#[derive(PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

impl<'s> Connection<'s> {
    fn serve(device: &Device, stream: TcpStream, directory: &'s Directory, totals: &'s Totals) -> Outcome {
        totals.connections.fetch_add(1, Ordering::Relaxed);
        let stream = stream.into_byte_stream(&transfer::server_stream())?;
        let sender = FileSender::new(device.config())?;
        let mut connection = Self { stream, directory, totals, sender, body: BodyReader::new() };
        let mut index = 0;
        while connection.answer_next(index)? == Next::Request {
            index += 1;
        }
        connection.close()
    }

    /// Reads request `index` and answers it.
    fn answer_next(&mut self, index: u32) -> Outcome<Next> {
        let request = match transfer::read_head(&mut self.stream.reader, message::request) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(Next::Close),
            Err(error) => return self.refuse_head(error),
        };
        self.totals.requests.fetch_add(1, Ordering::Relaxed);
        let next = if request.keep_alive { Next::Request } else { Next::Close };
        match request.method {
            Method::Get | Method::Head if request.encoded || request.body_bytes.unwrap_or(0) > 0 => {
                self.refuse(400)
            }
            Method::Get | Method::Head => self.send_file(&request, index).map(|()| next),
            Method::Post | Method::Put => match request.body_bytes {
                None => self.refuse(411),
                Some(bytes) if bytes > UPLOAD_BYTES_MAX => self.refuse(413),
                Some(bytes) => self.receive_file(&request, bytes, next),
            },
            Method::Other => self.refuse(405),
        }
    }

    fn send_file(&mut self, request: &Request, index: u32) -> Outcome {
        let Ok((mut file, bytes)) = self.directory.read(&request.target) else {
            return self.send_head(404, 0, request.keep_alive);
        };
        if request.method == Method::Head || bytes == 0 {
            return self.send_head(200, bytes, request.keep_alive);
        }
        // Head and body go together.
        self.sender.wait(&mut self.stream.writer)?;
        self.stream.writer.cork();
        self.send_head(200, bytes, request.keep_alive)?;
        let section: Option<Section> = transfer::section(index, bytes, false);
        self.sender.send(&mut self.stream.writer, &mut file, bytes, section)?;
        self.totals.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn receive_file(&mut self, request: &Request, bytes: u64, next: Next) -> Outcome<Next> {
        let Ok(mut upload) = self.directory.write(&request.target) else { return self.refuse(404) };
        if request.expects_continue {
            self.stream.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n", PATIENCE)?;
        }
        let before = self.body.placed_bytes;
        self.body.read(&mut self.stream.reader, Some(bytes), |part| Ok(upload.file.write_all(part)?))?;
        self.totals.received_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.totals.placed_bytes.fetch_add(self.body.placed_bytes - before, Ordering::Relaxed);
        let status = if upload.keep().is_ok() { 201 } else { 404 };
        self.send_head(status, 0, request.keep_alive)?;
        Ok(next)
    }

    fn send_head(&mut self, status: u16, bytes: u64, keep_alive: bool) -> Outcome {
        let reason = message::reason(status);
        let close = if keep_alive { "" } else { "Connection: close\r\n" };
        let allow = if status == 405 { "Allow: GET, HEAD, POST, PUT\r\n" } else { "" };
        let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {bytes}\r\n{allow}{close}\r\n");
        Ok(self.stream.writer.write_message(head.as_bytes(), PATIENCE)?)
    }

    fn refuse_head(&mut self, error: Box<dyn std::error::Error + Send + Sync>) -> Outcome<Next> {
        match error.downcast_ref() {
            Some(Refused::Malformed) => self.refuse(400),
            Some(Refused::TooLong) => self.refuse(431),
            None => Err(error),
        }
    }

    /// Answers a request whose body is not read: nothing can follow it.
    fn refuse(&mut self, status: u16) -> Outcome<Next> {
        self.send_head(status, 0, false)?;
        Ok(Next::Close)
    }

    fn close(mut self) -> Outcome {
        self.stream.writer.finish();
        let (time, bytes) = LINGER;
        let (begin, mut dropped) = (Instant::now(), 0);
        let mut scratch = [0; 4096];
        while begin.elapsed() < time && dropped < bytes {
            match self.stream.reader.read(&mut scratch, Duration::from_millis(50)) {
                Ok(0) => break,
                Ok(read) => dropped += read as u64,
                Err(warpline::ByteStreamError::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
