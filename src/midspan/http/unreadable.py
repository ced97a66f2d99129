"""Why an answer cannot be read, in words of ours; aiohttp's own tell it between pieces of what the server sent."""

import re

from aiohttp.http_exceptions import ContentEncodingError, TransferEncodingError

_CODING = r"(?:x-)?(?:gzip|compress)|deflate|br|zstd|identity"
_CODINGS = re.compile(rf"\s*(?:{_CODING})(?:\s*,\s*(?:{_CODING})){{0,3}}\s*", re.IGNORECASE)
_SIGNS = {
    "chunk": "a chunk of it has a wrong size",
    "transfer-encoding": "its length is told in two ways, or in one that is not known",
    "duplicate content-length": "it has more than one Content-Length",
    "content-length": "its Content-Length is no number of bytes",
    "too many headers": "its head is too large",
    "got more than": "its head is too large",
    "header": "a header of it is not HTTP",
    "status": "it is not HTTP",
}
"""What the parser says somewhere in its first line, and what it means; the first that is there counts."""


def check_coding(coding: str) -> None:
    """Refuse a body that nobody will decompress, by its Content-Encoding; a word that names no coding is let pass.

    Some servers write `utf-8` there, and what they send can be read.
    """
    if _CODINGS.fullmatch(coding) and coding.strip().lower() != "identity":
        raise ContentEncodingError(f"Can not decode content-encoding: {coding.strip()}. Nobody asked for it")


def reason(error: BaseException) -> str | None:
    """What is wrong with an answer, if the error tells it; with one that only broke off, nothing is."""
    found: BaseException | None = error
    while found is not None:
        told = getattr(found, "message", None)
        if isinstance(told, str) and told:
            return _in_our_words(told, found.__cause__ or found)
        found = found.__cause__
    return None


def _in_our_words(told: str, error: BaseException) -> str | None:
    if told.startswith("Not enough data"):
        return None
    if isinstance(error, ContentEncodingError):
        coding, unknown, _ = told.rpartition("content-encoding: ")[2].partition(". ")  # advice on what to install
        if unknown:
            return f"its Content-Encoding is {coding}, which was not asked for"
        return f"it is not the {coding} that its Content-Encoding says"
    if isinstance(error, TransferEncodingError):
        return _SIGNS["chunk"]
    first = told.partition("\n\n")[0].lower()
    return next((words for sign, words in _SIGNS.items() if sign in first), None)
