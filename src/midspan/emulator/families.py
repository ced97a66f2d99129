"""What a model accepts and sends, as its server sees it; what clients must know is in `capabilities`."""

import re
from functools import lru_cache

from msgspec import Struct

from midspan.providers.gemini.capabilities import Api, Capabilities, capabilities_of, generation_of

_LATEST = re.compile(r"gemini-(flash|flash-lite|pro)-latest")
_KNOWN = re.compile(
    r"gemini-(1\.0|1\.5|2\.0|2\.5|3|3\.[1-8]|4)-[a-z][\w.-]*|gemini-(exp|experimental|robotics)(-[\w.-]+)?"
    r"|gemini-(pro(-vision)?|ultra)|gemma-[1-4]n?-[\w.-]+|learnlm-[\w.-]+"
)


class Family(Struct, frozen=True, kw_only=True):
    """One model behind one API."""

    name: str
    capabilities: Capabilities
    neighbours_are_one_turn: bool
    """Adjacent contents of one role count as one turn, so results may be spread over several contents."""
    unanswered_calls: bool
    """A turn with calls may be followed by a turn without results."""
    prefill: bool
    """The last turn may be the model's."""
    ids_match: bool
    """A result with an id has the id and the name of a call."""
    gives_ids: bool
    demands_signatures: bool
    gives_signatures: bool
    refuses_thinking: bool
    """A thinking config is an error."""
    many_declarations: int = 512


@lru_cache(maxsize=256)
def family_of(model: str, api: Api = Api.DEVELOPER, version: str = "v1beta") -> Family:
    """Return what is known of a model; an unknown one is treated like the newest."""
    name = model.rsplit("/", 1)[-1].lower()
    generation = generation_of(name)
    known = capabilities_of(name, api, version)
    thinks = bool(known.thinking_levels or known.thinking_budget)
    return Family(
        name=name,
        capabilities=known,
        # Seen in recordings of 2.5 and before.
        neighbours_are_one_turn=generation < (3, 0),
        unanswered_calls=generation < (2, 5),
        prefill=generation < (3, 5),
        ids_match=generation >= (3, 7),
        gives_ids=generation >= (3, 0) and known.call_ids,
        demands_signatures=known.signatures and known.functions,
        gives_signatures=(known.signatures or known.thinking_budget) and known.functions,
        # Image models think from Gemini 3 on, although the amount cannot be set.
        refuses_thinking=not thinks and generation < (3, 0) and "thinking" not in name,
    )


def exists(model: str, version: str = "v1beta") -> bool:
    """Whether there is, or once was, a model of this name."""
    name = model.lower()
    return version != "v1" if _LATEST.fullmatch(name) else _KNOWN.fullmatch(name) is not None
