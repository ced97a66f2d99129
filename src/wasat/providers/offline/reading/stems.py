"""Words without their endings."""


def stem(word: str) -> str:
    """The word without its endings; crude, but the same for all of its forms."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4 - (ending in ("ed", "ing")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lse":
        word = word[:-1]
    while len(word) > 3 and word[-1] in "eiy":
        word = word[:-1]
    return word


_WRITTEN = (
    "ization ational fulness ation ition ement ment ional ative able ible ator ness ated ating ally ical ance ence "
    "ing ion ive ate ity ous ful ed er or ly al ic ist"
)
_ENDINGS = _WRITTEN.split()
