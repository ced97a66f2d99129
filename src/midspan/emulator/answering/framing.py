"""Documents as bytes: one alone, as server-sent events, or as one JSON array that comes piece by piece."""

import msgspec

from midspan.emulator.answering.documents import Document
from midspan.emulator.answering.route import Route
from midspan.emulator.serving.replies import EVENTS, JSON

encode = msgspec.json.Encoder().encode


def frames_of(documents: list[Document], route: Route) -> list[bytes]:
    """What is sent for each document, in the form that the caller asked for."""
    if not route.streaming:
        return [encode(documents[-1]) + b"\n"]
    if route.is_sse:
        return [b"data: %b\r\n\r\n" % encode(document) for document in documents]
    last = len(documents) - 1
    return [
        b"%b%b%b" % (b"[" if at == 0 else b",\r\n", encode(document), b"\r\n]" if at == last else b"\r\n")
        for at, document in enumerate(documents)
    ]


def content_type_of(route: Route) -> str:
    return EVENTS if route.streaming and route.is_sse else JSON
