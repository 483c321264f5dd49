"""A Linux guest in QEMU, emulated, for the rigs whose other end needs a kernel or an adapter of its own."""
