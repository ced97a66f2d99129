"""What a docstring says about a callable or a class, and about each of its parameters or fields.

Google, NumPy, Sphinx and Epydoc styles. The parser is loaded with the first docstring that has sections.
"""

import inspect
import re
from typing import Any

from msgspec import Struct


class Documentation(Struct, frozen=True):
    """A docstring, taken apart."""

    description: str = ""
    """Everything but the sections about parameters, their types and exceptions, which are not for the model."""
    parameters: dict[str, str] = {}


def documentation(text: str | None) -> Documentation:
    """What this docstring says."""
    text = inspect.cleandoc(text or "").strip()
    if "\n" not in text:
        return Documentation(text)
    parameters = _parameters(text)
    if not parameters and _PARAMETER_SECTION.search(text):
        # There is such a section, in a style nobody can read: better the model sees it as it is.
        return Documentation(text)
    return Documentation(_without_sections(text), parameters)


def _parameters(text: str) -> dict[str, str]:
    from docstring_parser import DocstringParam

    described: dict[str, str] = {}
    for item in max(_readings(_without_sphinx_types(text)), key=len, default=[]):
        if isinstance(item, DocstringParam) and item.description:
            for name in item.arg_name.split(","):
                described.setdefault(name.strip().lstrip("*"), item.description.strip())
    return described


def _readings(text: str) -> list[list[Any]]:
    """The sections as each style reads them; the right style is the one that finds most."""
    from docstring_parser import epydoc, numpydoc, rest
    from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

    keywords = [Section(title, "keyword", SectionType.MULTIPLE) for title in _KEYWORD_TITLES]
    readings = []
    for parse in (
        GoogleParser([*DEFAULT_SECTIONS, *keywords]).parse,
        numpydoc.parse,
        rest.parse,
        epydoc.parse,
    ):
        try:
            readings.append(parse(text).meta)
        except Exception:  # noqa: BLE001, S112 - what a foreign parser cannot read has no structure
            continue
    return readings


def _without_sphinx_types(text: str) -> str:
    # The parser takes one word for a type and gives up on `:param list of str names:`; hints say the type anyway.
    return _SPHINX_PARAMETER.sub(r":param \1:", text)


def _without_sections(text: str) -> str:
    for section in (_GOOGLE_SECTION, _NUMPY_SECTION, _FIELD_LIST):
        text = section.sub("", text)
    text = _RETURN_FIELD.sub("Returns:", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


_KEYWORD_TITLES = ("Keyword Args", "Keyword Arguments", "Other Parameters")
_GOOGLE_TITLES = "Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes"
_NUMPY_TITLES = "Parameters|Other Parameters|Attributes"
_RAISES = "Raises|Exceptions|Except"

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
_PARAMETER_SECTION = re.compile(
    rf"^(?:(?:{_GOOGLE_TITLES}):[ \t]*$|(?:{_NUMPY_TITLES})[ \t]*\n---|[:@](?:{_FIELD_WORDS})\b)",
    re.MULTILINE,
)
