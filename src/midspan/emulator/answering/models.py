"""The models that the server has: which there are, and what they say of themselves."""

from collections.abc import Sequence
from typing import Any

from midspan.emulator.answering.route import Route
from midspan.emulator.families import exists, family_of
from midspan.emulator.refusal import Refusal
from midspan.providers.gemini.capabilities import Api

_LISTED = (
    "gemini-4-carbon",
    "gemini-4-argon",
    "gemini-3.8-flash",
    "gemini-3.7-flash",
    "gemini-3.6-flash",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview",
    "gemini-3.1-flash-lite",
    "gemini-3-flash-preview",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
    "gemma-4-31b-it",
    "gemma-4-26b-a4b-it",
)
_PAGE = 50


class Models:
    """All that are known, or only those that were named."""

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = None if names is None else tuple(name.rsplit("/", 1)[-1] for name in names)

    def check(self, route: Route, method: str) -> str:
        """The name of the model, if there is one of this name for this use."""
        name = route.name or ""
        known = exists(name, route.version) if self._names is None else name in self._names
        if known and route.collection == "models":
            return name
        raise not_found(f"{route.collection}/{name}", route, method)

    def page(self, route: Route) -> dict[str, Any]:
        """A list of models, from where the last page ended."""
        names = self._names if self._names is not None else _LISTED
        size, start = page_of(route)
        listed = {"models": [self.described(name, route) for name in names[start : start + size]]}
        return {**listed, "nextPageToken": str(start + size)} if start + size < len(names) else listed

    def described(self, name: str, route: Route) -> dict[str, Any]:
        family = family_of(name, route.api, route.version)
        methods = ["generateContent", "countTokens"]
        if family.capabilities.explicit_cache:
            methods.append("createCachedContent")
        prefix = "models/" if route.api is Api.DEVELOPER else "publishers/google/models/"
        return {
            "name": f"{prefix}{name}",
            "version": name.partition("-")[2],
            "displayName": name.replace("-", " ").title(),
            "description": f"{name}, as the emulator knows it",
            "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": methods,
            "temperature": 1,
            "topP": 0.95,
            "topK": 64,
            "maxTemperature": 2,
            "thinking": bool(family.capabilities.thinking_levels or family.capabilities.thinking_budget),
        }


def not_found(name: str, route: Route, method: str) -> Refusal:
    if route.api is Api.VERTEX:
        return Refusal(404, f"Publisher Model `{route.parent}publishers/google/{name}` not found.")
    return Refusal(
        404,
        f"{name} is not found for API version {route.version}, or is not supported for {method}. Call ListModels to "
        "see the list of available models and their supported methods.",
    )


def page_of(route: Route) -> tuple[int, int]:
    """How many, from which on."""
    size, token = route.parameter("pageSize") or "", route.parameter("pageToken") or ""
    if token and not token.isdigit():
        raise Refusal(400, f"Invalid page token: {token}.")
    return (int(size) if size.isdigit() and int(size) > 0 else _PAGE), int(token or 0)
