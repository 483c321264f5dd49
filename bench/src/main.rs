//! Benchmarks and tools for warpline.

mod arguments;
mod device;
mod endpoint;
mod ends;
mod error;
mod exchange;
mod failure;
mod floor;
mod impair;
mod interop;
mod interrupt;
mod json;
mod lane;
mod operations;
mod pattern;
mod ping;
mod placement;
mod reassembly;
mod setup;
mod write_bw;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Benchmarks and tools for warpline, a software RNIC.
#[derive(Parser, Debug)]
#[command(version, about)]
struct CommandLine {
    /// The measurement or tool.
    #[command(subcommand)]
    command: Command,
}

/// The measurements and tools.
#[derive(Subcommand, Debug)]
enum Command {
    /// Measure the bandwidth of RDMA Writes whose contents are verified.
    WriteBw(write_bw::WriteBw),
    /// Measure the time of rping's exchange, with rping or another warpline at the other end; contents are
    /// compared.
    Ping(ping::Ping),
    /// Measure what one core can do at most: a CRC pass and a copy pass over frames from a pool.
    Floor(floor::Floor),
    /// Join two devices by a wire with faults: loss, delay, reordering, duplication, corruption.
    Impair(impair::Impair),
    /// Measure the memory that a receiver needs for reassembly, by the alignment of FPDUs and the number of
    /// connections.
    Reassembly(reassembly::Reassembly),
    /// Exchange files with another iWARP endpoint by RDMA Writes (for scripts/interop).
    Exchange(exchange::ExchangeArguments),
    /// Obey commands on standard input, an operation each (for scripts/interop).
    Operations(operations::OperationsArguments),
}

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::WriteBw(args) => write_bw::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Floor(args) => floor::run(&args),
        Command::Impair(args) => impair::run(&args),
        Command::Reassembly(args) => reassembly::run(&args),
        Command::Exchange(args) => exchange::run(&args),
        Command::Operations(args) => operations::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warpline-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }
}
