"""What kind of thing a parameter wants, told by its name and its description."""

import re

from midspan.providers.offline.reading.words import name_words

_BY_NAME = {
    "place": "city location place country town address destination origin area region venue where state departure "
    "arrival airport station zone timezone loc province county neighborhood capital locale",
    "person": "person author artist actor actress director player recipient contact patient employee customer owner "
    "starring cast singer composer writer lawyer receiver sender celebrity by team company firm organization",
    "name": "name title",
    "date": "date day deadline birthday dob checkin checkout when",
    "time": "time hour clock",
    "email": "email mail",
    "url": "url link uri website webpage endpoint",
    "path": "path file filename directory folder filepath dir",
    "id": "id uuid identifier code number symbol ticker sku key isbn zip zipcode postcode password username token "
    "login nickname",
    "language": "language lang",
    "currency": "currency currencies",
    "unit": "unit units",
    "expression": "expression formula equation function expr polynomial",
    "text": "text message content body note query question keyword keywords topic subject description comment prompt "
    "summary reason search term terms sentence phrase purpose task command caption instruction",
    "from": "from source origin start departure base begin initial first old input min minimum lower",
    "to": "to target destination end arrival final second last new output max maximum upper",
}
_ROLES: dict[str, set[str]] = {}
for _role, _names in _BY_NAME.items():
    for _name in _names.split():
        _ROLES.setdefault(_name, set()).add(_role)

_BY_DESCRIPTION = {
    "place": re.compile(r"(?i)\b(?:city|town|country|location|place|address|airport)\b"),
    "person": re.compile(
        r"(?i)\b(?:person|people|actor|artist|author|director|player)\b|name of the (?:user|customer)"
    ),
    "date": re.compile(r"(?i)\bdates?\b|\bYYYY\b|\bthe day\b"),
    "time": re.compile(r"\bHH:|\btime of (?:the )?day\b"),
    "currency": re.compile(r"(?i)\bcurrency\b"),
    "language": re.compile(r"(?i)\blanguage\b"),
    "expression": re.compile(r"(?i)\b(?:expression|equation|formula)\b"),
    "from": re.compile(r"(?i)\b(?:convert|translate) from\b|\bbase currency\b|\bit is in\b|\bsource\b"),
    "to": re.compile(r"(?i)\b(?:convert|translate) (?:in)?to\b|\btarget\b|\bshall be in\b"),
}
EXCLUSIVE = frozenset({"date", "time", "email", "url", "path", "unit", "expression", "currency", "language"})
"""Of what is of such a kind nothing else will do."""
_SAYS_ITSELF = EXCLUSIVE | {"place", "person", "text"}


def roles_of(name: str, description: str) -> frozenset[str]:
    """The roles of a parameter; its description is asked for what the name leaves open."""
    found: set[str] = set()
    for word in name_words(name):
        found |= _ROLES.get(word.lower, set()) or _ROLES.get(word.lower.removesuffix("s"), set())
    for role, form in _BY_DESCRIPTION.items():
        if role in ("from", "to"):
            if not found & {"from", "to"} and form.search(description):
                found.add(role)
        elif not found & _SAYS_ITSELF and form.search(description[:200]):
            found.add(role)
    if "time" in found and "YYYY" in description.upper():
        found.add("date")
        if "HH" not in description.upper():
            found.discard("time")
    return frozenset(found)
