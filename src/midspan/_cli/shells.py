"""Completion scripts in the languages of three shells."""

from collections.abc import Callable
from typing import NamedTuple


class Option(NamedTuple):
    """One option of a command; without flags it is a word that stands by itself."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    takes_file: bool
    choices: tuple[str, ...]


Summaries = dict[str, str]
Options = dict[str, list[Option]]


def bash(summaries: Summaries, options: Options) -> str:
    cases = []
    for name, takes in options.items():
        words = " ".join([*(flag for one in takes for flag in one.flags), *_choices(takes)])
        files = "|".join(flag for one in takes if one.takes_file for flag in one.flags)
        values = "|".join(flag for one in takes if one.takes_value and not one.takes_file for flag in one.flags)
        cases.append(f"    {name})")
        if files:
            cases.append(f'      case "$before" in {files}) COMPREPLY=($(compgen -f -- "$word")); return;; esac')
        if values:
            cases.append(f'      case "$before" in {values}) return;; esac')
        cases.append(f'      COMPREPLY=($(compgen -W "{words}" -- "$word"));;')
    return "\n".join(
        [
            "# Completion of midspan for bash.",
            "_midspan() {",
            '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
            "  COMPREPLY=()",
            "  if [ $COMP_CWORD -eq 1 ]; then",
            f'    COMPREPLY=($(compgen -W "{" ".join(summaries)} --help --version" -- "$word")); return',
            "  fi",
            '  case "${COMP_WORDS[1]}" in',
            *cases,
            "  esac",
            "}",
            "complete -o filenames -o bashdefault -F _midspan midspan",
            "",
        ]
    )


def zsh(summaries: Summaries, options: Options) -> str:
    commands = " ".join(_quoted(f"{name}:{summary}") for name, summary in summaries.items())
    cases = []
    for name, takes in options.items():
        specs = [_zsh_spec(flag, one) for one in takes for flag in one.flags]
        specs += [_quoted(f"1:word:({' '.join(one.choices)})") for one in takes if not one.flags and one.choices]
        cases.append(f"    {name}) _arguments {' '.join(specs)} '*:file:_files';;")
    return "\n".join(
        [
            "#compdef midspan",
            "_midspan() {",
            "  if (( CURRENT == 2 )); then",
            f"    local -a commands=({commands})",
            "    _describe command commands; return",
            "  fi",
            '  local command="$words[2]"',
            "  shift words; (( CURRENT-- ))",
            '  case "$command" in',
            *cases,
            "  esac",
            "}",
            'if [ "$funcstack[1]" = _midspan ]; then _midspan "$@"; else compdef _midspan midspan; fi',
            "",
        ]
    )


def _zsh_spec(flag: str, one: Option) -> str:
    words = one.help.replace("[", "(").replace("]", ")").replace(":", " ")
    value = f":value:{'_files' if one.takes_file else ''}" if one.takes_value else ""
    return _quoted(f"*{flag}[{words}]{value}")


def fish(summaries: Summaries, options: Options) -> str:
    lines = ["# Completion of midspan for fish.", "complete -c midspan -f"]
    for name, summary in summaries.items():
        lines.append(f"complete -c midspan -n __fish_use_subcommand -a {name} -d {_quoted(summary)}")
    for name, takes in options.items():
        where = f"complete -c midspan -n {_quoted(f'__fish_seen_subcommand_from {name}')}"
        for one in takes:
            if one.flags:
                flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in one.flags)
                value = " -r -F" if one.takes_file else " -x" if one.takes_value else ""
                lines.append(f"{where} {flags}{value} -d {_quoted(one.help)}")
            elif one.choices:
                lines.append(f"{where} -a {_quoted(' '.join(one.choices))}")
    return "\n".join([*lines, ""])


def _choices(takes: list[Option]) -> list[str]:
    return [choice for one in takes if not one.flags for choice in one.choices]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"  # a help does without; the shells have three ways to escape it


SHELLS: dict[str, Callable[[Summaries, Options], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
