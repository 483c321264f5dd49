//! The words of a command.

use std::iter::Peekable;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use crate::failure::Failure;

/// What is left of a command.
pub struct Words<'a>(Peekable<SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    /// Returns the words of a line.
    pub fn of(line: &'a str) -> Self {
        Self(line.split_whitespace().peekable())
    }

    /// Returns the next word, which is `what`.
    pub fn next(&mut self, what: &str) -> Result<&'a str, Failure> {
        self.0.next().ok_or_else(|| Failure::local(format!("{what} is missing")))
    }

    /// Returns the next word, if there is another.
    pub fn another(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// Returns true if the next word is `word`, and takes it then.
    pub fn has(&mut self, word: &str) -> bool {
        self.0.next_if(|next| *next == word).is_some()
    }

    /// Returns the rest of the next word after `prefix`, if the word begins with it.
    pub fn option(&mut self, prefix: &str) -> Option<&'a str> {
        self.0.next_if(|next| next.starts_with(prefix)).map(|word| &word[prefix.len()..])
    }

    /// Returns the next word as a number, decimal or with `0x` hexadecimal.
    pub fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, Failure> {
        number(self.next(what)?)
    }

    /// Returns the next word as a time.
    pub fn seconds(&mut self) -> Result<Duration, Failure> {
        let word = self.next("a time")?;
        let seconds = f64::from_str(word).ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.ok_or_else(|| Failure::local(format!("'{word}' is not a number of seconds")))
    }

    /// Checks that there is no other word.
    pub fn end(&mut self) -> Result<(), Failure> {
        match self.0.next() {
            None => Ok(()),
            Some(word) => Err(Failure::local(format!("'{word}' is too much"))),
        }
    }
}

/// Returns a number, decimal or with `0x` hexadecimal.
pub fn number<T: TryFrom<u64>>(word: &str) -> Result<T, Failure> {
    let value = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    value
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| Failure::local(format!("'{word}' is no such number")))
}

/// Returns the octets in `word`, two hexadecimal digits each.
pub fn octets(word: &str) -> Result<Vec<u8>, Failure> {
    let digits = word.as_bytes();
    let octet = |pair: &[u8]| {
        let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    };
    let octets: Option<Vec<u8>> = digits.chunks(2).map(octet).collect();
    octets.ok_or_else(|| Failure::local(format!("'{word}' is not hexadecimal")))
}

/// Returns two hexadecimal digits for each of `octets`.
pub fn digits(octets: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('?');
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 0xf)]).collect()
}
