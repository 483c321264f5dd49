//! Queue pairs: work requests in, FPDU descriptors and completions out.

pub mod error;
pub mod indication;
pub mod payload;
pub mod reads;
pub mod receiver;
pub mod run;
pub mod sender;
pub mod shared;
pub mod taken;
pub mod terminate;
pub mod work;
