"""Prometheus metrics: what was served, what ran, and what it cost."""

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from midspan import Agent, tool
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from tests.server.serving import Served, add, serving, sum_agent, wait_until

TOKEN = "a-token-of-sixteen-chars"


def samples(server: Served, token: str | None = None) -> dict[str, float]:
    """The values of all metrics, by name and labels, without buckets and times."""
    text = server.get("/metrics", token).text
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not re.search("_bucket|_created|_sum", sample.name)
    }


@pytest.mark.requirement("S4-21")
def test_runs_turns_calls_and_requests_are_counted() -> None:
    with serving(sum_agent()) as server:
        assert server.post("/api/v1/chat", {"prompt": "1 + 2?"}).status_code == 200
        assert server.post("/api/v1/chat", {"prompt": 5}).status_code == 400
        server.get("/api/v1/runs/unknown")
        wait_until(lambda: "midspan_runs_total['completed', 'model:scripted']" in samples(server))
        found = samples(server)
    assert found["midspan_runs_total['completed', 'model:scripted']"] == 1
    assert found["midspan_turns_total['model:scripted']"] == 2
    assert found["midspan_tool_calls_total['add', 'ok']"] == 1
    assert found["midspan_tool_call_duration_seconds_count['add']"] == 1
    assert found["midspan_runs_running[]"] == 0
    assert found["midspan_http_requests_total['/api/v1/chat', '200', 'POST']"] == 1
    assert found["midspan_http_requests_total['/api/v1/chat', '400', 'POST']"] == 1
    assert found["midspan_http_requests_total['/api/v1/runs/{run_id}', '404', 'GET']"] == 1


def test_calls_of_failed_runs_and_invented_names_are_counted() -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError("no")

    def respond(request: Any) -> Any:
        if len(request.history) > 1:
            raise RuntimeError("the model is gone")
        return [ToolCall("1", "broken", {}), ToolCall("2", "invented-name", {})]

    with serving(Agent(ScriptedProvider(respond), [broken, add])) as server:
        server.post("/api/v1/chat", {"prompt": "Go."})
        wait_until(lambda: "midspan_runs_total['failed', 'model:scripted']" in samples(server))
        found = samples(server)
        assert "invented" not in server.get("/metrics").text
    assert found["midspan_tool_calls_total['broken', 'error']"] == 1
    assert found["midspan_tool_calls_total['error', 'other']"] == 1


def test_metrics_need_a_token_where_the_server_does() -> None:
    with serving(sum_agent(), tokens={"ann": TOKEN}) as server:
        assert server.get("/metrics").status_code == 401
        assert server.get("/metrics", TOKEN).status_code == 200
