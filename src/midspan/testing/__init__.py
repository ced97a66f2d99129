"""What users test with: models that say what they are told to say, or what they said before."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midspan.emulator import LocalGemini as LocalGemini
    from midspan.providers.scripted import ScriptedProvider as ScriptedProvider
    from midspan.testing.freezing import freeze as freeze
    from midspan.testing.recording import asked as asked
    from midspan.testing.recording import record as record
    from midspan.testing.recording import replay as replay

_HOMES = {
    "LocalGemini": "midspan.emulator",
    "ScriptedProvider": "midspan.providers.scripted",
    "asked": "midspan.testing.recording",
    "freeze": "midspan.testing.freezing",
    "record": "midspan.testing.recording",
    "replay": "midspan.testing.recording",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the table is the list


if not TYPE_CHECKING:  # or a checker would believe that every name is here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
