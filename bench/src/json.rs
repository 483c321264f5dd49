//! Reports as JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use crate::error::BenchError;

/// Writes reports to the file at `path`: one object, or a list if `listed`.
///
/// # Errors
///
/// [`BenchError::File`].
pub fn write_json(path: &Path, reports: &[impl Serialize], listed: bool) -> Result<(), BenchError> {
    write(path, reports, listed).map_err(|error| BenchError::File(path.into(), error))
}

fn write(path: &Path, reports: &[impl Serialize], listed: bool) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    match reports {
        [report] if !listed => serde_json::to_writer_pretty(&mut out, report)?,
        reports => serde_json::to_writer_pretty(&mut out, reports)?,
    }
    out.write_all(b"\n")?;
    out.flush()
}
