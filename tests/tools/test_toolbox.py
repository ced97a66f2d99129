import asyncio
from typing import Any

import pytest

from midspan.errors import ConfigError, DuplicateToolError, UnknownSessionError
from midspan.tools.toolbox import Toolbox


def add(a: int, b: int) -> int:
    return a + b


def whoami() -> str:
    return "ann"


@pytest.mark.requirement("S0-12", "S0-16")
def test_tools_of_a_session_are_visible_there_only() -> None:
    box = Toolbox()
    box.register(add)
    box.register(whoami, session="user_123")
    box.open_session("user_456")
    assert [spec.name for spec in box.list_tools("user_123")] == ["add", "whoami"]
    assert [spec.name for spec in box.list_tools("user_456")] == ["add"]
    assert [spec.name for spec in box.list_tools()] == ["add"]


def test_tool_is_executed_in_its_session() -> None:
    box = Toolbox()
    box.register(add)
    box.register(whoami, session="user_123")
    assert asyncio.run(box.execute_in_session("user_123", "whoami", {})).value == "ann"
    assert asyncio.run(box.execute_in_session("user_123", "add", {"a": 1, "b": 2})).value == 3
    box.open_session("user_456")
    assert asyncio.run(box.execute_in_session("user_456", "whoami", {})).is_error


def test_unknown_session_is_an_error() -> None:
    box = Toolbox()
    box.open_session("a")
    for use in (box.list_tools, box.source, box.close_session):
        with pytest.raises(UnknownSessionError, match="unknown session 'b'; open ones: 'a'"):
            use("b")
    with pytest.raises(UnknownSessionError):
        asyncio.run(box.execute_in_session("b", "add", {}))
    box.close_session("a")
    with pytest.raises(UnknownSessionError, match="open ones: none"):
        box.list_tools("a")


def test_duplicates_are_an_error_skipped_or_overridden() -> None:
    def other(name: str) -> Any:
        def add() -> str:
            return name

        return add

    box = Toolbox()
    first = box.register(other("first"))
    with pytest.raises(DuplicateToolError, match="'add' is already registered for all sessions"):
        box.register(other("second"))
    assert box.register(other("second"), duplicates="skip") is first
    assert asyncio.run(box.execute_in_session(None, "add", {})).value == "first"
    box.register(other("third"), duplicates="override")
    assert asyncio.run(box.execute_in_session(None, "add", {})).value == "third"


def test_session_tool_overrides_a_common_tool() -> None:
    def add() -> str:
        return "mine"

    box = Toolbox()
    box.register(globals()["add"])
    box.register(add, session="s")
    assert asyncio.run(box.execute_in_session("s", "add", {})).value == "mine"


def test_source_sees_tools_that_are_registered_later() -> None:
    box = Toolbox()
    box.open_session("s")
    source = box.source("s")
    box.register(add, session="s")
    assert [spec.name for spec in asyncio.run(source.list_tools())] == ["add"]


def test_value_that_is_not_a_tool_cannot_be_registered() -> None:
    with pytest.raises(ConfigError, match="5 is not a tool; expected a function"):
        Toolbox().register(5)  # type: ignore[arg-type]
