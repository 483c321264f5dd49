//! Configurations, errors, reports and names that the control engine and the handles have in common. Nothing
//! here acts.

pub(crate) mod advertisement;
pub(crate) mod byte_stream;
pub(crate) mod capacity;
pub(crate) mod connect;
pub(crate) mod core_set;
pub(crate) mod cpu_list;
pub(crate) mod device;
pub(crate) mod device_name;
pub(crate) mod duration;
pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod poll_thread;
pub(crate) mod queue_pair;
pub(crate) mod quota;
pub(crate) mod startup;
pub(crate) mod stream;
