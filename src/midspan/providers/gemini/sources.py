"""What an answer rests on, where Google searched, read a page or looked at a map for it."""

from collections.abc import Iterator

from midspan.providers.gemini import wire
from midspan.providers.gemini.proto import load
from midspan.types.exchange import ModelResponse, Source


def sources_of(answer: ModelResponse) -> tuple[Source, ...]:
    """Each source once, in the order in which the server named them."""
    found: dict[str, Source] = {}
    for document in answer.raw:
        for candidate in load(wire.GenerateContentResponse, document).candidates or []:
            for source in _named(candidate):
                found.setdefault(source.url, source)
    return tuple(found.values())


def _named(candidate: wire.Candidate) -> Iterator[Source]:
    grounding = candidate.grounding_metadata
    for chunk in (grounding.grounding_chunks if grounding is not None else None) or []:
        for place in (chunk.web, chunk.retrieved_context, chunk.maps):
            if place is not None and place.uri:
                yield Source(place.uri, place.title or "")
        if chunk.image is not None and chunk.image.source_uri:
            yield Source(chunk.image.source_uri, chunk.image.title or "")
    pages = candidate.url_context_metadata
    for page in (pages.url_metadata if pages is not None else None) or []:
        if page.retrieved_url:
            yield Source(page.retrieved_url)
