"""Test agents without a network: scripted models, a local Gemini, recordings."""

from midspan.emulator import LocalGemini
from midspan.providers.scripted import ScriptedProvider
from midspan.testing.recording import record
from midspan.testing.replaying import assert_replays, freeze, replay

__all__ = ["LocalGemini", "ScriptedProvider", "assert_replays", "freeze", "record", "replay"]
