//! What a file is called in conditional and range requests, and what those ask for (RFC 9110 §13, §14).

use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::{fmt_http_date, parse_http_date};

/// What distinguishes one state of a file from another (RFC 9110 §8.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// In quotes.
    pub etag: String,
    modified: SystemTime,
}

impl Validators {
    pub fn of(meta: &Metadata) -> Self {
        let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
        let etag = format!("\"{seconds:x}-{:x}-{:x}-{:x}\"", meta.mtime_nsec(), meta.len(), meta.ino());
        // Dates have whole seconds.
        Self { etag, modified: UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    /// Returns the fields of a response that has them.
    pub fn fields(&self) -> String {
        format!("ETag: {}\r\nLast-Modified: {}\r\n", self.etag, fmt_http_date(self.modified))
    }
}

/// What a request asks of the state of its file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    matching: Option<String>,
    none_matching: Option<String>,
    modified_since: Option<SystemTime>,
    unmodified_since: Option<SystemTime>,
    range_of: Option<String>,
}

/// What becomes of a request with conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is carried out.
    Holds,
    /// The client has the file as it is: 304.
    NotModified,
    /// The file is not as the client thinks: 412.
    Failed,
}

impl Conditions {
    /// Takes the conditions from the fields that `field` finds.
    pub fn read<'f>(field: impl Fn(&str) -> Option<&'f str>) -> Self {
        let text = |name| field(name).map(str::to_owned);
        // RFC 9110 §13.1.3, §13.1.4: a date that is none is ignored.
        let date = |name| field(name).and_then(|value| parse_http_date(value).ok());
        Self {
            matching: text("if-match"),
            none_matching: text("if-none-match"),
            modified_since: date("if-modified-since"),
            unmodified_since: date("if-unmodified-since"),
            range_of: text("if-range"),
        }
    }

    /// Judges a request in the order of RFC 9110 §13.2.2. `file` is the state of the file, if there is one;
    /// `reads` is true for GET and HEAD.
    pub fn judge(&self, file: Option<&Validators>, reads: bool) -> Verdict {
        let has = |list: &str, weak| file.is_some_and(|file| matches(list, &file.etag, weak));
        let expected = match (&self.matching, self.unmodified_since) {
            (Some(list), _) => has(list, false),
            (None, Some(date)) => file.is_some_and(|file| file.modified <= date),
            (None, None) => true,
        };
        if !expected {
            return Verdict::Failed;
        }
        let known = match (&self.none_matching, self.modified_since) {
            (Some(list), _) => has(list, true),
            (None, Some(date)) => reads && file.is_some_and(|file| file.modified <= date),
            (None, None) => false,
        };
        match (known, reads) {
            (false, _) => Verdict::Holds,
            (true, true) => Verdict::NotModified,
            (true, false) => Verdict::Failed,
        }
    }

    /// Returns true if a range of the file may be sent, which is `file` (RFC 9110 §13.1.5).
    pub fn allow_range(&self, file: &Validators) -> bool {
        match self.range_of.as_deref() {
            None => true,
            Some(tag) if tag.contains('"') => tag == file.etag,
            Some(date) => parse_http_date(date).is_ok_and(|date| date == file.modified),
        }
    }
}

/// Returns true if `list`, of entity tags or `*`, has `etag`. A weak comparison disregards `W/`.
fn matches(list: &str, etag: &str, weak: bool) -> bool {
    list.trim() == "*"
        || list.split(',').map(str::trim).any(|tag| {
            let tag = if weak { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
            tag == etag
        })
}

/// The part of a file that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// All of it.
    Whole,
    /// These bytes: 206.
    Part(Range<u64>),
    /// None that the file has: 416.
    Unsatisfiable,
}

/// Returns what the field `Range` asks of a file of `bytes` bytes (RFC 9110 §14.1.2). A field that is
/// malformed, has another unit, or several ranges is ignored, as §14.2 permits.
pub fn select(field: Option<&str>, bytes: u64) -> Selected {
    let spec = field.and_then(|field| field.split_once('=')).filter(|(unit, _)| *unit == "bytes");
    let Some((first, last)) = spec.and_then(|(_, spec)| spec.trim().split_once('-')) else {
        return Selected::Whole;
    };
    let number = |text: &str| match text {
        "" => Some(None),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(Some(text.parse().unwrap_or(u64::MAX))),
        _ => None,
    };
    let (Some(first), Some(last)) = (number(first), number(last)) else { return Selected::Whole };
    let range = match (first, last) {
        (None, None) => return Selected::Whole,
        (Some(first), Some(last)) if first > last => return Selected::Whole,
        (Some(first), last) => first..last.map_or(bytes, |last| last.saturating_add(1).min(bytes)),
        (None, Some(suffix)) => bytes.saturating_sub(suffix)..bytes,
    };
    if range.start < range.end { Selected::Part(range) } else { Selected::Unsatisfiable }
}
