"""What the server demands of one family of models and tolerates of another, where `capabilities` does not say it."""

import re
from functools import lru_cache

from msgspec import Struct

from wasat.providers.gemini.capabilities import Api, Capabilities, capabilities_of

_NUMBERED = re.compile(r"(?:gemini|gemma)-(\d+)(?:\.(\d+))?(?![\d.])")
_LATEST = re.compile(r"gemini-(flash|flash-lite|pro)-latest$")
_NEWEST = (4, 0)
_GENERATION_OF_LATEST = (3, 8)
_KNOWN = re.compile(
    r"gemini-(1\.0|1\.5|2\.0|2\.5|3|3\.[1-8]|4)-[a-z][\w.-]*|gemini-(exp|experimental|robotics)(-[\w.-]+)?"
    r"|gemini-(pro(-vision)?|ultra)|gemma-[1-4]n?-[\w.-]+|learnlm-[\w.-]+"
)


class Family(Struct, frozen=True):
    """One model behind one API, as strict as it is."""

    name: str
    capabilities: Capabilities
    neighbours_are_one_turn: bool
    """Contents of one role in a row count as one turn, so that results may stand in several."""
    unanswered_calls: bool
    """A call turn may be followed by a turn that does not answer any of its calls."""
    prefill: bool
    """The last turn may be the model's own."""
    ids_match: bool
    """A result has the id and the name of a call that it answers, if it has an id."""
    gives_ids: bool
    demands_signatures: bool
    gives_signatures: bool
    refuses_thinking: bool
    """It is an error to speak of thinking at all."""
    many_declarations: int = 512


@lru_cache(maxsize=256)
def family_of(model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> Family:
    """What is known of the model with this name; one that we do not know is taken for the newest."""
    name = model.rsplit("/", 1)[-1].lower()
    generation = _generation(name)
    known = capabilities_of(name, api, version)
    return Family(
        name=name,
        capabilities=known,
        # Seen in recordings of 2.5 and before; from 3 on each turn is looked at by itself.
        neighbours_are_one_turn=generation < (3, 0),
        unanswered_calls=generation < (2, 5),
        prefill=generation < (3, 5),
        ids_match=generation >= (3, 7),
        gives_ids=generation >= (3, 0) and known.call_ids,
        demands_signatures=known.signatures and known.functions,
        # Models of images think from Gemini 3 on, though nobody can say how much.
        refuses_thinking=not (known.thinking_levels or known.thinking_budget)
        and generation < (3, 0)
        and "thinking" not in name,
        gives_signatures=(known.signatures or known.thinking_budget) and known.functions,
    )


@lru_cache(maxsize=256)
def exists(model: str, version: str) -> bool:
    """Whether there is, or once was, a model of this name."""
    name = model.lower()
    return version != "v1" if _LATEST.fullmatch(name) else _KNOWN.fullmatch(name) is not None


def _generation(name: str) -> tuple[int, int]:
    if _LATEST.fullmatch(name):
        return _GENERATION_OF_LATEST
    found = _NUMBERED.match(name)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (1, 0) if name.startswith(("gemini-pro", "learnlm")) else _NEWEST
