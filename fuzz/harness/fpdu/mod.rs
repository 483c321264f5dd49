//! A stream of FPDUs in every mode (Markers, CRCs, DDP version 0), damaged or not, in arbitrary segments that
//! arrive in arbitrary order, repeated and late. An independent oracle (`mpa_reference`), which reads the
//! stream in order and octet by octet, determines the expected result.
//!
//! [`run`] takes one input; libFuzzer drives it from `fuzz/`, the tests replay seeds and regressions.
#![allow(dead_code, reason = "the harness of the whole receive path uses all of what is shared")]

#[path = "../receive/checksum.rs"]
mod checksum;
#[path = "../receive/device.rs"]
mod device;
#[path = "../receive/frames.rs"]
mod frames;
#[path = "../receive/input.rs"]
mod input;
mod link;
#[path = "../../../dataplane/tests/reference/mpa/mod.rs"]
mod mpa_reference;
mod outcome;
mod speech;
#[path = "../receive/watch.rs"]
mod watch;

use input::Input;
use link::Link;
use outcome::Outcome;
use speech::{Mode, Speech};

/// Steps of delivery of one input: more would only be slower.
const STEPS: usize = 200;
/// Number of times that the rest of the stream is sent before it must have arrived: more often than an FPDU
/// with a wrong CRC is tolerated, plus some for segments that bounds refused.
const ROUNDS: usize = 40;

/// Observations of a run, for tests that check the coverage of inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// FPDUs that the oracle found before any error.
    pub fpdus: usize,
    /// The code of the error, or 0.
    pub error: u8,
    pub markers: bool,
    pub crc: bool,
}

/// Runs one input.
///
/// # Panics
///
/// If the core and the oracle reach different results.
pub fn run(octets: &[u8]) -> Summary {
    let mut input = Input::new(octets);
    let mode = Mode::of(&mut input);
    let speech = Speech::of(&mut input, mode);
    let mut link = Link::new(&mut input, mode);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        deliver(&mut link, &mut input, &speech);
    }
    for _ in 0..ROUNDS {
        if link.failed().is_some() || link.received() == speech.octets.len() {
            break;
        }
        let from = link.received();
        link.say_all(&speech.octets, from, speech.octets.len());
        link.pass(1_000_000);
    }
    let outcome = Outcome::of(&speech);
    outcome.check(&mut link, &speech);
    let fault = outcome.fault.map_or(0, |fault| fault as u8);
    Summary { fpdus: outcome.delivered.len(), error: fault, markers: mode.markers, crc: mode.crc }
}

/// One step: some part of the stream, or time.
fn deliver(link: &mut Link, input: &mut Input<'_>, speech: &Speech) {
    let all = speech.octets.len();
    if all == 0 {
        input.octet();
        return;
    }
    match input.below(8) {
        0 | 1 => {
            let from = usize::from(input.u16()) % all;
            let octets = usize::from(input.u16() % 2048);
            link.say_all(&speech.octets, from, (from + octets).min(all));
        }
        // FPDUs, whole.
        2 | 3 => {
            let first = input.below(speech.fpdus.len());
            let last = (first + input.below(4)).min(speech.fpdus.len() - 1);
            link.say_all(&speech.octets, speech.fpdus[first].start, speech.fpdus[last].end);
        }
        // A part of an FPDU at its front or its back.
        4 => {
            let fpdu = &speech.fpdus[input.below(speech.fpdus.len())];
            let octets = 1 + usize::from(input.u16()) % (fpdu.end - fpdu.start);
            if input.octet() & 1 == 0 {
                link.say_all(&speech.octets, fpdu.start, fpdu.start + octets);
            } else {
                link.say_all(&speech.octets, fpdu.end - octets, fpdu.end);
            }
        }
        5 => {
            let from = link.received();
            let octets = usize::from(input.u16() % 4096);
            link.say_all(&speech.octets, from, (from + octets).min(all));
        }
        // Acknowledged octets are repeated with other contents: the core must ignore them.
        6 => {
            let received = link.received();
            let from = usize::from(input.u16()) % (received + 1);
            let other = vec![input.octet(); received.min(from + 1400)];
            link.say_all(&other, from, received.min(from + 1400));
        }
        _ => link.pass(1 << (input.octet() % 30)),
    }
}
