"""The run: ask, listen, act, repeat."""
