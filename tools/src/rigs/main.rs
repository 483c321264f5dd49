//! Rigs of warpline's tests: ends of connections that scripts drive, a wire with faults, and the memory of
//! reassembly.
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: say! and note!")]

mod adapter;
mod device;
mod exchange;
mod failure;
mod impair;
mod operations;
mod port;
mod reassembly;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpline_tools::error::CommandError;
use warpline_tools::interrupt;
use warpline_tools::output::note;

/// Rigs of the tests of warpline, a software RNIC.
#[derive(Parser, Debug)]
#[command(version, about)]
struct CommandLine {
    /// The rig.
    #[command(subcommand)]
    command: Command,
}

/// The rigs.
#[derive(Subcommand, Debug)]
enum Command {
    /// Join two devices by a wire with faults: loss, delay, reordering, duplication, corruption.
    Impair(impair::Impair),
    /// Measure the memory that a receiver needs for reassembly, by the alignment of FPDUs and the number of
    /// connections.
    Reassembly(reassembly::Reassembly),
    /// Exchange files with another iWARP endpoint by RDMA Writes (for scripts/interop).
    Exchange(exchange::ExchangeArguments),
    /// Obey commands on standard input, an operation each (for scripts/interop).
    Operations(operations::OperationsArguments),
    /// Describe a port of DPDK's, and open it more than once (for scripts/interop).
    Port(port::PortArguments),
}

/// The name of this program, before each of its complaints.
const PROGRAM: &str = "warpline-tools";

fn main() -> ExitCode {
    interrupt::end_on_panics();
    let command = CommandLine::parse().command;
    match interrupt::watch().map_err(CommandError::from).and_then(|()| interrupt::outcome(run(command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            interrupt::end_for(PROGRAM, &error);
            note!("{PROGRAM}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), CommandError> {
    match command {
        Command::Impair(args) => impair::run(&args),
        Command::Reassembly(args) => reassembly::run(&args),
        Command::Exchange(args) => exchange::run(&args),
        Command::Operations(args) => operations::run(&args),
        Command::Port(args) => port::run(&args),
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
