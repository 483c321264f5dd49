"""The rig of `verbs`: unmodified RDMA programs of Debian's packages on warpline."""
