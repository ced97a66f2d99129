"""`midspan tools`: lists the tools, and finds what makes it hard for a model to choose or call them."""

import asyncio
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import combinations
from typing import Any

import msgspec

from midspan._cli.arguments import add_json_argument, add_tool_arguments
from midspan._cli.settings import load_settings
from midspan._cli.text import print_line, write_result
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._types.texts import count_noun, estimate_tokens
from midspan.tools import ToolListing, ToolSpec, source_of

_MAX_TOOLS = 20
"""Providers advise not to offer more at once: a model chooses worse among many."""
_MIN_WORDS = 3
_MAX_SIMILARITY = 0.6
_STOP_WORDS = {
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or",
    "that", "the", "this", "to", "with",
}  # fmt: skip


Finding = tuple[str, str, str]
"""The kind of a problem, the tool that has it (empty for all tools together), and a message."""


def add_arguments(parser: ArgumentParser) -> None:
    add_tool_arguments(parser)
    add_json_argument(parser)
    lint_help = "report what makes tools hard to use for a model; exit code 1 if anything"
    parser.add_argument("--lint", action="store_true", help=lint_help)


def run(options: Namespace) -> int:
    listing = asyncio.run(_list([*load_tools(load_settings(options).tools), *mcp_sources(options)]))
    for source in listing.unavailable:
        print_line(f"no tools from {source.name}: {source.message}")
    findings = [*_problems(listing.tools)] if options.lint else []
    tools, lines, total = [], [], 0
    for spec in listing:
        declaration = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        tokens = estimate_tokens(msgspec.json.encode(declaration).decode())
        total += tokens
        tools.append({**msgspec.to_builtins(spec), "tokens": tokens})
        summary = spec.description.strip().partition("\n")[0] or "(no description)"
        lines += [f"{spec.name}({_parameters(spec)}) [{tokens:,} tokens]", f"    {summary}"]
    document = {"tools": tools, "tokens": total}
    lines.append(f"{count_noun(len(tools), 'tool')}, about {total:,} tokens in every request")
    if options.lint:
        document["findings"] = [{"kind": kind, "tool": tool, "message": message} for kind, tool, message in findings]
        lines += ["", *(f"{tool or 'all tools'}: {message} [{kind}]" for kind, tool, message in findings)]
        lines.append(count_noun(len(findings), "finding") if findings else "no findings")
    write_result(document, lines, as_json=options.json)
    return int(bool(findings))


async def _list(tools: list[Any]) -> ToolListing:
    async with aclosing(source_of(tools)) as source:
        return await source.list_tools()


def _parameters(spec: ToolSpec) -> str:
    schema = spec.parameters or {}
    required = schema.get("required", ())
    return ", ".join(name + ("" if name in required else "?") for name in schema.get("properties", {}))


def _problems(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    for spec in specs:
        yield from _problems_of(spec)
    described = [(spec.name, words) for spec in specs if (words := _words(spec.description))]
    for (name, words), (other_name, other_words) in combinations(described, 2):
        if len(words & other_words) / len(words | other_words) >= _MAX_SIMILARITY:
            message = f"has almost the same description as {other_name}; say in both when to use which"
            yield "overlap", name, message
    if len(specs) > _MAX_TOOLS:
        message = f"there are {len(specs)} tools; a model chooses worse among more than {_MAX_TOOLS}, so offer fewer"
        yield "too-many", "", message


def _problems_of(spec: ToolSpec) -> Iterator[Finding]:
    description = spec.description.strip()
    words = _words(description)
    default_description = spec.name.replace("_", " ").strip().capitalize()  # of a function without a docstring
    if description in ("", default_description):
        yield "no-description", spec.name, "has no description, so a model can only guess what it does"
    elif words <= _words(spec.name) or len(words) < _MIN_WORDS:
        yield "vague", spec.name, f"the description {description!r} says little more than the name"
    for name, schema in (spec.parameters or {}).get("properties", {}).items():
        if not (isinstance(schema, dict) and schema.get("description")):
            yield "no-parameter-description", spec.name, f"the parameter {name} has no description"


def _words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, including those in names like getUserName and get_user_name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(re.findall(r"\w+", spaced)) - _STOP_WORDS
