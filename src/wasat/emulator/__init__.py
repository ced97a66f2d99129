"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of Gemini, pointed at server.url
"""

from wasat.emulator.answering.answer import Answer, answer, call
from wasat.emulator.answering.seen import Report
from wasat.emulator.clock import ScaledClock
from wasat.emulator.faults.plan import Fault, FaultPlan, Kind, fault
from wasat.emulator.faults.shrink import shrink
from wasat.emulator.local import LocalGemini
from wasat.emulator.sources.conversation import Conversation
from wasat.emulator.sources.recording import Recording
from wasat.emulator.sources.script import Rule, Script, When

__all__ = [
    "Answer",
    "Conversation",
    "Fault",
    "FaultPlan",
    "Kind",
    "LocalGemini",
    "Recording",
    "Report",
    "Rule",
    "ScaledClock",
    "Script",
    "When",
    "answer",
    "call",
    "fault",
    "shrink",
]
