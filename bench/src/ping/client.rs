//! The end that pings.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use warpline::{Access, ConnectConfig, Connected, Device, MemoryRegion, Revision};
use warpline_tools::error::CommandError;
use warpline_tools::interrupt;

use super::arguments::Ping;
use super::content::Content;
use super::protocol::{ClientAction, ClientState, OutOfPlace};
use crate::endpoint::Driver;
use crate::error::BenchError;
use crate::lane::Lane;
use crate::times::Times;

/// Sends outstanding: the second advertisement of a ping may be posted before the first is acknowledged.
const DEPTH: u32 = 4;
/// What the sink is filled with before it is advertised: no octet of a text, nor the NUL at its end.
const UNWRITTEN: u8 = 0xff;

/// A connection to a server, and the buffers it reads and writes.
pub struct Client {
    lane: Lane,
    source: MemoryRegion,
    sink: MemoryRegion,
    content: Content,
    state: ClientState,
    validate: bool,
    timeout: Duration,
}

/// The result of pings.
#[derive(Default)]
pub struct Pinged {
    /// The time that each took.
    pub times: Times,
    /// Bytes that came back wrong.
    pub corrupt_bytes: u64,
}

impl Pinged {
    /// Adds the pings of `other`.
    pub fn add(&mut self, other: &Self) {
        self.times.add(&other.times);
        self.corrupt_bytes += other.corrupt_bytes;
    }
}

impl Client {
    /// Connects to `peer`, from `core` if there are several. The device has to be polled meanwhile.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn connect(
        device: &Device,
        peer: SocketAddr,
        core: Option<u8>,
        args: &Ping,
    ) -> Result<(Self, Connected), BenchError> {
        let lane = Lane::new(device, DEPTH, true, args.device.timeout())?;
        let buffer = |access| {
            let memory = lane.domain.allocate(args.size as usize, access);
            memory.map_err(|error| BenchError::Memory(error.to_string()))
        };
        let (source, sink) = (buffer(Access::REMOTE_READ)?, buffer(Access::REMOTE_WRITE)?);
        let config = ConnectConfig {
            private_data: args.private_data(),
            markers: args.markers.is_on(),
            nudges: args.nudges.is_on(),
            timeout: args.device.timeout(),
            core,
            ..ConnectConfig::default()
        };
        let config = args.setup.connect(Revision::TwoThenOne, config);
        let connected = lane.qp.connect(peer, &config).map_err(|error| BenchError::Connect(peer, error))?;
        let client = Self {
            lane,
            source,
            sink,
            content: Content::new(args.size as usize),
            state: ClientState::default(),
            validate: args.validate.is_on(),
            timeout: args.device.timeout(),
        };
        Ok((client, connected))
    }

    /// Pings `count` times, or until `interrupted`.
    ///
    /// # Errors
    ///
    /// What ended them early.
    pub fn ping_all(
        &mut self,
        driver: &mut Driver,
        count: u64,
        pinged: &mut Pinged,
    ) -> Result<(), BenchError> {
        for number in 0..count {
            if interrupt::is_requested() {
                break;
            }
            match self.ping(driver, number) {
                Err(BenchError::Command(CommandError::Interrupted)) => break,
                time => pinged.times.record(time?),
            }
            if self.validate {
                pinged.corrupt_bytes += self.corrupt_bytes();
            }
        }
        Ok(())
    }

    /// Makes one ping. Returns the time from the first post to the last message.
    fn ping(&mut self, driver: &mut Driver, number: u64) -> Result<Duration, BenchError> {
        /// Polls between two looks at the clock.
        const POLLS: u32 = 1024;
        let fits = self.source.write(0, self.content.of(number));
        debug_assert!(fits, "the source has the text's length");
        if self.validate {
            self.sink.fill(UNWRITTEN);
        }
        let start = Instant::now();
        self.state.begin().map_err(|error| self.failed(error))?;
        self.advertise(&self.source)?;
        let mut polls = 0;
        loop {
            while let Some(completion) = self.lane.completions.poll() {
                if self.lane.is_closed() {
                    return Err(BenchError::Peer(format!("it closed the connection in ping {number}")));
                }
                if self.lane.message(&completion)?.is_none() {
                    continue;
                }
                match self.state.on_message().map_err(|error| self.failed(error))? {
                    ClientAction::AdvertiseSink => self.advertise(&self.sink)?,
                    ClientAction::Finish => return Ok(start.elapsed()),
                }
            }
            if !driver.poll_once() {
                driver.pause();
            }
            polls += 1;
            if polls % POLLS > 0 {
                continue;
            }
            if interrupt::is_requested() {
                return Err(BenchError::interrupted());
            }
            if start.elapsed() > self.timeout {
                return Err(self.lane.failed(&format!("no answer in time in ping {number}")));
            }
        }
    }

    fn advertise(&self, buffer: &MemoryRegion) -> Result<(), BenchError> {
        let all = buffer.advertisement(0, buffer.len() as u32);
        let advertisement = all.ok_or_else(|| BenchError::Memory("no range".into()))?;
        self.lane.send(&advertisement)
    }

    fn corrupt_bytes(&self) -> u64 {
        let sink = self.sink.to_vec(0, self.sink.len()).unwrap_or_default();
        self.content.corrupt_bytes(&sink)
    }

    fn failed(&self, error: OutOfPlace) -> BenchError {
        self.lane.failed(&error.to_string())
    }

    /// Sends a FIN, and waits for the other end's. The device has to be polled meanwhile.
    pub fn close(self) {
        self.lane.qp.disconnect();
        // The other end may be gone already.
        let _ = self.lane.qp.wait_closed(self.timeout);
    }
}
