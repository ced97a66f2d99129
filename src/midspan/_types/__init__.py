"""Immutable values that all layers share. No I/O."""
