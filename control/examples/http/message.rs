//! The heads of HTTP/1.1 messages (RFC 9112), taken apart by the crate `httparse`, and the rules of where a
//! body ends.

use std::fmt;

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
    Other,
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// As it stands in the first line.
    pub target: String,
    /// `Content-Length`, if there is one.
    pub body_bytes: Option<u64>,
    /// There is a `Transfer-Encoding`: the length of the body is not known.
    pub encoded: bool,
    pub keep_alive: bool,
    /// The client waits for a word before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// `Content-Length`; without, the body ends with the connection.
    pub body_bytes: Option<u64>,
    /// There is a `Transfer-Encoding`.
    pub encoded: bool,
    pub keep_alive: bool,
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not of HTTP/1.1, or contradicts itself.
    Malformed,
    /// It has more bytes or fields than are taken.
    TooLong,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the head of a message is malformed",
            Self::TooLong => "the head of a message is too long",
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
    // RFC 9112 §3.2: a request of HTTP/1.1 names its host once. §6.1: both framings at once is an attack.
    let hosts = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host")).count();
    let wants_host = version == 1;
    if hosts > 1 || (wants_host && hosts == 0) || !target.starts_with('/') {
        return Err(Refused::Malformed);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        _ => Method::Other,
    };
    let request = Request {
        method,
        target: target.to_owned(),
        body_bytes: fields.body_bytes,
        encoded: fields.encoded,
        keep_alive: fields.keep_alive,
        expects_continue: fields.expects_continue,
    };
    Ok(Some((request, len)))
}

/// Takes the head of a response apart.
pub fn response(bytes: &[u8]) -> Parsed<Response> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let Some(len) = whole(head.parse(bytes), bytes.len())? else { return Ok(None) };
    let (Some(status), Some(version)) = (head.code, head.version) else { return Err(Refused::Malformed) };
    let Fields { body_bytes, encoded, keep_alive, .. } = Fields::read(head.headers, version)?;
    Ok(Some((Response { status, body_bytes, encoded, keep_alive }, len)))
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
    body_bytes: Option<u64>,
    encoded: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>], version: u8) -> Result<Self, Refused> {
        let mut fields =
            Self { body_bytes: None, encoded: false, keep_alive: version == 1, expects_continue: false };
        for header in headers {
            let has = |word: &str| list(header.value).any(|of| of.eq_ignore_ascii_case(word.as_bytes()));
            if header.name.eq_ignore_ascii_case("content-length") {
                let bytes = digits(header.value).ok_or(Refused::Malformed)?;
                if fields.body_bytes.is_some_and(|before| before != bytes) {
                    return Err(Refused::Malformed);
                }
                fields.body_bytes = Some(bytes);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                fields.encoded = true;
            } else if header.name.eq_ignore_ascii_case("connection") {
                fields.keep_alive = (fields.keep_alive || has("keep-alive")) && !has("close");
            } else if header.name.eq_ignore_ascii_case("expect") {
                fields.expects_continue = version == 1 && has("100-continue");
            }
        }
        if fields.encoded && fields.body_bytes.is_some() {
            return Err(Refused::Malformed);
        }
        Ok(fields)
    }
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
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    }
}
