"""Wasat, the runtime between a language model and its tools."""

__version__ = "0.1.0"
