//! Packet buffers.

use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU16, Ordering};

use dpdk_sys as sys;

use crate::external::ExternalBuffer;
use crate::mempool::Mempool;

/// The device's result for a checksum of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChecksumStatus {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// It was verified and holds, or the octets cannot have changed since they left the sender, which has not
    /// filled it in.
    Good,
    /// It was verified and does not hold.
    Bad,
}

/// The protocol that carries a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4, whose header has a checksum of its own.
    V4,
    /// IPv6, whose header has none.
    V6,
}

/// Which headers a TCP segment has, and where they end, for offloads that fill them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Which IP header it is.
    pub ip: IpVersion,
    /// Whether the checksum of an IPv4 header is to be filled in; else it is there already.
    pub ip_checksum: bool,
    /// Octets before the IP header. At most 127.
    pub l2_octets: u8,
    /// Octets of the IP header, with IPv6's extension headers.
    pub l3_octets: u8,
    /// Octets of the TCP header.
    pub l4_octets: u8,
}

impl Headers {
    /// Returns the IP header a driver will find. Only IPv4's has a checksum to ask for.
    const fn flags(self) -> u64 {
        match (self.ip, self.ip_checksum) {
            (IpVersion::V4, true) => sys::constant_RTE_MBUF_F_TX_IPV4 | sys::constant_RTE_MBUF_F_TX_IP_CKSUM,
            (IpVersion::V4, false) => sys::constant_RTE_MBUF_F_TX_IPV4,
            (IpVersion::V6, _) => sys::constant_RTE_MBUF_F_TX_IPV6,
        }
    }

    const fn encode(self) -> u64 {
        ((self.l2_octets & 0x7f) as u64) << sys::constant_RTE_MBUF_L2_LEN_OFS
            | (self.l3_octets as u64) << sys::constant_RTE_MBUF_L3_LEN_OFS
            | (self.l4_octets as u64) << sys::constant_RTE_MBUF_L4_LEN_OFS
    }

    /// Returns those that have been written as [`flags`](Self::flags) and [`encode`](Self::encode) do.
    const fn decode(flags: u64, lengths: u64) -> Self {
        let is_v6 = flags & sys::constant_RTE_MBUF_F_TX_IPV6 != 0;
        Self {
            ip: if is_v6 { IpVersion::V6 } else { IpVersion::V4 },
            ip_checksum: flags & sys::constant_RTE_MBUF_F_TX_IP_CKSUM != 0,
            l2_octets: (lengths >> sys::constant_RTE_MBUF_L2_LEN_OFS) as u8 & 0x7f,
            // It has nine bits, of which `encode` fills eight.
            l3_octets: (lengths >> sys::constant_RTE_MBUF_L3_LEN_OFS) as u8,
            l4_octets: (lengths >> sys::constant_RTE_MBUF_L4_LEN_OFS) as u8,
        }
    }
}

/// A frame in one buffer or a chain of them, which go back to their pools when it is dropped.
///
/// A piece may be an [`ExternalBuffer`] carried by reference, to which no code writes while frames refer to
/// it. The first piece is always the buffer's own memory and can be written to.
// One pointer and nothing else: bursts pass slices of `Mbuf` to DPDK as arrays of `rte_mbuf *`.
#[repr(transparent)]
pub struct Mbuf {
    head: NonNull<sys::rte_mbuf>,
}

// SAFETY: an `Mbuf` owns its chain alone, and buffers go back to a pool from any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes ownership of a chain.
    ///
    /// # Safety
    ///
    /// `head` must be the first segment of a valid chain that has no other owner; its data must lie in memory
    /// that is initialised and may be written.
    #[inline]
    pub(crate) const unsafe fn from_raw(head: NonNull<sys::rte_mbuf>) -> Self {
        Self { head }
    }

    /// Releases ownership of the chain.
    #[inline]
    pub(crate) const fn into_raw(self) -> NonNull<sys::rte_mbuf> {
        let head = self.head;
        mem::forget(self);
        head
    }

    #[inline]
    pub(crate) const fn as_ptr(&self) -> *mut sys::rte_mbuf {
        self.head.as_ptr()
    }

    /// Frees all frames of `frames`. Those of one pool go back to it together.
    pub fn free_all(frames: &mut Vec<Self>) {
        let count = frames.len() as u32;
        // SAFETY: no element is left to be dropped again, and none needs more room than before.
        unsafe { frames.set_len(0) };
        // SAFETY: the first `count` elements are initialised, each one pointer to a chain that nothing else
        // owns any more. DPDK does not keep the array.
        unsafe { sys::inlined_rte_pktmbuf_free_bulk(frames.as_mut_ptr().cast(), count) };
    }

    /// Removes the first `count` of `frames`, which others own now.
    #[inline]
    pub(crate) fn forget_first(frames: &mut Vec<Self>, count: usize) {
        let count = count.min(frames.len());
        let rest = frames.len() - count;
        // SAFETY: none is dropped, and none of those left needs more room than before.
        unsafe {
            frames.set_len(0);
            let first = frames.as_mut_ptr();
            ptr::copy(first.add(count), first, rest);
            frames.set_len(rest);
        }
    }

    /// Returns the octets in all pieces.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: `head` is valid and owned by `self`.
        unsafe { (*self.head.as_ptr()).pkt_len as usize }
    }

    /// Returns true if the frame holds no octet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pieces the octets lie in; at least 1.
    #[inline]
    pub fn piece_count(&self) -> usize {
        // SAFETY: as in `len`.
        usize::from(unsafe { (*self.head.as_ptr()).nb_segs })
    }

    /// Returns the octets of the first piece.
    #[inline]
    pub fn first(&self) -> &[u8] {
        // SAFETY: `head` is valid and owned by `self`, whose borrow the slice has.
        unsafe { octets_of(self.head) }
    }

    /// Returns the octets of the first piece, to write to.
    #[inline]
    pub fn first_mut(&mut self) -> &mut [u8] {
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid, its data is initialised and its own: external buffers are only ever
        // attached after it. `self` owns it and is borrowed mutably for as long as the slice.
        unsafe { slice::from_raw_parts_mut(data(self.head), usize::from((*head).data_len)) }
    }

    /// Returns the octets of piece `index`, or `None` past the last.
    #[inline]
    pub fn piece(&self, index: usize) -> Option<&[u8]> {
        if index == 0 { Some(self.first()) } else { self.pieces().nth(index) }
    }

    /// Returns the octets of each piece in turn.
    #[inline]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { next: Some(self.head), frame: PhantomData }
    }

    /// Returns the free octets before the first piece.
    #[inline]
    pub fn headroom(&self) -> usize {
        // SAFETY: as in `len`.
        usize::from(unsafe { (*self.head.as_ptr()).data_off })
    }

    /// Returns the free octets after the last piece; 0 when it is carried by reference.
    #[inline]
    pub fn tailroom(&self) -> usize {
        tailroom(self.last())
    }

    /// Lengthens the frame by `octets` at its end and returns the new octets, contents unspecified. After a
    /// piece carried by reference a new one is started, from the pool of the first. `None`, and the frame
    /// unchanged, without room or buffer.
    #[inline]
    pub fn append(&mut self, octets: usize) -> Option<&mut [u8]> {
        let last = self.last();
        if is_attached(last) { self.append_piece(octets) } else { self.extend(last, octets) }
    }

    /// Lengthens the frame as [`append`](Self::append) does, and starts a new piece for what does not fit in
    /// the last one of a frame that is not empty.
    #[inline]
    pub fn append_or_chain(&mut self, octets: usize) -> Option<&mut [u8]> {
        let last = self.last();
        if is_attached(last) || tailroom(last) < octets {
            return if self.is_empty() { None } else { self.append_piece(octets) };
        }
        self.extend(last, octets)
    }

    /// Starts a new piece of `octets` octets in a buffer from the pool of the first. `None` as for
    /// [`append`](Self::append).
    pub fn append_piece(&mut self, octets: usize) -> Option<&mut [u8]> {
        let piece = self.sibling()?;
        let last = piece.head;
        if tailroom(last) < octets || self.chain(piece).is_err() {
            return None;
        }
        self.extend(last, octets)
    }

    /// Lengthens the frame by `octets` at its start and returns the new octets, contents unspecified; `None`
    /// without room.
    #[inline]
    pub fn prepend(&mut self, octets: usize) -> Option<&mut [u8]> {
        if self.headroom() < octets || self.first().len() + octets > usize::from(u16::MAX) {
            return None;
        }
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid and owned by `self`. The room before the data was just checked, so the
        // first `octets` octets from the new start lie inside the buffer; buffers are initialised when their
        // pool is made.
        unsafe {
            (*head).data_off -= octets as u16;
            (*head).data_len += octets as u16;
            (*head).pkt_len += octets as u32;
            Some(slice::from_raw_parts_mut(data(self.head), octets))
        }
    }

    /// Takes `octets` off the start of the first piece; `false`, and the frame unchanged, when it is shorter.
    #[inline]
    pub fn trim_front(&mut self, octets: usize) -> bool {
        if self.first().len() < octets {
            return false;
        }
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid and owned by `self`; the data is at least `octets` long.
        unsafe {
            (*head).data_off += octets as u16;
            (*head).data_len -= octets as u16;
            (*head).pkt_len -= octets as u32;
        }
        true
    }

    /// Takes `octets` off the end of the last piece; `false`, and the frame unchanged, when it is shorter.
    #[inline]
    pub fn trim_back(&mut self, octets: usize) -> bool {
        let last = self.last();
        // SAFETY: both segments are valid and owned by `self`; the subtraction happens only when the data is
        // at least `octets` long.
        unsafe {
            if usize::from((*last.as_ptr()).data_len) < octets {
                return false;
            }
            (*last.as_ptr()).data_len -= octets as u16;
            (*self.head.as_ptr()).pkt_len -= octets as u32;
        }
        true
    }

    /// Appends the pieces of `tail`.
    ///
    /// # Errors
    ///
    /// `tail`, when there would be more than 65535 pieces.
    pub fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let pieces = self.piece_count() + tail.piece_count();
        if pieces > usize::from(u16::MAX) {
            return Err(tail);
        }
        let last = self.last();
        let tail = tail.into_raw();
        // SAFETY: all three segments are valid; `self` owns the first two, and its owner just gave the third
        // away. Only the head of a chain holds its length and number of pieces.
        unsafe {
            (*last.as_ptr()).next = tail.as_ptr();
            (*self.head.as_ptr()).nb_segs = pieces as u16;
            (*self.head.as_ptr()).pkt_len += (*tail.as_ptr()).pkt_len;
        }
        Ok(())
    }

    /// Appends `octets` octets of `buffer` from `offset` as a piece carried by reference. `false`, and the
    /// frame unchanged, when the range is not inside, no device could reach it as one span, the buffer has
    /// too many attachments, or the pool of the first piece has no buffer free to hold the reference.
    pub fn append_external(&mut self, buffer: &ExternalBuffer, offset: usize, octets: usize) -> bool {
        let Some(piece) = self.sibling() else { return false };
        buffer.attach(&piece, offset, octets) && self.chain(piece).is_ok()
    }

    /// Returns a copy of the frame, with its metadata, in buffers of `pool`; `None` when it has too few.
    pub fn copy(&self, pool: &Mempool) -> Option<Self> {
        // SAFETY: both are alive, and the chain is owned by `self`.
        let copy = unsafe { sys::rte_pktmbuf_copy(self.head.as_ptr(), pool.as_ptr(), 0, u32::MAX) };
        // SAFETY: the copy is a chain of fresh buffers without another owner.
        NonNull::new(copy).map(|copy| unsafe { Self::from_raw(copy) })
    }

    /// Returns a frame with a copy of the `octets` octets from `offset` on, in buffers of the pool that the
    /// first piece is from; `None` when it has too few, or the frame is shorter.
    pub fn copy_part(&self, offset: usize, octets: usize) -> Option<Self> {
        if offset.checked_add(octets)? > self.len() || octets == 0 {
            return None;
        }
        // SAFETY: the chain is owned by `self`, and the pool of its first buffer is there as long as the
        // buffer is out. The range lies inside the chain.
        let copy = unsafe {
            let pool = (*self.head.as_ptr()).pool;
            sys::rte_pktmbuf_copy(self.head.as_ptr(), pool, offset as u32, octets as u32)
        };
        // SAFETY: the copy is a chain of fresh buffers without another owner.
        NonNull::new(copy).map(|copy| unsafe { Self::from_raw(copy) })
    }

    /// Returns the device's result for the IPv4 header checksum.
    #[inline]
    pub fn ip_checksum(&self) -> ChecksumStatus {
        checksum_status(
            self.flags() & sys::constant_RTE_MBUF_F_RX_IP_CKSUM_MASK,
            sys::constant_RTE_MBUF_F_RX_IP_CKSUM_BAD,
        )
    }

    /// Returns the device's result for the TCP or UDP checksum.
    #[inline]
    pub fn l4_checksum(&self) -> ChecksumStatus {
        checksum_status(
            self.flags() & sys::constant_RTE_MBUF_F_RX_L4_CKSUM_MASK,
            sys::constant_RTE_MBUF_F_RX_L4_CKSUM_BAD,
        )
    }

    /// Asks the port to fill in the TCP checksum, and IPv4's if `headers` say so. The TCP field must hold the
    /// sum of the pseudo-header, the IPv4 field to be filled in 0, and the headers must lie whole in the
    /// first piece.
    #[inline]
    pub fn request_checksums(&mut self, headers: Headers) {
        let flags = headers.flags() | sys::constant_RTE_MBUF_F_TX_TCP_CKSUM;
        self.set_transmit_offloads(flags, headers.encode());
    }

    /// Asks the port to cut the frame into TCP segments of `segment_octets` octets of payload each, and to
    /// fill in their checksums. The TCP field must hold the sum of the pseudo-header without its length. The
    /// IPv4 header of each segment gets a checksum in any case; `headers` asks for it as an offload, which a
    /// port that does not offer it refuses: `net_vmxnet3` drops such a frame.
    #[inline]
    pub fn request_segmentation(&mut self, headers: Headers, segment_octets: u16) {
        let flags =
            headers.flags() | sys::constant_RTE_MBUF_F_TX_TCP_CKSUM | sys::constant_RTE_MBUF_F_TX_TCP_SEG;
        let segment = u64::from(segment_octets) << sys::constant_RTE_MBUF_TSO_SEGSZ_OFS;
        self.set_transmit_offloads(flags, headers.encode() | segment);
    }

    /// Returns what [`request_checksums`](Self::request_checksums) has asked for, or
    /// [`request_segmentation`](Self::request_segmentation), with the octets of payload in each segment.
    #[inline]
    pub fn transmit_request(&self) -> Option<(Headers, Option<u16>)> {
        let flags = self.flags();
        if flags & sys::constant_RTE_MBUF_F_TX_TCP_CKSUM == 0 {
            return None;
        }
        // SAFETY: `head` is valid and owned by `self`, and the flag says which member of the union was
        // written.
        let lengths = unsafe { (*self.head.as_ptr()).__bindgen_anon_3.tx_offload };
        let is_segmented = flags & sys::constant_RTE_MBUF_F_TX_TCP_SEG != 0;
        let segment = is_segmented.then_some((lengths >> sys::constant_RTE_MBUF_TSO_SEGSZ_OFS) as u16);
        Some((Headers::decode(flags, lengths), segment))
    }

    /// Returns the hash by which the port chose the queue, if it reported the hash.
    #[inline]
    pub fn rss_hash(&self) -> Option<u32> {
        if self.flags() & sys::constant_RTE_MBUF_F_RX_RSS_HASH == 0 {
            return None;
        }
        // SAFETY: `head` is valid and owned by `self`, and the flag says which member of the union was
        // written.
        Some(unsafe { (*self.head.as_ptr()).__bindgen_anon_2.hash.rss })
    }

    #[inline]
    pub(crate) fn flags(&self) -> u64 {
        // SAFETY: `head` is valid and owned by `self`.
        unsafe { (*self.head.as_ptr()).ol_flags }
    }

    #[inline]
    fn set_transmit_offloads(&mut self, flags: u64, lengths: u64) {
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid and owned by `self`.
        unsafe {
            (*head).ol_flags |= flags;
            (*head).__bindgen_anon_3.tx_offload = lengths;
        }
    }

    /// Makes the frame look as if it had just been received by a port that verifies checksums and found them
    /// good: for programs that make frames themselves.
    #[inline]
    pub fn assume_received(&mut self) {
        self.forget_sender(
            sys::constant_RTE_MBUF_F_RX_IP_CKSUM_NONE | sys::constant_RTE_MBUF_F_RX_L4_CKSUM_NONE,
        );
    }

    /// Notes that the octets after the IP header are intact though the checksum over them is not there, as a
    /// port does that knows of it (`RTE_MBUF_F_RX_L4_CKSUM_NONE`).
    #[inline]
    pub fn assume_l4_intact(&mut self) {
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid and owned by `self`.
        unsafe {
            (*head).ol_flags = (*head).ol_flags & !sys::constant_RTE_MBUF_F_RX_L4_CKSUM_MASK
                | sys::constant_RTE_MBUF_F_RX_L4_CKSUM_NONE;
        }
    }

    /// Makes the frame look as if it had just been received: of all that its sender noted on it, only what
    /// says where the octets are remains, and `received` is what the receiver learns.
    #[inline]
    pub(crate) fn forget_sender(&mut self, received: u64) {
        let head = self.head.as_ptr();
        // SAFETY: `head` is valid and owned by `self`.
        unsafe {
            (*head).ol_flags = (*head).ol_flags & ATTACHED | received;
            (*head).__bindgen_anon_3.tx_offload = 0;
            (*head).__bindgen_anon_1.packet_type = 0;
            (*head).port = PORT_NONE;
        }
    }

    /// Returns true if all octets lie in buffers that only this frame refers to. External buffers count as
    /// such when `external_allowed`.
    #[inline]
    pub(crate) fn is_private(&self, external_allowed: bool) -> bool {
        let foreign = if external_allowed { sys::constant_RTE_MBUF_F_INDIRECT } else { ATTACHED };
        let mut next = Some(self.head);
        while let Some(segment) = next {
            // SAFETY: the chain is owned by `self`. Every other reference to a buffer is in its reference
            // count, which all access atomically.
            let (flags, references) = unsafe {
                ((*segment.as_ptr()).ol_flags, AtomicU16::from_ptr(&raw mut (*segment.as_ptr()).refcnt))
            };
            if flags & foreign != 0 || references.load(Ordering::Acquire) != 1 {
                return false;
            }
            next = following(segment);
        }
        true
    }

    #[inline]
    fn last(&self) -> NonNull<sys::rte_mbuf> {
        let mut last = self.head;
        while let Some(next) = following(last) {
            last = next;
        }
        last
    }

    /// Returns an empty buffer from the pool of the first piece.
    #[inline]
    fn sibling(&self) -> Option<Self> {
        // SAFETY: `head` is valid, and so is its pool for as long as one of its buffers is out.
        let raw = NonNull::new(unsafe { sys::inlined_rte_pktmbuf_alloc((*self.head.as_ptr()).pool) })?;
        // SAFETY: the buffer was just allocated and has no other owner.
        Some(unsafe { Self::from_raw(raw) })
    }

    #[inline]
    fn extend(&mut self, last: NonNull<sys::rte_mbuf>, octets: usize) -> Option<&mut [u8]> {
        if tailroom(last) < octets {
            return None;
        }
        // SAFETY: `last` is the last segment of the chain that `self` owns and holds memory of its own. The
        // room after its data was just checked; buffers are initialised when their pool is made.
        unsafe {
            let end = data(last).add(usize::from((*last.as_ptr()).data_len));
            (*last.as_ptr()).data_len += octets as u16;
            (*self.head.as_ptr()).pkt_len += octets as u32;
            Some(slice::from_raw_parts_mut(end, octets))
        }
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` owns the chain and is going away.
        unsafe { sys::inlined_rte_pktmbuf_free(self.head.as_ptr()) }
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("pieces", &self.piece_count())
            .finish_non_exhaustive()
    }
}

/// The pieces of a frame.
#[derive(Clone, Debug)]
pub struct Pieces<'m> {
    next: Option<NonNull<sys::rte_mbuf>>,
    frame: PhantomData<&'m Mbuf>,
}

impl<'m> Iterator for Pieces<'m> {
    type Item = &'m [u8];

    #[inline]
    fn next(&mut self) -> Option<&'m [u8]> {
        let segment = self.next?;
        self.next = following(segment);
        // SAFETY: the segment belongs to the chain of a frame that stays borrowed for `'m`.
        Some(unsafe { octets_of(segment) })
    }
}

/// A port number that no port has.
const PORT_NONE: u16 = u16::MAX;

/// Flags of a segment whose octets lie elsewhere than in its own buffer.
const ATTACHED: u64 = sys::constant_RTE_MBUF_F_EXTERNAL | sys::constant_RTE_MBUF_F_INDIRECT;

/// Returns the status of a checksum from its flags. Both bits of a status mean that the checksum was not
/// computed but the octets are known to be unchanged.
#[inline]
const fn checksum_status(status: u64, bad: u64) -> ChecksumStatus {
    if status == 0 {
        ChecksumStatus::Unknown
    } else if status == bad {
        ChecksumStatus::Bad
    } else {
        ChecksumStatus::Good
    }
}

#[inline]
fn following(segment: NonNull<sys::rte_mbuf>) -> Option<NonNull<sys::rte_mbuf>> {
    // SAFETY: callers pass segments of a chain they own.
    NonNull::new(unsafe { (*segment.as_ptr()).next })
}

#[inline]
fn is_attached(segment: NonNull<sys::rte_mbuf>) -> bool {
    // SAFETY: as in `following`.
    unsafe { (*segment.as_ptr()).ol_flags & ATTACHED != 0 }
}

#[inline]
fn tailroom(segment: NonNull<sys::rte_mbuf>) -> usize {
    if is_attached(segment) {
        return 0;
    }
    // SAFETY: as in `following`.
    unsafe {
        let segment = segment.as_ptr();
        usize::from((*segment).buf_len - (*segment).data_off - (*segment).data_len)
    }
}

/// Returns the first octet of data.
#[inline]
fn data(segment: NonNull<sys::rte_mbuf>) -> *mut u8 {
    // SAFETY: as in `following`; the offset of the data lies inside the buffer.
    unsafe { (*segment.as_ptr()).buf_addr.cast::<u8>().add(usize::from((*segment.as_ptr()).data_off)) }
}

/// # Safety
///
/// `segment` must be valid and stay so, unwritten, for `'a`.
#[inline]
unsafe fn octets_of<'a>(segment: NonNull<sys::rte_mbuf>) -> &'a [u8] {
    let data: *const u8 = data(segment);
    // SAFETY: the data lies inside the segment's buffer and is initialised; the caller is responsible for the
    // lifetime.
    unsafe { &*ptr::slice_from_raw_parts(data, usize::from((*segment.as_ptr()).data_len)) }
}
