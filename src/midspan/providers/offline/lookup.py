"""Ids that nobody knows by heart: fetched with a tool that reads such things, then matched to the prompt."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from midspan.providers.offline.declared.catalogue import Catalogue, Tool
from midspan.providers.offline.declared.parameters import Parameter, is_id
from midspan.providers.offline.reading.prompt import Prompt
from midspan.providers.offline.reading.words import STOP, name_words, word_set, words

_READING = word_set("get list find search fetch lookup look show read query retrieve")
_MOST_ITEMS = 2000
_LABELS = ("name", "title", "label", "subject", "item", "description", "summary")


class Found(Struct, frozen=True):
    """The id that the prompt means; or the labels of those that it may mean."""

    id: Any = None
    labels: tuple[str, ...] = ()


def noun_of(tool: Tool, parameter: Parameter) -> frozenset[str]:
    """What the id is an id of: order in `order_id`, and in the plain `id` of `cancel_order`."""
    own = [word.concepts[0] for word in name_words(parameter.name)[:-1] if word.lower not in STOP]
    return frozenset(own or [word.concepts[0] for word in name_words(tool.name)[1:]])


def readers(known: Catalogue, tool: Tool, parameter: Parameter) -> Iterator[Tool]:
    """The tools that may tell the id; nobody asked for them, so none that declares a change."""
    noun = noun_of(tool, parameter)
    for one in known.tools:
        spoken = name_words(one.name)
        reads = not one.spec.changes and any(word.lower in _READING for word in spoken)
        asks_itself = any(is_id(own.name) and own.required and noun_of(one, own) & noun for own in one.parameters)
        if one is not tool and reads and noun & {word.concepts[0] for word in spoken} and not asks_itself:
            yield one


def matched(value: Any, prompts: Iterable[Prompt], tool: Tool, parameter: Parameter) -> Found:
    """The id of the thing in a result that the prompts speak of: a request, and the answers that make it clearer."""
    items = list(_items(value, noun_of(tool, parameter)))
    for prompt in prompts:
        items = items if len(items) <= 1 else _nearest(items, prompt, tool)
    if len(items) == 1:
        return Found(str(items[0][0]) if parameter.type == "string" else items[0][0])
    return Found(labels=tuple(_label(item) for _, item in items[:5]))


_Item = tuple[Any, dict[str, Any]]


def _nearest(items: list[_Item], prompt: Prompt, tool: Tool) -> list[_Item]:
    """Those of which the prompt says most; all of them if it says nothing of any."""
    own = {concept for word in name_words(tool.name) for concept in word.concepts}
    asked = {word.concepts[0] for word in prompt.words if word.lower not in STOP and word.concepts[0] not in own}
    scores = [len(asked & _said(item)) for _, item in items]
    ordinal = next((_ORDINALS.index(word.lower) for word in prompt.words if word.lower in _ORDINALS), len(items))
    if max(scores) == 0 and ordinal < len(items):
        return [items[ordinal]]
    return [item for item, score in zip(items, scores, strict=True) if score == max(scores)]


_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def _items(value: Any, noun: frozenset[str]) -> Iterator[_Item]:
    waiting, seen = [value], 0
    while waiting and seen < _MOST_ITEMS:
        one = waiting.pop(0)
        seen += 1
        if isinstance(one, dict):
            id = _id_in(one, noun)
            if id is not None:
                yield id, one
            else:
                waiting.extend(one.values())
        elif isinstance(one, list):
            waiting = [*one, *waiting] if len(one) <= _MOST_ITEMS else one[:_MOST_ITEMS]


def _id_in(item: dict[str, Any], noun: frozenset[str]) -> Any:
    for key, value in item.items():
        about = {word.concepts[0] for word in name_words(str(key))[:-1]}
        if isinstance(value, str | int) and is_id(str(key)) and (not about or about & noun):
            return value
    return None


def _said(item: dict[str, Any]) -> set[str]:
    text = " ".join(str(value)[:300] for value in list(item.values())[:40] if isinstance(value, str | int | float))
    return {word.concepts[0] for word in words(text) if word.lower not in STOP}


def _label(item: dict[str, Any]) -> str:
    return str(next((item[key] for key in _LABELS if key in item), next(iter(item.values()))))[:80]
