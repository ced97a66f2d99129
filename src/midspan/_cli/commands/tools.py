"""`midspan tools`: lists the tools, and finds what makes it hard for a model to choose or call them."""

import asyncio
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Any

import msgspec
from msgspec import Struct

from midspan._cli.arguments import add_tool_arguments
from midspan._cli.settings import load_settings
from midspan._cli.text import count_noun, json_document, print_line, wrap_line
from midspan._cli.tool_sources import load_tools, mcp_sources
from midspan._schema.tree import SchemaNode, SchemaTree
from midspan._types.texts import CHARACTERS_PER_TOKEN
from midspan.tools import ToolListing, ToolSpec

_MAX_TOOLS = 20
"""Providers advise not to offer more at once: a model chooses worse among many."""
_MAX_TOKENS = 1_000
"""Of one declaration, which is part of every request."""
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
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--lint", action="store_true", help="report what makes tools hard to use for a model; exit code 1 if anything"
    )
    parser.set_defaults(model=None, system=None, max_turns=None)


def run(options: Namespace) -> int:
    listing = asyncio.run(_list([*load_tools(load_settings(options).tools), *mcp_sources(options)]))
    for source in listing.unavailable:
        print_line(f"no tools from {source.name}: {source.message}")
    specs = listing.tools
    findings = find_problems(specs) if options.lint else None
    format_tools = _as_json if options.json else _as_text
    sys.stdout.write(format_tools(specs, findings))
    return 1 if findings else 0


async def _list(tools: list[Any]) -> ToolListing:
    from midspan.tools import source_of

    source = source_of(tools)
    try:
        return await source.list_tools()
    finally:
        await source.aclose()


def _as_json(specs: Sequence[ToolSpec], findings: list[Finding] | None) -> str:
    tools = [{**msgspec.to_builtins(spec), "tokens": token_estimate(spec)} for spec in specs]
    for tool in tools:
        tool.pop("type", None)
    document: dict[str, Any] = {"tools": tools, "tokens": sum(map(token_estimate, specs))}
    return json_document(document if findings is None else {**document, "findings": msgspec.to_builtins(findings)})


def _as_text(specs: Sequence[ToolSpec], findings: list[Finding] | None) -> str:
    lines = []
    for spec in specs:
        summary = spec.description.strip().partition("\n")[0] or "(no description)"
        lines += [f"{spec.name}({_parameters(spec)})", f"    {summary} [{token_estimate(spec):,} tokens]"]
    total = sum(map(token_estimate, specs))
    lines.append(f"{count_noun(len(specs), 'tool')}, about {total:,} tokens in every request")
    if findings is not None:
        lines += ["", *map(str, findings), count_noun(len(findings), "finding") if findings else "no findings"]
    return "".join(wrap_line(line, sys.stdout, indent="    ") for line in lines)


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
    for path in _undescribed_parameters(SchemaTree(spec.parameters or {}).root, "", set()):
        yield Finding("no-parameter-description", spec.name, f"the parameter {path} has no description")
    if (tokens := token_estimate(spec)) > _MAX_TOKENS:
        yield Finding(
            "expensive", spec.name, f"takes about {tokens:,} tokens in every request; shorten its declaration"
        )


def _undescribed_parameters(node: SchemaNode, prefix: str, seen: set[SchemaNode]) -> Iterator[str]:
    """Yield the paths of parameters without a description, also of nested ones."""
    for part in node.conjuncts:
        if part in seen:
            continue
        seen.add(part)
        for name, prop in part.properties.items():
            if not prop.schema.get("description"):
                yield f"{prefix}{name}"
            yield from _undescribed_parameters(prop, f"{prefix}{name}.", seen)
        for variant in part.variants:
            yield from _undescribed_parameters(variant, prefix, seen)
        yield from _undescribed_parameters(part.items, f"{prefix.removesuffix('.')}[].", seen)


def _similar_descriptions(specs: Sequence[ToolSpec]) -> Iterator[Finding]:
    described = [(spec.name, _words(spec.description)) for spec in specs if spec.description.strip()]
    for (name, words), (other_name, other_words) in combinations(described, 2):
        with_names = _similarity(words | _words(name), other_words | _words(other_name))
        if max(with_names, _similarity(words, other_words)) >= _MAX_SIMILARITY:
            message = f"has almost the same description as {other_name}; say in both when to use which"
            yield Finding("overlap", name, message)


def _similarity(words: AbstractSet[str], others: AbstractSet[str]) -> float:
    return len(words & others) / len(words | others) if words | others else 0.0


def _words(text: str) -> frozenset[str]:
    """Return the words that carry meaning, also of names like getUserName and get_user_name."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ").lower()
    return frozenset(re.findall(r"\w+", spaced)) - _STOP_WORDS
