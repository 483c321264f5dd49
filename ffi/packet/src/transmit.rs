//! Frames out: a burst of them is handed to the kernel by one system call, which copies them.
//!
//! A transmit ring (`PACKET_TX_RING` of packet(7)) spares no copy. The kernel refers to its slots instead of
//! copying them, but each frame has to be copied into its slot; and where a frame goes to another socket or
//! stack of the same machine, as over a veth pair, the kernel replaces these references by copies of its own.

use core::marker::PhantomData;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::offload::{self, OFFLOAD_HEADER_OCTETS, Offload};

/// Frames of a burst.
const BURST_FRAMES: usize = 64;

/// Pieces of a burst beside the heads of its frames.
const BURST_PIECES: usize = 256;

/// Octets at the front of a frame that a burst has a copy of, in which they can be changed: all headers of a
/// TCP segment, 14 + 4 + 40 + 60, fit.
const HEAD_OCTETS: usize = 128;

/// The shortest frame: an Ethernet header.
pub(crate) const FRAME_LEAST_OCTETS: usize = 14;

/// Times in a row that the interface may refuse one frame before the frame is given up. A full queue has
/// room sooner or later. A veth pair without a carrier, or whose other end has a smaller MTU, and a rule that
/// drops the frame refuse it each time, and all frames after it would wait.
const REFUSALS_MAX: u32 = 256;

/// The shortest time for so many refusals.
const REFUSAL_TIME: Duration = Duration::from_millis(100);

/// Why the rest of a burst was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The interface is busy, or the frames on their way have all the memory that the socket may have. The
    /// rest should be offered again soon. A frame that the interface refuses 256 times in a row, and for a
    /// tenth of a second, is given up and counted ([`Statistics::refused_frames`]).
    ///
    /// [`Statistics::refused_frames`]: crate::Statistics::refused_frames
    Busy,
    /// The interface is down.
    Down,
    /// The interface is gone for good from this network namespace, and another of its name would be a
    /// different one: nothing will be sent or received.
    Gone,
}

/// What became of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Sent {
    /// Frames from the front of the burst that the kernel has taken, or that were given up. That it has taken
    /// them does not mean that they arrive: without a carrier, most interfaces take frames and drop them.
    pub frames: usize,
    /// Why there are not more, if there are not.
    pub stopped: Option<Stopped>,
}

/// Why a frame is not in the burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPushed {
    /// The burst has room for no more: send it first.
    Full,
    /// The frame has fewer than 14 octets, or more than the socket's largest; it has too many pieces; or its
    /// offload refers to octets outside the frame. It is counted ([`Statistics::refused_frames`]).
    ///
    /// [`Statistics::refused_frames`]: crate::Statistics::refused_frames
    Refused,
}

/// The front of a frame after the header of its offloads.
#[derive(Clone)]
#[repr(C)]
struct Head {
    offload: [u8; OFFLOAD_HEADER_OCTETS],
    octets: [u8; HEAD_OCTETS],
}

/// What a frame of a burst has.
#[derive(Clone, Copy)]
struct Entry {
    head_octets: usize,
    /// Pieces beside the head.
    pieces: usize,
}

/// The memory of bursts, and what becomes of them.
pub(crate) struct Transmitter {
    frame_octets: usize,
    heads: Box<[Head]>,
    entries: Vec<Entry>,
    /// The pieces of all frames but their heads, in their order.
    pieces: Vec<libc::iovec>,
    /// For the system call: the pieces of all frames, and the messages that refer to them.
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// Times in a row that the interface has refused the same frame.
    refusals: u32,
    /// The time of the first of these refusals.
    refused_since: Option<Instant>,
    pub(crate) sent_frames: u64,
    pub(crate) refused_frames: u64,
}

// SAFETY: the pointers are to octets that a burst borrows, and used while it lives only.
unsafe impl Send for Transmitter {}

impl Transmitter {
    pub(crate) fn new(frame_octets: usize) -> Self {
        let head = Head { offload: [0; OFFLOAD_HEADER_OCTETS], octets: [0; HEAD_OCTETS] };
        Self {
            frame_octets,
            heads: vec![head; BURST_FRAMES].into_boxed_slice(),
            entries: Vec::with_capacity(BURST_FRAMES),
            pieces: Vec::with_capacity(BURST_PIECES),
            vectors: Vec::with_capacity(BURST_PIECES + BURST_FRAMES),
            messages: Vec::with_capacity(BURST_FRAMES),
            refusals: 0,
            refused_since: None,
            sent_frames: 0,
            refused_frames: 0,
        }
    }

    #[inline]
    pub(crate) fn burst<'s, 'f>(&'s mut self, socket: BorrowedFd<'s>) -> Burst<'s, 'f> {
        self.entries.clear();
        self.pieces.clear();
        Burst { transmitter: self, socket, frames: PhantomData }
    }

    /// Has the kernel take the frames of the burst from `first` on. Returns how many it took, or the error of
    /// the first.
    ///
    /// The socket remembers that the interface was down, and the first call after it is up again returns that
    /// error, and clears it. A second call says whether the interface is down now.
    fn send_from(&mut self, first: usize, socket: BorrowedFd<'_>) -> Result<usize, Option<i32>> {
        self.assemble(first);
        let messages = self.messages.as_mut_ptr();
        let count = self.messages.len() as libc::c_uint;
        let mut was_down = false;
        loop {
            // SAFETY: each message refers to vectors, which `assemble` has made, and they to octets which the
            // burst borrows or, the heads, `self` owns. The kernel reads them alone.
            let result = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages, count, libc::MSG_DONTWAIT) };
            if let Ok(taken) = usize::try_from(result) {
                return Ok(taken);
            }
            let error = io::Error::last_os_error().raw_os_error();
            if was_down || error != Some(libc::ENETDOWN) {
                return Err(error);
            }
            was_down = true;
        }
    }

    /// Makes the messages of the frames from `first` on.
    fn assemble(&mut self, first: usize) {
        self.vectors.clear();
        self.messages.clear();
        let sent_pieces: usize = self.entries[..first].iter().map(|entry| entry.pieces).sum();
        let mut pieces = &self.pieces[sent_pieces..];
        for (entry, head) in self.entries[first..].iter().zip(&self.heads[first..]) {
            let (own, rest) = pieces.split_at(entry.pieces);
            pieces = rest;
            let start = (&raw const *head).cast_mut().cast();
            let octets = OFFLOAD_HEADER_OCTETS + entry.head_octets;
            self.vectors.push(libc::iovec { iov_base: start, iov_len: octets });
            self.vectors.extend_from_slice(own);
        }
        let mut start = self.vectors.as_mut_ptr();
        for entry in &self.entries[first..] {
            // SAFETY: numbers and pointers, of which all zeros are valid: no address and no control data.
            let mut message: libc::mmsghdr = unsafe { core::mem::zeroed() };
            message.msg_hdr.msg_iov = start;
            message.msg_hdr.msg_iovlen = 1 + entry.pieces;
            self.messages.push(message);
            // SAFETY: the vectors have one for each head and piece of the frames.
            start = unsafe { start.add(1 + entry.pieces) };
        }
    }

    /// Returns what to do about a frame that was not taken: why nothing after it can be sent now, or `None`
    /// to go on without it.
    #[cold]
    fn look_at(&mut self, error: Option<i32>) -> Option<Stopped> {
        let stopped = match error {
            Some(libc::ENETDOWN) => Some(Stopped::Down),
            Some(libc::ENXIO | libc::ENODEV) => Some(Stopped::Gone),
            Some(libc::EAGAIN) => Some(Stopped::Busy),
            // Longer than the MTU, or a super-frame of other headers than it says.
            Some(libc::EMSGSIZE | libc::EINVAL) => None,
            _ => return self.count_refusal(),
        };
        self.refusals = 0;
        self.refused_frames += u64::from(stopped.is_none());
        stopped
    }

    /// Counts that the interface refused the next frame; gives it up after too many times.
    fn count_refusal(&mut self) -> Option<Stopped> {
        let now = Instant::now();
        if self.refusals == 0 {
            self.refused_since = Some(now);
        }
        self.refusals += 1;
        let time = self.refused_since.map_or(Duration::ZERO, |since| now.duration_since(since));
        if self.refusals < REFUSALS_MAX || time < REFUSAL_TIME {
            return Some(Stopped::Busy);
        }
        self.refusals = 0;
        self.refused_frames += 1;
        None
    }
}

/// Frames to send together, which are not copied before they are [sent](Self::send). Dropped without that,
/// they are not.
pub struct Burst<'s, 'f> {
    transmitter: &'s mut Transmitter,
    socket: BorrowedFd<'s>,
    frames: PhantomData<&'f [u8]>,
}

impl<'f> Burst<'_, 'f> {
    /// Returns how many frames are in the burst.
    #[inline]
    pub fn frames(&self) -> usize {
        self.transmitter.entries.len()
    }

    /// Adds the frame that consists of `pieces`, from the Ethernet header on. Returns the octets at its
    /// front, up to 128 of the first piece, in a copy that can be changed and is sent in their place.
    ///
    /// A frame with a VLAN tag has it in place. One without segmentation that exceeds the interface's MTU is
    /// refused as it is sent.
    ///
    /// # Errors
    ///
    /// [`NotPushed`]; the burst is as it was.
    #[inline]
    pub fn push(
        &mut self,
        pieces: impl Iterator<Item = &'f [u8]>,
        offload: Option<&Offload>,
    ) -> Result<&mut [u8], NotPushed> {
        let transmitter = &mut *self.transmitter;
        let (index, before) = (transmitter.entries.len(), transmitter.pieces.len());
        let Some(head) = transmitter.heads.get_mut(index) else { return Err(NotPushed::Full) };
        let (mut entry, mut octets) = (Entry { head_octets: 0, pieces: 0 }, 0);
        for piece in pieces {
            let mut rest = piece;
            if octets == 0 {
                let front;
                (front, rest) = piece.split_at(piece.len().min(HEAD_OCTETS));
                head.octets[..front.len()].copy_from_slice(front);
                entry.head_octets = front.len();
            }
            octets += piece.len();
            if !rest.is_empty() {
                entry.pieces += 1;
                if transmitter.pieces.len() < BURST_PIECES {
                    let start = rest.as_ptr().cast_mut().cast();
                    transmitter.pieces.push(libc::iovec { iov_base: start, iov_len: rest.len() });
                }
            }
        }
        let has_room = before + entry.pieces <= BURST_PIECES;
        let fits = has_room && (FRAME_LEAST_OCTETS..=transmitter.frame_octets).contains(&octets);
        match offload::header(octets, offload) {
            Some(header) if fits => {
                head.offload = header;
                transmitter.entries.push(entry);
                return Ok(&mut head.octets[..entry.head_octets]);
            }
            _ => transmitter.pieces.truncate(before),
        }
        if !has_room && index > 0 {
            return Err(NotPushed::Full);
        }
        transmitter.refused_frames += 1;
        Err(NotPushed::Refused)
    }

    /// Has the kernel send the frames, with one system call that does not wait, or none if there is no frame.
    #[inline]
    pub fn send(self) -> Sent {
        let Self { transmitter, socket, .. } = self;
        let frames = transmitter.entries.len();
        let mut done = 0;
        while done < frames {
            match transmitter.send_from(done, socket) {
                Ok(taken) => {
                    transmitter.refusals = 0;
                    transmitter.sent_frames += taken as u64;
                    done += taken;
                }
                Err(error) => {
                    let stopped = transmitter.look_at(error);
                    if stopped.is_some() {
                        return Sent { frames: done, stopped };
                    }
                    done += 1;
                }
            }
        }
        Sent { frames, stopped: None }
    }
}

impl core::fmt::Debug for Burst<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Burst").field("frames", &self.frames()).finish_non_exhaustive()
    }
}
