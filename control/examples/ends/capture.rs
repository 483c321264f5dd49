//! `--pcap FILE`, anywhere among the arguments of an example: the frames of its first device go to a capture
//! in the pcapng format.

use std::env;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use warpline::link::tap::{Tap, TapConfig};
use warpline::open::OpenError;
use warpline::open::{self, DpdkDevice};
use warpline::{Device, DeviceConfig, DeviceName, PollThread, Turns};

use super::Outcome;

/// The file that was asked for, until there is a device.
static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Returns the arguments of the command line other than `--pcap FILE`, which [`open`] and [`start`] obey.
pub fn arguments() -> Outcome<Vec<String>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--pcap") {
        let file = arguments.get(at + 1).ok_or("--pcap takes the name of a file")?.into();
        arguments.drain(at..at + 2);
        *FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }
    Ok(arguments)
}

/// Opens the device that `name` names, as [`Device::open`] does.
pub fn open(name: &DeviceName) -> Outcome<Device> {
    if FILE.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
        let device = Device::open(name)?;
        warn(&device);
        return Ok(device);
    }
    let eal = open::eal(&[name], "")?;
    let config = DeviceConfig { memory: open::hugepages(eal), ..name.config() };
    start(open::port(eal, name)?, &config)
}

/// Opens the device that `name` names for one thread that takes the turns at it, as
/// [`Device::open_shared`] does: without turns if it has several cores, or frames go to a capture.
#[allow(dead_code, reason = "one example has such a thread")]
pub fn open_shared(name: &DeviceName) -> Outcome<(Device, Option<Turns>)> {
    if FILE.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return Ok((open(name)?, None));
    }
    match Device::open_shared(name) {
        Ok((device, turns)) => {
            warn(&device);
            Ok((device, Some(turns)))
        }
        Err(OpenError::SharedCores { .. }) => Ok((open(name)?, None)),
        Err(error) => Err(error.into()),
    }
}

fn warn(device: &Device) {
    for warning in device.warnings() {
        eprintln!("warning: {warning}");
    }
}

/// Starts a core on `device` with a thread that polls it.
pub fn start(device: DpdkDevice, config: &DeviceConfig) -> Outcome<Device> {
    let file = FILE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(path) = file else { return Ok(Device::start(device, config, PollThread::default())?) };
    let out = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Frames carry the time since this was zero.
    let origin = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let origin = origin.saturating_sub(Duration::from_nanos(warpline::now().as_nanos()));
    let capture = TapConfig { origin_unix_ns: u64::try_from(origin.as_nanos())?, ..TapConfig::default() };
    let tap = Tap::new(device, BufWriter::new(out), &capture)?;
    Ok(Device::start(tap, config, PollThread::default())?)
}
