"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of the Gemini API with the base URL server.url
"""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan.emulator.gemini.faults import Fault as Fault
    from midspan.emulator.gemini.faults import FaultPlan as FaultPlan
    from midspan.emulator.gemini.faults import shrink as shrink
    from midspan.emulator.gemini.local import LocalGemini as LocalGemini
    from midspan.emulator.gemini.local import ScaledClock as ScaledClock
    from midspan.emulator.gemini.script import Answer as Answer
    from midspan.emulator.gemini.script import Conversation as Conversation
    from midspan.emulator.gemini.script import Rule as Rule
    from midspan.emulator.gemini.script import Script as Script
    from midspan.emulator.gemini.script import When as When
    from midspan.emulator.gemini.script import answer as answer
    from midspan.emulator.gemini.script import call as call

_NAMES = {
    "midspan.emulator.gemini.faults": "Fault FaultPlan shrink",
    "midspan.emulator.gemini.local": "LocalGemini ScaledClock",
    "midspan.emulator.gemini.script": "Answer Conversation Rule Script When answer call",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
