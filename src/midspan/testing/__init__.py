"""Test agents without a network: scripted models, a local Gemini, recordings."""

from typing import TYPE_CHECKING

from midspan._lazy import lazy_attributes

if TYPE_CHECKING:
    from midspan.emulator import LocalGemini as LocalGemini
    from midspan.providers.scripted import ScriptedProvider as ScriptedProvider
    from midspan.testing.recording import record as record
    from midspan.testing.replaying import assert_replays as assert_replays
    from midspan.testing.replaying import freeze as freeze
    from midspan.testing.replaying import replay as replay

_HOMES = {
    "LocalGemini": "midspan.emulator",
    "ScriptedProvider": "midspan.providers.scripted",
    "assert_replays": "midspan.testing.replaying",
    "freeze": "midspan.testing.replaying",
    "record": "midspan.testing.recording",
    "replay": "midspan.testing.replaying",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = lazy_attributes(__name__, _HOMES)
