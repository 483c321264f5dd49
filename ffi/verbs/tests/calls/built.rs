//! Sends that are built call by call, and completions that are read field by field.

use std::ptr::null_mut;

use warpline_verbs::abi::*;

use super::input::Input;
use super::program::{INLINE, element, elements, remote};
use super::world::{Kind, Posted, World};

/// Builds some sends, of which any may be bad, and posts them or gives them up.
pub fn build(world: &mut World, input: &mut Input<'_>) {
    let qp: *mut ibv_qp = world.any(Kind::Qp, input);
    // SAFETY: the handle is good, or such that the library knows it for none.
    let built = unsafe { ibv_qp_to_qp_ex(qp) };
    if built.is_null() {
        return;
    }
    let count = if input.octet() & 15 == 15 { 20 } else { input.below(4) };
    let mut posted = Vec::new();
    // SAFETY: the handle is good, and has the functions; what they read is there during the call.
    let result = unsafe {
        (*built).wr_start.expect("a function")(built);
        for _ in 0..count {
            let (wr_id, flags) = (world.wr_id(), input.octet());
            let known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
            ((*built).wr_id, (*built).wr_flags) = (wr_id, u32::from(flags) & known);
            if begin(world, built, input) {
                posted.push((wr_id, u32::from(flags) & IBV_SEND_SIGNALED != 0));
            }
            for _ in 0..[1, 1, 1, 0, 1, 1, 2, 1][usize::from(flags >> 5)] {
                set_data(world, built, input);
            }
        }
        if input.octet() & 15 == 15 {
            return (*built).wr_abort.expect("a function")(built);
        }
        (*built).wr_complete.expect("a function")(built)
    };
    if world.record("ibv_wr_complete", result) == 0 {
        let model = world.queue_pairs.get_mut(&qp.addr()).expect("it is known");
        for (wr_id, signaled) in posted {
            let signaled = model.signals_all || signaled;
            model.sends.insert(wr_id, Posted { signaled, is_bind: false });
        }
    }
}

/// Begins a send, or none. Returns true if one may have begun.
///
/// # Safety
///
/// The queue pair is one whose sends are built.
unsafe fn begin(world: &World, built: *mut ibv_qp_ex, input: &mut Input<'_>) -> bool {
    let choice = input.below(16);
    let (key, to) = remote(world, input);
    // SAFETY: the caller's promise; what the functions read is there during the call.
    unsafe {
        let functions = &*built;
        match choice {
            0 | 1 => functions.wr_send.expect("a function")(built),
            2 => functions.wr_send_imm.expect("a function")(built, key),
            3 => functions.wr_send_inv.expect("a function")(built, key),
            4..=6 => functions.wr_rdma_write.expect("a function")(built, key, to),
            7 => functions.wr_rdma_write_imm.expect("a function")(built, key, to, 7),
            8 | 9 => functions.wr_rdma_read.expect("a function")(built, key, to),
            10 => functions.wr_atomic_cmp_swp.expect("a function")(built, key, to, 0, 1),
            11 => functions.wr_atomic_fetch_add.expect("a function")(built, key, to, 1),
            12 => functions.wr_local_inv.expect("a function")(built, key),
            13 => {
                let info: ibv_mw_bind_info = std::mem::zeroed();
                functions.wr_bind_mw.expect("a function")(built, null_mut(), key, &raw const info);
            }
            14 => match input.below(4) {
                0 => functions.wr_send_tso.expect("a function")(built, null_mut(), 0, 0),
                1 => functions.wr_set_ud_addr.expect("a function")(built, null_mut(), 0, 0),
                2 => functions.wr_set_xrc_srqn.expect("a function")(built, 0),
                _ => functions.wr_atomic_write.expect("a function")(built, key, to, std::ptr::null()),
            },
            // Nothing is posted for a number alone.
            _ => return false,
        }
    }
    true
}

/// Sets the data of the last send.
///
/// # Safety
///
/// As for [`begin`].
unsafe fn set_data(world: &World, built: *mut ibv_qp_ex, input: &mut Input<'_>) {
    let choice = input.below(8);
    // SAFETY: the caller's promise; what the functions read is there during the call.
    unsafe {
        let functions = &*built;
        match choice {
            0..=3 => {
                let ibv_sge { addr, length, lkey } = element(world, input);
                let length = if choice == 3 { 8 } else { length };
                functions.wr_set_sge.expect("a function")(built, lkey, addr, length);
            }
            4 => {
                let (list, count) = elements(world, input);
                let start = if list.is_empty() { std::ptr::null() } else { list.as_ptr() };
                functions.wr_set_sge_list.expect("a function")(built, count as usize, start);
            }
            5 => {
                let len = usize::from(input.u16()) % (INLINE.len() + 1);
                let start = INLINE.as_ptr().cast_mut().cast();
                functions.wr_set_inline_data.expect("a function")(built, start, len);
            }
            _ => {
                let count = input.below(4);
                let part = |input: &mut Input<'_>| ibv_data_buf {
                    addr: INLINE.as_ptr().cast_mut().cast(),
                    length: usize::from(input.octet()),
                };
                let parts: Vec<_> = (0..count).map(|_| part(input)).collect();
                functions.wr_set_inline_data_list.expect("a function")(built, count, parts.as_ptr());
            }
        }
    }
}

/// Makes a queue that is polled field by field, or polls one so: each completion has the fields of what
/// `ibv_poll_cq` returns.
pub fn poll(world: &mut World, input: &mut Input<'_>) {
    // SAFETY: structures of numbers and pointers, which are set; the handles are good, or such that the
    // library knows them for none.
    unsafe {
        if input.octet() & 1 == 0 && world.has_room(Kind::Cq) {
            let context: *mut ibv_context = world.any(Kind::Context, input);
            let mut attr: ibv_cq_init_attr_ex = std::mem::zeroed();
            attr.cqe = super::structures::number(input, 64).min(1 << 21);
            attr.wc_flags = super::structures::number(input, 0x7f).into();
            attr.comp_mask = super::structures::number(input, 0);
            attr.flags = super::structures::number(input, 0);
            attr.channel = world.any(Kind::Channel, input);
            let channel = attr.channel;
            let create = super::program::larger(world).create_cq_ex.expect("a function");
            let cq = world.record_pointer("ibv_create_cq_ex", create(context, &raw mut attr));
            if !cq.is_null() {
                world.queues.insert(cq.addr(), (context, channel));
                world.add(Kind::Cq, cq);
            }
        }
        let cq: *mut ibv_cq_ex = world.good(Kind::Cq, input);
        if cq.is_null() {
            return;
        }
        // Queues of `ibv_create_cq` have none.
        let Some(start_poll) = (*cq).start_poll else { return };
        let mut attr = ibv_poll_cq_attr { comp_mask: u32::from(input.octet() & 15 == 15) };
        let mut result = start_poll(cq, &raw mut attr);
        world.record("ibv_start_poll", result);
        let has_begun = result == 0;
        while result == 0 {
            let mut wc: ibv_wc = std::mem::zeroed();
            (wc.wr_id, wc.status) = ((*cq).wr_id, (*cq).status);
            wc.opcode = (*cq).read_opcode.expect("a function")(cq);
            wc.byte_len = (*cq).read_byte_len.expect("a function")(cq);
            wc.qp_num = (*cq).read_qp_num.expect("a function")(cq);
            world.completed(&wc);
            if input.octet() & 7 == 7 {
                break;
            }
            result = (*cq).next_poll.expect("a function")(cq);
        }
        if has_begun {
            (*cq).end_poll.expect("a function")(cq);
        }
    }
}
