"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of the Gemini API with the base URL server.url
"""

from midspan.emulator.gemini.conversation import Answer, Conversation, answer, call
from midspan.emulator.gemini.fault_plan import Fault, FaultKind, FaultPlan, fault, shrink
from midspan.emulator.gemini.local import LocalGemini, ScaledClock
from midspan.emulator.gemini.script import Rule, Script, When
from midspan.emulator.gemini.service import Report

__all__ = [
    "Answer",
    "Conversation",
    "Fault",
    "FaultKind",
    "FaultPlan",
    "LocalGemini",
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
