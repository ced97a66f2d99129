"""`midspan tools`: what a model would be offered, and what is wrong with it."""

import asyncio
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._cli.arguments import add_tools
from midspan._cli.lint import Finding, findings, tokens_of
from midspan._cli.report import as_json
from midspan._cli.settings import settings_of
from midspan._cli.tool_files import tools_of
from midspan._cli.visible import visible
from midspan._types.specs import ToolSpec


def add_arguments(parser: ArgumentParser) -> None:
    add_tools(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--lint", action="store_true", help="say what a model would stumble over; exit code 1 if anything"
    )
    parser.set_defaults(model=None, system=None, max_turns=None)


def run(options: Namespace) -> int:
    from midspan.tools.merge import source_of

    specs = asyncio.run(source_of(tools_of(settings_of(options).tools)).list_tools()).tools
    found = findings(specs) if options.lint else []
    shown = _as_json if options.json else _as_text
    sys.stdout.write(shown(specs, found, lint=options.lint))
    return 1 if found else 0


def _as_json(specs: Sequence[ToolSpec], found: list[Finding], *, lint: bool) -> str:
    document: dict[str, Any] = {
        "tools": [{**msgspec.to_builtins(spec), "tokens": tokens_of(spec)} for spec in specs],
        "tokens": sum(map(tokens_of, specs)),
    }
    for tool in document["tools"]:
        tool.pop("type", None)
    return as_json(document | ({"findings": msgspec.to_builtins(found)} if lint else {}))


def _as_text(specs: Sequence[ToolSpec], found: list[Finding], *, lint: bool) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    lines = []
    for spec in specs:
        lines += [f"{visible(spec.name)}({_parameters(spec)})", *_wrapped(_summary(spec), width)]
    total = sum(map(tokens_of, specs))
    lines.append(f"{len(specs)} tool{'s' if len(specs) != 1 else ''}, about {total:,} tokens in every request")
    if lint:
        lines += ["", *_lint_lines(specs, found, width)]
    return "\n".join(lines) + "\n"


def _parameters(spec: ToolSpec) -> str:
    schema = spec.parameters or {}
    required = schema.get("required", ())
    return ", ".join(visible(name) + ("" if name in required else "?") for name in schema.get("properties", {}))


def _summary(spec: ToolSpec) -> str:
    first = spec.description.strip().partition("\n\n")[0].partition("\n")[0] or "(no description)"
    return f"{first} [{tokens_of(spec):,} tokens]"


def _lint_lines(specs: Sequence[ToolSpec], found: list[Finding], width: int) -> list[str]:
    if not found:
        return [f"nothing is wrong with {'them' if len(specs) != 1 else 'it'}"]
    lines = []
    for finding in found:
        lines += textwrap.wrap(visible(str(finding)), width, subsequent_indent="    ")
    return [*lines, f"{len(found)} finding{'s' if len(found) != 1 else ''}"]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(visible(text), max(width, 20), initial_indent="    ", subsequent_indent="    ")
