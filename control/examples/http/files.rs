//! The files of one directory, by the targets of requests. The kernel resolves every name below the directory
//! (openat2 with `RESOLVE_BENEATH`), so neither `..` nor a symbolic link leads out of it, whoever changes the
//! directory meanwhile.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// A directory whose files are served.
#[derive(Debug)]
pub struct Directory {
    root: OwnedFd,
    uploads: AtomicU64,
}

/// A file that is being written. It gets its name when it is [whole](Self::keep); until then it has another,
/// and is removed if it is dropped.
#[derive(Debug)]
pub struct Upload {
    pub file: File,
    parent: OwnedFd,
    part: PathBuf,
    name: PathBuf,
    kept: bool,
}

impl Directory {
    /// # Errors
    ///
    /// That `path` is not a directory.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())?;
        Ok(Self { root, uploads: AtomicU64::new(0) })
    }

    /// Opens the file of a target, and returns what is known of it.
    ///
    /// # Errors
    ///
    /// That there is no such file below the directory.
    pub fn read(&self, target: &str) -> io::Result<(File, Metadata)> {
        // A FIFO without a writer must not hold up the server.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.below(&relative(target)?, flags)?);
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((file, meta))
    }

    /// Makes the file of a target, in a directory that is there.
    ///
    /// # Errors
    ///
    /// That there is no such directory below this one, or that the name cannot be a file's.
    pub fn write(&self, target: &str) -> io::Result<Upload> {
        let path = relative(target)?;
        let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let parent = self.below(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let number = self.uploads.fetch_add(1, Ordering::Relaxed);
        let part = PathBuf::from(format!(".upload-{}-{number}.part", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat2(&parent, &part, flags, Mode::from_raw_mode(0o644), ResolveFlags::BENEATH)?;
        Ok(Upload { file: file.into(), parent, part, name: name.into(), kept: false })
    }

    fn below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(self.root.as_fd(), path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }
}

impl Upload {
    /// Gives the file its name; a file or link that has it is replaced, not followed. Returns true if the
    /// name is new.
    ///
    /// # Errors
    ///
    /// That the name is a directory's.
    pub fn keep(mut self) -> io::Result<bool> {
        let names = (&self.part, &self.name);
        let created =
            match renameat_with(&self.parent, names.0, &self.parent, names.1, RenameFlags::NOREPLACE) {
                Ok(()) => true,
                // Not every file system can tell.
                Err(Errno::EXIST | Errno::INVAL) => {
                    renameat(&self.parent, names.0, &self.parent, names.1)?;
                    false
                }
                Err(error) => return Err(error.into()),
            };
        self.kept = true;
        Ok(created)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.kept {
            // It may have been removed by others.
            let _ = unlinkat(&self.parent, &self.part, AtFlags::empty());
        }
    }
}

/// Returns the path of a target: percent signs decoded, without query, relative.
fn relative(target: &str) -> io::Result<PathBuf> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.trim_start_matches('/').as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (*first, after) {
            (b'%', [high, low, after @ ..]) => (hex(*high)? << 4 | hex(*low)?, after),
            (b'%', _) => return Err(io::ErrorKind::NotFound.into()),
            (byte, after) => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    if bytes.is_empty() || bytes.contains(&0) {
        return Err(io::ErrorKind::NotFound.into());
    }
    String::from_utf8(bytes).map(PathBuf::from).map_err(|_| io::ErrorKind::NotFound.into())
}

fn hex(digit: u8) -> io::Result<u8> {
    (digit as char).to_digit(16).map(|digit| digit as u8).ok_or_else(|| io::ErrorKind::NotFound.into())
}
