"""Emulated adapters, driven by DPDK in a guest, against our own stack and Linux's TCP on this machine."""
