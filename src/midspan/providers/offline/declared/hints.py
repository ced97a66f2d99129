"""What a description tells about values: those it offers, and the one that holds if none is given."""

import re

_SUGGESTED = re.compile(
    r"'([^']{2,40})'|\"([^\"]{2,40})\"|`([^`]{2,40})`|(?<=[ :|(])(\w+(?:\|\w+)+)|\[([^\]]{3,200})\]"
    r"|(?:e\.?g\.?,?|such as|like|for example,?|including|i\.e\.,?) ([\w ,/-]{3,120})"
)


def suggested(description: str) -> list[str]:
    """Values that a description offers without listing them in the schema: «e.g. oak, pine»."""
    found: list[str] = []
    for match in _SUGGESTED.finditer(description):
        given = match[1] or match[2] or match[3]
        several = re.split(r"[|,]|\bor\b|\band\b", match[4] or match[5] or match[6] or "")
        found.extend([given] if given else [one.strip(" '\"") for one in several if one.strip(" '\"")])
    return found[:40]


_DEFAULT = re.compile(r"[Dd]efaults?(?: value)?(?: is| to|:| =)?(?: set to)? ['\"`]?(-?[\w.]+(?: [\w.]+)?)['\"`]?")


def default_of(description: str, kind: str) -> float | bool | None:
    """The default that a description tells in words, if it is of the parameter's type."""
    match = _DEFAULT.search(description)
    if match is None:
        return None
    said = match[1].split()[0].rstrip(".")
    if kind in ("integer", "number") and re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", said):
        return float(said) if "." in said else int(said)
    return {"true": True, "false": False}.get(said.lower()) if kind == "boolean" else None
