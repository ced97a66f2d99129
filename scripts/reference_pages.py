"""Write the pages of the API reference, docs/reference/*.md: one page per public module, one entry per public name.

The site (`make docs`) fills each entry with signature and docstring. `--check` only says whether a page is out of date.
"""

import argparse
import sys
from pathlib import Path

from public_api import public_names

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
MODULES = {
    "midspan": "what most programs need",
    "midspan.messages": "messages, parts, histories, citations, usage",
    "midspan.events": "the events of a run",
    "midspan.errors": "all exceptions",
    "midspan.tools": "tools, tool sources and wrappers",
    "midspan.providers": "models: the protocol, the registry, the providers",
    "midspan.gemini": "a typed client for the Gemini API",
    "midspan.testing": "tests without a key",
    "midspan.emulator": "a local Gemini server",
    "midspan.toolsets": "ready tools",
    "midspan.compat": "the names of other designs",
    "midspan.server": "an agent over HTTP",
}


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    rows = [f"| [`{module}`]({module}.md) | {summary} |" for module, summary in MODULES.items()]
    index = ["# API reference", "", "| module | content |", "|---|---|", *rows, ""]
    return {"index.md": "\n".join(index)} | {f"{module}.md": page(module) for module in MODULES}


def page(module: str) -> str:
    names = sorted((name for name in public_names(module) if not name.startswith("_")), key=str.lower)
    title = f"# {module}\n\nThe public names of `{module}`: {MODULES[module]}.\n"
    return title + "".join(f"\n::: {module}.{name}\n" for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    check = parser.parse_args().check
    old = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
    new = pages()
    if check and old != new:
        print("docs/reference is out of date; run scripts/reference_pages.py")
        return 1
    for name in old.keys() - new.keys():
        (FOLDER / name).unlink()
    for name, text in new.items():
        if old.get(name) != text:
            (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
