"""Values that all layers share: immutable, except for `RunContext`."""
