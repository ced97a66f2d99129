"""Bytes to the elements of one long JSON array, fed piece by piece.

Only strings and brackets are looked at; whether an element is sound JSON is for its reader to say.
"""

import re

# Everything between two of these bytes is skipped by the regular expression, not by a loop in Python.
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')


class ArrayStream:
    """Feed it pieces; it gives the elements that they complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0
        self._depth = 0
        self._in_string = False
        self._ended = False

    @property
    def ended(self) -> bool:
        """The array was closed."""
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
                    position -= 1  # the escaped byte is still to come: look at this backslash again
                    break
                else:
                    position += 1
                continue
            begin = self._mark(byte, begin, position, elements)
        del buffer[:begin]
        self._position = position - begin
        return elements

    def _mark(self, byte: bytes, begin: int, position: int, elements: list[bytes]) -> int:
        """Take note of a bracket, a quote or a comma; returns where the element after it begins."""
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
        """What follows the last whole element: nothing but white space if the stream was whole."""
        rest = bytes(self._buffer).strip()
        self._buffer.clear()
        self._position = 0
        return rest
