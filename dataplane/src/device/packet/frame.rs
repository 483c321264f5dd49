//! Frames in memory of this process.

use std::sync::Arc;

use crossbeam::queue::ArrayQueue;

use super::TransmitRequest;
use crate::device::{ChecksumRequest, ChecksumStatus, Frame, ReceivedChecksums};

/// A frame in a buffer of its device, which takes the buffer back when the frame is dropped, on whichever
/// thread.
pub struct PacketFrame {
    octets: Box<[u8]>,
    len: usize,
    tcp: ChecksumStatus,
    request: Option<TransmitRequest>,
    free: Arc<ArrayQueue<Box<[u8]>>>,
}

impl PacketFrame {
    /// Has the frame pass as one whose TCP checksum was verified.
    pub(super) fn set_intact(&mut self) {
        self.tcp = ChecksumStatus::Good;
    }

    /// Returns what the device is asked to do as it sends the frame.
    pub(super) const fn request(&self) -> Option<TransmitRequest> {
        self.request
    }
}

impl core::fmt::Debug for PacketFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("PacketFrame").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for PacketFrame {
    fn drop(&mut self) {
        // There is room for all buffers that there are.
        let _ = self.free.push(core::mem::take(&mut self.octets));
    }
}

impl Frame for PacketFrame {
    #[inline]
    fn piece(&self, index: usize) -> Option<&[u8]> {
        if index == 0 { self.octets.get(..self.len) } else { None }
    }

    #[inline]
    fn first_mut(&mut self) -> &mut [u8] {
        let len = self.len.min(self.octets.len());
        &mut self.octets[..len]
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        let start = self.len;
        let end = start.checked_add(octets)?;
        let added = self.octets.get_mut(start..end)?;
        self.len = end;
        Some(added)
    }

    #[inline]
    fn checksums(&self) -> ReceivedChecksums {
        ReceivedChecksums { ip: ChecksumStatus::Unknown, tcp: self.tcp }
    }

    #[inline]
    fn request_checksums(&mut self, headers: ChecksumRequest) {
        self.request = Some(TransmitRequest { headers, segment_octets: None });
    }

    #[inline]
    fn request_segmentation(&mut self, headers: ChecksumRequest, segment_octets: u16) {
        self.request = Some(TransmitRequest { headers, segment_octets: Some(segment_octets) });
    }
}

/// The buffers of a device.
pub(super) struct FrameBuffers {
    /// Those that frames were in. They are taken first: as few as are needed stay in the processor's caches.
    free: Arc<ArrayQueue<Box<[u8]>>>,
    unused: Vec<Box<[u8]>>,
}

impl FrameBuffers {
    /// Makes `frames` buffers of `octets` octets each. The system gives them memory as they are first written
    /// to.
    pub(super) fn new(frames: usize, octets: usize) -> Self {
        let unused = (0..frames).map(|_| vec![0; octets].into_boxed_slice()).collect();
        Self { free: Arc::new(ArrayQueue::new(frames.max(1))), unused }
    }

    /// Returns how many buffers there are, those of frames too.
    pub(super) fn len(&self) -> usize {
        self.free.capacity()
    }

    /// Returns an empty frame; `None` if no buffer is free.
    #[inline]
    pub(super) fn allocate(&mut self) -> Option<PacketFrame> {
        let octets = self.free.pop().or_else(|| self.unused.pop())?;
        let free = self.free.clone();
        Some(PacketFrame { octets, len: 0, tcp: ChecksumStatus::Unknown, request: None, free })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer is free again once its frame is dropped, also on another thread; and a frame is as long as
    /// what was appended, and no longer than its buffer.
    #[test]
    fn buffers_come_back() {
        let mut buffers = FrameBuffers::new(2, 100);
        assert_eq!(buffers.len(), 2);
        let mut frame = buffers.allocate().unwrap();
        assert_eq!(frame.piece(0), Some(&[][..]));
        frame.append(60).unwrap().fill(7);
        assert!(frame.append(41).is_none() && frame.append(usize::MAX).is_none());
        frame.append(40).unwrap().fill(8);
        assert_eq!((frame.len(), frame.piece(0).unwrap()[59], frame.piece(1)), (100, 7, None));
        frame.first_mut()[0] = 9;
        let other = buffers.allocate().unwrap();
        assert!(buffers.allocate().is_none());
        std::thread::spawn(move || drop(frame)).join().unwrap();
        let again = buffers.allocate().expect("the buffer that was freed");
        assert!(again.is_empty() && again.request().is_none());
        drop((other, again));
        assert!(buffers.allocate().is_some());
    }
}
