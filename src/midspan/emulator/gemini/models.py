"""The models of the server: their names, what each accepts and sends, and how they are listed."""

import re
from collections.abc import Sequence
from typing import Any

from midspan.emulator.gemini.api import ApiError, ApiRoute
from midspan.providers.gemini.capabilities import KNOWN_MODELS, Api, capabilities_of, generation_of

_LISTED = (
    *KNOWN_MODELS,
    *("gemini-3.1-pro-preview-customtools", "gemini-3-pro-preview", "gemini-3-flash-preview"),
    *("gemma-4-31b-it", "gemma-4-26b-a4b-it"),
)
_OTHER = """
    gemini-3.8-flash-tts gemini-3.8-flash-lite-tts gemini-3.5-transcribe gemini-3.1-flash-tts-preview
    gemini-3.1-flash-image gemini-3.1-flash-lite-image gemini-3-pro-image gemini-2.5-flash-image
    gemini-2.5-flash-preview-tts gemini-2.5-pro-preview-tts gemini-2.5-computer-use-preview-10-2025
    gemini-nano-banana-2.1 gemini-omni-1.1-flash gemini-omni-1.2-flash gemini-omni-flash-preview
    gemini-robotics-er-1.6-preview gemini-robotics-er-2-preview
    gemma-3-1b-it gemma-3-4b-it gemma-3-12b-it gemma-3-27b-it gemma-3n-e2b-it gemma-3n-e4b-it
"""
_RETIRED = """
    gemini-pro gemini-pro-vision gemini-1.0-pro gemini-1.0-pro-vision
    gemini-1.5-flash gemini-1.5-flash-8b gemini-1.5-pro gemini-exp-1114 gemini-exp-1121 gemini-exp-1206
    gemini-2.0-flash gemini-2.0-flash-lite gemini-2.0-flash-thinking gemini-2.0-pro
    gemini-2.0-flash-exp-image-generation gemini-2.0-flash-preview-image-generation
    gemini-robotics-er-1.5-preview gemma-2-2b-it gemma-2-9b-it gemma-2-27b-it
    learnlm-1.5-pro-experimental learnlm-2.0-flash-experimental
"""
_CURRENT = frozenset((*_LISTED, *_OTHER.split()))
_ALL = frozenset((*_CURRENT, *_RETIRED.split()))
_ALIAS = re.compile(r"gemini-(flash|flash-lite|pro)-latest")
_STABLE_VERSION = re.compile(r"-\d{3}$")
_PREVIEW_VERSION = re.compile(r"-(?:latest|(?:preview|exp)(?:-\d\d-(?:\d\d|\d{4})|-\d{4})?)$")
MAX_TOKENS = 1_048_576


def exists(model: str, version: str = "v1beta", *, retired: bool = False) -> bool:
    """Whether the API has a model of this name; with `retired`, also whether it ever had one."""
    name = model.lower()
    if _ALIAS.fullmatch(name):
        return version != "v1"
    if name in _CURRENT or _STABLE_VERSION.sub("", name) in _CURRENT:
        return True
    # A preview is shut down when the model itself is released.
    base = _PREVIEW_VERSION.sub("", _STABLE_VERSION.sub("", name))
    return retired and (name in _ALL or base in _ALL)


class ModelRules:
    """How the server treats one model behind one API; an unknown model is treated like the newest.

    What clients must know is in `capabilities`.
    """

    def __init__(self, model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> None:
        self.name = model.rsplit("/", 1)[-1].lower()
        self.api = api
        self.version = version
        self.capabilities = known = capabilities_of(self.name, api, version)
        generation = generation_of(self.name)
        self.joins_user_contents = generation < (3, 0)
        """Adjacent user contents count as one turn, so results may be spread over several of them."""
        self.accepts_unanswered_calls = generation < (2, 5)
        """A turn with calls may be followed by a turn without results."""
        self.accepts_prefill = generation < (3, 5)
        """The last turn may be the model's."""
        self.checks_ids = generation >= (3, 7)
        """A result with an id must have the id and the name of a call."""
        self.sends_ids = generation >= (3, 0) and known.call_ids
        self.requires_signatures = known.signatures and known.functions
        self.sends_signatures = (known.signatures or known.thinking_budget) and known.functions
        # Image models think from Gemini 3 on, although the amount cannot be set.
        self.rejects_thinking = (
            not (known.thinking_levels or known.thinking_budget) and generation < (3, 0) and "thinking" not in self.name
        )
        """A thinking config is an error."""
        # https://github.com/googleapis/js-genai/issues/1609; Vertex accepts several candidates.
        has_candidates = (1, 5) <= generation < (3, 0) or (generation >= (3, 0) and api is Api.VERTEX)
        self.max_candidates = 8 if has_candidates and "image" not in self.name else 1


class Models:
    """The models of one server: those of the real API, or only the given ones."""

    def __init__(self, names: Sequence[str] | None = None, *, retired: bool = False) -> None:
        self._names = [name.rsplit("/", 1)[-1] for name in names or ()]
        self._retired = retired

    def require(self, name: str, route: ApiRoute) -> ModelRules:
        """Return how the model is treated, or raise an error if the server does not have it."""
        is_known = name in self._names if self._names else exists(name, route.version, retired=self._retired)
        if not is_known:
            raise not_found(name, route)
        return ModelRules(name, route.api, route.version)

    def list(self, route: ApiRoute) -> dict[str, Any]:
        return {"models": [self.describe(name, route) for name in self._names or _LISTED]}

    def describe(self, name: str, route: ApiRoute) -> dict[str, Any]:
        capabilities = ModelRules(name, route.api, route.version).capabilities
        cached = ["createCachedContent"] if capabilities.explicit_cache else []
        prefix = "models/" if route.api is Api.DEVELOPER else "publishers/google/models/"
        return {
            "name": f"{prefix}{name}",
            "version": name.partition("-")[2],
            "displayName": name.replace("-", " ").title(),
            "inputTokenLimit": MAX_TOKENS,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "countTokens", *cached],
            "thinking": bool(capabilities.thinking_levels or capabilities.thinking_budget),
        }


def not_found(name: str, route: ApiRoute) -> ApiError:
    if route.api is Api.VERTEX:
        return ApiError(404, f"Publisher Model `{route.parent}publishers/google/models/{name}` not found.")
    method = "createCachedContent" if route.collection == "cachedContents" else route.method or "getModel"
    return ApiError(
        404,
        f"models/{name} is not found for API version {route.version}, or is not supported for {method}. "
        "Call ListModels to see the list of available models and their supported methods.",
    )
