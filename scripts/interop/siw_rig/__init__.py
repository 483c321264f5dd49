"""A guest with Linux's software iWARP, or a host of the user's, as the other end of rping."""
