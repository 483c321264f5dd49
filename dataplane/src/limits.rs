//! Every bound of the data plane in one place, each with its unit and its reason.

/// Registered regions a core knows. An STag names its slot in 16 bits.
pub const REGIONS_PER_CORE: usize = 1 << 16;

/// Frames taken from the device in one go: enough to amortise the call, few enough to stay in cache.
pub const RECEIVE_BURST_FRAMES: usize = 32;
