"""`midspan tools`: the tools that a model would be offered, and what is wrong with them."""

import asyncio
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import msgspec

from midspan._cli.commands import add_tool_arguments
from midspan._cli.lint import Finding, find_problems, token_estimate
from midspan._cli.settings import load_settings
from midspan._cli.text import count_noun, escape_line, json_document, terminal_columns
from midspan._cli.tool_files import load_tools
from midspan.tools import ToolSpec


def add_arguments(parser: ArgumentParser) -> None:
    add_tool_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--lint", action="store_true", help="report what makes tools hard to use for a model; exit code 1 if anything"
    )
    parser.set_defaults(model=None, system=None, max_turns=None)


def run(options: Namespace) -> int:
    from midspan.tools import source_of

    specs = asyncio.run(source_of(load_tools(load_settings(options).tools)).list_tools()).tools
    findings = find_problems(specs) if options.lint else None
    format_tools = _as_json if options.json else _as_text
    sys.stdout.write(format_tools(specs, findings))
    return 1 if findings else 0


def _as_json(specs: Sequence[ToolSpec], findings: list[Finding] | None) -> str:
    tools = [{**msgspec.to_builtins(spec), "tokens": token_estimate(spec)} for spec in specs]
    for tool in tools:
        tool.pop("type", None)
    document: dict[str, Any] = {"tools": tools, "tokens": sum(map(token_estimate, specs))}
    return json_document(document if findings is None else {**document, "findings": msgspec.to_builtins(findings)})


def _as_text(specs: Sequence[ToolSpec], findings: list[Finding] | None) -> str:
    columns = terminal_columns() if sys.stdout.isatty() else 100
    lines = []
    for spec in specs:
        lines += textwrap.wrap(f"{escape_line(spec.name)}({_parameters(spec)})", columns, subsequent_indent="    ")
        lines += textwrap.wrap(_summary(spec), columns, initial_indent="    ", subsequent_indent="    ")
    total = sum(map(token_estimate, specs))
    lines += textwrap.wrap(f"{count_noun(len(specs), 'tool')}, about {total:,} tokens in every request", columns)
    if findings is not None:
        lines.append("")
        for finding in findings:
            lines += textwrap.wrap(escape_line(str(finding)), columns, subsequent_indent="    ")
        lines.append(count_noun(len(findings), "finding") if findings else "no findings")
    return "\n".join(lines) + "\n"


def _parameters(spec: ToolSpec) -> str:
    schema = spec.parameters or {}
    required = schema.get("required", ())
    return ", ".join(escape_line(name) + ("" if name in required else "?") for name in schema.get("properties", {}))


def _summary(spec: ToolSpec) -> str:
    first_line = escape_line(spec.description.strip().partition("\n")[0]) or "(no description)"
    return f"{first_line} [{token_estimate(spec):,} tokens]"
