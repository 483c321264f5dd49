//! Runs a program that was written for libibverbs and librdmacm on warpline.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Parser;
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};
use warpline::{DEVICE_VARIABLE, DeviceKind, DeviceName, open};
use warpline_verbs::config;

/// The library that stands in front of rdma-core's.
const LIBRARY: &str = "libwarpline_verbs.so";
/// What the dynamic linker puts in front of a program's libraries.
const PRELOAD: &str = "LD_PRELOAD";
const INTERFACES: &str = "/sys/class/net";

/// Runs a program that was written for libibverbs and librdmacm on warpline: RDMA (iWARP) over a network
/// interface, in the program's own process, without an RDMA adapter or a module of the kernel.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Args {
    /// The device; without it the one of WARPLINE_DEVICE, or of /etc/warpline.conf (a line `device = NAME`)
    #[arg(long, short, value_name = "NAME")]
    device: Option<DeviceName>,
    /// Lists the interfaces of this machine that can be used so
    #[arg(long, short)]
    list: bool,
    /// The program, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "list")]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  warpline-run --list
  warpline-run --device packet:eth0 rping -s -v
  warpline-run --device packet:eth0 ib_write_bw -R 198.18.0.2";

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.list.then(list) {
        // Whoever reads has seen enough.
        Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Some(listed) => listed.map_err(|error| error.to_string()),
        None => run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("warpline-run: {words}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the program in place of this one.
fn run(args: Args) -> Result<(), String> {
    let device = match args.device {
        Some(device) => device,
        None => config::device()?.ok_or(
            "no device: name one, as in `warpline-run --device packet:eth0 PROGRAM`; `warpline-run --list` \
             lists them",
        )?,
    };
    check(&device)?;
    let library = library()?;
    pass_capabilities();
    let mut words = args.program.into_iter();
    let program = words.next().ok_or("no program")?;
    let mut front = library.into_os_string();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        front.push(":");
        front.push(others);
    }
    let mut command = Command::new(&program);
    command.args(words).env(PRELOAD, front).env(DEVICE_VARIABLE, device.to_string());
    // It returns only with an error.
    Err(format!("{} does not start: {}", program.display(), command.exec()))
}

/// Looks at the device if that is quick, so that what is wrong is said here and not by each program in its
/// own words. Without the capability it is opened, for what is said then.
fn check(device: &DeviceName) -> Result<(), String> {
    if device.kind() != DeviceKind::Packet {
        return Ok(());
    }
    let device = open::resolved(device).map_err(|error| error.to_string())?;
    open::inspect(&device).map_err(|error| error.to_string())?;
    let may = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::NET_RAW));
    if may { Ok(()) } else { open::packet(&device).map(drop).map_err(|error| error.to_string()) }
}

/// Returns where the library is: beside this program, where cargo leaves that of tests, or where it is
/// installed. Of several the newest: a build for tests leaves an older one in the first place.
fn library() -> Result<PathBuf, String> {
    let own =
        env::current_exe().map_err(|error| format!("where this program is cannot be found: {error}"))?;
    let directory = own.parent().map(PathBuf::from).unwrap_or_default();
    let places = ["", "deps", "../lib"].map(|place| directory.join(place).join(LIBRARY));
    let age = |place: &PathBuf| Some((fs::metadata(place).ok()?.modified().ok()?, place.clone()));
    let newest = places.iter().filter_map(age).max();
    newest.map(|(_, place)| place).ok_or_else(|| {
        let directory = directory.display();
        format!("{LIBRARY} is neither in {directory} nor in {directory}/../lib: build it with `cargo build`")
    })
}

/// Has the program keep what this one may do with network interfaces (`CAP_NET_RAW`), so that a user without
/// privileges runs programs by a launcher with that capability.
fn pass_capabilities() {
    let passed = CapabilitySet::NET_RAW;
    let Ok(mut sets) = capabilities(None) else { return };
    if !sets.permitted.contains(passed) || rustix::process::geteuid().is_root() {
        return;
    }
    sets.inheritable |= passed;
    // What does not go is said when the program opens the device.
    let _ = set_capabilities(None, sets).and_then(|()| configure_capability_in_ambient_set(passed, true));
}

/// Prints the interfaces of this machine, with their addresses or what keeps them from use.
fn list() -> io::Result<()> {
    let mut names: Vec<String> = fs::read_dir(INTERFACES)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != "lo")
        .collect();
    names.sort();
    let mut out = io::stdout().lock();
    for name in names {
        let Ok(device) = format!("{}:{name}", DeviceKind::Packet).parse::<DeviceName>() else { continue };
        match open::resolved(&device) {
            Ok(resolved) => {
                let addresses: Vec<_> = resolved.addresses().iter().map(ToString::to_string).collect();
                writeln!(out, "{device}  mtu {}  {}", resolved.mtu(), addresses.join("  "))?;
            }
            Err(error) => writeln!(out, "{device}  not usable: {error}")?,
        }
    }
    Ok(())
}
