"""Words for the user: made from results, errors and declarations, and from nothing else."""

from typing import Any

from midspan.providers.offline.declared.catalogue import Catalogue
from midspan.providers.offline.plan import Plan
from midspan.providers.offline.situation import Done

_LONGEST = 4000
_MOST_ITEMS = 50
_MOST_NAMES = 12
_DEEPEST = 6
NAME = "I am Midspan's offline model: a small program that picks tools by their words and reports what they say."


def introduction(known: Catalogue) -> str:
    """What it is, where nothing fits or somebody asks."""
    if not known.tools:
        return f"{NAME} I have no tools here, so I cannot help with that."
    names = [tool.name for tool in known.tools]
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"{NAME} None of my tools fits that; I can use {', '.join(names[:_MOST_NAMES])}{more}."


def question(plan: Plan) -> str:
    """One question for what a call still needs."""
    assert plan.tool is not None, "a question is about a tool"
    if plan.labels:
        noun = spaced(plan.missing[0].name).removesuffix(" id")
        return f"Which {noun} do you mean: {'; '.join(plan.labels)}?"
    needed = [_needed(one.name, one.choices) for one in plan.missing]
    what = needed[0] if len(needed) == 1 else f"{', '.join(needed[:-1])} and {needed[-1]}"
    return f"What {'is' if len(needed) == 1 else 'are'} the {what} for {plan.tool.name}?"


def _needed(name: str, choices: tuple[Any, ...]) -> str:
    listed = ", ".join(str(one) for one in choices[:_MOST_NAMES])
    return f"{spaced(name)} ({listed})" if choices else spaced(name)


def report(done: tuple[Done, ...], looked_up: frozenset[str]) -> str:
    """What the calls have said; those that only told an id are left out, unless they failed."""
    told = [(call, result) for call, result in done if call.id not in looked_up or result.is_error] or list(done)
    lines = []
    for call, result in told:
        if result.is_error:
            lines.append(f"{call.name} failed: {_error(result.value).removeprefix(f'{call.name} failed: ')}")
        else:
            lines.append(f"{call.name}: {_worded(result.value)}")
    return "\n".join(lines)


def _error(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("error", value.get("message", value))
    return _cut(_worded(value))


def _worded(value: Any) -> str:
    match value:
        case None | "":
            return "nothing."
        case list() | dict() if not value:
            return "nothing."
        case True:
            return "done."
        case False:
            return "no."
        case list():
            more = ["…"] if len(value) > _MOST_ITEMS else []
            return _cut("".join(f"\n- {one}" for one in [*map(_inline, value[:_MOST_ITEMS]), *more]))
        case dict() if len(value) == 1 and isinstance(next(iter(value.values())), list | dict):
            return _worded(next(iter(value.values())))
    return _cut(_inline(value)) + "."


def _inline(value: Any, depth: int = 0) -> str:
    match value:
        case None | True | False:
            return {None: "none", True: "yes", False: "no"}[value]
        case dict() | list() if depth >= _DEEPEST:
            return "…"
        case dict():
            pairs = [f"{spaced(str(key))}: {_inline(one, depth + 1)}" for key, one in list(value.items())[:_MOST_ITEMS]]
            return f"({', '.join(pairs)})" if depth else ", ".join(pairs)
        case list():
            return ", ".join(_inline(one, depth + 1) for one in value[:_MOST_ITEMS])
    return str(value)[:_LONGEST].rstrip(".")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " …"


def spaced(name: str) -> str:
    return name.replace("_", " ").strip()
