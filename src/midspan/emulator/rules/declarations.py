"""Functions as they are declared: their names, how many, and what may stand beside them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from midspan.emulator.families import Family
from midspan.emulator.refusal import invalid
from midspan.emulator.rules.fields import fields_refused
from midspan.emulator.rules.schemas import schema_faults
from midspan.providers.gemini.capabilities import Api
from midspan.providers.gemini.wire import FunctionDeclaration, Tool

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_NOTHING_SAID = (None, "UNSPECIFIED", "BEHAVIOR_UNSPECIFIED", 0)
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_BAD_PARAMETER = (
    "Invalid parameter name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9) or "
    "underscores (_), with a maximum length of 64."
)
_BAD_NAME = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)


def check_declarations(tools: Sequence[Tool], family: Family) -> None:
    declared = list(_declared(tools))
    if declared and not family.capabilities.functions:
        raise invalid(f"Function calling is not enabled for models/{family.name}")
    faults = [fault for place, one in declared for fault in _faults(place, one, family.capabilities.api)]
    for at, tool in enumerate(tools):
        if len(tool.function_declarations or ()) > family.many_declarations:
            words = f"At most {family.many_declarations} function declarations can be specified."
            faults.insert(0, (f"tools[{at}].function_declarations", words))
    if faults:
        raise fields_refused(faults, family.capabilities.api)
    if len(declared) > family.many_declarations:
        raise invalid(f"At most {family.many_declarations} function declarations can be specified.")
    _check_once(declared)


def names_of(tools: Sequence[Tool]) -> tuple[str, ...]:
    return tuple(one.name or "" for _, one in _declared(tools))


def _declared(tools: Sequence[Tool]) -> Iterator[tuple[str, FunctionDeclaration]]:
    for at, tool in enumerate(tools):
        for index, one in enumerate(tool.function_declarations or ()):
            yield f"tools[{at}].function_declarations[{index}]", one


def _faults(place: str, one: FunctionDeclaration, api: Api) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(one.name or ""):
        yield f"{place}.name", _BAD_NAME
    for name, schema, json_schema in (
        ("parameters", one.parameters, one.parameters_json_schema),
        ("response", one.response, one.response_json_schema),
    ):
        if schema is not None and _is_given(json_schema):
            yield f"{place}.{name}_json_schema", f"must not be set when {name} is set"
        if _is_given(json_schema) and not isinstance(json_schema, dict):
            yield f"{place}.{name}_json_schema", "must be a JSON object"
        if schema is not None:
            yield from schema_faults(schema, f"{place}.{name}", api)
    for name in (one.parameters.properties if one.parameters is not None else None) or ():
        if not _PARAMETER.fullmatch(name):
            yield f"{place}.parameters.properties[{name[:80]}]", _BAD_PARAMETER
    if one.behavior not in _NOTHING_SAID:
        yield f"{place}.behavior", "behavior is only supported by the BidiGenerateContent method."
    if one.parameters is not None and one.parameters.type not in (None, "OBJECT"):
        yield f"{place}.parameters.type", "must be OBJECT for the parameters of a function"


def _is_given(value: Any) -> bool:
    return value is not UNSET and value is not None


def _check_once(declared: Sequence[tuple[str, FunctionDeclaration]]) -> None:
    seen = set()
    for _, one in declared:
        if one.name in seen:
            raise invalid(f"Duplicate function declaration found: {one.name}")
        seen.add(one.name)
