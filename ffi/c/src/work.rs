//! Work requests.

use std::ffi::c_int;

use arrayvec::ArrayVec;
use warpline::{
    BadRequest, InlineData, Operation, Payload, ReceiveRequest, STag, SendBatch, SendRequest, Slice,
    SliceList, limits,
};

use crate::error::{Failure, guard};
use crate::extensible::{Extensible, extensible};
use crate::pointer::{borrow, list};
use crate::queue_pair::{Qp, Srq};
use crate::window::Grant;

/// The most ranges of memory in one work request.
pub const WARPLINE_MAX_SGE: u32 = 4;
/// The most bytes that `WARPLINE_SEND_INLINE` takes.
pub const WARPLINE_MAX_INLINE: u32 = 64;

const _: () = assert!(WARPLINE_MAX_SGE as usize == limits::SCATTER_GATHER_ELEMENTS);
const _: () = assert!(WARPLINE_MAX_INLINE as usize == limits::INLINE_BYTES);

/// RDMAP Send: to the oldest receive of the peer.
pub const WARPLINE_WR_SEND: u32 = 0;
/// The same; on its Delivery it invalidates `remote_stag` at the peer.
pub const WARPLINE_WR_SEND_WITH_INVALIDATE: u32 = 1;
/// RDMA Write to `remote_addr` of `remote_stag`.
pub const WARPLINE_WR_WRITE: u32 = 2;
/// The same, then Immediate Data, which completes a receive of the peer.
pub const WARPLINE_WR_WRITE_WITH_IMMEDIATE: u32 = 3;
/// Immediate Data alone; no memory.
pub const WARPLINE_WR_IMMEDIATE: u32 = 4;
/// RDMA Read from `remote_addr` of `remote_stag` to the one range of memory.
pub const WARPLINE_WR_READ: u32 = 5;
/// Adds `compare_add` to eight aligned bytes of the peer; their value before comes to the one range of
/// memory, of eight bytes.
pub const WARPLINE_WR_FETCH_ADD: u32 = 6;
/// Replaces eight aligned bytes of the peer by `swap` if they are `compare_add`. As above else.
pub const WARPLINE_WR_COMPARE_SWAP: u32 = 7;
/// Replaces eight aligned bytes of the peer by `swap`. As above else.
pub const WARPLINE_WR_SWAP: u32 = 8;
/// As `WARPLINE_WR_FETCH_ADD`; set bits of `compare_add_mask` are the most significant of fields that are
/// added to on their own.
pub const WARPLINE_WR_MASKED_FETCH_ADD: u32 = 9;
/// As `WARPLINE_WR_COMPARE_SWAP`; only bits of `compare_add_mask` are compared, only those of `swap_mask`
/// replaced.
pub const WARPLINE_WR_MASKED_COMPARE_SWAP: u32 = 10;
/// Takes `remote_stag`, which here is one of this end, out of the reach of peers; no memory.
pub const WARPLINE_WR_LOCAL_INVALIDATE: u32 = 11;

/// Binds a window to a part of a registration, as `grant` says, when all requests before it are complete; no
/// memory.
pub const WARPLINE_WR_BIND: u32 = 12;
/// Registers memory that was registered before anew, as `grant` says, when all requests before it are
/// complete; no memory.
pub const WARPLINE_WR_REGISTER: u32 = 13;

/// Success is reported by a completion; failure always is.
pub const WARPLINE_SEND_SIGNALED: u32 = 1;
/// Wakes a peer that sleeps until such a message.
pub const WARPLINE_SEND_SOLICITED: u32 = 2;
/// Waits until the Reads and atomics posted before are complete.
pub const WARPLINE_SEND_FENCE: u32 = 4;
/// The bytes are copied when the request is posted: at most `WARPLINE_MAX_INLINE`. `addr` is then the address
/// of any memory, and `stag` is ignored.
pub const WARPLINE_SEND_INLINE: u32 = 8;

/// A range of registered memory. It stands in arrays, so it does not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sge {
    /// Its address; an offset in a registration with `WARPLINE_ACCESS_ZERO_BASED`.
    pub addr: u64,
    /// Its length in bytes.
    pub length: u32,
    /// The STag of the registration it lies in.
    pub stag: u32,
}

/// A work request on the send queue. Its memory belongs to the library until its completion; itself only
/// until it is posted.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendWr {
    /// `sizeof(struct warpline_send_wr)`.
    pub size: usize,
    /// The caller's identifier of it.
    pub wr_id: u64,
    /// The next request of the list; null for none.
    pub next: *const SendWr,
    /// Ranges of memory.
    pub sg_list: *const Sge,
    /// The number of ranges, at most `WARPLINE_MAX_SGE`.
    pub num_sge: u32,
    /// `WARPLINE_WR_*`.
    pub opcode: u32,
    /// `WARPLINE_SEND_*`.
    pub flags: u32,
    /// The peer's registration.
    pub remote_stag: u32,
    /// The Tagged Offset in it: an address of the peer, if it says so.
    pub remote_addr: u64,
    /// Immediate Data, as an integer: most significant byte first on the wire.
    pub immediate: u64,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    /// The value to store.
    pub swap: u64,
    /// See `WARPLINE_WR_MASKED_*`.
    pub compare_add_mask: u64,
    /// See `WARPLINE_WR_MASKED_COMPARE_SWAP`.
    pub swap_mask: u64,
    /// With `WARPLINE_WR_BIND`, what `warpline_mw_binding` wrote; with `WARPLINE_WR_REGISTER`, what
    /// `warpline_mr_fast_registration` wrote.
    pub grant: *const Grant,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for SendWr {
    const FIRST_SIZE: usize = 104;
}

/// A work request on a receive queue: a buffer for one message of the peer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecvWr {
    /// `sizeof(struct warpline_recv_wr)`.
    pub size: usize,
    /// The caller's identifier of it.
    pub wr_id: u64,
    /// The next request of the list; null for none.
    pub next: *const RecvWr,
    /// Ranges of memory, with the right `WARPLINE_ACCESS_LOCAL_WRITE`.
    pub sg_list: *const Sge,
    /// The number of ranges, at most `WARPLINE_MAX_SGE`.
    pub num_sge: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: `repr(C)`, the size comes first, all zeros are a value, and there is no padding at the end.
unsafe impl Extensible for RecvWr {
    const FIRST_SIZE: usize = 40;
}

/// # Safety
///
/// `start` is good for `count` ranges.
unsafe fn gather(start: *const Sge, count: u32) -> Result<SliceList, Failure> {
    // SAFETY: the caller's promise.
    let ranges = unsafe { list(start, count as usize)? };
    let mut slices = ArrayVec::<Slice, { limits::SCATTER_GATHER_ELEMENTS }>::new();
    for range in ranges {
        let slice = Slice { stag: STag(range.stag), to: range.addr, len: range.length };
        slices.try_push(slice).map_err(|_| Failure::invalid("more ranges than WARPLINE_MAX_SGE"))?;
    }
    SliceList::try_from(slices.as_slice()).map_err(|error| Failure::of(libc::EINVAL, &error))
}

/// # Safety
///
/// `start` is good for `count` ranges, and each of these for its bytes.
unsafe fn copy_inline(start: *const Sge, count: u32) -> Result<InlineData, Failure> {
    const TOO_LONG: Failure = Failure::invalid("more bytes than WARPLINE_MAX_INLINE");
    let mut bytes = ArrayVec::<u8, { limits::INLINE_BYTES }>::new();
    // SAFETY: the caller's promise.
    for range in unsafe { list(start, count as usize)? } {
        if range.length > WARPLINE_MAX_INLINE {
            return Err(TOO_LONG);
        }
        let source = std::ptr::with_exposed_provenance::<u8>(range.addr as usize);
        // SAFETY: the caller's promise.
        let source = unsafe { list(source, range.length as usize)? };
        bytes.try_extend_from_slice(source).map_err(|_| TOO_LONG)?;
    }
    InlineData::try_from(bytes.as_slice()).map_err(|_| TOO_LONG)
}

impl SendWr {
    /// # Safety
    ///
    /// Its pointers are as C promises.
    unsafe fn operation(&self) -> Result<Operation, Failure> {
        let solicited = self.flags & WARPLINE_SEND_SOLICITED != 0;
        let (stag, to) = (STag(self.remote_stag), self.remote_addr);
        let immediate = self.immediate;
        let (compare, swap) = (self.compare_add, self.swap);
        Ok(match self.opcode {
            WARPLINE_WR_SEND => Operation::Send { invalidate: None, solicited },
            WARPLINE_WR_SEND_WITH_INVALIDATE => Operation::Send { invalidate: Some(stag), solicited },
            WARPLINE_WR_WRITE => Operation::Write { stag, to },
            WARPLINE_WR_WRITE_WITH_IMMEDIATE => {
                Operation::WriteWithImmediate { stag, to, immediate, solicited }
            }
            WARPLINE_WR_IMMEDIATE => Operation::Immediate { immediate, solicited },
            WARPLINE_WR_READ => Operation::Read { stag, to },
            WARPLINE_WR_FETCH_ADD => Operation::FetchAdd { stag, to, add: compare, mask: 0 },
            WARPLINE_WR_MASKED_FETCH_ADD => {
                Operation::FetchAdd { stag, to, add: compare, mask: self.compare_add_mask }
            }
            WARPLINE_WR_COMPARE_SWAP => Operation::CompareSwap {
                stag,
                to,
                compare,
                compare_mask: u64::MAX,
                swap,
                swap_mask: u64::MAX,
            },
            WARPLINE_WR_MASKED_COMPARE_SWAP => Operation::CompareSwap {
                stag,
                to,
                compare,
                compare_mask: self.compare_add_mask,
                swap,
                swap_mask: self.swap_mask,
            },
            WARPLINE_WR_SWAP => Operation::Swap { stag, to, swap, mask: u64::MAX },
            WARPLINE_WR_LOCAL_INVALIDATE => Operation::LocalInvalidate { stag },
            // SAFETY: the caller's promise.
            WARPLINE_WR_BIND => Operation::Bind(unsafe { borrow(self.grant)? }.binding()?),
            // SAFETY: as above.
            WARPLINE_WR_REGISTER => Operation::Register(unsafe { borrow(self.grant)? }.registration()?),
            _ => return Err(Failure::invalid("an opcode is none of WARPLINE_WR_*")),
        })
    }

    /// # Safety
    ///
    /// Its pointers are as C promises.
    unsafe fn request(&self) -> Result<SendRequest, Failure> {
        const FLAGS: u32 =
            WARPLINE_SEND_SIGNALED | WARPLINE_SEND_SOLICITED | WARPLINE_SEND_FENCE | WARPLINE_SEND_INLINE;
        if self.flags & !FLAGS != 0 {
            return Err(Failure::invalid("a flag is none of WARPLINE_SEND_*"));
        }
        let inline = self.flags & WARPLINE_SEND_INLINE != 0;
        // SAFETY: the caller's promise.
        let local: Payload = unsafe {
            if inline {
                copy_inline(self.sg_list, self.num_sge)?.into()
            } else {
                gather(self.sg_list, self.num_sge)?.into()
            }
        };
        Ok(SendRequest {
            id: self.wr_id,
            // SAFETY: as above.
            operation: unsafe { self.operation()? },
            local,
            signaled: self.flags & WARPLINE_SEND_SIGNALED != 0,
            fenced: self.flags & WARPLINE_SEND_FENCE != 0,
        })
    }
}

impl RecvWr {
    /// # Safety
    ///
    /// Its pointers are as C promises.
    unsafe fn request(&self) -> Result<ReceiveRequest, Failure> {
        if self.reserved != 0 {
            return Err(Failure::invalid("a reserved field is not 0"));
        }
        // SAFETY: the caller's promise.
        Ok(ReceiveRequest::new(self.wr_id, unsafe { gather(self.sg_list, self.num_sge)? }))
    }
}

/// A list of work requests as C links it.
trait Linked: Extensible {
    type Request;

    fn next(&self) -> *const Self;

    /// # Safety
    ///
    /// Its pointers are as C promises.
    unsafe fn convert(&self) -> Result<Self::Request, Failure>;
}

impl Linked for SendWr {
    type Request = SendRequest;

    fn next(&self) -> *const Self {
        self.next
    }

    unsafe fn convert(&self) -> Result<SendRequest, Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.request() }
    }
}

impl Linked for RecvWr {
    type Request = ReceiveRequest;

    fn next(&self) -> *const Self {
        self.next
    }

    unsafe fn convert(&self) -> Result<ReceiveRequest, Failure> {
        // SAFETY: the caller's promise.
        unsafe { self.request() }
    }
}

/// Posts a list in order, a batch at a time; at the first that is not taken, writes which to `bad` if that is
/// not null.
///
/// # Safety
///
/// The list and its pointers are as C promises.
unsafe fn post_list<W: Linked>(
    first: *const W,
    bad: *mut *const W,
    post: impl Fn(&[W::Request]) -> Result<(), BadRequest>,
) -> Result<(), Failure> {
    let mut next = first;
    loop {
        let mut requests = ArrayVec::<W::Request, { SendBatch::CAPACITY }>::new();
        let mut places = ArrayVec::<*const W, { SendBatch::CAPACITY }>::new();
        let mut wrong = None;
        while !next.is_null() && !requests.is_full() {
            // SAFETY: not null; the rest is the caller's promise.
            match unsafe { extensible(next).and_then(|wr| Ok((wr.convert()?, wr.next()))) } {
                Ok((request, after)) => {
                    requests.push(request);
                    places.push(next);
                    next = after;
                }
                Err(failure) => {
                    wrong = Some(failure);
                    break;
                }
            }
        }
        // What stands before a request that makes no sense is posted, as before any other that is not taken.
        let posted = if requests.is_empty() { Ok(()) } else { post(&requests) };
        let (place, failure) = match (posted, wrong) {
            (Err(BadRequest { posted, error }), _) => {
                (places.get(posted).copied().unwrap_or(next), error.into())
            }
            (Ok(()), Some(failure)) => (next, failure),
            (Ok(()), None) if next.is_null() => return Ok(()),
            (Ok(()), None) => continue,
        };
        if !bad.is_null() {
            // SAFETY: not null, so it may be written: the caller's promise.
            unsafe { bad.write(place) };
        }
        return Err(failure);
    }
}

/// Posts a list of send work requests in order. It stops at the first that is refused, and writes its address
/// to `bad_wr` (which may be null): those before it are posted, those after it are not. Any thread may post,
/// unless the queue pair is `single_threaded`: then one at a time, receives included.
///
/// - `-EAGAIN`: the queue, or the completion queue, is full: poll completions first
/// - `-ENOTCONN`: the queue pair is not connected yet, or its device has stopped
/// - `-EOPNOTSUPP`: a Read or atomic, of which the ends have agreed on none
/// - `-EINVAL`, `-EMSGSIZE`: the request makes no sense
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_post_send(
    qp: *mut Qp,
    wr: *const SendWr,
    bad_wr: *mut *const SendWr,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let qp = borrow(qp)?;
        post_list(wr, bad_wr, |requests| qp.post(|qp| qp.post_many(requests)))?;
        Ok(0)
    })
}

/// Posts a list of receives in order; else as `warpline_post_send`. Allowed before the connection is open,
/// and advisable: a message that finds no receive ends the connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_post_recv(
    qp: *mut Qp,
    wr: *const RecvWr,
    bad_wr: *mut *const RecvWr,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let qp = borrow(qp)?;
        post_list(wr, bad_wr, |requests| qp.post(|qp| qp.post_receives(requests)))?;
        Ok(0)
    })
}

/// Posts a list of receives to a shared receive queue; else as `warpline_post_recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_srq_post(
    srq: *mut Srq,
    wr: *const RecvWr,
    bad_wr: *mut *const RecvWr,
) -> c_int {
    // SAFETY: the caller keeps C's contract.
    guard(|| unsafe {
        let srq = borrow(srq)?;
        post_list(wr, bad_wr, |requests| srq.0.post_many(requests))?;
        Ok(0)
    })
}
