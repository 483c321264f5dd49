//! A device whose frames the harness inserts and removes. It keeps received octets in buffers of exactly
//! their length, so that a sanitizer detects a read beyond them, and counts the frames that are alive.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use warpline_dataplane::device::{
    Capabilities, ChecksumRequest, ChecksumStatus, Device, Frame, ReceivedChecksums,
};
use warpline_dataplane::memory::Region;
use warpline_dataplane::time::Instant;
use warpline_dataplane::wire::ethernet::MacAddress;

use super::checksum;

/// Maximum length of the headers at the front of a received frame: the device never splits them.
const HEADERS_OCTETS: usize = 14 + 4 + 60 + 60;

/// State shared by the device and the harness.
struct Shared {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    /// Frames that may be alive at once.
    limit: usize,
    /// Frames that may still be transmitted; `None` without limit.
    credit: Option<usize>,
}

/// The harness's side of the device.
#[derive(Clone)]
pub struct Port {
    mtu_octets: usize,
    shared: Arc<Mutex<Shared>>,
    alive: Arc<AtomicUsize>,
}

impl Port {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame arrives. The device drops it if it is longer than the MTU with a VLAN tag allows.
    pub fn put(&self, octets: Vec<u8>) {
        if octets.len() <= 14 + 4 + self.mtu_octets {
            self.lock().arrived.push_back(octets);
        }
    }

    pub fn take(&self) -> Option<Vec<u8>> {
        self.lock().sent.pop_front()
    }

    pub fn set_limit(&self, frames: usize) {
        self.lock().limit = frames;
    }

    pub fn set_credit(&self, frames: Option<usize>) {
        self.lock().credit = frames;
    }

    /// Frames that exist, received and to be sent.
    pub fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }
}

/// How the device behaves.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    pub mtu_octets: usize,
    pub frames: usize,
    /// It fills in checksums and supports payload by reference.
    pub offloads: bool,
    /// It verifies checksums of received frames.
    pub verifies: bool,
    /// It returns long frames in pieces of this many octets.
    pub piece_octets: Option<usize>,
}

pub struct FuzzDevice {
    port: Port,
    mac: MacAddress,
    behaviour: Behaviour,
}

impl FuzzDevice {
    pub fn new(mac: MacAddress, behaviour: Behaviour) -> (Self, Port) {
        let shared =
            Shared { arrived: VecDeque::new(), sent: VecDeque::new(), limit: behaviour.frames, credit: None };
        let mtu_octets = behaviour.mtu_octets;
        let port = Port { mtu_octets, shared: Arc::new(Mutex::new(shared)), alive: Arc::default() };
        (Self { port: port.clone(), mac, behaviour }, port)
    }

    fn frame(&self, pieces: Vec<Vec<u8>>, checksums: ReceivedChecksums) -> FuzzFrame {
        self.port.alive.fetch_add(1, Ordering::Relaxed);
        let room = 14 + self.behaviour.mtu_octets;
        let port = self.port.clone();
        FuzzFrame { pieces, by_reference: false, room, checksums, request: None, port }
    }

    fn split(&self, octets: Vec<u8>) -> Vec<Vec<u8>> {
        let Some(piece_octets) = self.behaviour.piece_octets.filter(|_| octets.len() > HEADERS_OCTETS) else {
            return vec![octets];
        };
        let (head, rest) = octets.split_at(HEADERS_OCTETS);
        let rest = rest.chunks(piece_octets).map(<[u8]>::to_vec);
        core::iter::once(head.to_vec()).chain(rest).collect()
    }

    fn verdict(&self, octets: &[u8]) -> ReceivedChecksums {
        if !self.behaviour.verifies {
            return ReceivedChecksums::default();
        }
        let status = |holds: Option<bool>| match holds {
            Some(true) => ChecksumStatus::Good,
            Some(false) => ChecksumStatus::Bad,
            None => ChecksumStatus::Unknown,
        };
        ReceivedChecksums {
            ip: status(checksum::ipv4_holds(octets)),
            tcp: status(checksum::tcp_holds(octets)),
        }
    }
}

impl Device for FuzzDevice {
    type Frame = FuzzFrame;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu_bytes: self.behaviour.mtu_octets,
            transmit_checksums: self.behaviour.offloads,
            transmit_ip_checksums: self.behaviour.offloads,
            gather: self.behaviour.offloads,
            super_frame_bytes: self.behaviour.mtu_octets,
            super_frame_pieces: usize::MAX,
            frames: self.behaviour.frames,
            frame_bytes: self.behaviour.mtu_octets + 18,
        }
    }

    fn mac(&self) -> MacAddress {
        self.mac
    }

    fn receive(&mut self, _now: Instant, frames: &mut Vec<FuzzFrame>, limit: usize) -> usize {
        let mut taken = 0;
        while taken < limit {
            let mut shared = self.port.lock();
            let Some(octets) = shared.arrived.pop_front() else { break };
            let full = self.port.alive() >= shared.limit;
            drop(shared);
            if !full {
                let checksums = self.verdict(&octets);
                frames.push(self.frame(self.split(octets), checksums));
                taken += 1;
            }
        }
        taken
    }

    fn allocate(&mut self) -> Option<FuzzFrame> {
        let full = self.port.alive() >= self.port.lock().limit;
        (!full).then(|| self.frame(vec![Vec::new()], ReceivedChecksums::default()))
    }

    fn transmit(&mut self, _now: Instant, frames: &mut Vec<FuzzFrame>) -> usize {
        let mut shared = self.port.lock();
        let room = shared.credit.unwrap_or(usize::MAX).min(frames.len());
        for frame in frames.drain(..room) {
            let mut octets = frame.pieces.concat();
            if let Some(request) = frame.request {
                checksum::complete(&mut octets, request);
            }
            shared.sent.push_back(octets);
        }
        if let Some(credit) = &mut shared.credit {
            *credit -= room;
        }
        room
    }
}

pub struct FuzzFrame {
    /// At least one.
    pieces: Vec<Vec<u8>>,
    /// The last piece refers to octets by reference: nothing is appended to it.
    by_reference: bool,
    /// Octets a frame holds.
    room: usize,
    checksums: ReceivedChecksums,
    request: Option<ChecksumRequest>,
    port: Port,
}

impl Frame for FuzzFrame {
    fn piece(&self, index: usize) -> Option<&[u8]> {
        self.pieces.get(index).map(Vec::as_slice)
    }

    fn first_mut(&mut self) -> &mut [u8] {
        &mut self.pieces[0]
    }

    fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        if self.len() + octets > self.room {
            return None;
        }
        if core::mem::take(&mut self.by_reference) {
            self.pieces.push(Vec::new());
        }
        let piece = self.pieces.last_mut()?;
        let start = piece.len();
        piece.resize(start + octets, 0xdd);
        piece.get_mut(start..)
    }

    fn append_region(&mut self, region: &Region, offset: usize, octets: usize) -> bool {
        let mut copy = vec![0; octets];
        if self.len() + octets > self.room || !region.read(offset, &mut copy) {
            return false;
        }
        self.pieces.push(copy);
        self.by_reference = true;
        true
    }

    fn copy_part(&self, offset: usize, octets: usize) -> Option<Self> {
        let part = self.pieces.concat().get(offset..offset.checked_add(octets)?)?.to_vec();
        if self.port.alive() >= self.port.lock().limit {
            return None;
        }
        self.port.alive.fetch_add(1, Ordering::Relaxed);
        let (room, checksums, port) = (self.room, self.checksums, self.port.clone());
        Some(Self { pieces: vec![part], by_reference: false, room, checksums, request: None, port })
    }

    fn checksums(&self) -> ReceivedChecksums {
        self.checksums
    }

    fn request_checksums(&mut self, request: ChecksumRequest) {
        self.request = Some(request);
    }
}

impl Drop for FuzzFrame {
    fn drop(&mut self) {
        self.port.alive.fetch_sub(1, Ordering::Relaxed);
    }
}
