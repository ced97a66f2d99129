"""Counting tokens, by a rule of thumb: four characters are one."""

from typing import Any

import msgspec

from midspan.emulator.answering.route import Route
from midspan.emulator.checking import Target
from midspan.emulator.reading.read import Dialect, read
from midspan.emulator.rules.contents import check_content, check_contents
from midspan.emulator.rules.declarations import check_declarations
from midspan.emulator.turns import turn_of
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.proto import to_plain
from midspan.providers.gemini.wire import CountTokensRequest


def count_tokens(body: bytes, route: Route) -> dict[str, Any]:
    """The answer to countTokens: the request itself, or the one that it holds, is counted."""
    request = read(CountTokensRequest, body, Dialect(route.api, route.version))
    counted = request.generate_content_request or request
    family = Target(route.name or "", route.api, route.version).family
    turns = [turn_of(content) for content in counted.contents or ()]
    for at, turn in enumerate(turns):
        check_content(at, turn, family)
    check_contents(turns, 0, family)
    check_declarations(counted.tools or (), family)
    tokens = sum(turn.tokens for turn in turns)
    if counted.system_instruction is not None:
        tokens += turn_of(counted.system_instruction).tokens
    if counted.tools:
        tokens += len(msgspec.json.encode(to_plain(counted.tools))) // 4
    found: dict[str, Any] = {"totalTokens": tokens}
    if route.api is Api.VERTEX:
        texts = (part.text or "" for content in counted.contents or () for part in content.parts or ())
        found["totalBillableCharacters"] = sum(map(len, texts))
    return {**found, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}
