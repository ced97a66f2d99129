"""Policies: the rules of a run, and how what they say is merged.

The run asks, decides and acts; it has no rules of its own. Each rule is a policy. What a policy remembers is derived
from the RunState, so a run that is restored from its events continues under the same rules.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from midspan.errors import MidspanError
from midspan.loop.state import RunState
from midspan.types.exchange import ModelResponse
from midspan.types.messages import Message
from midspan.types.parts import ToolCall, ToolResult


class Changes(Struct, frozen=True, gc=False):
    """What a policy changes about the next request."""

    answer_only: bool = False
    """The model may only answer. The tools stay declared, because the history refers to them."""
    forces_call: bool = False
    """The caller's tool choice applies: the model has to make a call."""


class Retry(Struct, frozen=True, gc=False):
    """Ask the model again."""

    reason: str
    text: str | None = None
    """What to tell the model first; None repeats the request."""

    @property
    def message(self) -> Message | None:
        return None if self.text is None else Message.user(self.text)


class Fail(Struct, frozen=True, gc=False):
    """End the run with an error."""

    error: MidspanError


Verdict = Retry | Fail | None
"""None accepts the response."""


class Refusal(Struct, frozen=True, gc=False):
    """Why a call is not run."""

    message: str
    """What the model reads, after the name of the tool."""
    note: str
    """The kind of refusal, one of the constants in `midspan.tools.error_results`."""
    limit: str | None = None
    """The limit that forbids the call, if that is the reason."""


class Policy(Protocol):
    """One rule of a run. Inherit from it to implement only some of the methods."""

    def request(self, state: RunState) -> Changes:  # noqa: ARG002 - the default
        """Return the changes to the next request."""
        return NO_CHANGES

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:  # noqa: ARG002 - the default
        """Judge a response. The state already includes it."""
        return None

    def refuse(self, state: RunState, calls: "Calls") -> "Refusals":  # noqa: ARG002 - the default
        """Return the calls that must not run. Calls that an earlier policy refused are not asked about."""
        return {}

    def hint(self, state: RunState, call: ToolCall, result: ToolResult) -> str | None:  # noqa: ARG002 - the default
        """Return a note for the model beside the result of a call."""
        return None


Calls = Sequence[tuple[int, ToolCall]]
"""Calls with their positions in the turn."""
Refusals = dict[int, Refusal]
"""By the position of the call in the turn."""
NO_CHANGES = Changes()


def calls_to_count(calls: Calls, refusals: Refusals) -> Calls:
    """Return the calls that limits count: those that no other rule refuses."""
    return [(index, call) for index, call in calls if index not in refusals or refusals[index].limit is not None]


class Policies:
    """All policies of a run, in the order of their precedence."""

    def __init__(self, *policies: Policy) -> None:
        # Most policies implement one or two methods; the others are not called in every turn.
        self._requests = [policy.request for policy in policies if type(policy).request is not Policy.request]
        self._verdicts = [
            policy.after_response for policy in policies if type(policy).after_response is not Policy.after_response
        ]
        self._refusers = [policy.refuse for policy in policies if type(policy).refuse is not Policy.refuse]
        self._hints = [policy.hint for policy in policies if type(policy).hint is not Policy.hint]

    def request(self, state: RunState) -> Changes:
        """Merge the changes. A model that may only answer is not forced to make a call."""
        forced = NO_CHANGES
        for request in self._requests:
            changes = request(state)
            if changes.answer_only:
                return changes
            if changes.forces_call:
                forced = changes
        return forced

    def after_response(self, state: RunState, response: ModelResponse) -> Verdict:
        """Return the first verdict that does not accept the response."""
        for judge in self._verdicts:
            verdict = judge(state, response)
            if verdict is not None:
                return verdict
        return None

    def refuse(self, state: RunState) -> Refusals:
        """Return all refusals. Every policy is asked about every call that no other policy has refused."""
        calls: Calls = state.unanswered
        refusals: Refusals = {}
        for refuse in self._refusers:
            refused = refuse(state, calls)
            if refused:
                refusals |= refused
                calls = [item for item in calls if item[0] not in refused]
        return refusals

    def hint(self, state: RunState, call: ToolCall, result: ToolResult) -> str | None:
        """Return the first note for the model."""
        for make_hint in self._hints:
            hint = make_hint(state, call, result)
            if hint is not None:
                return hint
        return None
