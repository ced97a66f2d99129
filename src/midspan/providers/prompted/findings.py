"""What is found in a text: calls, and what was meant as one but cannot be taken for one.

A refused call is no `ToolCall`, so that nobody can ever run it. In an answer it is an `Opaque` part, which a run keeps,
a journal saves and every other provider passes over; `history.py` tells the model about it.
"""

from collections.abc import Iterable, Sized
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Raw, Struct

from midspan._types.parts import Opaque, ProviderData
from midspan._types.specs import AnyTool, ToolSpec

PART = "refused_call"
MOST_CALLS = 1_000
"""In one answer."""
_LONGEST_NAME = 200


class Written(Struct, frozen=True):
    """A call as it stands in the text."""

    name: str
    arguments: dict[str, Any]


class Refused(Struct, frozen=True, omit_defaults=True):
    """What was meant as a call, what is wrong with it, in words that the model can act on."""

    text: str
    problem: str
    name: str | None = None

    def part(self) -> Opaque:
        return Opaque(PART, ProviderData("prompted", Raw(msgspec.json.encode(self))))


def refused_of(part: Opaque) -> Refused | None:
    """What an opaque part says, if it is one of ours."""
    return msgspec.json.decode(part.provider_data.raw, type=Refused) if part.name == PART else None


class Found(Struct, frozen=True):
    """Calls in a text, and where they end; without any it is text up to there, whatever it looks like."""

    end: int
    calls: tuple[Written, ...]


class Broken(Exception):
    """A call is meant here, but it cannot be read; `at` is where that shows, and None means that the text is over.

    `over_at` is where the call ends, if that is sure all the same.
    """

    def __init__(
        self, problem: str, at: int | None = None, name: str | None = None, *, over_at: int | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at
        self.name = name
        self.over_at = over_at


def refuse_too_many(calls: Sized, at: int, name: str) -> None:
    """Say of calls that stand together whether they are too many, before all of them are read."""
    if len(calls) > MOST_CALLS:
        raise Broken(f"more than {MOST_CALLS:,} calls stand together", at, name)


class Declared:
    """The tools there are, by the names that a model may use for them."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self.specs = {tool.name: tool for tool in tools if isinstance(tool, ToolSpec)}
        self.names = tuple(self.specs)

    def resolve(self, name: str) -> str | None:
        """The declared name; some models put the name of a namespace before it."""
        if name in self.specs:
            return name
        for prefix in ("default_api.", "default_api:", "functions.", "tools."):
            if name.startswith(prefix) and name[len(prefix) :] in self.specs:
                return name[len(prefix) :]
        return None

    def unknown(self, name: str) -> str:
        """What to tell a model that called a tool which is not there."""
        name = name[:_LONGEST_NAME]
        near = get_close_matches(name.removeprefix("default_api."), self.names, 3, 0.5)
        words = f"unknown tool: {name}" + (f"; did you mean {' or '.join(near)}?" if near else "")
        return f"{words}; the tools are: {', '.join(self.names[:50])}" if self.names else f"{words}; there are no tools"

    def properties(self, name: str) -> dict[str, Any]:
        """The schemas of its parameters."""
        found = (self.specs[name].parameters or {}).get("properties")
        return found if isinstance(found, dict) else {}
