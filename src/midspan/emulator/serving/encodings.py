"""Bodies that come compressed."""

import zlib

from midspan.emulator.serving.refused import BadRequest

_LARGEST = 64 * 1024 * 1024
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def decompressed(body: bytes, encoding: bytes) -> bytes:
    """The body that was sent in this encoding."""
    word = encoding.lower()
    if word in (b"", b"identity"):
        return body
    if word not in (b"gzip", b"x-gzip", b"deflate"):
        raise BadRequest(415, "the body has an encoding other than gzip and deflate")
    reader = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        found = reader.decompress(body, _LARGEST)
    except zlib.error as error:
        raise BadRequest(400, "the body is not in the encoding that its head names") from error
    if reader.unconsumed_tail:
        raise BadRequest(413, "the body is too large")
    if not reader.eof or reader.unused_data:
        raise BadRequest(400, "the body is not in the encoding that its head names")
    return found
