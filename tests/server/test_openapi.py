"""/openapi.json is complete and true: schemathesis finds no violation, and every route is in it."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from starlette.routing import Route

from midspan import Agent, Gemini
from midspan.emulator import LocalGemini, answer, call
from midspan.server import create_app
from tests.server.serving import Served, add, serving, sum_agent

CHECKED_ACROSS_FIELDS = "POST /v1/chat/completions"
"""A tool choice must name one of the tools, and their parameters must be JSON Schemas, which a schema cannot say."""


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with LocalGemini([answer("Let me see. ", call("add", a=1, b=2)), "It is 3."]) as gemini:
        agent = Agent(Gemini("gemini-3.8-flash", api_key="k", base_url=gemini.url), [add])
        with serving(agent) as server:
            yield server


@pytest.mark.requirement("H-04")
@pytest.mark.hypothesis
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [*schemathesis.GenerationMode])
def test_schemathesis_finds_no_violation(server: Served, mode: Any) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    tested = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode is schemathesis.GenerationMode.NEGATIVE and not _can_be_wrong(operation):
            continue
        _check(operation, mode)
        tested += 1
    assert tested == (19 if mode is schemathesis.GenerationMode.POSITIVE else 11)


def _check(operation: Any, mode: Any) -> None:
    skipped = [CHECKS.get_one("positive_data_acceptance")] if operation.label == CHECKED_ACROSS_FIELDS else []

    @settings(
        max_examples=settings().max_examples // 10,  # of each operation
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(excluded_checks=skipped)

    check()


def _can_be_wrong(operation: Any) -> bool:
    """Whether a request can break the schema: it has a body, or a parameter that is not just any text."""
    names = {parameter.name for parameter in operation.iter_parameters()}
    return bool(operation.body) or not names <= {"run_id", "model"}


def test_every_route_is_described() -> None:
    app = create_app(sum_agent())
    routes = {
        (method, route.path.replace(":path", ""))
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD" and route.path not in ("/", "/openapi.json", "/docs", "/mcp", "/metrics")
    }
    with serving(sum_agent()) as server:
        paths = server.get("/openapi.json").json()["paths"]
    assert {(method.upper(), path) for path, methods in paths.items() for method in methods} == routes


def test_page_shows_the_api_without_scripts_and_loads_nothing() -> None:
    with serving(sum_agent(), tokens={"ann": "a" * 20}) as server:
        page = server.get("/docs")
        assert server.client.get("/").headers["location"] == "docs"
        paths = server.get("/openapi.json").json()["paths"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert "<script" not in page.text
    assert "http" not in page.text.partition("<body>")[0]
    assert all(path in page.text for path in paths)


def test_unknown_paths_and_methods_have_the_form_of_errors() -> None:
    with serving(sum_agent()) as server:
        missing = server.get("/api/v1/nothing")
        assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
        assert server.get("/api/v1/runs/").status_code == 404
        wrong = server.client.put("/api/v1/runs")
        assert (wrong.status_code, {*wrong.headers["allow"].split(", ")}) == (405, {"GET", "HEAD", "POST"})
        openai = server.client.get("/v1/nothing").json()
        assert openai["error"]["code"] == "not_found"
