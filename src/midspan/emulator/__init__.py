"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of the Gemini API with the base URL server.url
"""

from midspan.emulator.gemini.faults import Fault, FaultPlan, shrink
from midspan.emulator.gemini.local import LocalGemini, ScaledClock
from midspan.emulator.gemini.script import Answer, Conversation, Rule, Script, When, answer, call

__all__ = [
    "Answer",
    "Conversation",
    "Fault",
    "FaultPlan",
    "LocalGemini",
    "Rule",
    "ScaledClock",
    "Script",
    "When",
    "answer",
    "call",
    "shrink",
]
