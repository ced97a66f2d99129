"""The network: the only place that speaks HTTP, and the framing of what comes over it."""
