//! The heads of HTTP/1.1 messages (RFC 9112), taken apart by the crate `httparse`, and the rules of where a
//! body ends.

use std::fmt;

use crate::conditions::Conditions;

/// The longest head, first line and header fields together. What is longer is refused.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most header fields.
pub const FIELDS_MAX: usize = 64;

/// The methods that the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    /// One that HTTP has and the server has not (RFC 9110 §15.5.6).
    NotAllowed,
    /// One that HTTP has not (RFC 9110 §15.6.2).
    Unknown,
}

/// How the length of a body is known (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is neither field: a request has no body, that of a response ends with the connection.
    Unsaid,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Another transfer coding: where the body ends cannot be known here.
    OtherCoding,
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// The path and query: of a target in absolute form what follows the authority (RFC 9112 §3.2.2).
    pub target: String,
    pub body: Framing,
    /// The connection stays open after the response.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0: the response has to say that the connection stays open.
    pub is_old: bool,
    /// The client waits for a word before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// `Range`, as it stands there.
    pub range: Option<String>,
    pub conditions: Conditions,
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Framing,
    pub keep_alive: bool,
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not of HTTP/1.1, or contradicts itself.
    Malformed,
    /// Its head has more bytes or fields than are taken.
    TooLong,
    /// Its body is longer than is taken.
    TooLarge,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a message is malformed",
            Self::TooLong => "the head of a message is too long",
            Self::TooLarge => "the body of a message is too long",
        })
    }
}

impl std::error::Error for Refused {}

/// A head and its length, or nothing as long as it is not whole.
pub type Parsed<T> = Result<Option<(T, usize)>, Refused>;

/// Takes the head of a request apart.
pub fn request(bytes: &[u8]) -> Parsed<Request> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let Some(len) = whole(head.parse(bytes), bytes.len())? else { return Ok(None) };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(Refused::Malformed);
    };
    let fields = Fields::read(head.headers, version)?;
    // RFC 9112 §3.2: a request of HTTP/1.1 names its host once, in whatever form its target is.
    let hosts = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host")).count();
    let wants_host = version == 1;
    if hosts > 1 || (wants_host && hosts == 0) {
        return Err(Refused::Malformed);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" | "PATCH" | "OPTIONS" | "TRACE" | "CONNECT" => Method::NotAllowed,
        _ => Method::Unknown,
    };
    let target = match origin_form(target) {
        Some(target) => target.to_owned(),
        // The forms of OPTIONS and CONNECT (RFC 9112 §3.2.3, §3.2.4).
        None if method == Method::NotAllowed => target.to_owned(),
        None => return Err(Refused::Malformed),
    };
    let request = Request {
        method,
        target,
        body: fields.body,
        keep_alive: fields.keep_alive,
        is_old: version == 0,
        expects_continue: fields.expects_continue,
        range: text(head.headers, "range").map(str::to_owned),
        conditions: Conditions::read(|name| text(head.headers, name)),
    };
    Ok(Some((request, len)))
}

/// Returns the path and query of a target in origin form or absolute form (RFC 9112 §3.2.1, §3.2.2).
fn origin_form(target: &str) -> Option<&str> {
    if target.starts_with('/') {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let path = &rest[authority..];
    if authority == 0 {
        return None;
    }
    Some(if path.starts_with('/') { path } else { "/" })
}

/// Takes the head of a response apart.
pub fn response(bytes: &[u8]) -> Parsed<Response> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let Some(len) = whole(head.parse(bytes), bytes.len())? else { return Ok(None) };
    let (Some(status), Some(version)) = (head.code, head.version) else { return Err(Refused::Malformed) };
    let Fields { body, keep_alive, .. } = Fields::read(head.headers, version)?;
    Ok(Some((Response { status, body, keep_alive }, len)))
}

/// Returns the length of a head that is whole.
fn whole(parsed: httparse::Result<usize>, bytes: usize) -> Result<Option<usize>, Refused> {
    match parsed {
        Ok(httparse::Status::Complete(len)) if len <= HEAD_BYTES_MAX => Ok(Some(len)),
        Ok(httparse::Status::Partial) if bytes < HEAD_BYTES_MAX => Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => Err(Refused::TooLong),
        Err(_) => Err(Refused::Malformed),
    }
}

/// The header fields that both kinds of heads have.
struct Fields {
    body: Framing,
    keep_alive: bool,
    expects_continue: bool,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], version: u8) -> Result<Self, Refused> {
        let (mut length, mut codings) = (None, Vec::new());
        let (mut keeps, mut closes, mut expects_continue) = (version == 1, false, false);
        for header in headers {
            let has = |word: &str| list(header.value).any(|of| of.eq_ignore_ascii_case(word.as_bytes()));
            if header.name.eq_ignore_ascii_case("content-length") {
                let bytes = digits(header.value).ok_or(Refused::Malformed)?;
                if length.is_some_and(|before| before != bytes) {
                    return Err(Refused::Malformed);
                }
                length = Some(bytes);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                codings.extend(list(header.value).filter(|coding| !coding.is_empty()));
            } else if header.name.eq_ignore_ascii_case("connection") {
                keeps |= has("keep-alive");
                closes |= has("close");
            } else if header.name.eq_ignore_ascii_case("expect") {
                expects_continue = version == 1 && has("100-continue");
            }
        }
        let body = match (codings.as_slice(), length) {
            ([], None) => Framing::Unsaid,
            ([], Some(bytes)) => Framing::Length(bytes),
            // RFC 9112 §6.1: both framings at once are an attack, and HTTP/1.0 has no transfer codings.
            (_, Some(_)) => return Err(Refused::Malformed),
            _ if version == 0 => return Err(Refused::Malformed),
            ([coding], None) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
            (_, None) => Framing::OtherCoding,
        };
        Ok(Self { body, keep_alive: keeps && !closes, expects_continue })
    }
}

/// Returns the value of the only field `name`, if it is text.
fn text<'h>(headers: &[httparse::Header<'h>], name: &str) -> Option<&'h str> {
    let mut values = headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
    let value = values.next().filter(|_| values.next().is_none())?.value;
    str::from_utf8(value.trim_ascii()).ok()
}

/// The parts of a list with commas.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns a number of digits alone: no sign, no blank.
fn digits(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(value).ok()?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// The reason that goes with a status.
pub const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        _ => "Internal Server Error",
    }
}
