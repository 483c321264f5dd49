//! One connection of the server, in steps that do not wait.
//!
//! The body of the response to request n of a connection is transfer n (draft-csapuntz-tcprdma-00 §5.2.1): a
//! client that expects it finds it in its buffer. Bodies of requests that come as unsolicited transfers
//! (§5.2.3) are written to their files from the buffers for such. To a peer without the option all of this is
//! HTTP/1.1 as ever.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use httpdate::fmt_http_date;
use warpline::{ByteStream, ByteStreamError, Section};

use crate::conditions::{Selected, Validators, Verdict, select};
use crate::ends::Outcome;
use crate::files::Upload;
use crate::message::{self, Framing, Method, Refused, Request};
use crate::server::Site;
use crate::transfer::{self, BodyReader, Collector, FileSender, is};

/// The longest body that is taken.
pub const UPLOAD_BYTES_MAX: u64 = 4 << 30;
/// Steps of a connection before others have their turn.
const STEPS_PER_TURN: usize = 64;
/// How many bytes a client may go on sending after a response that ends the connection: it must not be reset
/// before it has read why.
const LINGER_BYTES: u64 = 4 << 20;

/// A connection that is served.
pub struct Session<'s> {
    site: &'s Site<'s>,
    pub stream: ByteStream,
    state: State,
    head: Collector,
    body: BodyReader,
    sender: FileSender,
    /// The index of the next request, by which both ends name its transfers.
    index: u32,
    /// When the state began, or last moved on.
    since: Instant,
}

/// What a session is doing.
enum State {
    /// It reads the head of a request, of which some has come since then.
    Head(Option<Instant>),
    /// It reads a body into a file.
    Upload(Request, Upload, Word),
    /// It answers.
    Answer(Answer),
    /// It has answered for the last time, and drops what the client goes on sending: so many bytes so far.
    Linger(u64),
}

/// The word that a client waits for before it sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Due,
    Said,
}

/// A response.
struct Answer {
    /// Empty once it is sent.
    head: Vec<u8>,
    content: Option<Content>,
    keep_alive: bool,
}

/// The bytes of a file that are still to be sent.
struct Content {
    file: File,
    range: Range<u64>,
    section: Option<Section>,
    /// Bytes sent.
    sent: u32,
}

/// What a step has done.
enum Step {
    /// Something: there may be more to do.
    Moved,
    /// Nothing: it waits for the peer.
    Waits,
    /// The connection is done with.
    Over,
}

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    Again,
    /// Its file descriptors say when there is.
    Waits,
    /// The connection is done with.
    Over,
}

impl<'s> Session<'s> {
    pub fn new(site: &'s Site<'s>, stream: ByteStream, now: Instant) -> Self {
        site.totals.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            site,
            stream,
            state: State::Head(None),
            head: Collector::default(),
            body: BodyReader::new(),
            sender: FileSender::default(),
            index: 0,
            since: now,
        }
    }

    /// Returns the client's address and port.
    pub fn remote(&self) -> SocketAddr {
        self.stream.remote()
    }

    /// Does what can be done without waiting, within a bound.
    pub fn run(&mut self, now: Instant) -> Outcome<Turn> {
        let mut armed = false;
        for _ in 0..STEPS_PER_TURN {
            match self.step(now)? {
                Step::Moved => (self.since, armed) = (now, false),
                Step::Over => return Ok(Turn::Over),
                Step::Waits if armed => return Ok(Turn::Waits),
                Step::Waits => {
                    // Something may have come before this: one more look.
                    self.stream.reader.arm();
                    self.stream.writer.arm();
                    armed = true;
                }
            }
        }
        Ok(Turn::Again)
    }

    /// Returns when the session must have a turn, whether or not anything comes. `crowded`: others wait for
    /// its place.
    pub fn deadline(&self, crowded: bool) -> Instant {
        let patience = &self.site.patience;
        match &self.state {
            State::Head(Some(since)) => *since + patience.head,
            State::Head(None) if crowded => self.since + patience.crowded_idle,
            State::Head(None) => self.since + patience.idle,
            State::Upload(..) => {
                let stalled = self.since + patience.stall;
                self.body.deadline().map_or(stalled, |deadline| deadline.min(stalled))
            }
            State::Answer(_) => self.since + patience.stall,
            State::Linger(_) => self.since + patience.linger,
        }
    }

    /// Ends what has taken too long, after a turn that came to nothing at its [deadline](Self::deadline).
    pub fn expire(&mut self, now: Instant) -> Outcome<Turn> {
        match &self.state {
            // RFC 9110 §15.5.9.
            State::Head(Some(_)) => self.refuse(408),
            State::Upload(..) if now >= self.since + self.site.patience.stall => self.refuse(408),
            State::Upload(..) => {}
            State::Head(None) => self.linger(),
            State::Answer(_) | State::Linger(_) => {
                self.stream.abort();
                return Ok(Turn::Over);
            }
        }
        self.since = now;
        self.run(now)
    }

    fn step(&mut self, now: Instant) -> Outcome<Step> {
        match &self.state {
            State::Head(_) => self.read_head(now),
            State::Upload(..) => self.read_body(),
            State::Answer(_) => self.send(),
            State::Linger(_) => self.drop_rest(),
        }
    }

    fn read_head(&mut self, now: Instant) -> Outcome<Step> {
        match self.head.read(&mut self.stream.reader, message::request, Duration::ZERO) {
            Ok(Some(request)) => self.begin(request),
            Ok(None) => self.linger(),
            Err(error) if is(&*error, &ByteStreamError::TimedOut) => {
                if let State::Head(since @ None) = &mut self.state
                    && !self.head.is_empty()
                {
                    *since = Some(now);
                }
                self.sender.rest(&self.stream.writer);
                return Ok(Step::Waits);
            }
            Err(error) => self.refuse_for(error)?,
        }
        Ok(Step::Moved)
    }

    /// Begins to answer a request whose head is there.
    fn begin(&mut self, request: Request) {
        let index = self.index;
        self.index = index.wrapping_add(1);
        self.site.totals.requests.fetch_add(1, Ordering::Relaxed);
        match (request.method, request.body) {
            (Method::NotAllowed, _) => self.refuse(405),
            (Method::Unknown, _) | (_, Framing::OtherCoding) => self.refuse(501),
            (Method::Get | Method::Head, Framing::Unsaid | Framing::Length(0)) => {
                self.answer_with_file(&request, index);
            }
            (Method::Get | Method::Head, _) => self.refuse(400),
            (Method::Post | Method::Put, Framing::Unsaid) => self.refuse(411),
            (Method::Post | Method::Put, Framing::Length(bytes)) if bytes > UPLOAD_BYTES_MAX => {
                self.refuse(413);
            }
            (Method::Post | Method::Put, _) => self.begin_upload(request),
        }
    }

    fn answer_with_file(&mut self, request: &Request, index: u32) {
        let Ok((file, meta)) = self.site.directory.read(&request.target) else {
            return self.answer(request, 404, "", None);
        };
        let validators = Validators::of(&meta);
        let fields = format!("Accept-Ranges: bytes\r\n{}", validators.fields());
        match request.conditions.judge(Some(&validators), true) {
            Verdict::NotModified => return self.answer(request, 304, &fields, None),
            Verdict::Failed => return self.answer(request, 412, "", None),
            Verdict::Holds => {}
        }
        let bytes = meta.len();
        // RFC 9110 §14.2: for GET alone.
        let wants_range = request.method == Method::Get && request.conditions.allow_range(&validators);
        let (status, range, fields) = match select(request.range.as_deref().filter(|_| wants_range), bytes) {
            Selected::Whole => (200, 0..bytes, fields),
            Selected::Part(range) => {
                let (first, last) = (range.start, range.end - 1);
                (206, range, format!("{fields}Content-Range: bytes {first}-{last}/{bytes}\r\n"))
            }
            Selected::Unsatisfiable => {
                return self.answer(request, 416, &format!("Content-Range: bytes */{bytes}\r\n"), None);
            }
        };
        let section = transfer::section(index, range.end - range.start, false);
        self.answer(request, status, &fields, Some(Content { file, range, section, sent: 0 }));
    }

    fn begin_upload(&mut self, request: Request) {
        let present = self.site.directory.read(&request.target).ok().map(|(_, meta)| Validators::of(&meta));
        if request.conditions.judge(present.as_ref(), false) != Verdict::Holds {
            return self.refuse(412);
        }
        let Ok(upload) = self.site.directory.write(&request.target) else { return self.refuse(404) };
        self.body.begin(request.body, UPLOAD_BYTES_MAX);
        let word = if request.expects_continue { Word::Due } else { Word::Said };
        self.state = State::Upload(request, upload, word);
    }

    fn read_body(&mut self) -> Outcome<Step> {
        let State::Upload(_, upload, word) = &mut self.state else { return Ok(Step::Moved) };
        if *word == Word::Due {
            let line = b"HTTP/1.1 100 Continue\r\n\r\n";
            if self.stream.writer.room() < line.len() {
                return self.wait_to_send();
            }
            self.stream.writer.write_all(line, Duration::ZERO)?;
            *word = Word::Said;
            return Ok(Step::Moved);
        }
        let placed_before = self.body.placed_bytes;
        let mut sink = |part: &[u8]| Ok(upload.file.write_all(part)?);
        let read = self.body.read(&mut self.stream.reader, Duration::ZERO, &mut sink);
        let placed = self.body.placed_bytes - placed_before;
        self.site.totals.placed_bytes.fetch_add(placed, Ordering::Relaxed);
        match read {
            Ok(false) => {}
            Ok(true) => self.end_upload(),
            Err(error) if is(&*error, &ByteStreamError::TimedOut) => return Ok(Step::Waits),
            Err(error) => self.refuse_for(error)?,
        }
        Ok(Step::Moved)
    }

    fn end_upload(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Head(None));
        let State::Upload(request, upload, _) = state else { return };
        self.site.totals.received_bytes.fetch_add(self.body.bytes, Ordering::Relaxed);
        let status = match upload.keep() {
            Ok(true) => 201,
            Ok(false) => 204,
            Err(_) => 404,
        };
        self.answer(&request, status, "", None);
    }

    fn answer(&mut self, request: &Request, status: u16, fields: &str, content: Option<Content>) {
        let bytes = content.as_ref().map_or(0, |content| content.range.end - content.range.start);
        let kept = match (request.keep_alive, request.is_old) {
            (false, _) => "Connection: close\r\n",
            (true, true) => "Connection: keep-alive\r\n",
            (true, false) => "",
        };
        let head = head(status, bytes, &format!("{fields}{kept}"));
        let content = content.filter(|_| request.method == Method::Get && bytes > 0);
        self.state = State::Answer(Answer { head, content, keep_alive: request.keep_alive });
    }

    /// Answers a request whose body is not read: nothing can follow it.
    fn refuse(&mut self, status: u16) {
        let allow = if status == 405 { "Allow: GET, HEAD, POST, PUT\r\n" } else { "" };
        let head = head(status, 0, &format!("{allow}Connection: close\r\n"));
        self.state = State::Answer(Answer { head, content: None, keep_alive: false });
    }

    /// Answers a message that is none by a status; passes other errors on.
    fn refuse_for(&mut self, error: Box<dyn std::error::Error + Send + Sync>) -> Outcome {
        match error.downcast_ref() {
            Some(Refused::Malformed) => self.refuse(400),
            Some(Refused::TooLong) => self.refuse(431),
            Some(Refused::TooLarge) => self.refuse(413),
            None => return Err(error),
        }
        Ok(())
    }

    fn send(&mut self) -> Outcome<Step> {
        let State::Answer(answer) = &mut self.state else { return Ok(Step::Moved) };
        let writer = &mut self.stream.writer;
        if !answer.head.is_empty() {
            if writer.room() < answer.head.len() {
                return self.wait_to_send();
            }
            // Head and body go together.
            writer.cork();
            writer.write_message(&answer.head, Duration::ZERO)?;
            answer.head.clear();
            if answer.content.is_none() {
                writer.uncork();
            }
            return Ok(Step::Moved);
        }
        if let Some(Content { file, range, section, sent }) =
            answer.content.as_mut().filter(|content| !content.range.is_empty())
        {
            let at = range.start;
            let sending = self.sender.send(
                writer,
                |part| file.read_exact_at(part, at),
                range.end - at,
                section.map(|section| (section, *sent)),
                Duration::ZERO,
            );
            writer.uncork();
            let bytes = match sending {
                Ok(bytes) => bytes,
                Err(error) if is(&*error, &ByteStreamError::TimedOut) => return self.wait_to_send(),
                Err(error) => {
                    // The file has become shorter, or the connection has ended: the client must not take what
                    // it has for the whole.
                    self.stream.abort();
                    return Err(error);
                }
            };
            range.start += bytes;
            *sent = sent.wrapping_add(bytes as u32);
            self.site.totals.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
            return Ok(Step::Moved);
        }
        if answer.keep_alive {
            self.state = State::Head(None);
        } else {
            self.linger();
        }
        Ok(Step::Moved)
    }

    /// Waits for room, as long as the connection lives.
    fn wait_to_send(&mut self) -> Outcome<Step> {
        match self.stream.wait_closed(Duration::ZERO) {
            Err(ByteStreamError::TimedOut) => Ok(Step::Waits),
            Ok(()) => Ok(Step::Over),
            Err(error) => Err(error.into()),
        }
    }

    fn linger(&mut self) {
        self.stream.writer.finish();
        self.state = State::Linger(0);
    }

    fn drop_rest(&mut self) -> Outcome<Step> {
        let State::Linger(dropped) = &mut self.state else { return Ok(Step::Moved) };
        let mut scratch = [0; 4096];
        match self.stream.reader.read(&mut scratch, Duration::ZERO) {
            Ok(0) => Ok(Step::Over),
            Ok(read) => {
                *dropped += read as u64;
                Ok(if *dropped < LINGER_BYTES { Step::Moved } else { Step::Over })
            }
            Err(ByteStreamError::TimedOut) => Ok(Step::Waits),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the head of a response.
fn head(status: u16, bytes: u64, fields: &str) -> Vec<u8> {
    let date = fmt_http_date(SystemTime::now());
    let reason = message::reason(status);
    let mut head =
        format!("HTTP/1.1 {status} {reason}\r\nServer: warpline-example\r\nDate: {date}\r\n{fields}");
    // RFC 9110 §8.6: 204 has no length; that of 304 would be the file's.
    if !matches!(status, 204 | 304) {
        let _ = write!(head, "Content-Length: {bytes}\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}
