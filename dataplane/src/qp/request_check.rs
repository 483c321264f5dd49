//! The checks of a send work request at this end: its shape when it is posted, and the rights to its memory
//! when the core accepts it (RFC 5040 §7.1).

use super::payload::{Payload, Slice};
use super::post_error::PostError;
use super::shared::SharedQp;
use super::work::{Operation, SendRequest, Status};
use super::wqe::Wqe;
use crate::memory::{Access, StagTable};
use crate::wire::atomic::VALUE_OCTETS;

/// Checks what can be checked of a request without its memory. `reads` says whether the ends agreed on Reads.
///
/// # Errors
///
/// [`PostError`] names what is wrong.
// Requirements: DDP-5.2-02
pub(super) fn check_shape(request: &SendRequest, reads: bool) -> Result<(), PostError> {
    let local = &request.local;
    if local.len() > u64::from(u32::MAX) {
        return Err(PostError::TooLong);
    }
    if request.operation.expects_response() && !reads {
        return Err(PostError::NoReads);
    }
    let fits = match request.operation {
        Operation::Send { .. } | Operation::Write { .. } | Operation::WriteWithImmediate { .. } => true,
        // One Read Response writes one buffer.
        Operation::Read { .. } => matches!(local, Payload::Gather(list) if list.as_slice().len() <= 1),
        Operation::FetchAdd { .. } | Operation::CompareSwap { .. } | Operation::Swap { .. } => {
            matches!(local.slices(), [slice] if slice.len as usize == VALUE_OCTETS)
        }
        Operation::Immediate { .. }
        | Operation::LocalInvalidate { .. }
        | Operation::Bind(_)
        | Operation::Rebind(_)
        | Operation::Unbind { .. }
        | Operation::Register(_) => local.is_empty(),
    };
    if fits { Ok(()) } else { Err(PostError::LocalShape) }
}

/// Checks the local side of a request: its shape, and the rights to its ranges of memory. If they are all
/// right, it counts as a reader of that memory.
// Requirements: DDP-5.2-02, RDMAP-5.2.2-06, RDMAP-7.1-01
#[inline]
pub(super) fn check(request: &Wqe, shared: &SharedQp, stags: &mut StagTable, reads: bool) -> Status {
    let Some(local) = request.compact_range() else {
        return request.full().map_or(Status::LocalOperation, |full| check_full(full, shared, stags, reads));
    };
    let responds = request.expects_response();
    if responds && !reads {
        return Status::LocalOperation;
    }
    if local.len == 0 {
        return Status::Success;
    }
    let (octets, accessor) = (local.len as usize, shared.accessor());
    let reachable = stags.check_retained(local.stag, accessor, rights(responds), local.to, octets);
    if reachable.is_ok() { Status::Success } else { Status::LocalProtection }
}

/// The rights that a request needs to its memory.
#[inline]
fn rights(expects_response: bool) -> Access {
    if expects_response { Access::LOCAL_WRITE } else { Access::empty() }
}

/// Checks a request that is not compact as [`check`] does.
fn check_full(request: &SendRequest, shared: &SharedQp, stags: &mut StagTable, reads: bool) -> Status {
    match check_shape(request, reads) {
        Ok(()) => {}
        Err(PostError::TooLong) => return Status::LocalLength,
        Err(_) => return Status::LocalOperation,
    }
    let rights = rights(request.operation.expects_response());
    let in_use = || request.local.slices().iter().filter(|slice| slice.len > 0);
    let reachable = |slice: &Slice| {
        stags.check(slice.stag, shared.accessor(), rights, slice.to, slice.len as usize).is_ok()
    };
    if !in_use().all(reachable) {
        return Status::LocalProtection;
    }
    in_use().for_each(|slice| stags.retain(slice.stag));
    Status::Success
}
