//! libibverbs: its functions, and those behind the pointers of a context.

pub(crate) mod async_events;
pub(crate) mod built;
pub(crate) mod channel;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod extended;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod pd;
pub(crate) mod polling;
pub(crate) mod qp;
pub(crate) mod query;
pub(crate) mod section;
pub(crate) mod srq;
pub(crate) mod unsupported;
pub(crate) mod window;
pub(crate) mod work;
