"""Where two JSON documents differ first, in one clause."""

import re
from itertools import zip_longest
from typing import Any

import msgspec

from midspan._schema.paths import MAX_QUOTED_CHARS, Steps, format_path, quoted
from midspan.providers.recording.masking import MASK, Masking

_LOCAL_ID = re.compile(rb'"midspan_[0-9a-f]{16}"')
_NOTHING = object()


def comparable(data: bytes, masking: Masking) -> Any:
    """A document as it is compared: without secrets, and with ids made here by their order, because they are random."""
    numbers: dict[bytes, int] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        return b'"local id %d"' % numbers.setdefault(found[0], len(numbers) + 1)

    return msgspec.json.decode(masking.masked(_LOCAL_ID.sub(numbered, data)))


def difference(recorded: Any, now: Any, steps: Steps = ()) -> str | None:
    """The first difference, as `contents[0].role: recorded "user", now "model"`; None if there is none."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        names = [*recorded, *(name for name in now if name not in recorded)]
        pairs: Any = ((name, recorded.get(name, _NOTHING), now.get(name, _NOTHING)) for name in names)
    elif isinstance(recorded, list) and isinstance(now, list):
        both = zip_longest(recorded, now, fillvalue=_NOTHING)
        pairs = ((place, one, other) for place, (one, other) in enumerate(both))
    else:
        return None if _same(recorded, now) else _told(recorded, now, steps)
    found = (difference(one, other, (*steps, step)) for step, one, other in pairs)
    return next((one for one in found if one is not None), None)


def _same(recorded: Any, now: Any) -> bool:
    if type(recorded) is not type(now):
        return False
    return recorded == now or (isinstance(recorded, str) and MASK in recorded and _fits(recorded, now))


def _fits(recorded: str, now: str) -> bool:
    """Whether a text is the recorded one with something in place of each mask."""
    first, *rest = recorded.split(MASK)
    last = rest.pop()
    if len(now) < len(first) + len(last) or not now.startswith(first) or not now.endswith(last):
        return False
    place, end = len(first), len(now) - len(last)
    for piece in rest:
        place = now.find(piece, place, end)
        if place < 0:
            return False
        place += len(piece)
    return True


def _told(recorded: Any, now: Any, steps: Steps) -> str:
    if isinstance(recorded, str) and isinstance(now, str):
        recorded, now = _around(recorded, now)
    return f"{format_path(steps) or 'the whole'}: recorded {_shown(recorded)}, now {_shown(now)}"


def _around(one: str, other: str) -> tuple[str, str]:
    """Two long texts from shortly before the place where they part."""
    place = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, place - MAX_QUOTED_CHARS // 4)
    if start == 0 or max(len(one), len(other)) < MAX_QUOTED_CHARS:
        return one, other
    return f"…{one[start:]}", f"…{other[start:]}"


def _shown(value: Any) -> str:
    return "nothing" if value is _NOTHING else quoted(value)
