"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of the Gemini API with the base URL server.url
"""

from midspan.emulator.gemini.fault_plan import Fault, FaultKind, FaultPlan, fault, shrink
from midspan.emulator.gemini.local import LocalGemini, ScaledClock
from midspan.emulator.gemini.request_log import Report
from midspan.emulator.gemini.sources.recording import Recording
from midspan.emulator.gemini.sources.script import Rule, Script, When
from midspan.emulator.gemini.sources.source import Answer, Conversation, answer, call

__all__ = [
    "Answer",
    "Conversation",
    "Fault",
    "FaultKind",
    "FaultPlan",
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
