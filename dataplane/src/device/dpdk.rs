//! DPDK ports as devices.
