"""From a request that is read to the bytes of its answer."""
