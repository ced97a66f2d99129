"""Names and facts of the package: one meaning for each class name, one home for each fact."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "midspan"

SAME_CONCEPT = {
    "PausedResponse": "a response that takes several requests, continued as each API wants it",
    "StreamDecoder": "each provider reads the events of its own wire",
    # The typed Gemini client adds constructors and checks to the messages of the wire.
    **dict.fromkeys(("Content", "FunctionCall", "FunctionDeclaration", "FunctionResponse"), "a message of the wire"),
    **dict.fromkeys(("GenerateContentResponse", "Part", "Schema"), "a message of the wire"),
    # Names that Google's SDK, the wire and the source designs prescribe.
    "Blob": "media, ours and on the wire",
    "Client": "google-genai's client, and the base class of the compatibility clients",
    "Tool": "a function as a tool, and the message of the wire",
}
"""Classes that may be defined in several modules, and why."""


def test_a_class_name_has_one_meaning() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name not in SAME_CONCEPT:
                homes[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


FACTS = {
    "the signature that skips validation": r"skip_thought_signature_validator",
    "characters per token": r"^CHARACTERS_PER_TOKEN = ",
    "statuses of Google's RPC": r"RESOURCE_EXHAUSTED.*429",
    "the variable that selects Vertex": r"GOOGLE_GENAI_USE_VERTEXAI",
    "unpaired surrogates": r"\\ud800",
    "types of JSON values": r"^def has_type\(",
    "roles of other APIs": r"\"function\": \"user\"",
    "models of Gemini": r"gemini-3\.1-flash-lite ",
    "finish reasons of Gemini": r"\"MAX_TOKENS\": ",
    "names of functions for Gemini": r"^FUNCTION_NAME = ",
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_has_one_home(fact: str) -> None:
    homes = [path for path in SOURCE.rglob("*.py") if re.search(FACTS[fact], path.read_text("utf-8"), re.MULTILINE)]
    assert len(homes) == 1, homes
