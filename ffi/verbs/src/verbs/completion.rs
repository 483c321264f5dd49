//! Completions, as verbs have them.

use std::ffi::c_int;

use warpline::{CloseReason, Completion, CompletionKind, Status, StreamError};

use super::cq;
use super::qp::number_of;
use crate::abi::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_WITH_IMM, IBV_WC_WITH_INV,
    IBV_WC_WR_FLUSH_ERR, ibv_cq, ibv_wc, ibv_wc__bindgen_ty_1,
};
use crate::adapter::turn;
use crate::errno::guarded;
use crate::polled::PolledQueue;

/// Writes up to `room` completions to `target`; returns how many, or -1.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, target: *mut ibv_wc) -> c_int {
    let polled = guarded(|| {
        // SAFETY: the caller keeps the contract of the ABI.
        let queue = &unsafe { cq::of(cq)? }.inner().polled;
        // SAFETY: as above: there is room for as many.
        Ok(unsafe { poll(queue, room.max(0) as usize, target) } as c_int)
    });
    polled.unwrap_or(-1)
}

/// Moves up to `room` completions to `target`; returns how many. If there is none, looks once for what has
/// come to the device.
///
/// # Safety
///
/// `target` has room for as many.
pub(crate) unsafe fn poll(queue: &PolledQueue, room: usize, target: *mut ibv_wc) -> usize {
    // SAFETY: the caller's promise.
    let polled = unsafe { take(queue, room, target) };
    if polled > 0 {
        return polled;
    }
    // Nobody else may have looked.
    turn();
    // SAFETY: as above.
    unsafe { take(queue, room, target) }
}

/// Moves up to `room` completions to `target`; returns how many.
///
/// # Safety
///
/// `target` has room for as many.
unsafe fn take(queue: &PolledQueue, room: usize, target: *mut ibv_wc) -> usize {
    queue.take(room, |place, completion| {
        // SAFETY: the caller's promise.
        unsafe { target.add(place).write(as_verbs(completion)) };
    })
}

/// Returns a completion as verbs have it. Immediate Data of RFC 7306 has eight octets, of which verbs see
/// the first four.
fn as_verbs(completion: &Completion) -> ibv_wc {
    let mut flags = 0;
    let mut value = ibv_wc__bindgen_ty_1 { imm_data: 0 };
    let mut opcode = match completion.kind {
        CompletionKind::Send => IBV_WC_SEND,
        CompletionKind::Write => IBV_WC_RDMA_WRITE,
        CompletionKind::Read => IBV_WC_RDMA_READ,
        CompletionKind::FetchAdd => IBV_WC_FETCH_ADD,
        CompletionKind::CompareSwap => IBV_WC_COMP_SWAP,
        CompletionKind::LocalInvalidate | CompletionKind::Register => IBV_WC_LOCAL_INV,
        CompletionKind::Bind => IBV_WC_BIND_MW,
        CompletionKind::Receive => IBV_WC_RECV,
    };
    if let Some(immediate) = completion.immediate {
        opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        flags |= IBV_WC_WITH_IMM;
        value.imm_data = ((immediate >> 32) as u32).to_be();
    }
    if let Some(stag) = completion.invalidated {
        flags |= IBV_WC_WITH_INV;
        value.invalidated_rkey = stag.0;
    }
    let failed = completion.status != Status::Success;
    ibv_wc {
        wr_id: completion.id,
        status: status_of(completion.status),
        opcode,
        vendor_err: 0,
        byte_len: if failed { 0 } else { completion.byte_len },
        __bindgen_anon_1: value,
        qp_num: number_of(completion.qp),
        src_qp: 0,
        wc_flags: flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Returns a status as verbs have it. Work that a reset by the peer ends is flushed, as by siw: programs
/// of rdma-core end connections by a reset (`IBV_QPS_ERR`) and expect no other status then. A Send may be
/// among this work although it has arrived, because its acknowledgement was still to come.
fn status_of(status: Status) -> u32 {
    match status {
        Status::Failed(StreamError::Tcp(CloseReason::Reset)) => IBV_WC_WR_FLUSH_ERR,
        _ => u32::from(status.wc_status() as u8),
    }
}

#[cfg(test)]
mod tests {
    use warpline::{QpNumber, STag};

    use super::*;
    use crate::abi::{IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS};

    fn completion(kind: CompletionKind, status: Status) -> Completion {
        Completion::new(QpNumber(3), 7, kind, status, 100)
    }

    #[test]
    fn completions_are_told_in_the_words_of_verbs() {
        let wc = as_verbs(&completion(CompletionKind::Write, Status::Success));
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
            (7, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 100)
        );
        assert_eq!((wc.qp_num, wc.wc_flags), (number_of(QpNumber(3)), 0));
        let wc = as_verbs(&completion(CompletionKind::Send, Status::Flushed));
        assert_eq!((wc.status, wc.opcode), (IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND));
        for (reason, status) in
            [(CloseReason::Reset, IBV_WC_WR_FLUSH_ERR), (CloseReason::TimedOut, IBV_WC_RETRY_EXC_ERR)]
        {
            let failed = Status::Failed(StreamError::Tcp(reason));
            assert_eq!(as_verbs(&completion(CompletionKind::Send, failed)).status, status);
        }
    }

    /// The first four octets on the wire are those that the program has in the order of the network.
    #[test]
    fn immediate_data_is_in_network_order() {
        let mut received = completion(CompletionKind::Receive, Status::Success);
        received.immediate = Some(0x0102_0304_0000_0000);
        let wc = as_verbs(&received);
        assert_eq!((wc.opcode, wc.wc_flags), (IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM));
        // SAFETY: the flag says which it is.
        assert_eq!(unsafe { wc.__bindgen_anon_1.imm_data }.to_ne_bytes(), [1, 2, 3, 4]);
        received.immediate = None;
        received.invalidated = Some(STag(0x1234_5678));
        let wc = as_verbs(&received);
        assert_eq!((wc.opcode, wc.wc_flags), (IBV_WC_RECV, IBV_WC_WITH_INV));
        // SAFETY: as above.
        assert_eq!(unsafe { wc.__bindgen_anon_1.invalidated_rkey }, 0x1234_5678);
    }
}
