//! Exchanges files with another iWARP endpoint, of whatever make: each end writes its whole file into the
//! other's memory by RDMA Writes.
//!
//! The messages are rping's advertisement, 16 octets: the Initiator advertises its buffer, the Responder
//! answers with its own, each end writes its file and then sends the number of bytes that it wrote, as an
//! advertisement with TO 0 and STag 0. When both have said so, the Initiator closes first.
//!
//! The report is one line of JSON. With `--expect-error` the connection must fail; the line then says how.

mod arguments;
mod opening;
mod transfer;

pub use arguments::ExchangeArguments;

use std::fs;
use std::time::SystemTime;

use serde_json::json;
use sha2::{Digest, Sha256};
use warpline_tools::error::CommandError;
use warpline_tools::output::say;

use crate::failure::Failure;
use transfer::{Exchange, Target};

/// Exchanges the files and prints the report.
///
/// # Errors
///
/// [`CommandError::Failed`].
pub fn run(arguments: &ExchangeArguments) -> Result<(), CommandError> {
    say!("{}", outcome(arguments)?);
    Ok(())
}

/// Exchanges the files. Returns the report.
fn outcome(arguments: &ExchangeArguments) -> Result<String, Failure> {
    let file = fs::read(&arguments.send)
        .map_err(|error| Failure::local(format!("{}: {error}", arguments.send.display())))?;
    let device = arguments.device.start()?;
    let domain = device.protection_domain();
    let target = Target::new(&device, &domain, arguments.receive_octets)?;
    let started = SystemTime::now();
    let outcome = Exchange::connect(arguments, &device, &domain, &target, &file).and_then(Exchange::run);
    let seconds = started.elapsed().unwrap_or_default().as_secs_f64();
    match outcome {
        Ok((octets, agreed)) if !arguments.expect_error => {
            let received = target.content(octets)?;
            fs::write(&arguments.receive, &received)
                .map_err(|error| Failure::local(format!("{}: {error}", arguments.receive.display())))?;
            let statistics = device.statistics().map_err(Failure::local)?;
            let line = json!({
                "sent_sha256": sha256(&file),
                "received_sha256": sha256(&received),
                "octets_sent": file.len(),
                "octets_received": octets,
                "octets_outside": target.octets_outside(),
                "seconds": seconds,
                "peer_revision": agreed.peer.map(|peer| peer.revision),
                "peer_ird": agreed.peer.and_then(|peer| peer.depths).map(|depths| depths.ird),
                "peer_ord": agreed.peer.and_then(|peer| peer.depths).map(|depths| depths.ord),
                "version": agreed.version,
                "ird": agreed.depths.ird,
                "ord": agreed.depths.ord,
                "bytes_copied_tx": statistics.bytes_copied_tx,
                "frames_sent": statistics.frames_sent,
                "data_segments_sent": statistics.tcp.data_segments_sent,
                "retransmitted_segments": statistics.tcp.retransmitted_segments,
                "out_of_order_segments": statistics.tcp.out_of_order_segments,
                "by_core": device.cores()?,
            });
            Ok(line.to_string())
        }
        Ok(_) => Err(Failure::local("the exchange succeeded although an error was expected")),
        Err(failure) if arguments.expect_error && failure.code.is_some() => {
            let line = json!({
                "error": failure.text,
                "error_code": failure.code,
                "octets_outside": target.octets_outside(),
            });
            Ok(line.to_string())
        }
        Err(failure) => Err(failure),
    }
}

fn sha256(octets: &[u8]) -> String {
    format!("{:x}", Sha256::digest(octets))
}
