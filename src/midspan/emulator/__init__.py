"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of Gemini, pointed at server.url
"""

from midspan.emulator.answering.answer import Answer, answer, call
from midspan.emulator.answering.seen import Report
from midspan.emulator.clock import ScaledClock
from midspan.emulator.faults.plan import Fault, FaultPlan, Kind, fault
from midspan.emulator.faults.shrink import shrink
from midspan.emulator.local import LocalGemini
from midspan.emulator.sources.conversation import Conversation
from midspan.emulator.sources.recording import Recording
from midspan.emulator.sources.script import Rule, Script, When

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
