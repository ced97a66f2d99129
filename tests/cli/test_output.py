"""Progress of a run in plain lines and with a spinner."""

import os
from contextlib import redirect_stderr

import pytest

from midspan._cli.output import ProgressDisplay
from midspan._types.events import RequestRetry, SourceUnavailable, ToolProgress, ToolStart, TurnRetry, TurnStart
from midspan._types.parts import ToolCall
from tests.cli.terminal import open_pty, read_to_end


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize("has_spinner", [False, True])
def test_retries_and_missing_tools_are_shown(has_spinner: bool, verbose: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm" if has_spinner else "dumb")
    controller, device = open_pty(columns=200)
    with os.fdopen(device, "w") as terminal, redirect_stderr(terminal):
        display = ProgressDisplay(verbose=verbose)
        for event in (
            SourceUnavailable("files", "the server exited"),
            TurnStart(1),
            RequestRetry(1, 1, 0.4, None, "connection refused"),
            RequestRetry(1, 2, 2.5, 503, "503 from the model\x1b[2J"),
            RequestRetry(1, 3, 0, 503, "503 from the model", "spare"),
            TurnRetry(1, "the answer was empty"),
            ToolStart(1, ToolCall("1", "backup", {"name": "orders"})),
            ToolProgress(1, "1", fraction=0.5, message="halfway"),
        ):
            display.show(event)
        display.close()
    shown = read_to_end(controller)
    for text in (
        "no tools from files: the server exited",
        "503, retrying in 2.5 s: 503 from the model\\x1b[2J" if verbose else "503, retrying in 2.5 s\r\n",
        "503, asking spare",
        "asking the model again: the answer was empty",
    ):
        assert text in shown
    assert ("request failed, retrying in 0.4 s: connection refused" in shown) == bool(verbose)
    assert ("refused" in shown) == bool(verbose)
