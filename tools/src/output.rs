//! What commands write: lines for people, and files.
//!
//! Nothing here panics when a write fails, as `println!` does. The first failure has the command end in an
//! orderly way ([`crate::interrupt`]): a reader of standard output that has gone ends it as
//! SIGPIPE ends other programs, in silence.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::error::CommandError;
use crate::interrupt;

/// The name that stands for standard output.
const STDOUT: &str = "-";
/// A file of the command goes to standard output, so lines for people go to standard error.
static STDOUT_IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Prints a line of results.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::output::line(format_args!($($line)*)) };
}

/// Prints a line to standard error.
#[macro_export]
macro_rules! note {
    ($($line:tt)*) => { $crate::output::note_line(format_args!($($line)*)) };
}

pub use crate::{note, say};

/// Prints a line of results. See [`say`].
pub fn line(line: fmt::Arguments<'_>) {
    if STDOUT_IS_A_FILE.load(Ordering::Relaxed) {
        return note_line(line);
    }
    if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
        interrupt::end_because(failed(Path::new(STDOUT), error));
    }
}

/// Prints a line to standard error. See [`note`].
pub fn note_line(line: fmt::Arguments<'_>) {
    // There is nowhere else to report that nobody reads it.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Returns the error for a write to `path` that failed.
fn failed(path: &Path, error: io::Error) -> CommandError {
    match (path.as_os_str() == STDOUT, error.kind()) {
        (true, io::ErrorKind::BrokenPipe) => CommandError::ClosedPipe,
        (true, _) => CommandError::File("standard output".into(), error),
        (false, _) => CommandError::File(path.into(), error),
    }
}

/// A file to be written, which is open before there is anything to write.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    /// Set once a write has failed: what follows is dropped.
    failed: bool,
}

impl OutputFile {
    /// Opens the file at `path`, which is made if there is none; `-` is standard output. What it holds stays
    /// until something else is written.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`]; [`CommandError::Options`] if standard output is a file already.
    pub fn open(path: &Path) -> Result<Self, CommandError> {
        let opened = if path.as_os_str() == STDOUT {
            if STDOUT_IS_A_FILE.swap(true, Ordering::Relaxed) {
                return Err(CommandError::Options(
                    "two files go to standard output: name one of them".into(),
                ));
            }
            rustix::io::dup(rustix::stdio::stdout()).map(File::from).map_err(io::Error::from)
        } else {
            OpenOptions::new().write(true).create(true).truncate(false).open(path)
        };
        let file = opened.map_err(|error| failed(path, error))?;
        Ok(Self { path: path.into(), file, failed: false })
    }

    /// Opens the file at `path`, if there is to be one, as [`open`](Self::open) does.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn open_some(path: Option<&Path>) -> Result<Option<Self>, CommandError> {
        path.map(Self::open).transpose()
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Empties the file, which is written from now on.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`].
    pub fn begin(self) -> Result<Self, CommandError> {
        // A pipe or a device has no length.
        if self.file.metadata().is_ok_and(|metadata| metadata.is_file()) && self.path.as_os_str() != STDOUT {
            self.file.set_len(0).map_err(|error| failed(&self.path, error))?;
        }
        Ok(self)
    }

    /// Has the file hold `content` and nothing else.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`], [`CommandError::ClosedPipe`].
    pub fn replace(self, content: &[u8]) -> Result<(), CommandError> {
        let mut begun = self.begin()?;
        begun.file.write_all(content).map_err(|error| failed(&begun.path, error))
    }

    /// Has the file hold `reports` as JSON: one object, or a list if `listed`.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`], [`CommandError::ClosedPipe`].
    pub fn write_json(self, reports: &[impl Serialize], listed: bool) -> Result<(), CommandError> {
        let written = match reports {
            [report] if !listed => serde_json::to_vec_pretty(report),
            reports => serde_json::to_vec_pretty(reports),
        };
        let mut content = written.map_err(|error| failed(&self.path, error.into()))?;
        content.push(b'\n');
        self.replace(&content)
    }

    /// Has the command end because a write has failed with `error`.
    fn fail(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        if !self.failed {
            self.failed = true;
            interrupt::end_because(failed(&self.path, error));
        }
        kind.into()
    }
}

/// For captures: a thread that polls writes them, and has nobody to tell.
impl Write for OutputFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.file.write(octets).map_err(|error| self.fail(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.fail(error))
    }
}
