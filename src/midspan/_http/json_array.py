"""An incremental parser that splits one long JSON array into its elements.

It looks at strings and brackets only. Whether an element is valid JSON is for its decoder to decide.
"""

import re

# The regular expressions skip everything between these bytes, without a Python loop.
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


class ArrayStream:
    """Feed it chunks; it returns the elements they complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        self._depth = 0
        self._in_string = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the closing bracket has arrived."""
        return self._ended

    def feed(self, piece: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += piece
        elements: list[bytes] = []
        begin, position = 0, self._position
        while not self._ended:
            found = (_INSIDE if self._in_string else _OUTSIDE).search(buffer, position)
            if found is None:
                position = len(buffer)
                break
            position = found.end()
            byte = found.group()
            if self._in_string:
                if byte == b'"':
                    self._in_string = False
                elif position == len(buffer):
                    position -= 1  # the escaped byte has not arrived; look at this backslash again
                    break
                else:
                    position += 1
                continue
            begin = self._mark(byte, begin, position, elements)
        del buffer[:begin]
        self._position = position - begin
        return elements

    def _mark(self, byte: bytes, begin: int, position: int, elements: list[bytes]) -> int:
        """Handle a bracket, a quote or a comma; return where the next element starts."""
        if byte == b'"':
            self._in_string = True
        elif byte in b"[{":
            self._depth += 1
            if self._depth == 1:
                return position
        elif byte in b"]}":
            self._depth -= 1
            self._ended = self._depth == 0
        if self._ended or (byte == b"," and self._depth == 1):
            element = bytes(self._buffer[begin : position - 1]).strip()
            if element:
                elements.append(element)
            return position
        return begin

    def end(self) -> bytes:
        """Return what follows the last complete element; empty if the array was complete."""
        rest = bytes(self._buffer).strip()
        self._buffer.clear()
        self._position = 0
        return rest
