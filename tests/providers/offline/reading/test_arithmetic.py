"""Arithmetic in words is read whole, or not at all."""

import pytest

from midspan.providers.offline.reading.arithmetic import chains
from tests.providers.offline.sample_tools import READY
from tests.providers.offline.test_client import ask, calls


@pytest.mark.parametrize(
    ("prompt", "expression"),
    [
        ("2 plus 3 plus 4", "2 + 3 + 4"),
        ("2 plus 3 times 4", "2 + 3 * 4"),
        ("7 times 6 times 2", "7 * 6 * 2"),
        ("5 times 6 minus 1", "5 * 6 - 1"),
        ("15% of 80 plus 3", "15 / 100 * 80 + 3"),
        ("Add 5 and 7 and multiply by 2", "(5 + 7) * 2"),
        ("Add 1, 2 and 3", "1 + 2 + 3"),
        ("divide 10 by 4 and subtract 1", "10 / 4 - 1"),
        ("divide 12 by half of 9", "12 / (9 / 2)"),
        ("divide 12 by 50%", "12 / (50 / 100)"),
        ("Add 5 and 7 and add 10%", "(5 + 7) * (1 + 10 / 100)"),
        ("subtract 3 from 10", "10 - 3"),
        ("add 10% to 50", "50 * (1 + 10 / 100)"),
        ("1/3 of 90", "1 / 3 * 90"),
        ("2 + 2 * two", "2 + 2 * 2"),
        ("50 minus 10%", "50 * (1 - 10 / 100)"),
        ("1,234 + 1", "1234 + 1"),
        ("1,234 plus 1", "1234 + 1"),
        ("What is 1.5 million times 3?", "1500000 * 3"),
        ("5 factorial", "factorial(5)"),
        ("2 to the power of 10", "2 ** 10"),
        ("7 squared", "7 ** 2"),
        ("half of 90", "90 / 2"),
        ("17 mod 5", "17 % 5"),
        ("square root of 16 plus 2", "sqrt(16) + 2"),
        ("What is 10-4?", "10-4"),
        ("10 - 4", "10 - 4"),
    ],
)
def test_the_whole_chain_is_sent(prompt: str, expression: str) -> None:
    assert calls(ask(prompt, tools=READY)) == [("calculate", {"expression": expression})]


@pytest.mark.parametrize(
    "prompt",
    [
        "2 + 3 plus x",
        "cube root of 27 plus 1",
        "5 plus 3 of 4",
        "My phone number is 555-1234, remember it",
        "Who won the 2022 world cup 4 - 2?",
        "How many times has Brazil won?",
    ],
)
def test_what_is_not_understood_to_its_end_is_not_calculated(prompt: str) -> None:
    assert calls(ask(prompt, tools=READY)) == []


@pytest.mark.parametrize(
    "text", ["1 plus " * 2000, "(" * 12_000, "half of " * 2000, "1 plus 2 and " * 1000, "one " * 3000]
)
def test_long_chains_come_to_an_end(text: str) -> None:
    assert len(list(chains(text))) <= 2000


def test_a_plus_between_numbers_does_not_take_a_prompt_apart() -> None:
    assert calls(ask("What is 5 plus 3 and what time is it in Oslo?", tools=READY)) == [
        ("calculate", {"expression": "5 + 3"}),
        ("get_time", {"zone": "Oslo"}),
    ]
