"""A local Gemini, as strict as the real one, with faults on demand.

with LocalGemini(script=["Hello."]) as server:
    ...  # a client of the Gemini API with the base URL server.url
"""

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
