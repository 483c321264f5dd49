//! Random work on several queue pairs, run on a stack and on a model of plain memory: the same octets in all
//! memory, the same completions in the same order on every queue. The model is written from RFC 5040, RFC
//! 5041 and RFC 7306. It carries out requests in the order that all three documents fix; where they leave a
//! choice, requests wait or are fenced.
//!
//! The grants of an end change meanwhile: windows are bound and memory is registered again, and both ends
//! invalidate. The model cannot determine when a name may be reused for other memory after the peer has read
//! by it: the stack releases the old memory when TCP has the acknowledgement of the last Response, which the
//! test cannot observe. So such a name stays unused until the peer has sent a message after its Reads were
//! complete.
//!
//! Nor can the model determine which receive of a shared queue a message uses: that depends on which queue
//! pair receives its message first. Every receive fits any message, and the model checks the completion: its
//! receive is posted and not used before, in the order of posting on each queue pair, and no older receive is
//! skipped unless a message of another queue pair that is still in flight holds it.

#![allow(dead_code, reason = "connections are cut off in the swarm only")]

mod cut_off;
mod endings;
mod faults;
mod grants;
mod half;
mod hazards;
mod memory;
mod opening;
pub(super) mod play;
pub(super) mod pool;
mod receives;
pub(super) mod stack;
mod work;

pub(super) use memory::PD;
pub(super) use pool::SLOTS;
