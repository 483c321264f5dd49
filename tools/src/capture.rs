//! Captures of all frames of a device.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use warpline::link::Device;
use warpline::link::tap::{Tap, TapConfig};

use crate::error::CommandError;
use crate::output::OutputFile;

/// The file of a capture, which the devices of several cores share. Each starts a section of its own, all of
/// the same interface, so that their blocks may stand in any order.
#[derive(Clone, Debug)]
pub struct CaptureFile {
    path: Arc<Path>,
    file: Arc<Mutex<BufWriter<OutputFile>>>,
}

impl CaptureFile {
    /// Empties `file`, which is written from now on.
    ///
    /// # Errors
    ///
    /// [`CommandError::File`].
    pub fn begin(file: OutputFile) -> Result<Self, CommandError> {
        let path = file.path().into();
        Ok(Self { path, file: Arc::new(Mutex::new(BufWriter::new(file.begin()?))) })
    }
}

/// Whole blocks are written at once, so that those of several cores do not mix.
impl Write for CaptureFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(octets)?;
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Returns `device` with its frames captured to `file`. A write that fails then ends the command
/// ([`interrupt`](crate::interrupt)).
///
/// # Errors
///
/// [`CommandError::File`].
pub fn captured<D: Device>(
    device: D,
    file: CaptureFile,
    interface: &str,
) -> Result<Tap<D, CaptureFile>, CommandError> {
    let path = file.path.clone();
    let failed = |error| CommandError::File(path.to_path_buf(), error);
    let mut tap = Tap::new(device, file, &capture_config(interface)).map_err(failed)?;
    // A file that takes nothing is noticed before anything is measured.
    tap.flush().map_err(failed)?;
    Ok(tap)
}

/// Returns the configuration of a capture of all frames. Frames carry [`warpline::now`]: the capture has the
/// time of day at which that was zero.
fn capture_config(interface: &str) -> TapConfig {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = since_1970.saturating_sub(Duration::from_nanos(warpline::now().as_nanos()));
    TapConfig {
        interface_name: interface.into(),
        origin_unix_ns: u64::try_from(origin.as_nanos()).unwrap_or(0),
        snap_bytes: None,
        limit_bytes: None,
        is_shared: true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// What one core writes at once stays together.
    #[test]
    fn blocks_of_several_cores_do_not_mix() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capture");
        fs::write(&path, "what was there before").unwrap();
        let file = CaptureFile::begin(OutputFile::open(&path).unwrap()).unwrap();
        thread::scope(|scope| {
            for core in b'0'..b'4' {
                let mut file = file.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        file.write_all(&[core; 1000]).unwrap();
                    }
                });
            }
        });
        drop(file);
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 4 * 50 * 1000);
        assert!(content.chunks(1000).all(|block| block.iter().all(|octet| *octet == block[0])));
    }
}
