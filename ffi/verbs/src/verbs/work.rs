//! Work requests of verbs, as warpline's.

use std::ffi::c_int;
use std::slice;

use arrayvec::ArrayVec;
use warpline::{InlineData, Operation, Payload, ReceiveRequest, STag, SendRequest, Slice, SliceList, limits};

use super::qp::{self, Qp};
use super::srq;
use super::window;
use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp, ibv_recv_wr,
    ibv_send_wr, ibv_sge, ibv_srq,
};
use crate::errno::{Errno, guarded, unsupported};

/// Posts a list of sends. With a failure `bad` is the first that was not posted, and those before it are.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut at = first;
    let posted = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let object = unsafe { qp::of(qp)? }.inner();
        let queue_pair = object.state.queue_pair.lock();
        // SAFETY: as above: a list that ends with null.
        while let Some(given) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            let (request, in_area) = unsafe { send_request(object, given)? };
            queue_pair.post(request)?;
            // SAFETY: as above.
            unsafe { show_binding(given, &request) };
            if let (true, Some(area)) = (in_area, &object.inline) {
                area.posted();
            }
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        Ok(())
    });
    // SAFETY: as above.
    posted.map_or_else(|errno| unsafe { refused(errno, at, bad) }, |()| 0)
}

/// Shows the program under which `rkey` a window is bound, if `given`, which was posted as `request`, binds
/// one.
///
/// # Safety
///
/// `given` is as the ABI has it.
pub(crate) unsafe fn show_binding(given: &ibv_send_wr, request: &SendRequest) {
    if let Operation::Bind(binding) = request.operation {
        // SAFETY: the caller's promise: the window is there, or there was no binding. The field is for
        // programs.
        unsafe { (*given.__bindgen_anon_2.bind_mw.mw).rkey = binding.window.0 };
    }
}

/// Posts a list of receives, as [`post_send`] does.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = first;
    let posted = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let queue_pair = unsafe { qp::of(qp)? }.inner().state.queue_pair.lock();
        // SAFETY: as above.
        unsafe { receives(&mut at, |requests| queue_pair.post_receives(requests)) }
    });
    // SAFETY: as above.
    posted.map_or_else(|errno| unsafe { refused(errno, at, bad) }, |()| 0)
}

/// Posts a list of receives that queue pairs share, as [`post_send`] does.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = first;
    let posted = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let queue = &unsafe { srq::of(srq)? }.inner().queue;
        // SAFETY: as above.
        unsafe { receives(&mut at, |requests| queue.post_many(requests)) }
    });
    // SAFETY: as above.
    posted.map_or_else(|errno| unsafe { refused(errno, at, bad) }, |()| 0)
}

/// Says which request was not posted, and why.
unsafe fn refused<T>(errno: Errno, at: *mut T, bad: *mut *mut T) -> c_int {
    if !bad.is_null() {
        // SAFETY: not null, so the caller has room for it.
        unsafe { bad.write(at) };
    }
    errno.number()
}

/// Hands the receives of a list to `post`, some at a time. `at` is the first that was not posted.
///
/// # Safety
///
/// The list is as the ABI has it, and ends with null.
unsafe fn receives(
    at: &mut *mut ibv_recv_wr,
    post: impl Fn(&[ReceiveRequest]) -> Result<(), warpline::BadRequest>,
) -> Result<(), Errno> {
    while !at.is_null() {
        let mut requests: ArrayVec<ReceiveRequest, { limits::POST_BATCH }> = ArrayVec::new();
        let mut shape = Ok(());
        let mut next = *at;
        // SAFETY: the caller's promise.
        while let Some(request) = unsafe { next.as_ref() } {
            // SAFETY: as above.
            match unsafe { ranges(request.sg_list, request.num_sge) } {
                Ok(local) if !requests.is_full() => requests.push(ReceiveRequest::new(request.wr_id, local)),
                Ok(_) => break,
                Err(errno) => {
                    shape = Err(errno);
                    break;
                }
            }
            next = request.next;
        }
        let posted = post(&requests);
        let count = posted.as_ref().map_or_else(|bad| bad.posted, |()| requests.len());
        for _ in 0..count {
            // SAFETY: as above: each of these was reached before.
            *at = unsafe { (**at).next };
        }
        posted?;
        shape?;
    }
    Ok(())
}

/// Borrows a scatter/gather list.
///
/// # Safety
///
/// As the ABI has it: `count` elements, or none.
unsafe fn elements<'a>(list: *mut ibv_sge, count: c_int) -> Result<&'a [ibv_sge], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !list.is_null() && count <= limits::SCATTER_GATHER_ELEMENTS => {
            // SAFETY: the caller's promise.
            Ok(unsafe { slice::from_raw_parts(list, count) })
        }
        _ => Err(Errno::INVALID),
    }
}

/// Returns the memory that a scatter/gather list names; ranges without octets are left out.
unsafe fn ranges(list: *mut ibv_sge, count: c_int) -> Result<SliceList, Errno> {
    // SAFETY: the caller's promise.
    let elements = unsafe { elements(list, count)? };
    let ranges: ArrayVec<Slice, { limits::SCATTER_GATHER_ELEMENTS }> = elements
        .iter()
        .filter(|element| element.length > 0)
        .map(|element| Slice { stag: STag(element.lkey), to: element.addr, len: element.length })
        .collect();
    SliceList::try_from(ranges.as_slice()).map_err(|_| Errno::INVALID)
}

/// Returns the payload of a send, copied if it is inline, and whether it lies in the area of the queue pair.
unsafe fn payload(qp: &Qp, request: &ibv_send_wr) -> Result<(Payload, bool), Errno> {
    if request.send_flags & IBV_SEND_INLINE == 0 {
        // SAFETY: the caller's promise.
        return Ok((unsafe { ranges(request.sg_list, request.num_sge)? }.into(), false));
    }
    // SAFETY: as above.
    let elements = unsafe { elements(request.sg_list, request.num_sge)? };
    let mut octets: ArrayVec<u8, { qp::INLINE_MAX }> = ArrayVec::new();
    for element in elements.iter().filter(|element| element.length > 0) {
        if element.length as usize > octets.remaining_capacity() {
            return Err(Errno::INVALID);
        }
        let start = std::ptr::with_exposed_provenance(element.addr as usize);
        // SAFETY: memory of the program, which need not be registered, and does not change during the call.
        let part = unsafe { slice::from_raw_parts(start, element.length as usize) };
        octets.try_extend_from_slice(part).map_err(|_| Errno::INVALID)?;
    }
    if let Ok(inline) = InlineData::try_from(octets.as_slice()) {
        return Ok((inline.into(), false));
    }
    let area = qp.inline.as_ref().ok_or(Errno::INVALID)?;
    let offset = area.offset();
    let inside = area.region.write(offset, &octets);
    debug_assert!(inside, "the area has a place for each send");
    Ok((area.region.slice(offset, octets.len() as u32).into(), true))
}

/// Returns a send as warpline has it, and whether its payload lies in the area of the queue pair.
///
/// # Safety
///
/// The request is as the ABI has it.
pub(crate) unsafe fn send_request(qp: &Qp, request: &ibv_send_wr) -> Result<(SendRequest, bool), Errno> {
    let flags = request.send_flags;
    let solicited = flags & IBV_SEND_SOLICITED != 0;
    // SAFETY: each part of a union is read for the operation that has it; they are numbers and pointers.
    let (rdma, atomic, stag, imm) = unsafe {
        let value = &request.__bindgen_anon_1;
        (request.wr.rdma, request.wr.atomic, STag(value.invalidate_rkey), value.imm_data)
    };
    let immediate = u64::from(u32::from_be(imm)) << 32;
    let mut has_payload = true;
    let operation = match request.opcode {
        IBV_WR_SEND => Operation::Send { invalidate: None, solicited },
        IBV_WR_SEND_WITH_INV => Operation::Send { invalidate: Some(stag), solicited },
        IBV_WR_RDMA_WRITE => Operation::Write { stag: STag(rdma.rkey), to: rdma.remote_addr },
        IBV_WR_RDMA_READ => Operation::Read { stag: STag(rdma.rkey), to: rdma.remote_addr },
        IBV_WR_RDMA_WRITE_WITH_IMM => {
            let (stag, to) = (STag(rdma.rkey), rdma.remote_addr);
            Operation::WriteWithImmediate { stag, to, immediate, solicited }
        }
        IBV_WR_SEND_WITH_IMM => Operation::Immediate { immediate, solicited },
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let (stag, to) = (STag(atomic.rkey), atomic.remote_addr);
            Operation::FetchAdd { stag, to, add: atomic.compare_add, mask: 0 }
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
            stag: STag(atomic.rkey),
            to: atomic.remote_addr,
            compare: atomic.compare_add,
            compare_mask: u64::MAX,
            swap: atomic.swap,
            swap_mask: u64::MAX,
        },
        IBV_WR_LOCAL_INV => {
            has_payload = false;
            Operation::LocalInvalidate { stag }
        }
        IBV_WR_BIND_MW => {
            has_payload = false;
            // SAFETY: the part of the union for this operation.
            let bind = unsafe { &request.__bindgen_anon_2.bind_mw };
            // SAFETY: the caller's promise.
            unsafe { window::operation(qp, bind.mw, bind.rkey, &bind.bind_info)? }
        }
        _ => return Err(Errno::INVALID),
    };
    let (local, in_area) = if has_payload {
        // SAFETY: the caller's promise.
        unsafe { payload(qp, request)? }
    } else {
        (Payload::EMPTY, false)
    };
    if matches!(operation, Operation::Immediate { .. }) && !local.is_empty() {
        return Err(unsupported!(
            "iWARP has no Send with Immediate Data (RFC 7306 has it alone, or after a Write)"
        ));
    }
    let signaled = qp.signals_all || flags & IBV_SEND_SIGNALED != 0;
    let fenced = flags & IBV_SEND_FENCE != 0;
    Ok((SendRequest { id: request.wr_id, operation, local, signaled, fenced }, in_area))
}
