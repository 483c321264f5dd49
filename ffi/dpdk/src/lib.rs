//! DPDK.
