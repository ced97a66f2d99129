"""The provider that docs/how-to/write-a-provider.md shows, installed as a package would be, and its service."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gemini.recorder import Recorder

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-provider.md"
Event = dict[str, Any]


def source() -> str:
    """The provider, as the page has it."""
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(code)


def install(folder: Path) -> None:
    """Put the module and the metadata of its distribution into a folder that is on the path."""
    (folder / "midspan_parrot.py").write_text(source(), "utf-8")
    metadata = folder / "midspan_parrot-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: midspan-parrot\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[midspan.providers]\nparrot = midspan_parrot:FAMILY\n")


@contextmanager
def installed(folder: Path) -> Iterator[Any]:
    """The module, importable from this process."""
    install(folder)
    sys.path.insert(0, str(folder))
    try:
        import midspan_parrot  # type: ignore[import-not-found]  # it was written just now

        yield midspan_parrot
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("midspan_parrot", None)


def text(*pieces: str, at: int = 0) -> list[Event]:
    deltas = [{"delta": at, "text": piece} for piece in pieces]
    return [{"start": at, "kind": "text"}, *deltas, {"end": at}]


def thought(words: str, signature: str, at: int = 0) -> list[Event]:
    return [
        {"start": at, "kind": "thought"},
        {"delta": at, "thought": words},
        {"end": at, "signature": signature},
    ]


def call(name: str, *pieces: str, at: int = 0, id: str = "c1", ends: bool = True) -> list[Event]:
    deltas = [{"delta": at, "json": piece} for piece in pieces]
    end = [{"end": at}] if ends else []
    return [{"start": at, "kind": "call", "id": id, "name": name}, *deltas, *end]


def done(reason: str = "end") -> Event:
    return {"done": reason, "input": 20, "output": 9}


class Service(Recorder):
    """Answers by what it is asked: the next events of a script, or of a function of the request."""

    def __init__(self, *script: list[Event] | Callable[[Any], list[Event]]) -> None:
        super().__init__()
        self._script = list(script)

    def next(self) -> tuple[int, bytes, dict[str, str]]:
        turn = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        events = turn(self.last.body) if callable(turn) else turn
        body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
        return 200, body, {"content-type": "text/event-stream"}
