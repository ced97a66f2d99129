"""`midspan tools`: lists the tools, and finds what makes it hard for a model to choose or call them."""

import asyncio
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from midspan._cli.arguments import add_json_argument, add_tool_arguments
from midspan._cli.settings import load_settings
from midspan._cli.text import count_noun, print_line, wrap_line, write_json
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.tools import ToolListing, ToolSpec, source_of

_MAX_TOOLS = 20
"""Providers advise not to offer more at once: a model chooses worse among many."""
_MIN_WORDS = 3
_MAX_SIMILARITY = 0.6
_VAGUE_NAMES = (
    "call", "data", "do", "execute", "fetch", "func", "function", "get", "handle", "helper", "main", "process",
    "query", "run", "send", "test", "thing", "tool", "util",
)  # fmt: skip
_STOP_WORDS = {
    "a", "an", "and", "are", "as", "at", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or",
    "that", "the", "this", "to", "with",
}  # fmt: skip


class Finding(Struct, frozen=True):
    """One problem of a tool, or of all tools together if `tool` is empty."""

    kind: str
    tool: str
    message: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.message} [{self.kind}]" if self.tool else f"{self.message} [{self.kind}]"


def add_arguments(parser: ArgumentParser) -> None:
    add_tool_arguments(parser)
    add_json_argument(parser)
    lint_help = "report what makes tools hard to use for a model; exit code 1 if anything"
    parser.add_argument("--lint", action="store_true", help=lint_help)
    parser.set_defaults(model=None, system=None, max_turns=None)


def run(options: Namespace) -> int:
    listing = asyncio.run(_list([*load_tools(load_settings(options).tools), *mcp_sources(options)]))
    for source in listing.unavailable:
        print_line(f"no tools from {source.name}: {source.message}")
    findings = find_problems(listing.tools) if options.lint else None
    if options.json:
        tools = [{**msgspec.to_builtins(spec), "tokens": token_estimate(spec)} for spec in listing.tools]
        document: dict[str, Any] = {"tools": tools, "tokens": sum(tool["tokens"] for tool in tools)}
        write_json(document if findings is None else {**document, "findings": msgspec.to_builtins(findings)})
    else:
        _print(listing.tools, findings)
    return 1 if findings else 0


async def _list(tools: list[Any]) -> ToolListing:
    source = source_of(tools)
    try:
        return await source.list_tools()
    finally:
        await source.aclose()


def _print(specs: Sequence[ToolSpec], findings: list[Finding] | None) -> None:
    lines = []
    for spec in specs:
        summary = spec.description.strip().partition("\n")[0] or "(no description)"
        lines += [f"{spec.name}({_parameters(spec)})", f"    {summary} [{token_estimate(spec):,} tokens]"]
    total = sum(map(token_estimate, specs))
    lines.append(f"{count_noun(len(specs), 'tool')}, about {total:,} tokens in every request")
    if findings is not None:
        lines += ["", *map(str, findings), count_noun(len(findings), "finding") if findings else "no findings"]
    sys.stdout.write("".join(wrap_line(line, sys.stdout, indent="    ") for line in lines))


def _parameters(spec: ToolSpec) -> str:
    schema = spec.parameters or {}
    required = schema.get("required", ())
    return ", ".join(name + ("" if name in required else "?") for name in schema.get("properties", {}))


def find_problems(specs: Sequence[ToolSpec]) -> list[Finding]:
    findings = [finding for spec in specs for finding in _problems_of(spec)]
    findings += _similar_descriptions(specs)
    if len(specs) > _MAX_TOOLS:
        message = f"there are {len(specs)} tools; a model chooses worse among more than {_MAX_TOOLS}, so offer fewer"
        findings.append(Finding("too-many", "", message))
    return findings


def token_estimate(spec: ToolSpec) -> int:
    """Estimate how many tokens the declaration of a tool takes in every request."""
    declaration = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return -(-len(msgspec.json.encode(declaration)) // CHARACTERS_PER_TOKEN)


def _problems_of(spec: ToolSpec) -> Iterator[Finding]:
    description = spec.description.strip()
    words = _words(description)
    default_description = spec.name.replace("_", " ").strip().capitalize()  # of a function without a docstring
    if description in ("", default_description):
        yield Finding("no-description", spec.name, "has no description, so a model can only guess what it does")
    elif words <= _words(spec.name) or len(words) < _MIN_WORDS:
        yield Finding("vague", spec.name, f"the description {description!r} says little more than the name")
    if spec.name.lower().strip("_0123456789") in _VAGUE_NAMES:
        yield Finding("vague", spec.name, "the name fits any tool; say what the tool does, and to what")
    for name, schema in (spec.parameters or {}).get("properties", {}).items():
        if not (isinstance(schema, dict) and schema.get("description")):
            yield Finding("no-parameter-description", spec.name, f"the parameter {name} has no description")


def _similar_descriptions(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    described = [(spec.name, _words(spec.description)) for spec in specs if _words(spec.description)]
    for (name, words), (other_name, other_words) in combinations(described, 2):
        if len(words & other_words) / len(words | other_words) >= _MAX_SIMILARITY:
            message = f"has almost the same description as {other_name}; say in both when to use which"
            yield Finding("overlap", name, message)


def _words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, also of names like getUserName and get_user_name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(re.findall(r"\w+", spaced)) - _STOP_WORDS
