"""Wasat, the runtime between a language model and its tools."""

from wasat.version import VERSION

__all__ = ["__version__"]

__version__ = VERSION
