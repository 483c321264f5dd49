//! Benchmarks for warpline.
#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: say! and note!")]

mod arguments;
mod at_core;
mod cache_line;
mod connect_rate;
mod cores;
mod device;
mod endpoint;
mod error;
mod floor;
mod gate;
mod instructions;
mod lane;
mod line_rate;
mod link;
mod notices;
mod pattern;
mod perftest;
mod ping;
mod placement;
mod registrations;
mod tcp_rdma;
mod times;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpline_tools::interrupt;
use warpline_tools::output::note;

use crate::error::BenchError;

/// Benchmarks for warpline, a software RNIC.
#[derive(Parser, Debug)]
#[command(version, about)]
struct CommandLine {
    /// The measurement.
    #[command(subcommand)]
    command: Command,
}

/// The measurements.
#[derive(Subcommand, Debug)]
enum Command {
    /// Measure the bandwidth of RDMA Writes.
    WriteBw(perftest::WriteBw),
    /// Measure the bandwidth of RDMA Reads.
    ReadBw(perftest::ReadBw),
    /// Measure the bandwidth of Sends.
    SendBw(perftest::SendBw),
    /// Measure the rate of Atomic Operations.
    AtomicBw(perftest::AtomicBw),
    /// Measure the latency of RDMA Writes: half of a round trip.
    WriteLat(perftest::WriteLat),
    /// Measure the latency of RDMA Reads.
    ReadLat(perftest::ReadLat),
    /// Measure the latency of Sends: half of a round trip.
    SendLat(perftest::SendLat),
    /// Measure the latency of Atomic Operations.
    AtomicLat(perftest::AtomicLat),
    /// Measure the time of rping's exchange, with rping or another warpline at the other end; contents are
    /// compared.
    Ping(ping::Ping),
    /// Measure what this machine allows at most: CRC and copy passes of one core, the hand-off between two
    /// cores, a frame on a bare ring, and the packet rate of a device that does nothing.
    Floor(floor::Floor),
    /// Measure how fast one core sends into a device that drops frames, and how fast it receives from a
    /// generator: packets a second, and processor cycles a packet and a byte.
    LineRate(line_rate::LineRate),
    /// Measure a stream of transfers over TCP, placed by the TCP RDMA option or read: how fast, and how often
    /// a byte is copied.
    TcpRdma(tcp_rdma::TcpRdma),
    /// Measure how many connections are opened and closed in a second, or the memory that many open ones
    /// take.
    ConnectRate(connect_rate::ConnectRate),
    /// Measure the time that a cache line takes from one core to another and back.
    CacheLine(cache_line::CacheLine),
    /// Measure what the cores of one device cost each other: their rate beside as many devices of one core,
    /// deregistering memory that all have, a core that is not polled, and frames handed over.
    Cores(cores::CoresCommand),
    /// Transfer in virtual time, for scripts/bench instructions to count instructions.
    #[command(hide = true)]
    Instructions(instructions::Instructions),
}

/// The name of this program, before each of its complaints.
const PROGRAM: &str = "warpline-bench";

fn main() -> ExitCode {
    interrupt::end_on_panics();
    let command = CommandLine::parse().command;
    match interrupt::watch().map_err(BenchError::from).and_then(|()| interrupt::outcome(run(command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let BenchError::Command(error) = &error {
                interrupt::end_for(PROGRAM, error);
            }
            note!("{PROGRAM}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), BenchError> {
    match command {
        Command::WriteBw(args) => perftest::run(args),
        Command::ReadBw(args) => perftest::run(args),
        Command::SendBw(args) => perftest::run(args),
        Command::AtomicBw(args) => perftest::run(args),
        Command::WriteLat(args) => perftest::run(args),
        Command::ReadLat(args) => perftest::run(args),
        Command::SendLat(args) => perftest::run(args),
        Command::AtomicLat(args) => perftest::run(args),
        Command::Ping(args) => ping::run(&args),
        Command::Floor(args) => floor::run(&args),
        Command::LineRate(args) => line_rate::run(&args),
        Command::TcpRdma(args) => tcp_rdma::run(&args),
        Command::ConnectRate(args) => connect_rate::run(&args),
        Command::CacheLine(args) => cache_line::run(&args),
        Command::Cores(args) => cores::run(&args),
        Command::Instructions(args) => instructions::run(&args),
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
