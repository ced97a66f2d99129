"""What users test with: models that say what they are told to say."""

from wasat.providers.scripted import ScriptedProvider

__all__ = ["ScriptedProvider"]
