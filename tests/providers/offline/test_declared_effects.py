"""What a tool declares that it does to the world decides what may be done with it; its words do where it is silent."""

import pytest
from msgspec.structs import replace

from midspan.types.specs import Effects, ToolSpec
from tests.providers.offline.sample_tools import text, tool
from tests.providers.offline.test_client import ask, calls

READ_ONLY = Effects(reads=("cache:{cache}",))
DESTRUCTIVE = Effects(writes=("cache:{cache}",))
ASIDE = ["How do I {} cache a1?", "What happens if I {} cache a1?", "Should I {} cache a1?", "Did you {} cache a1?"]


def cache_tool(name: str, effects: Effects | None) -> ToolSpec:
    verb = name.split("_")[0]
    spec = tool(name, f"{verb.title()} a cache.", "cache", cache=text("Name of the cache."))
    return replace(spec, effects=effects)


def called(prompt: str, *tools: ToolSpec) -> list[str]:
    return [name for name, _ in calls(ask(prompt, tools=tools))]


@pytest.mark.parametrize(
    "prompt", ["{} cache a1", "Please {} cache a1", "How do I {} cache a1?", "Did you {} cache a1?"]
)
def test_what_declares_that_it_only_reads_needs_no_caution_whatever_its_name(prompt: str) -> None:
    delete = cache_tool("delete_cache", READ_ONLY)
    assert calls(ask(prompt.format("delete"), tools=[delete])) == [("delete_cache", {"cache": "a1"})]


@pytest.mark.parametrize("effects", [None, DESTRUCTIVE, Effects(idempotent=True)])
@pytest.mark.parametrize("prompt", ASIDE)
def test_one_that_declares_a_change_or_nothing_is_left_alone_where_it_is_only_talked_about(
    prompt: str, effects: Effects | None
) -> None:
    assert called(prompt.format("delete"), cache_tool("delete_cache", effects)) == []


@pytest.mark.parametrize("prompt", [*ASIDE, "I refreshed cache a1", "Don't {} cache a1", "Stop the work on cache a1"])
@pytest.mark.parametrize("name", ["refresh", "refresh_cache"])
def test_what_declares_a_change_is_treated_with_the_caution_of_deleting(name: str, prompt: str) -> None:
    assert called(prompt.format("refresh"), cache_tool(name, DESTRUCTIVE)) == []


@pytest.mark.parametrize("effects", [None, DESTRUCTIVE, READ_ONLY])
@pytest.mark.parametrize("name", ["refresh_cache", "delete_cache"])
def test_a_plain_wish_is_done_in_any_case(name: str, effects: Effects | None) -> None:
    verb = name.split("_")[0]
    assert called(f"{verb} cache a1", cache_tool(name, effects)) == [name]


def test_a_prohibition_holds_whatever_is_declared() -> None:
    for effects in (None, DESTRUCTIVE, READ_ONLY):
        assert called("Don't delete cache a1", cache_tool("delete_cache", effects)) == []


def test_a_prohibition_is_seen_wherever_the_verb_stands_in_the_name() -> None:
    refresh = tool("cache_refresh", "Cache control.", "cache", cache=text("Name of the cache."))
    assert called("Don't refresh cache a1", replace(refresh, effects=DESTRUCTIVE)) == []
    assert called("Refresh cache a1", replace(refresh, effects=DESTRUCTIVE)) == ["cache_refresh"]


def test_no_effects_are_not_the_same_as_none_declared() -> None:
    assert called("How do I delete cache a1?", cache_tool("delete_cache", Effects())) == ["delete_cache"]


def test_what_may_be_repeated_is_judged_by_its_words() -> None:
    assert called("How do I refresh cache a1?", cache_tool("refresh_cache", Effects(idempotent=True))) == [
        "refresh_cache"
    ]


USER = {"type": "integer", "description": "Id of the user."}
DELETE_USER = tool("delete_user", "Delete a user.", "user_id", user_id=USER)
LIST_USERS = tool("list_users", "List the users.", "")


def test_an_id_is_looked_up_only_with_what_declares_no_change() -> None:
    assert called("Delete the user Anna", DELETE_USER, LIST_USERS) == ["list_users"]
    writing = replace(LIST_USERS, effects=Effects(writes=("users",)))
    assert called("Delete the user Anna", DELETE_USER, writing) == []


def test_instead_of_what_is_forbidden_only_a_tool_that_changes_nothing_is_called() -> None:
    get_user = tool("get_user", "Get a user.", "user_id", user_id=USER)
    prompt = "Get user 3 without deleting it"
    assert called(prompt, DELETE_USER, get_user) == ["get_user"]
    assert called(prompt, DELETE_USER, replace(get_user, effects=Effects(reads=("user:{user_id}",)))) == ["get_user"]
    assert called(prompt, DELETE_USER, replace(get_user, effects=Effects(writes=("user:{user_id}",)))) == []
