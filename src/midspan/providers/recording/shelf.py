"""The recordings of a directory, and which of them a run that begins now is the repetition of."""

import threading
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from midspan._types.specs import ToolSpec
from midspan.errors import ConfigError, NotRecorded
from midspan.providers.recording.differences import comparable, difference
from midspan.providers.recording.masking import MASK, Masking
from midspan.providers.recording.questions import Question
from midspan.providers.recording.reading import RecordedRun, recorded_run
from midspan.providers.recording.tape import recordings_in
from midspan.providers.recording.written import written_messages


class _Slot(Struct, eq=False):
    path: Path
    prompt: bytes
    masked: bool
    """Something in its first request was masked, so what is asked now may be the same and look different."""
    taken: bool = False


class Shelf:
    """Gives each recording once, to the run that asks the same."""

    def __init__(self, path: Path, masking: Masking) -> None:
        self.path = path
        self.masking = masking
        self._lock = threading.Lock()
        self._slots: list[_Slot] = []
        self._alike: defaultdict[bytes, deque[_Slot]] = defaultdict(deque)
        """By the prompt, and by the prompt with the first request."""
        for file in _files(path):
            self._put(recorded_run(file))

    def _put(self, run: RecordedRun) -> None:
        prompt = _key(written_messages(run.began.messages), self.masking)
        first = run.exchanges[0].asked if run.exchanges else None
        slot = _Slot(run.path, prompt, first is not None and MASK.encode() in bytes(first.request))
        self._slots.append(slot)
        self._alike[prompt].append(slot)
        if first is not None:
            self._alike[self._first(prompt, Question(first.model, first.request))].append(slot)

    def take(self, prompt: bytes, question: Question | None) -> RecordedRun:
        """The recording of the run with this prompt and this first request, if it did not begin with a call."""
        key = _key(prompt, self.masking)
        with self._lock:
            slot = self._free(self._first(key, question)) if question is not None else None
            if slot is None:
                slot, why = self._nearest(key, question)
                if why is not None:
                    raise NotRecorded(why)
            slot.taken = True
        return recorded_run(slot.path)

    def tools(self, prompt: bytes) -> tuple[ToolSpec, ...]:
        """The tools that a run with this prompt had; which recording it is the first request will tell."""
        with self._lock:
            slot = self._free(_key(prompt, self.masking)) or self._slots[0]
        return recorded_run(slot.path).tools or ()

    def _nearest(self, prompt: bytes, question: Question | None) -> tuple[_Slot, str | None]:
        """A recording that may be meant, and what is different in it."""
        likely = self._free(prompt)
        free = [slot for slot in self._slots if not slot.taken]
        if not free:
            one = len(self._slots) == 1
            what, verb = ("the one run", "was") if one else (f"all {len(self._slots)} runs", "were")
            raise NotRecorded(
                f"{what} of {str(self.path)!r} {verb} replayed already; a run that was not recorded begins"
            )
        first = likely or free[0]
        for slot in [first, *(slot for slot in free if slot.masked and slot is not first)]:
            why = self._unlike(slot, prompt, question)
            if why is None:
                return slot, None
        return first, self._unlike(first, prompt, question)

    def _unlike(self, slot: _Slot, prompt: bytes, question: Question | None) -> str | None:
        run = recorded_run(slot.path)
        if question is not None and run.exchanges:
            return unlike(run, 0, question, self.masking)
        told = difference(msgspec.json.decode(slot.prompt), msgspec.json.decode(prompt), ("messages",))
        return told and f"the run differs from the recording {str(run.path)!r} at {told}"

    def _free(self, key: bytes) -> _Slot | None:
        waiting = self._alike.get(key)
        while waiting and waiting[0].taken:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _first(self, prompt: bytes, question: Question) -> bytes:
        return b"%b\n%b\n%b" % (prompt, question.model.encode(), _key(question.request, self.masking))


def unlike(run: RecordedRun, turn: int, question: Question, masking: Masking) -> str | None:
    """How a request differs from the one that was recorded for this turn; None if it does not."""
    asked = run.exchanges[turn].asked
    told = difference({"model": asked.model}, {"model": question.model}) or difference(
        comparable(bytes(asked.request), masking), comparable(bytes(question.request), masking)
    )
    return told and f"request {turn + 1} differs from the recording {str(run.path)!r} at {told}"


def _key(data: Any, masking: Masking) -> bytes:
    return msgspec.json.encode(comparable(bytes(data), masking), order="deterministic")


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"there is no recording {str(path)!r}; make one with record(agent, {str(path)!r})")
    try:
        files = recordings_in(path)
    except OSError as error:
        raise ConfigError(f"the recordings in {str(path)!r} cannot be read: {error.strerror or error}") from error
    if not files:
        raise ConfigError(f"no run is recorded in {str(path)!r}; record some with record(agent, {str(path)!r})")
    return files
