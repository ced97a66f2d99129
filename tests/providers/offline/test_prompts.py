"""What the offline model makes of sixty prompts that people might write."""

import re
from datetime import date
from typing import Any

import pytest

from midspan.providers.offline.client import Offline
from midspan.types.exchange import ModelRequest, RequestConfig
from midspan.types.messages import History, Message
from midspan.types.parts import ToolResult
from midspan.types.specs import ToolSpec
from tests.providers.offline.prompts import ASK, DOMAIN_CASES, READY_CASES, REFUSE, Case
from tests.providers.offline.sample_tools import DOMAINS, READY, answer

CASES = [*((case, READY) for case in READY_CASES), *((case, DOMAINS) for case in DOMAIN_CASES)]
OWN_WORDS = {"I", "What", "Which", "None", "Midspan"}


class Run:
    """A prompt played to its end, the tools answering."""

    def __init__(self, prompt: str, tools: tuple[ToolSpec, ...]) -> None:
        model, setup = Offline(today=lambda: date(2025, 3, 1)), RequestConfig("offline", tools=tools)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.results: list[ToolResult] = []
        history = History([Message.user(prompt)])
        for _ in range(6):
            message = model.respond(ModelRequest(setup, history)).message
            if not message.calls:
                self.text = message.text
                return
            results = [answer(call) for call in message.calls]
            self.calls += [(call.name, call.arguments) for call in message.calls]
            self.results += results
            history = history.append(message, Message.user(*results))
        raise AssertionError(f"{prompt!r} never comes to an end")


def is_right(case: Case, run: Run) -> bool:
    if case.expected == ASK:
        return not run.calls and run.text.endswith("?")
    if case.expected == REFUSE:
        return not run.calls and not run.text.endswith("?")
    return run.calls == case.expected


def test_there_are_sixty_prompts_of_every_sort() -> None:
    assert (len(READY_CASES), len(DOMAIN_CASES)) == (20, 40)
    expected = [case.expected for case, _ in CASES]
    assert expected.count(ASK) >= 5
    assert expected.count(REFUSE) >= 5
    assert sum(isinstance(one, list) and len(one) > 1 for one in expected) >= 8


def test_at_least_fifty_of_the_sixty_are_done_right() -> None:
    wrong = [case.prompt for case, tools in CASES if not is_right(case, Run(case.prompt, tools))]
    assert len(CASES) - len(wrong) >= 50, wrong


@pytest.mark.parametrize(("case", "tools"), CASES, ids=[case.prompt[:40] for case, _ in CASES])
def test_no_answer_holds_a_number_or_a_name_that_nobody_said(case: Case, tools: tuple[ToolSpec, ...]) -> None:
    run = Run(case.prompt, tools)
    said = case.prompt + repr([result.value for result in run.results])
    for number in re.findall(r"\d+(?:\.\d+)?", run.text):
        assert number in said
    for name in re.findall(r"\b[A-Z]\w*", run.text):
        assert name in OWN_WORDS or name in said
