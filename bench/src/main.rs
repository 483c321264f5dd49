//! Benchmarks and tools for warpline.

mod backend;
mod cli;
mod device;
mod endpoint;
mod ends;
mod floor;
mod impair;
mod interrupt;
mod lane;
mod pattern;
mod ping;
mod placement;
mod reassembly;
mod report;
#[path = "../../control/examples/file_exchange/setup.rs"]
mod setup;
mod write_bw;

use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};

/// Why a measurement could not be made. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Backend(#[from] backend::BackendError),
    #[error(transparent)]
    Open(#[from] warpline::open::OpenError),
    #[error(transparent)]
    Start(#[from] warpline::StartError),
    #[error(transparent)]
    Stopped(#[from] warpline::Stopped),
    #[error(
        "no memory for the buffers: {0}; smaller --size, fewer --qps, or more hugepages (vm.nr_hugepages)"
    )]
    Memory(String),
    #[error("CPU {0} cannot be used (taskset -p shows what is allowed)")]
    Pin(usize),
    #[error(
        "with backend {0}, give --listen ADDR:PORT at one end and HOST:PORT with --address ADDR/PREFIX at the other"
    )]
    WhichEnd(&'static str),
    #[error("backend ring has both ends in this process: leave out --listen, --address and HOST:PORT")]
    RingHasBothEnds,
    #[error("connecting to {0}: {1}")]
    Connect(std::net::SocketAddr, warpline::ConnectError),
    #[error("{0}")]
    Setup(String),
    #[error("the other end: {0}")]
    Peer(String),
    #[error("{0}: {1}")]
    File(std::path::PathBuf, std::io::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0} octets arrived wrong")]
    Corrupt(u64),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::WriteBw(args) => write_bw::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Floor(args) => floor::run(&args),
        Command::Impair(args) => impair::run(&args),
        Command::Reassembly(args) => reassembly::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warpline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
