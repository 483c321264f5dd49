//! Tests of the HTTP example: what its server refuses and what it does not, octet by octet, and what becomes
//! of its client's buffers when a response is not what they expect.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use warpline::{
    Behaviour, ByteStream, ByteStreamConfig, ByteStreamError, Device, PollThread, Section, StreamConfig,
    TcpListener,
};

use crate::client::{Body, Client};
use crate::common::{FAR, NEAR, PATIENCE, PORT, Pair};
use crate::files::Directory;
use crate::message::{Framing, HEAD_BYTES_MAX, Parsed, Refused};
use crate::server::{CONNECTIONS_MAX, Patience, Site, Totals};
use crate::transfer::Collector;

#[path = "../examples/http/client.rs"]
#[allow(dead_code, reason = "the program saves files")]
mod client;
mod common;
#[path = "../examples/http/conditions.rs"]
mod conditions;
#[path = "../examples/http/files.rs"]
mod files;
#[path = "../examples/http/message.rs"]
mod message;
#[path = "../examples/http/server.rs"]
mod server;
#[path = "../examples/http/session.rs"]
mod session;
#[path = "../examples/http/transfer.rs"]
mod transfer;

/// What the example's parts have from its other ones.
mod ends {
    pub use crate::common::PATIENCE;

    pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
}

/// Runs `client` beside a server of `directory`; returns what that has done.
fn served(directory: &Path, rdma_option: bool, client: impl FnOnce(&Device) + Send) -> Totals {
    served_with(Patience::default(), directory, rdma_option, client)
}

fn served_with(
    patience: Patience,
    directory: &Path,
    rdma_option: bool,
    client: impl FnOnce(&Device) + Send,
) -> Totals {
    let (near, far) = common::link();
    let near = Device::start(near, &common::config(NEAR), PollThread::default()).unwrap();
    let (far, turns) = Device::start_shared(far, &common::config(FAR), PollThread::default()).unwrap();
    let (stop, totals) = (AtomicBool::new(false), Totals::default());
    let listener = server::listen(&far, PORT, rdma_option).unwrap();
    let directory = Directory::open(directory).unwrap();
    let site = Site { directory: &directory, totals: &totals, patience };
    thread::scope(|scope| {
        let (stop, site) = (&stop, &site);
        let server = scope.spawn(move || server::serve(&listener, Some(&turns), site, stop).unwrap());
        // However the client ends, the server does too.
        let client = thread::scope(|scope| scope.spawn(|| client(&near)).join());
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        if let Err(panic) = client {
            std::panic::resume_unwind(panic);
        }
    });
    totals
}

fn connect(near: &Device, rdma_option: bool) -> ByteStream {
    let tcp = Some(Behaviour { rdma_option, ..Behaviour::default() });
    let config = StreamConfig { tcp, ..StreamConfig::default() };
    let stream = near.connect_stream(SocketAddr::from((FAR, PORT)), &config).unwrap();
    stream.into_byte_stream(&ByteStreamConfig::default()).unwrap()
}

/// A connection with the option on which request 0 was answered: what arrives before the server has made it a
/// byte stream is not placed.
fn connect_and_ask(near: &Device) -> ByteStream {
    let mut stream = connect(near, true);
    stream.writer.write_all(b"HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n", PATIENCE).unwrap();
    read(&mut stream, message::response);
    stream
}

/// Reads the head of a message.
fn read<T>(stream: &mut ByteStream, parse: impl Fn(&[u8]) -> Parsed<T>) -> T {
    Collector::default().read(&mut stream.reader, parse, PATIENCE).unwrap().unwrap()
}

/// Sends `request` on a connection of its own and returns all that comes back.
fn ask(near: &Device, request: &[u8]) -> String {
    let mut stream = connect(near, false);
    stream.writer.write_all(request, PATIENCE).unwrap();
    stream.writer.finish();
    rest(&mut stream)
}

fn rest(stream: &mut ByteStream) -> String {
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream.reader, &mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn status(near: &Device, request: &str) -> u16 {
    let answer = ask(near, request.as_bytes());
    let (head, len) = message::response(answer.as_bytes()).unwrap().unwrap();
    assert_eq!((answer.len(), head.body), (len, Framing::Length(0)), "{answer}");
    head.status
}

/// An answer without the fields that differ from one time to the next.
fn plain(answer: &str) -> String {
    let fields = ["Server: ", "Date: ", "ETag: ", "Last-Modified: ", "Accept-Ranges: "];
    let stays = |line: &&str| !fields.iter().any(|field| line.starts_with(field));
    answer.split_inclusive("\r\n").filter(stays).collect()
}

/// A directory with files, and one beside it that nobody may reach.
fn directories() -> (tempfile::TempDir, std::path::PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("served");
    fs::create_dir_all(inner.join("below")).unwrap();
    fs::create_dir(outer.path().join("other")).unwrap();
    fs::write(outer.path().join("other/secret"), "secret").unwrap();
    fs::write(inner.join("file"), "contents").unwrap();
    fs::write(inner.join("below/a b"), "blank").unwrap();
    symlink("../other/secret", inner.join("link-out")).unwrap();
    symlink(outer.path().join("other/secret"), inner.join("absolute-link")).unwrap();
    symlink("../other", inner.join("directory-out")).unwrap();
    symlink("file", inner.join("link-within")).unwrap();
    (outer, inner)
}

#[test]
fn no_target_leads_out_of_the_directory() {
    let (outer, inner) = directories();
    let secret = outer.path().join("other/secret");
    served(&inner, false, |near| {
        let get = |target: &str| ask(near, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        for target in ["/file", "//file", "/link-within", "/below/../file", "/file?query", "/f%69le"] {
            assert!(get(target).ends_with("\r\n\r\ncontents"), "{target}: {}", get(target));
        }
        assert!(get("/below/a%20b").ends_with("\r\n\r\nblank"));
        let absolute = format!("/{}", secret.display());
        let outside = [
            "/../other/secret",
            "/below/../../other/secret",
            "/%2e%2e/other/secret",
            "/..%2fother%2fsecret",
            "/link-out",
            "/absolute-link",
            "/directory-out/secret",
            "/proc/self/root/etc/passwd",
            absolute.as_str(),
            "/",
            "/below",
            "/none",
            "/file%00",
            "/file%",
            "/file%zz",
        ];
        for target in outside {
            assert!(get(target).starts_with("HTTP/1.1 404 "), "{target}: {}", get(target));
        }
        for target in ["/../new", "/directory-out/new", "/%2e%2e/new", "/..", "/", "/none/new", "/below"] {
            let put = format!("PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nnew");
            assert!(ask(near, put.as_bytes()).starts_with("HTTP/1.1 404 "), "{target}");
        }
        // The link is replaced; where it led is as it was.
        let put = b"PUT /link-out HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nnew";
        assert!(ask(near, put).starts_with("HTTP/1.1 204 "));
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(fs::read_to_string(inner.join("link-out")).unwrap(), "new");
    for place in [outer.path(), &outer.path().join("other"), &inner, &inner.join("below")] {
        for entry in fs::read_dir(place).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name != "new" && !name.contains("part"), "{name} in {}", place.display());
        }
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        let host = "Host: x\r\n";
        let cases = [
            (400, "GET\r\n\r\n".to_owned()),
            (400, "GET /file HTTP/2.0\r\n\r\n".to_owned()),
            (400, "GET /file HTTP/1.1\r\n\r\n".to_owned()),
            (400, format!("GET /file HTTP/1.1\r\n{host}{host}\r\n")),
            (400, format!("GET file HTTP/1.1\r\n{host}\r\n")),
            (400, format!("GET https://x/file HTTP/1.1\r\n{host}\r\n")),
            (400, format!("GET http:///file HTTP/1.1\r\n{host}\r\n")),
            (400, "GET http://x/file HTTP/1.1\r\n\r\n".to_owned()),
            (400, format!("GET /file HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nabc")),
            (400, format!("PUT /new HTTP/1.1\r\n{host}Content-Length: +3\r\n\r\nabc")),
            (400, format!("PUT /new HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n")),
            (400, format!("PUT /new HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")),
            (
                400,
                format!("PUT /new HTTP/1.1\r\n{host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ),
            (400, format!("GET /file HTTP/1.1\r\n{host}Bad Field: 3\r\n\r\n")),
            (400, "PUT /new HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()),
            (400, format!("GET /file HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            (405, format!("DELETE /file HTTP/1.1\r\n{host}\r\n")),
            (405, format!("OPTIONS * HTTP/1.1\r\n{host}\r\n")),
            (501, format!("BREW /file HTTP/1.1\r\n{host}\r\n")),
            (501, format!("PUT /new HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n")),
            (411, format!("PUT /new HTTP/1.1\r\n{host}\r\n")),
            (413, format!("PUT /new HTTP/1.1\r\n{host}Content-Length: 4294967297\r\n\r\nabc")),
            (431, format!("GET /file HTTP/1.1\r\n{host}{}\r\n", "X: y\r\n".repeat(message::FIELDS_MAX))),
            (431, format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(HEAD_BYTES_MAX))),
        ];
        for (expected, request) in cases {
            assert_eq!(status(near, &request), expected, "{request:.200}");
        }
        // One field fewer, and a head of the greatest length, are taken.
        let most = "X: y\r\n".repeat(message::FIELDS_MAX - 1);
        assert!(
            ask(near, format!("GET /file HTTP/1.1\r\n{host}{most}\r\n").as_bytes()).ends_with("contents")
        );
        let longest = format!("GET /{{}} HTTP/1.1\r\n{host}\r\n").len() - 2;
        let target = "x".repeat(HEAD_BYTES_MAX - longest);
        assert_eq!(status(near, &format!("GET /{target} HTTP/1.1\r\n{host}\r\n")), 404);
    });
    assert!(!inner.join("new").exists());
}

#[test]
fn requests_follow_each_other_and_come_in_pieces() {
    let (_outer, inner) = directories();
    let totals = served(&inner, false, |near| {
        let many = b"HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n\
            GET /none HTTP/1.1\r\nHost: x\r\n\r\n\
            PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfirst\
            POST /new HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nsecond\
            GET /new HTTP/1.1\r\nHost: x\r\n\r\n\
            GET /file HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n\
            GET /file HTTP/1.1\r\nHost: x\r\n\r\n";
        let expected = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\
            HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond\
            HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\ncontents";
        assert_eq!(plain(&ask(near, many)), expected);
        let mut slow = connect(near, false);
        for byte in many {
            slow.writer.write_all(&[*byte], PATIENCE).unwrap();
        }
        // The file is there the second time.
        let expected = expected.replace("201 Created\r\nContent-Length: 0", "204 No Content");
        assert_eq!(plain(&rest(&mut slow)), expected);
        // HTTP/1.0 closes by itself, unless it is asked not to, and is told so then.
        let old = ask(near, b"GET /file HTTP/1.0\r\n\r\nGET /file HTTP/1.0\r\n\r\n");
        let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\ncontents";
        assert_eq!(plain(&old), last);
        let old = b"GET /file HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET /file HTTP/1.0\r\n\r\n";
        let kept = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 8\r\n\r\ncontents";
        assert_eq!(plain(&ask(near, old)), format!("{kept}{last}"));
    });
    assert_eq!(totals.requests.into_inner(), 6 + 6 + 1 + 2);
}

#[test]
fn a_target_in_absolute_form_is_that_of_its_path() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        for target in ["http://x/file", "HTTP://other:8080/below/../file", "http://x/file?query"] {
            let answer = ask(near, format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            assert!(answer.ends_with("\r\n\r\ncontents"), "{target}: {answer}");
        }
        for target in ["http://x", "http://x?file", "http://x/../other/secret"] {
            assert_eq!(status(near, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")), 404);
        }
    });
}

#[test]
fn parts_of_a_file_are_sent_as_asked_for() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        let get = |fields: &str| {
            plain(&ask(near, format!("GET /file HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n").as_bytes()))
        };
        let parts = [
            ("0-0", "0-0/8", "c"),
            ("2-4", "2-4/8", "nte"),
            ("2-", "2-7/8", "ntents"),
            ("-3", "5-7/8", "nts"),
            ("-99", "0-7/8", "contents"),
            ("7-99999999999999999999999", "7-7/8", "s"),
        ];
        for (asked, range, body) in parts {
            let head = format!("Content-Range: bytes {range}\r\nContent-Length: {}", body.len());
            let expected = format!("HTTP/1.1 206 Partial Content\r\n{head}\r\n\r\n{body}");
            assert_eq!(get(&format!("Range: bytes={asked}")), expected);
        }
        for asked in ["8-", "8-9", "-0"] {
            let head = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */8\r\n";
            let answer = get(&format!("Range: bytes={asked}"));
            assert_eq!(answer, format!("{head}Content-Length: 0\r\n\r\n"));
        }
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ncontents";
        for asked in
            ["bytes=3-2", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=+1-2", "bytes"]
        {
            assert_eq!(get(&format!("Range: {asked}")), whole, "{asked}");
        }
        // Only of the file that the client knows (RFC 9110 §13.1.5).
        let answer = ask(near, b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
        let field = |name: &str| answer.split(name).nth(1).unwrap().split("\r\n").next().unwrap();
        let (etag, date) = (field("ETag: "), field("Last-Modified: "));
        for known in [etag, date] {
            let answer = get(&format!("Range: bytes=2-4\r\nIf-Range: {known}"));
            assert!(answer.ends_with("\r\n\r\nnte"), "{answer}");
        }
        for other in ["\"other\"", &format!("W/{etag}"), "Thu, 01 Jan 1970 00:00:00 GMT", "yesterday"] {
            assert_eq!(get(&format!("Range: bytes=2-4\r\nIf-Range: {other}")), whole, "{other}");
        }
    });
}

#[test]
fn what_a_client_has_is_not_sent_again() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        let answer = ask(near, b"HEAD /file HTTP/1.1\r\nHost: x\r\n\r\n");
        let field = |name: &str| answer.split(name).nth(1).unwrap().split("\r\n").next().unwrap();
        let (etag, date) = (field("ETag: "), field("Last-Modified: "));
        let (old, new) = ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
        let get =
            |fields: &str| ask(near, format!("GET /file HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n").as_bytes());
        let cases = [
            (304, format!("If-None-Match: {etag}")),
            (304, format!("If-None-Match: \"other\", W/{etag}")),
            (304, "If-None-Match: *".to_owned()),
            (200, "If-None-Match: \"other\"".to_owned()),
            (304, format!("If-Modified-Since: {date}")),
            (304, format!("If-Modified-Since: {new}")),
            (200, format!("If-Modified-Since: {old}")),
            (200, "If-Modified-Since: yesterday".to_owned()),
            // The tag counts, and not the date.
            (200, format!("If-None-Match: \"other\"\r\nIf-Modified-Since: {new}")),
            (200, format!("If-Match: \"other\", {etag}")),
            (200, "If-Match: *".to_owned()),
            (412, format!("If-Match: W/{etag}")),
            (200, format!("If-Unmodified-Since: {date}")),
            (412, format!("If-Unmodified-Since: {old}")),
        ];
        for (status, fields) in cases {
            let answer = get(&fields);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields}: {answer}");
            assert_eq!(answer.ends_with("contents"), status == 200, "{fields}: {answer}");
            assert!(status != 304 || answer.contains(&format!("ETag: {etag}\r\n")), "{answer}");
        }
        let put = |fields: &str, target: &str| {
            let head = format!("PUT {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\nContent-Length: 3\r\n\r\n");
            ask(near, format!("{head}new").as_bytes())
        };
        assert!(put("If-None-Match: *", "/file").starts_with("HTTP/1.1 412 "));
        assert!(put("If-Match: *", "/new").starts_with("HTTP/1.1 412 "));
        assert!(put("If-None-Match: *", "/new").starts_with("HTTP/1.1 201 "));
        assert!(put(&format!("If-Match: {etag}"), "/file").starts_with("HTTP/1.1 204 "));
        assert!(put(&format!("If-Match: {etag}"), "/file").starts_with("HTTP/1.1 412 "));
    });
    assert_eq!(fs::read_to_string(inner.join("file")).unwrap(), "new");
}

#[test]
fn bodies_come_in_chunks() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        let head = "PUT /new HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n";
        let chunks = "3\r\nabc\r\n00A;name=\"value\"\r\n0123456789\r\n0\r\nField: value\r\n\r\n";
        let next = "GET /new HTTP/1.1\r\nHost: x\r\n\r\n";
        let answer = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nabc0123456789";
        assert_eq!(plain(&ask(near, format!("{head}{chunks}{next}").as_bytes())), answer);
        let mut slow = connect(near, false);
        for byte in format!("{head}{chunks}{next}").bytes() {
            slow.writer.write_all(&[byte], PATIENCE).unwrap();
        }
        slow.writer.finish();
        let answer = answer.replace("201 Created\r\nContent-Length: 0", "204 No Content");
        assert_eq!(plain(&rest(&mut slow)), answer);
        let empty = format!("{head}0\r\n\r\n").replace("/new", "/empty");
        assert_eq!(plain(&ask(near, empty.as_bytes())), "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        let refused = [
            (400, "x\r\n".to_owned()),
            (400, "3\r\nabcd\r\n0\r\n\r\n".to_owned()),
            (400, "-1\r\n".to_owned()),
            (400, format!("1;{}\r\n", "x".repeat(300))),
            (400, format!("0\r\nField: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX))),
            (413, "100000001\r\n".to_owned()),
            (413, "1\r\na\r\n100000000\r\n".to_owned()),
            (400, "fffffffffffffffff\r\n".to_owned()),
        ];
        for (expected, chunks) in refused {
            let request = format!("{head}{chunks}").replace("/new", "/refused");
            assert_eq!(status(near, &request), expected, "{chunks:.60}");
        }
        // One that breaks off.
        let request = format!("{head}3\r\nab").replace("/new", "/refused");
        assert_eq!(ask(near, request.as_bytes()), "");
    });
    assert_eq!(fs::read_to_string(inner.join("new")).unwrap(), "abc0123456789");
    assert_eq!(fs::read_to_string(inner.join("empty")).unwrap(), "");
    assert!(!inner.join("refused").exists());
}

/// A body in chunks whose bytes are an unsolicited transfer, but for the lines around them.
// Requirements: TRO-5.2.1-02, TRO-5.2.2-03, TRO-5.2.3-01
#[test]
fn chunks_can_be_placed() {
    let (_outer, inner) = directories();
    let totals = served(&inner, true, |near| {
        let mut stream = connect_and_ask(near);
        let head = b"PUT /new HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.writer.write_message(head, PATIENCE).unwrap();
        let section = transfer::section(1, 6, true).unwrap();
        for (at, chunk) in [(0, b"abc"), (3, b"def")] {
            stream.writer.write_all(b"3\r\n", PATIENCE).unwrap();
            stream.writer.write_section(section, at, chunk, PATIENCE).unwrap();
            stream.writer.write_all(b"\r\n", PATIENCE).unwrap();
        }
        stream.writer.write_all(b"0\r\n\r\n", PATIENCE).unwrap();
        assert_eq!(read(&mut stream, message::response).status, 201);
    });
    assert_eq!(totals.placed_bytes.into_inner(), 6);
    assert_eq!(fs::read_to_string(inner.join("new")).unwrap(), "abcdef");
}

/// More clients than threads, all in the middle of a request until the last one has begun its own.
#[test]
fn many_clients_are_served_by_few_threads() {
    const CLIENTS: usize = 200;
    const _: () = assert!(CLIENTS < CONNECTIONS_MAX);
    let (_outer, inner) = directories();
    let totals = served(&inner, false, |near| {
        let small =
            ByteStreamConfig { send_bytes: 1 << 12, receive_bytes: 1 << 12, ..ByteStreamConfig::default() };
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let to = SocketAddr::from((FAR, PORT));
                let stream = near.connect_stream(to, &StreamConfig::default()).unwrap();
                let mut stream = stream.into_byte_stream(&small).unwrap();
                stream.writer.write_all(b"GET /file HTTP/1.1\r\nHost", PATIENCE).unwrap();
                stream
            })
            .collect();
        for client in clients.iter_mut().rev() {
            client.writer.write_all(b": x\r\n\r\n", PATIENCE).unwrap();
            assert_eq!(read(client, message::response).body, Framing::Length(8));
            let mut body = [0; 8];
            client.reader.read_exact(&mut body, PATIENCE).unwrap();
            assert_eq!(&body, b"contents");
        }
    });
    assert_eq!(totals.connections.into_inner(), CLIENTS as u64);
}

/// Clients that say nothing leave when others wait for their places.
#[test]
fn idle_clients_make_room() {
    let (_outer, inner) = directories();
    // The one that asks has as long for its request as the others had.
    let patience = Patience { crowded_idle: std::time::Duration::from_secs(2), ..Patience::default() };
    served_with(patience, &inner, false, |near| {
        let idle: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| near.connect_stream(SocketAddr::from((FAR, PORT)), &StreamConfig::default()).unwrap())
            .collect();
        assert!(ask(near, b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("contents"));
        drop(idle);
    });
}

#[test]
fn clients_that_stop_are_not_waited_for() {
    let (_outer, inner) = directories();
    // Each case has one short time: in the others a slow machine does what the case is about.
    let soon = std::time::Duration::from_millis(100);
    let long = Patience {
        idle: PATIENCE,
        crowded_idle: PATIENCE,
        head: PATIENCE,
        stall: PATIENCE,
        linger: PATIENCE,
    };
    let cases = [
        (Some(408), "GET /file HTTP/1.1\r\nHost", Patience { head: soon, ..long }),
        (
            Some(408),
            "PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
            Patience { stall: soon, ..long },
        ),
        (
            Some(408),
            "PUT /new HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3",
            Patience { stall: soon, ..long },
        ),
        (None, "", Patience { idle: soon, ..long }),
    ];
    for (expected, request, patience) in cases {
        served_with(patience, &inner, false, |near| {
            let mut stream = connect(near, false);
            stream.writer.write_all(request.as_bytes(), PATIENCE).unwrap();
            // It closes, though the client does not.
            let answer = rest(&mut stream);
            let status = expected.map(|status| format!("HTTP/1.1 {status} Request Timeout\r\n"));
            let expected = status.map(|line| format!("{line}Connection: close\r\nContent-Length: 0\r\n\r\n"));
            assert_eq!(plain(&answer), expected.unwrap_or_default(), "{request}");
        });
    }
    // One that asks and does not read is reset.
    fs::write(inner.join("film"), vec![0; 8 << 20]).unwrap();
    served_with(Patience { stall: soon, ..long }, &inner, false, |near| {
        let mut stream = connect(near, false);
        stream.writer.write_all(b"GET /film HTTP/1.1\r\nHost: x\r\n\r\n", PATIENCE).unwrap();
        let closed = stream.wait_closed(PATIENCE);
        assert!(matches!(closed, Err(ByteStreamError::Closed(_))), "{closed:?}");
    });
    assert!(!inner.join("new").exists());
}

#[test]
fn a_client_that_waits_for_a_word_gets_it() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        let mut stream = connect(near, false);
        let head = b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
        stream.writer.write_all(head, PATIENCE).unwrap();
        let mut word = [0; 25];
        stream.reader.read_exact(&mut word, PATIENCE).unwrap();
        assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.writer.write_all(b"abc", PATIENCE).unwrap();
        stream.writer.finish();
        assert!(rest(&mut stream).starts_with("HTTP/1.1 201 "));
    });
    assert_eq!(fs::read_to_string(inner.join("new")).unwrap(), "abc");
}

#[test]
fn a_body_that_breaks_off_leaves_nothing() {
    let (_outer, inner) = directories();
    served(&inner, false, |near| {
        assert_eq!(ask(near, b"PUT /file HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"), "");
    });
    assert_eq!(fs::read_to_string(inner.join("file")).unwrap(), "contents");
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 6, "no part of an upload");
}

/// More unsolicited transfers than there are buffers: each buffer is given back.
// Requirements: TRO-5.2.3-01, TRO-6.1-03
#[test]
fn unsolicited_buffers_are_given_back() {
    let (_outer, inner) = directories();
    let posts = 5 * transfer::UNSOLICITED_BUFFERS as u64;
    let totals = served(&inner, true, |near| {
        let mut client = Client::new(near, SocketAddr::from((FAR, PORT)), true);
        // As in `connect_and_ask`.
        client.get(&["/file"], |_, _| Ok(())).unwrap();
        for number in 0..posts {
            let body = [number as u8; 10_000];
            let status = client.post("/new", &mut &body[..], body.len() as u64).unwrap();
            assert_eq!(status, if number == 0 { 201 } else { 204 });
            assert_eq!(fs::read(inner.join("new")).unwrap(), body);
        }
    });
    assert_eq!(totals.placed_bytes.into_inner(), posts * 10_000);
}

/// A transfer of nothing has a buffer too.
#[test]
fn buffers_of_empty_transfers_are_given_back() {
    let (_outer, inner) = directories();
    let empty = 3 * transfer::UNSOLICITED_BUFFERS as u32;
    let totals = served(&inner, true, |near| {
        let mut stream = connect_and_ask(near);
        let mut put = |index: u32, body: &[u8]| {
            let head = format!("PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len() + 1);
            stream.writer.cork();
            stream.writer.write_message(head.as_bytes(), PATIENCE).unwrap();
            let section = transfer::section(index, body.len() as u64, true).unwrap();
            stream.writer.write_section(section, 0, body, PATIENCE).unwrap();
            stream.writer.write_all(b".", PATIENCE).unwrap();
            stream.writer.uncork();
            assert!(matches!(read(&mut stream, message::response).status, 201 | 204));
        };
        (1..empty).for_each(|index| put(index, b""));
        put(empty, b"body");
    });
    assert_eq!(totals.placed_bytes.into_inner(), 4);
    assert_eq!(fs::read_to_string(inner.join("new")).unwrap(), "body.");
}

/// A transfer that goes on after the body's end is not read as a request, in the segment of that end or in
/// another one.
#[test]
fn a_transfer_longer_than_its_body_is_refused() {
    for cut in [5, 9] {
        let (_outer, inner) = directories();
        let totals = served(&inner, true, |near| {
            let mut stream = connect_and_ask(near);
            let head = b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
            stream.writer.write_message(head, PATIENCE).unwrap();
            let section = Section { total_octets: Some(9), ..transfer::section(1, 5, true).unwrap() };
            let (body, rest_of_it) = b"bodyGET /".split_at(cut);
            stream.writer.write_section(section, 0, body, PATIENCE).unwrap();
            stream.writer.wait_acknowledged(PATIENCE).unwrap();
            stream.writer.write_section(section, cut as u32, rest_of_it, PATIENCE).unwrap();
            stream.writer.finish();
            // With the body's end in a segment of its own, it may have been answered before the rest came.
            let answer = rest(&mut stream);
            let answered = answer.starts_with("HTTP/1.1 201 ");
            assert!(answer.starts_with("HTTP/1.1 400 ") || (cut == 5 && answered), "{answer}");
            assert_eq!(inner.join("new").exists(), answered);
        });
        assert_eq!(totals.requests.into_inner(), 2);
    }
}

/// A peer that does not say how long its transfers are has its buffers back too.
#[test]
fn buffers_of_transfers_of_unknown_length_are_given_back() {
    let (_outer, inner) = directories();
    let posts = 3 * transfer::UNSOLICITED_BUFFERS as u32;
    let totals = served(&inner, true, |near| {
        let mut stream = connect_and_ask(near);
        for index in 1..=posts {
            let head = b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
            stream.writer.write_message(head, PATIENCE).unwrap();
            let section = Section { total_octets: None, ..transfer::section(index, 5, true).unwrap() };
            stream.writer.write_section(section, 0, b"bytes", PATIENCE).unwrap();
            assert!(matches!(read(&mut stream, message::response).status, 201 | 204));
        }
    });
    assert_eq!(totals.placed_bytes.into_inner(), u64::from(posts) * 5);
}

/// A head, the section that its body is, and the body.
type Answer<'a> = (&'a [u8], Option<Section>, &'a [u8]);

/// Takes one connection and says `answers` for each head that it reads.
fn puppet(listener: &TcpListener, answers: &[Answer<'_>]) {
    let stream = listener.accept(PATIENCE).unwrap();
    let mut stream = stream.into_byte_stream(&ByteStreamConfig::default()).unwrap();
    for (head, section, body) in answers {
        read(&mut stream, message::request);
        stream.writer.write_message(head, PATIENCE).unwrap();
        match section {
            Some(section) => stream.writer.write_section(*section, 0, body, PATIENCE).unwrap(),
            None => stream.writer.write_all(body, PATIENCE).unwrap(),
        }
    }
    stream.writer.finish();
    // The client has read everything when it finishes.
    let finished = stream.reader.read(&mut [0; 1], PATIENCE);
    assert!(matches!(finished, Ok(0) | Err(ByteStreamError::Closed(_))), "{finished:?}");
}

/// Appends what has come of a body.
fn take(body: &Body<'_>, got: &mut Vec<u8>) {
    match body {
        Body::Part(part) => got.extend_from_slice(part),
        Body::Buffer(memory) => {
            got.resize(memory.len(), 0);
            assert!(memory.read(0, got));
        }
    }
}

/// Bodies that are shorter or longer than the response to HEAD said, without the option, under a wrong name:
/// the client has what the stream says.
// Requirements: TRO-5.2.1-02, TRO-5.2.2-02
#[test]
fn a_client_believes_the_stream() {
    /// A head, the index in the name of the transfer, a body, and how many bytes of it are placed.
    type Case = (&'static [u8], Option<u32>, &'static [u8], u64);
    let ok: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n";
    let cases: [Case; 7] = [
        (ok, Some(1), b"contents", 8),
        (ok, None, b"contents", 0),
        (ok, Some(0), b"contents", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", Some(1), b"abc", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n", Some(1), b"longer than", 0),
        (b"HTTP/1.1 200 OK\r\n\r\n", None, b"to the end", 0),
        (ok, Some(1), b"contents", 8),
    ];
    for (number, (head, index, body, placed)) in cases.into_iter().enumerate() {
        // The last one is by a server that did not know the length in its option, which has 16 octets then.
        let knows = number + 1 < cases.len();
        let pair = Pair::new();
        let listener = server::listen(&pair.far, PORT, true).unwrap();
        let section = index.and_then(|index| transfer::section(index, body.len() as u64, false));
        let section = section.map(|of| Section { total_octets: of.total_octets.filter(|_| knows), ..of });
        thread::scope(|scope| {
            scope.spawn(|| puppet(&listener, &[(ok, None, b""), (head, section, body)]));
            let mut client = Client::new(&pair.near, SocketAddr::from((FAR, PORT)), true);
            let mut got = Vec::new();
            client
                .get(&["/file"], |_, body| {
                    take(&body, &mut got);
                    Ok(())
                })
                .unwrap();
            client.close();
            assert_eq!(got, body, "case {number}");
            assert_eq!(client.totals().placed_bytes, placed, "case {number}");
        });
    }
}

/// The connection is kept after a body in chunks: its end is known.
#[test]
fn a_client_reads_chunks() {
    let pair = Pair::new();
    let listener = server::listen(&pair.far, PORT, true).unwrap();
    let unknown = b"HTTP/1.1 200 OK\r\n\r\n";
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    let chunks = b"8;x=y\r\ncontents\r\n1\r\n.\r\n0\r\nField: z\r\n\r\n";
    thread::scope(|scope| {
        let answers: [Answer<'_>; 4] =
            [(unknown, None, b""), (whole, None, b""), (chunked, None, chunks), (whole, None, b"end")];
        scope.spawn(move || puppet(&listener, &answers));
        let mut client = Client::new(&pair.near, SocketAddr::from((FAR, PORT)), true);
        let mut got = vec![Vec::new(); 2];
        client
            .get(&["/one", "/two"], |number, body| {
                take(&body, &mut got[number]);
                Ok(())
            })
            .unwrap();
        client.close();
        assert_eq!(got, [b"contents.".to_vec(), b"end".to_vec()]);
        assert_eq!(client.totals().connections, 1);
    });
}

#[test]
fn a_client_refuses_what_it_does_not_understand() {
    let ok: Answer<'_> = (b"HTTP/1.1 200 OK\r\n\r\n", None, b"");
    let coded: Answer<'_> = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", None, b"");
    let malformed: Answer<'_> = (b"HTTP/1.1 2x0 OK\r\n\r\n", None, b"");
    let chunk: Answer<'_> = (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None, b"x\r\n");
    for answers in [&[ok, coded][..], &[malformed], &[ok, chunk]] {
        let pair = Pair::new();
        let listener = server::listen(&pair.far, PORT, true).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| puppet(&listener, answers));
            let mut client = Client::new(&pair.near, SocketAddr::from((FAR, PORT)), true);
            let error = client.get(&["/file"], |_, _| Ok(())).unwrap_err();
            let is_coding = answers.last() == Some(&coded);
            assert_eq!(error.downcast_ref::<Refused>().is_none(), is_coding, "{error}");
        });
    }
}
