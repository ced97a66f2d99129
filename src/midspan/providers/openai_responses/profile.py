"""The profile of models behind the Responses API."""

import re

from midspan.providers.openai.profile import STRICT
from midspan.providers.provider import ModelProfile

ORIGIN = "openai-responses"
ID = re.compile(r"\S{1,64}")
"""Valid ids of calls."""
_REASONING_MODEL = re.compile(r"(?:[\w.-]+/)?(?:o\d|gpt-(?:[5-9]|\d\d))(?!.*-chat)")


def is_reasoning_model(model: str) -> bool:
    """Whether a model reasons before it answers, by its name."""
    return _REASONING_MODEL.match(model) is not None


PROFILE = ModelProfile(service="OpenAI", schema=STRICT, output_is_object=True)
