//! Captures the frames of one simulation: a digest, and the frames themselves on request.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};
use warpline_dataplane::device::sim::{End, Network, Verdict};
use warpline_dataplane::statistics::Statistics;
use warpline_dataplane::time::Instant;

struct Sent {
    digest: Sha256,
    frames: u64,
    octets: u64,
    /// One line per frame, if the frames are wanted.
    text: Option<String>,
}

impl Sent {
    fn add(&mut self, end: End, at: Instant, frame: &[u8]) {
        let (code, arrow) = match end {
            End::A => (0, '>'),
            End::B => (1, '<'),
        };
        self.digest.update([code]);
        self.digest.update(at.as_nanos().to_be_bytes());
        self.digest.update((frame.len() as u32).to_be_bytes());
        self.digest.update(frame);
        self.frames += 1;
        self.octets += frame.len() as u64;
        if let Some(text) = &mut self.text {
            write!(text, "{:>15} {arrow} ", at.as_nanos()).unwrap();
            for octet in frame {
                write!(text, "{octet:02x}").unwrap();
            }
            text.push('\n');
        }
    }
}

/// Records the frames of the networks that it watches.
pub struct Capture {
    sent: Arc<Mutex<Sent>>,
    /// Where the frames go, if they are wanted.
    file: Option<PathBuf>,
}

impl Capture {
    pub fn new(name: &str) -> Self {
        let file =
            std::env::var_os("WARPLINE_FRAMES").map(|dir| PathBuf::from(dir).join(format!("{name}.txt")));
        let text = file.is_some().then(String::new);
        let sent = Sent { digest: Sha256::new(), frames: 0, octets: 0, text };
        Self { sent: Arc::new(Mutex::new(sent)), file }
    }

    /// Records every frame from now on, before the network loses, delays or changes it.
    pub fn watch(&self, network: &Network) {
        for end in [End::A, End::B] {
            let sent = self.sent.clone();
            network.set_filter(end, move |at, frame| {
                sent.lock().unwrap().add(end, at, frame);
                Verdict::Pass
            });
        }
    }

    /// Adds the counters of a core to the digest, but for those of the way that its segments took, and of the
    /// steps in its trees, which only the general way takes.
    pub fn add_counters(&self, counters: &Statistics) {
        let mut counters = counters.clone();
        counters.segments_predicted = 0;
        counters.nodes_visited = 0;
        self.sent.lock().unwrap().digest.update(format!("{counters:?}"));
    }

    /// Returns the number of frames, of octets, and the digest, as the file has them.
    pub fn finish(self) -> String {
        let sent = self.sent.lock().unwrap();
        if let (Some(file), Some(text)) = (&self.file, &sent.text) {
            std::fs::write(file, text).unwrap();
        }
        let mut line = format!("{} {} ", sent.frames, sent.octets);
        for octet in sent.digest.clone().finalize() {
            write!(line, "{octet:02x}").unwrap();
        }
        line
    }
}
