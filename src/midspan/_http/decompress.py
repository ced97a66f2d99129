"""Decompression of response bodies, gzip and deflate, in pieces of limited size."""

import zlib
from typing import Any

MAX_PIECE = 2**18
"""Decompressed bytes given to the reader at once."""


class Decoder:
    """Decompresses a body in pieces of limited size."""

    __slots__ = ("_inflate", "_pending", "coding")

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._inflate: Any = None
        self._pending = b""

    def decode(self, data: bytes) -> bytes:
        """Decompress a piece; call again without data until the result is empty."""
        data = self._pending + data
        while True:
            if self._inflate is None or self._inflate.eof:
                if not data:
                    return b""
                self._inflate = zlib.decompressobj(self._window_bits(data))
            piece: bytes = self._inflate.decompress(data, MAX_PIECE)
            data = self._pending = self._inflate.unused_data or self._inflate.unconsumed_tail
            if piece or not data:
                return piece

    def finish(self) -> None:
        """Raise an error if the compressed data ended too early."""
        if self._inflate is not None and not self._inflate.eof:
            raise zlib.error("truncated")

    def _window_bits(self, data: bytes) -> int:
        if self.coding == "gzip":
            return 31
        return 15 if data[0] & 0x0F == 8 else -15  # with or without the zlib header; servers send both
