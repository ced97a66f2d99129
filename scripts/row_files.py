"""Files with one JSON document per line, which all replay and score scripts read."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from midspan._types.texts import replace_surrogates


class Tally:
    """Counts, and the number of failures."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """How often each rule applied, or each constraint was dropped; the meaning is up to the script."""
        self.failed = 0

    def fail(self, what: str) -> None:
        self.failed += 1
        print(f"FAIL {what}")

    def share(self, part: str, whole: str) -> str:
        return f"{self.counts[part] / self.counts[whole]:.1%}" if self.counts[whole] else "no rows"


def without_surrogates(value: Any) -> Any:
    """Return JSON with unpaired surrogates replaced, as everything that reads it replaces them."""
    text = json.dumps(value, ensure_ascii=False)
    return value if text.isascii() else json.loads(replace_surrogates(text))


def lines_of(file: Path, fail: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """Yield each line that is not empty, with its file and number. Errors of the file as a whole go to `fail`."""
    try:
        lines = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        fail(f"{file}: {error.strerror}")
        return
    if not any(line.strip() for line in lines):
        fail(f"{file}: it is empty")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{file}:{number}", line
