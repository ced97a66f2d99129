"""The functions of test_tool_source.py, for worker processes."""

from midspan import RunContext


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def fail() -> str:
    """Fails."""
    raise ValueError("broken")


async def whose(context: RunContext[str]) -> list[str]:
    """Says what its context holds."""
    return [context.user, context.run_id, context.call_id]
