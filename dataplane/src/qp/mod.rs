//! Queue pairs: work requests in, FPDU descriptors and completions out.
//!
//! # Rings
//!
//! Applications post work requests to, and poll completions from, bounded rings. Each ring has one producer
//! and one consumer: a queue pair has one thread that posts, a completion queue one that polls. So no counter
//! has two writers, and posting, polling and the core's side of both are loads and release-stores. The API's
//! handles are `Send` and not `Sync`; threads that share one put a lock around it (`locked`), as the
//! providers of verbs do. A completion queue has a ring for each core that fills it (`core_ring`). A shared
//! receive queue is for all threads and all cores, and has many producers and many consumers.
//!
//! A queue pair belongs to a core from the beginning of its stream on: its home is that core and its slot
//! there (`home`). The thread that posts rings at the home, and the core fills its ring of the completion
//! queue. A queue pair that has no home when it is destroyed is flushed by core 0.
//!
//! Three locked operations are left. A thread that posts signaled requests reserves places in the completion
//! queue, whose posters are as many as its queue pairs, and sets the bit of its queue pair in the doorbells
//! of the core; both once for a list. The core dequeues the bits of 64 queue pairs at a time (`doorbells`).
//! Setting the bit is also the fence before the look at whether the core's thread sleeps.
//!
//! A place for the completion is reserved when work is posted, so a completion queue cannot overflow; with
//! one that may, as those of verbs, receives take their place when they are complete. A send that is not
//! signaled reserves none. Verbs reports every failure, so when such a send fails or is flushed its
//! completion goes to a free place, never to a reserved one; without a free place it is left out, and an
//! asynchronous event says that the queue has overflowed. A signaled request posted last therefore always
//! shows that the queue is drained: posting is accepted in error too, and what is posted then, or after this
//! end has closed, is flushed after the completions of all before it.
//!
//! A Send, Write or Read of at most one range of memory, as most are, is written once, to a slot of the ring
//! that is one cache line (`wqe`, `slot`). Any other request, with up to four ranges, 64 octets inline or
//! operands of a comparison, is written to a box beside the slot, which is allocated for the first such
//! request and stays. The slot of a receive is one cache line too, and a third and fourth range lie beside it
//! (`receive_slot`). Nothing else is allocated to post. A slot says by its turn which request or completion
//! it holds, so the core and a thread that polls find out by one load whether there is anything. A thread
//! that posts looks at what the core has finished only when its queue seems full, so the two write to
//! different lines. Completions lie in slots of one cache line too; a thread that polls dequeues all that
//! there are in one step.
//!
//! A completion queue made with events can be slept on. A thread arms the queue before it sleeps, then polls
//! once more; the core, having put a completion there, looks whether the queue is armed, disarms it, and
//! writes to its eventfd. A fence between the two steps at either side sees to it that one of them notices
//! the other. A queue made for polling has no thread to notify and skips all of that.
//!
//! A shared receive queue has no completion queue, so a receive posted there has no place reserved. The queue
//! pair that dequeues it, when a message begins, reserves one first; where there is none the receive stays,
//! that queue pair fails, and the application is notified by an asynchronous event. These come over a ring of
//! the device with an eventfd of its own: what ends a queue pair, a completion queue that overflowed, a
//! shared receive queue that runs low.
//!
//! # Operations
//!
//! A work request that the core accepts is one message, two (a Write with Immediate Data), or none (an
//! invalidation, the binding of a window, a fast registration). Its FPDUs name either a range of memory or
//! the request itself, which holds the list of ranges, the inline octets, or the operands of a Read or Atomic
//! Operation; so it stays until TCP has the acknowledgement, and is built again from there. Requests go out
//! in the order of posting and complete in it. What has no message is carried out when all before it are
//! complete, because what was sent may have to be read again from memory that it changes.
//!
//! Reads and Atomic Operations have two queues of their own (`reads`), as long as IRD and ORD allow. What
//! this end has asked for waits in one: its answers come in order, each segment of a Response is checked
//! against the oldest, and a request completes when its answer is Delivered. What the peer has asked for
//! waits in the other: the sender alternates between it and the send queue, message by message, and an
//! answer keeps its place, and its memory, until the peer has acknowledged it. A request starts when it is
//! Delivered, never beyond a gap; a segment of a Response beyond a gap is placed like a Write and counted in
//! its turn. A peer that closes while it owes answers has broken the stream; an end that closes waits for
//! them first.
//!
//! An error of this end's own, a range that is not registered for instance, ends the stream: a Terminate goes
//! instead of the message, the request completes with its reason and the requests after it are flushed.
//! Otherwise a Send could announce a Write that was never sent. The queue pair is then in the state Terminate
//! until the connection is closed, and in Error after that.
//!
//! What is cut into FPDUs and handed to TCP is no more than the windows let out at once, so a change of EMSS
//! is felt by the next FPDU.
//!
//! # Ready-to-receive indications
//!
//! The Initiator's goes before anything posted; the Responder looks at the peer's first FPDU only, consumes
//! it if its kind was agreed, and otherwise handles it as any other. An indication by a Send consumes the
//! first number of its queue but no buffer, one by a Read is answered and its answer swallowed
//! (`indication`).

pub mod async_event;
pub mod completion_queue;
mod core_ring;
mod core_side;
mod cqe;
pub mod doorbells;
pub mod error;
mod home;
pub mod indication;
pub mod lender;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod payload;
mod post_error;
mod poster_side;
pub mod reads;
mod receive_slot;
pub mod receiver;
mod request_check;
pub mod run;
mod send_list;
pub mod sender;
pub mod shared;
pub mod shared_receive_queue;
mod slot;
mod state;
pub mod terminate;
pub mod verbs;
mod waiting_cores;
pub mod work;
mod work_queue;
pub mod wqe;
