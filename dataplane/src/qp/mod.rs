//! Queue pairs: work requests in, FPDU descriptors and completions out.

mod active_queue;
pub mod active_wqe;
pub mod async_event;
pub mod completion_queue;
mod cqe;
pub mod doorbells;
pub mod error;
pub mod indication;
pub mod lender;
#[cfg(all(test, loom))]
mod loom_tests;
mod numbers;
pub mod payload;
mod post_error;
pub mod reads;
pub mod receiver;
pub mod run;
mod send_list;
pub mod sender;
pub mod shared;
pub mod shared_receive_queue;
mod slot;
mod state;
pub mod terminate;
pub mod verbs;
pub mod work;
mod work_queue;
pub mod wqe;
