"""The expected requests of a tool loop, computed from the recording alone in the simplest way.

Nothing here uses Midspan's own encoder and decoder, so an error in them cannot hide here.
"""

import re
from itertools import pairwise
from typing import Any

SKIP = "skip_thought_signature_validator"


def expected_parts(documents: list[Any]) -> list[Any]:
    """Return the parts of a response as they are sent back. In a stream, text deltas are joined and calls completed."""
    sent = [part for document in documents for part in parts_sent(document)]
    if len(documents) == 1 and not any(is_streamed(part) for part in sent):
        return sent
    return joined(whole_calls(sent, finished(documents)))


def parts_sent(document: Any) -> list[Any]:
    """Return the parts of the first candidate of a document."""
    candidates = document.get("candidates") or [] if isinstance(document, dict) else []
    first = [candidate for candidate in candidates if isinstance(candidate, dict) and not candidate.get("index")][:1]
    return [part for candidate in first for part in as_list((candidate.get("content") or {}).get("parts"))]


def as_list(parts: Any) -> list[Any]:
    return parts if isinstance(parts, list) else [] if parts is None else [parts]


def finished(documents: list[Any]) -> bool:
    reasons = [
        candidate.get("finishReason")
        for document in documents
        if isinstance(document, dict)
        for candidate in document.get("candidates") or []
    ]
    return "STOP" in reasons or 1 in reasons


def is_streamed(part: Any) -> bool:
    call = part.get("functionCall") if isinstance(part, dict) else None
    return isinstance(call, dict) and ("partialArgs" in call or "willContinue" in call)


def whole_calls(parts: list[Any], finished: bool) -> list[Any]:
    """Return the parts with each streamed call complete, at its first position; a call without an end is omitted."""
    complete: list[Any] = []
    place: int | None = None
    for part in parts:
        call = part.get("functionCall") if isinstance(part, dict) else None
        if not isinstance(call, dict) or not (is_streamed(part) or place is not None or call == {}):
            complete.append(part)
            continue
        fields = {n: v for n, v in call.items() if n not in ("args", "partialArgs", "willContinue")}
        if call.get("name"):
            place = len(complete)
            complete.append({**part, "functionCall": {"args": {}, **fields}})
        if place is None:
            continue
        complete[place]["functionCall"] |= fields
        for piece in call.get("partialArgs") or []:
            put(complete[place]["functionCall"]["args"], piece)
        if not call.get("willContinue"):
            place = None
    if place is not None and not finished:
        del complete[place]
    return complete


def put(arguments: Any, piece: Any) -> None:
    """Add one piece to the arguments."""
    steps = [name or int(index) for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", piece["jsonPath"])]
    for step, after in pairwise(steps):
        arguments = child(arguments, step, [] if isinstance(after, int) else {})
    values = [piece[name] for name in ("stringValue", "numberValue", "boolValue") if name in piece]
    value = values[0] if values else None
    before = child(arguments, steps[-1], None)
    arguments[steps[-1]] = before + value if isinstance(before, str) and isinstance(value, str) else value


def child(tree: Any, step: Any, default: Any) -> Any:
    if isinstance(tree, list):
        tree.extend([None] * (step + 1 - len(tree)))
    elif step not in tree:
        tree[step] = default
    if tree[step] is None:
        tree[step] = default
    return tree[step]


def joined(parts: list[Any]) -> list[Any]:
    """Return the parts with adjacent plain texts joined, and without empty texts."""
    texts: list[Any] = []
    for part in parts:
        plain = isinstance(part, dict) and "text" in part and part.keys() <= {"text", "thought"}
        if plain and not part["text"]:
            continue
        last = texts[-1] if texts else {}
        if (
            plain
            and last.keys() <= {"text", "thought"}
            and "text" in last
            and bool(last.get("thought")) == bool(part.get("thought"))
        ):
            texts[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            texts.append(part)
    return texts


def signed(parts: list[Any]) -> list[Any]:
    """Return the parts with the skip signature on the first call, if that has no signature."""
    for index, part in enumerate(parts):
        if isinstance(part, dict) and isinstance(part.get("functionCall"), dict):
            marked = part if part.get("thoughtSignature") else {**part, "thoughtSignature": SKIP}
            return [*parts[:index], marked, *parts[index + 1 :]]
    return parts


def without_ids(parts: list[Any]) -> list[Any]:
    def bare(part: Any) -> Any:
        call = part.get("functionCall") if isinstance(part, dict) else None
        return (
            {**part, "functionCall": {n: v for n, v in call.items() if n != "id"}} if isinstance(call, dict) else part
        )

    return [bare(part) for part in parts]


def open_calls(parts: list[Any]) -> list[Any]:
    """Return the calls without those that the server answered in the same turn."""
    calls = [
        part["functionCall"] for part in parts if isinstance(part, dict) and isinstance(part.get("functionCall"), dict)
    ]
    calls = [call for call in calls if call.get("name")]
    for part in parts:
        answered = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(answered, dict):
            same = next((call for call in calls if call["name"] == answered.get("name")), None)
            calls = [call for call in calls if call is not same]
    return calls


def matched(calls: list[Any], responses: list[Any]) -> list[tuple[Any, Any]]:
    """Return each recorded response with its call: by id, by name, or else by position."""
    waiting = list(calls)
    pairs = []
    for response in responses:
        match = next((call for call in waiting if call.get("id") and call["id"] == response.get("id")), None)
        match = match or next((call for call in waiting if call["name"] == response.get("name")), None)
        match = match or (waiting[0] if waiting else None)
        if match is not None:
            waiting = [call for call in waiting if call is not match]
            pairs.append((match, response))
    return pairs


def expected_result(call: Any, response: Any, *, takes_ids: bool, nests_media: bool) -> list[Any]:
    """Return the functionResponse part of a call, and its media beside it if the model does not accept it inside."""
    value = response.get("response")
    written = {"name": call["name"], "response": value if isinstance(value, dict) else {}}
    if takes_ids and call.get("id"):
        written["id"] = call["id"]
    media = [only_media(part) for part in as_list(response.get("parts"))]
    if media and nests_media:
        written["parts"] = media
    return [{"functionResponse": written}, *([] if nests_media else media)]


def only_media(part: Any) -> Any:
    for kind, names in (("inlineData", ("mimeType", "data")), ("fileData", ("fileUri", "mimeType"))):
        if isinstance(part.get(kind), dict):
            return {kind: {name: part[kind][name] for name in names if name in part[kind]}}
    return part
