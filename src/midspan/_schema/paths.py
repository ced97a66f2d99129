"""Where something is in a value, and the value itself, as messages show them."""

from typing import Any

Steps = tuple[str | int, ...]

MAX_QUOTED_CHARS = 80


def format_path(steps: Steps | list[str | int]) -> str:
    """Where in a value, as people write it."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() or step.replace("-", "_").isidentifier():
            path += f".{step}" if path else step
        else:
            path += f"[{quoted(step)}]"
    return path


def quoted(value: Any) -> str:
    """The value as JSON, cut to a length that a message can hold."""
    try:
        import json  # loaded with the first error

        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_QUOTED_CHARS else text[: MAX_QUOTED_CHARS - 1] + "…"
