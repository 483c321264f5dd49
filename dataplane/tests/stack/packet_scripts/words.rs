//! Splits a line into words.

use warpline_dataplane::time::{MICROSECOND, MILLISECOND, SECOND};

/// The rest of a line. A word ends at a space; `<...>` and `"..."` are one word each, with any contents.
#[derive(Clone, Copy)]
pub struct Words<'l>(&'l str);

impl<'l> Words<'l> {
    pub fn new(line: &'l str) -> Self {
        Self(line.trim_start())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rest of the line.
    pub fn rest(&self) -> &'l str {
        self.0.trim_end()
    }

    /// Takes the rest of the line.
    pub fn take_rest(&mut self) -> &'l str {
        core::mem::take(&mut self.0)
    }

    /// Takes `prefix`, if the next word begins with it.
    pub fn strip(&mut self, prefix: &str) -> bool {
        match self.0.strip_prefix(prefix) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    pub fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start();
    }

    pub fn peek(&self) -> Option<&'l str> {
        self.split().ok().map(|(word, _)| word)
    }

    pub fn next(&mut self) -> Result<&'l str, String> {
        let (word, rest) = self.split()?;
        self.0 = rest.trim_start();
        Ok(word)
    }

    /// The next word, as a number.
    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.next()?;
        number(word)
    }

    /// Takes the next word if it is `word`.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        if found {
            let _ = self.next();
        }
        found
    }

    fn split(&self) -> Result<(&'l str, &'l str), String> {
        if self.0.is_empty() {
            return Err("the line ends too early".to_owned());
        }
        let end = match self.0.as_bytes()[0] {
            b'<' => self.0.find('>').ok_or("no > after <")? + 1,
            b'"' => self.0[1..].find('"').ok_or("no second quote")? + 2,
            _ => self.0.find(char::is_whitespace).unwrap_or(self.0.len()),
        };
        Ok(self.0.split_at(end))
    }
}

pub fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no number that fits"))
}

/// Parses a time: `0`, `100us`, `1.5s`. Returns nanoseconds.
pub fn duration(word: &str) -> Result<u64, String> {
    if word == "0" {
        return Ok(0);
    }
    let units = [("ns", 1), ("us", MICROSECOND), ("ms", MILLISECOND), ("s", SECOND)];
    let (digits, unit) = units
        .iter()
        .find_map(|(name, unit)| word.strip_suffix(name).map(|digits| (digits, *unit)))
        .ok_or_else(|| format!("{word:?} is no time: it needs one of ns, us, ms, s"))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut nanos = number::<u64>(whole)? * unit;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanos += u64::from(digit.to_digit(10).ok_or_else(|| format!("{word:?} is no time"))?) * place;
    }
    Ok(nanos)
}

/// `A:B`, both ends of a range.
pub fn range<T: std::str::FromStr>(word: &str, separator: char) -> Result<(T, T), String> {
    let (from, to) =
        word.split_once(separator).ok_or_else(|| format!("{word:?} is no range A{separator}B"))?;
    Ok((number(from)?, number(to)?))
}
