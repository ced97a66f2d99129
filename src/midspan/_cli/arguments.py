"""The arguments that several commands take."""

from argparse import ArgumentParser, ArgumentTypeError


def add_model(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", metavar="M", help="the model as provider:model, see midspan models")
    parser.add_argument("-s", "--system", metavar="S", help="what the model is told before all questions")
    parser.add_argument("--max-turns", metavar="N", type=_above_zero, help="how often the model may be asked")


def add_tools(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-t", "--tools", metavar="FILE.py|MODULE", action="append",
        help="where the tools are, or «ready» for the ready ones; may be given several times",
    )  # fmt: skip
    which.add_argument("--no-tools", action="store_true", help="no tools at all")
    parser.add_argument(
        "-y", "--yes", action="store_true",
        help="allow tools that may change something where the offline model is only the fallback",
    )  # fmt: skip


def _above_zero(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)
