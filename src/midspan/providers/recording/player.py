"""One run that is replayed: which request and which call of the recording comes now."""

import asyncio

import msgspec

from midspan._schema.paths import quoted
from midspan._types.parts import ToolCall, is_local_id
from midspan._types.specs import ToolSpec
from midspan.errors import NotRecorded
from midspan.providers.recording.differences import comparable, difference
from midspan.providers.recording.lines import Called
from midspan.providers.recording.questions import Question
from midspan.providers.recording.reading import Exchange, RecordedRun
from midspan.providers.recording.shelf import Shelf, unlike


class Player:
    """Plays one recording of a shelf; which one is found out with the first thing that the run does."""

    def __init__(self, shelf: Shelf, prompt: bytes) -> None:
        self._shelf = shelf
        self._prompt = prompt
        self._run: RecordedRun | None = None
        self._turn = 0
        self._left: dict[int, Called] = {}
        self._waiting: dict[int, asyncio.Event] = {}
        """The calls that were asked for and have not been answered, by their place in the recording."""
        self._fault: NotRecorded | None = None

    def check(self) -> None:
        """Raise what went wrong where nobody could be told: what a tool raises, the model hears and not the caller."""
        if self._fault is not None:
            raise self._fault

    def exchange(self, question: Question) -> Exchange:
        """What was answered to this request."""
        self.check()
        turn = self._turn
        run = self._found(question)
        if turn >= len(run.exchanges):
            end = "" if run.ended is not None else ", where it was broken off"
            raise NotRecorded(
                f"request {turn + 1} was not recorded: {str(run.path)!r} ends after {len(run.exchanges)}{end}"
            )
        why = unlike(run, turn, question, self._shelf.masking)
        if why is not None:
            raise NotRecorded(why)
        self._turn += 1
        return run.exchanges[turn]

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that were recorded, for a source that cannot be asked."""
        return self._shelf.tools(self._prompt)

    async def called(self, call: ToolCall) -> Called:
        """What came of this call, in the order in which the calls ended that are asked for together."""
        place = self._place_of(call)
        called = self._left.pop(place)
        done = self._waiting[place] = asyncio.Event()
        try:
            await asyncio.sleep(0)  # until all calls that run together have been asked for
            before = max((other for other in self._waiting if other < place), default=None)
            if before is not None:
                await self._waiting[before].wait()
        finally:
            del self._waiting[place]
            done.set()
        return called

    def _found(self, question: Question | None) -> RecordedRun:
        if self._run is None:
            self._run = self._shelf.take(self._prompt, question)
            self._left = dict(enumerate(self._run.calls))
        return self._run

    def _place_of(self, call: ToolCall) -> int:
        try:
            run = self._found(None)
            now = self._comparable(call)
            named = [place for place, called in self._left.items() if called.call.name == call.name]
            named.sort(key=lambda place: self._left[place].call.id != call.id)  # first the one with this very id
            for place in named:
                other = self._left[place].call.id
                if (other == call.id or is_local_id(call.id)) and self._unlike(place, now) is None:
                    return place
            told = self._unlike(named[0], now) if named else None
            what = f"the call {call.name}({quoted(call.arguments)})"
            if told is not None:
                raise NotRecorded(f"{what} differs from the recording {str(run.path)!r} at {told}")
            raise NotRecorded(f"{what} was not recorded in {str(run.path)!r}")
        except NotRecorded as error:
            self._fault = error
            raise

    def _unlike(self, place: int, now: object) -> str | None:
        return difference(self._comparable(self._left[place].call), now, ("arguments",))

    def _comparable(self, call: ToolCall) -> object:
        return comparable(msgspec.json.encode(call.arguments), self._shelf.masking)
