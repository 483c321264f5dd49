"""An iWARP endpoint over an ordinary TCP socket: MPA, DDP and RDMAP, in the Python standard library alone."""
