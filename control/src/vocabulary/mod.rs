//! Configurations, errors, reports and names that the control engine and the handles have in common. Nothing
//! here acts.

pub mod advertisement;
pub mod byte_stream;
pub mod connect;
pub mod device;
pub mod device_name;
pub(crate) mod duration;
pub mod listen;
pub mod memory;
pub mod poll_thread;
pub mod queue_pair;
pub mod quota;
pub mod startup;
pub mod stream;
