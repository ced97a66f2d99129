"""Docstrings in Google, NumPy, Sphinx and Epydoc style: a description, and one for each parameter or field.

The parser is loaded with the first docstring that has sections.
"""

import re
import textwrap

from msgspec import Struct


class Docstring(Struct, frozen=True):
    description: str = ""
    """Everything but the sections about parameters, their types and exceptions, which are not for the model."""
    parameters: dict[str, str] = {}


def parse_docstring(text: str) -> Docstring:
    """Return what a docstring says. Its indentation was removed already, as `inspect.cleandoc` does."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    if _TITLE.fullmatch(first) and rest and not rest.startswith((" ", "\n")):
        # The only section begins on the first line: its indentation was removed as that of the docstring.
        text = f"{first}\n{textwrap.indent(rest, '    ')}"
    if not rest and not _FIELD_LIST.match(text):
        return Docstring(text)
    parameters = _parameters(text)
    if not parameters:  # the sections may be in an unknown style, so the model gets them as they are
        return Docstring(text)
    for section in (_GOOGLE_SECTION, _NUMPY_SECTION, _FIELD_LIST):
        text = section.sub("", text)
    text = _RETURN_FIELD.sub("Returns:", text)
    return Docstring(re.sub(r"\n{3,}", "\n\n", text).strip(), parameters)


def _parameters(text: str) -> dict[str, str]:
    from docstring_parser import DocstringParam, parse

    # The parser accepts one word as a type and gives up on `:param list of str names:`; hints say the type anyway.
    text = _KEYWORD_SECTION.sub("Params:", _SPHINX_PARAMETER.sub(r":param \1:", text))
    try:
        # It removes the indentation again, and would take that of the second line for it.
        items = parse(f"\n{text}").meta
    except Exception:  # noqa: BLE001 - what the parser cannot read has no structure
        return {}
    described: dict[str, str] = {}
    for item in items:
        if isinstance(item, DocstringParam) and item.description:
            for name in item.arg_name.split(","):
                described.setdefault(name.strip().lstrip("*"), item.description.strip())
    return described


_KEYWORD_SECTION = re.compile(r"^(?:Keyword Args|Keyword Arguments|Other Parameters):", re.MULTILINE)
_GOOGLE_TITLES = "Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes"
_NUMPY_TITLES = "Parameters|Other Parameters|Attributes"
_RAISES = "Raises|Exceptions|Except"

_TITLE = re.compile(rf"(?:{_GOOGLE_TITLES}):[ \t]*")
_GOOGLE_SECTION = re.compile(
    rf"^(?:{_GOOGLE_TITLES}|{_RAISES}):[ \t]*\n(?:[ \t]+\S.*(?:\n|\Z)|[ \t]*\n)+", re.MULTILINE
)
_NUMPY_SECTION = re.compile(
    rf"^(?:{_NUMPY_TITLES}|{_RAISES})[ \t]*\n-{{3,}}[ \t]*\n.*?(?=^[^\n]+\n-{{3,}}[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_FIELD_WORDS = "param|parameter|arg|argument|key|keyword|ivar|var|cvar|attribute"
_FIELD_LIST = re.compile(
    rf"^(?::|@)(?:{_FIELD_WORDS}|type|vartype|rtype|raises?|except|exception)\b[^\n]*(?:\n[ \t]+\S.*)*\n?",
    re.MULTILINE,
)
_RETURN_FIELD = re.compile(r"^[:@]returns?:", re.MULTILINE)
_SPHINX_PARAMETER = re.compile(rf"^:(?:{_FIELD_WORDS})\s+(?:[^:\n]*\s)?(\*{{0,2}}\w+):", re.MULTILINE)
