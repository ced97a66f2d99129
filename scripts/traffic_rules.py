"""The rules by which recorded contents may differ from those of Midspan: what differs, when, and why.

The recordings are of other clients, many of which do not send back what the server sent. Each rule removes one kind of
difference from both sides; rules are applied in order until the sides are equal.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from traffic_expected import SKIP

RULES = {
    "another API": "the Interactions API, of which only the steps are checked, or one that Midspan does not use",
    "rejected request": "the server rejected the request as invalid, and Midspan does not write it so",
    "client's form": "the client writes a request in another form with the same meaning, or adds fields to a result",
    "no message": "the response has no message of this API; it becomes an error",
    "cut stream": "the stream does not say why it ends; the calls of such a response are not sent back as they came",
    "not JSON": "the response is a page of a front end; it becomes an error with its text",
    "no request recorded": "only the response was recorded, or a request without messages",
    "empty content": "a content without parts is omitted; the API rejects it",
    "blocked prompt": "the response is an error and has no message",
    "calls not answered": "no later row continues this one with the results of its calls",
    "casing": "the client sends snake_case; the API accepts both, Midspan sends camelCase",
    "null": "the client sends null for a field that is not set, which means the same as omitting it",
    "role": "the client sends results with the role function, tool or another one; the API wants user today",
    "lone part": "the client sends a single part without a list; the API accepts both",
    "from one request": "the response with the call was not recorded; it is taken from the request that sent it back",
    "joined text": "text deltas without other fields are joined to one part",
    "alphabet": "the client sends a signature in the URL-safe alphabet of base64; Midspan keeps that of the server",
    "empty text": "the client omits parts with empty text, or Midspan does because only the stream had them",
    "no arguments": "the client sends args or response as {} where the server omitted it, or the other way round",
    "client's ids": "the client invents ids for calls; Midspan never sends an id that the server did not give",
    "dropped ids": "the client does not send ids back; Midspan does where the API accepts them",
    "dropped thoughts": "the client does not send thoughts back, which the API allows; Midspan does",
    "skip signature": "the model rejects unsigned calls; Midspan sends the skip signature for a call without one",
    "signatures": "the client drops, copies or moves signatures; Midspan keeps them in place",
    "dropped parts": "the client sends back only the parts that it knows",
    "split turn": "the client sends each chunk of a stream as a turn; Midspan sends one turn",
    "own order": "the client changes the order of parts or results; Midspan keeps it",
    "extra parts": "the client adds parts beside the results",
    "client's names": "the client puts something else than the name of the function on a result",
    "response fields": "the client adds fields to a result, such as those of live sessions; Midspan adds none",
    "media": "the client puts files of a result elsewhere",
    "envelope": "the client wraps a result that is not an object under another name",
    "rewritten turn": "the client changes the turn of the model; Midspan sends it unchanged",
}


class Difference(Exception):
    """A difference that no rule allows."""


class Sides(NamedTuple):
    """The contents that Midspan builds and the recorded ones, with what the server had sent before."""

    ours: list[Any]
    theirs: list[Any]
    sent: Any = None


def after_rules(sides: Sides, names: Iterable[str], where: str, covered: set[str]) -> None:
    """Raise Difference unless these rules make the sides equal. Rules that changed anything are added to `covered`."""
    used = set()
    ours, theirs = sides.ours, sides.theirs
    for name in names:
        if ours == theirs:
            break
        rule = _CHANGES.get(name)
        if rule is None:
            continue
        changed = rule(sides._replace(ours=ours, theirs=theirs))
        if changed != (ours, theirs):
            used.add(name)
            ours, theirs = changed
    if ours != theirs:
        raise Difference(f"{where}: {first_difference(ours, theirs)}")
    covered |= used


# User data is never re-cased.
_USER_DATA = {"args", "response", "parametersJsonSchema", "responseJsonSchema", "partMetadata", "labels", "headers"}
_NAMED_BY_USERS = {"properties", "defs", "$defs"}
_VALUES_OF_USERS = {"default", "example", "enum"}


def camel_cased(value: Any, *, names_are_ours: bool = True) -> Any:
    """Return the JSON with the names of the API's own fields in camelCase."""
    if isinstance(value, list):
        return [camel_cased(item) for item in value]
    if not isinstance(value, dict):
        return value
    written = {}
    for name, item in value.items():
        cased = _camel(name) if names_are_ours else name
        if names_are_ours and (cased in _VALUES_OF_USERS or (cased in _USER_DATA and not _is_schema(cased, item))):
            written[cased] = item
        else:
            written[cased] = camel_cased(item, names_are_ours=not (names_are_ours and cased in _NAMED_BY_USERS))
    return written


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest) if first else name


def _is_schema(name: str, value: Any) -> bool:
    """`response` is a result in a functionResponse and a schema in a declaration."""
    return (
        name == "response" and isinstance(value, dict) and isinstance(value.get("type"), str) and "properties" in value
    )


def without_nulls(value: Any) -> Any:
    """Return the JSON without null fields, except in user data."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    unchanged = _USER_DATA | _VALUES_OF_USERS
    return {
        name: item if name in unchanged else without_nulls(item)
        for name, item in value.items()
        if item is not None or name in _VALUES_OF_USERS
    }


Change = tuple[list[Any], list[Any]]


def _each_part(change: Callable[[Any], Any]) -> Callable[[Sides], Change]:
    """Return a rule that changes every part of both sides; a part that becomes None is removed."""

    def rule(sides: Sides) -> Change:
        return _mapped(sides.ours, change), _mapped(sides.theirs, change)

    return rule


def _mapped(contents: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    return [
        {**content, "parts": [changed for part in content.get("parts") or [] if (changed := change(part)) is not None]}
        for content in contents
    ]


def _inner(part: Any, kind: str, change: Callable[[Any], Any]) -> Any:
    return {**part, kind: change(part[kind])} if isinstance(part.get(kind), dict) else part


def _only(names: set[str]) -> Callable[[Any], Any]:
    return lambda part: {name: value for name, value in part.items() if name not in names}


def _joined_text(contents: list[Any]) -> list[Any]:
    joined = []
    for content in contents:
        parts: list[Any] = []
        for part in content.get("parts") or []:
            plain = part.keys() <= {"text", "thought"} and "text" in part
            if plain and parts and parts[-1].keys() == part.keys() and "text" in parts[-1]:
                parts[-1] = {**part, "text": parts[-1]["text"] + part["text"]}
            elif not (plain and not part["text"]):
                parts.append(part)
        joined.append({**content, "parts": parts})
    return joined


def _without_ids_unless(given: bool) -> Callable[[Sides], Change]:
    """Leave out ids: those that the server did not give, or those that it gave and one side does not send."""

    def rule(sides: Sides) -> Change:
        known = {part["functionCall"].get("id") for part in sides.sent or () if "functionCall" in part} - {None}
        if bool(known) != given:
            return sides.ours, sides.theirs
        return (_without_ids(sides.ours), _without_ids(sides.theirs))

    return rule


def _without_ids(contents: list[Any]) -> list[Any]:
    drop = _only({"id"})
    return _mapped(contents, lambda part: _inner(_inner(part, "functionCall", drop), "functionResponse", drop))


def _dropped_parts(sides: Sides) -> Change:
    """Of our model turn, the parts that the client sent back too."""
    theirs = [_key(part) for part in sides.theirs[0].get("parts") or []]
    kept = [part for part in sides.ours[0]["parts"] if _key(part) in theirs]
    return [{**sides.ours[0], "parts": kept}, *sides.ours[1:]], sides.theirs


def _own_order(sides: Sides) -> Change:
    def ordered(contents: list[Any]) -> list[Any]:
        return [{**content, "parts": sorted(content.get("parts") or [], key=_key)} for content in contents]

    return ordered(sides.ours), ordered(sides.theirs)


def _extra_parts(sides: Sides) -> Change:
    results = [part for part in sides.theirs[-1].get("parts") or [] if "functionResponse" in part]
    return sides.ours, [*sides.theirs[:-1], {**sides.theirs[-1], "parts": results}]


def _rewritten_turn(sides: Sides) -> Change:
    """Only what the client says the model had said; the results are ours to get right."""
    return sides.ours[-1:], sides.theirs[-1:]


def _key(part: Any) -> str:
    return json.dumps(part, sort_keys=True)


def _role(content: Any) -> Any:
    return {**content, "role": "model" if content.get("role") in ("model", "assistant") else "user"}


def _listed(contents: list[Any]) -> list[Any]:
    return [
        {**content, "parts": [content["parts"]]} if isinstance(content.get("parts"), dict) else content
        for content in contents
    ]


def _positional_names(sides: Sides) -> Change:
    """The results under our names, if they are in our order."""
    ours, theirs = sides.ours[-1]["parts"], sides.theirs[-1].get("parts") or []
    if len(ours) != len(theirs):
        return sides.ours, sides.theirs
    renamed = [_under_the_name_of(one, part) for one, part in zip(ours, theirs, strict=True)]
    return sides.ours, [*sides.theirs[:-1], {**sides.theirs[-1], "parts": renamed}]


def _under_the_name_of(one: Any, part: Any) -> Any:
    name = one["functionResponse"]["name"] if "functionResponse" in one else None
    return part if name is None else _inner(part, "functionResponse", lambda said: {**said, "name": name})


def _standard_alphabet(part: Any) -> Any:
    signature = part.get("thoughtSignature")
    if not isinstance(signature, str):
        return part
    return {**part, "thoughtSignature": signature.replace("-", "+").replace("_", "/").rstrip("=")}


def _with_arguments(part: Any) -> Any:
    with_args = _inner(part, "functionCall", lambda call: {"args": {}, **call})
    return _inner(with_args, "functionResponse", lambda response: {"response": {}, **response})


def _bare_result(part: Any) -> Any:
    def bare(response: Any) -> Any:
        value = response.get("response")
        if (
            isinstance(value, dict)
            and len(value) == 1
            and next(iter(value)) in ("result", "content", "output", "error")
        ):
            return {**response, "response": next(iter(value.values()))}
        return response

    return _inner(part, "functionResponse", bare)


def _known_response(response: Any) -> Any:
    return {name: value for name, value in response.items() if name in ("id", "name", "response", "parts")}


def _without_skip(part: Any) -> Any:
    signature = str(part.get("thoughtSignature")).replace("/", "_")  # in whichever alphabet
    return _only({"thoughtSignature"})(part) if signature == SKIP else part


_CHANGES: dict[str, Callable[[Sides], Change]] = {
    "casing": lambda sides: (camel_cased(sides.ours), camel_cased(sides.theirs)),
    "null": lambda sides: (without_nulls(sides.ours), without_nulls(sides.theirs)),
    "lone part": lambda sides: (_listed(sides.ours), _listed(sides.theirs)),
    "role": lambda sides: ([_role(content) for content in sides.ours], [_role(content) for content in sides.theirs]),
    "joined text": lambda sides: (_joined_text(sides.ours), _joined_text(sides.theirs)),
    "alphabet": _each_part(_standard_alphabet),
    "empty text": _each_part(lambda part: None if part in ({"text": ""}, {"text": "", "thought": True}) else part),
    "no arguments": _each_part(_with_arguments),
    "client's ids": _without_ids_unless(given=False),
    "dropped ids": _without_ids_unless(given=True),
    "dropped thoughts": _each_part(lambda part: None if part.get("thought") else part),
    "skip signature": _each_part(_without_skip),
    "signatures": _each_part(_only({"thoughtSignature"})),
    "extra parts": _extra_parts,
    "dropped parts": _dropped_parts,
    "own order": _own_order,
    "client's names": _positional_names,
    "response fields": _each_part(
        lambda part: (
            {"functionResponse": _known_response(part["functionResponse"])}
            if isinstance(part.get("functionResponse"), dict)
            else part
        )
    ),
    "media": _each_part(lambda part: _inner(part, "functionResponse", _only({"parts"}))),
    "envelope": _each_part(_bare_result),
    "rewritten turn": _rewritten_turn,
}


def first_difference(ours: Any, theirs: Any, path: str = "$") -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            if ours.get(name, first_difference) != theirs.get(name, first_difference):
                if name in ours and name in theirs:
                    return first_difference(ours[name], theirs[name], f"{path}.{name}")
                return f"at {path}.{name} only {'ours' if name in ours else 'theirs'} has a value"
    if isinstance(ours, list) and isinstance(theirs, list):
        for index, (our_item, their_item) in enumerate(zip(ours, theirs, strict=False)):
            if our_item != their_item:
                return first_difference(our_item, their_item, f"{path}[{index}]")
        return f"at {path} ours has {len(ours)} items, theirs {len(theirs)}"
    return f"at {path} ours is {json.dumps(ours)[:120]}, theirs {json.dumps(theirs)[:120]}"
