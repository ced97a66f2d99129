"""Reads an invoice into a dataclass. Needs a key in GEMINI_API_KEY; see README.md for running without one."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from midspan import Agent
from midspan.errors import OutputError

TEXT = """
Nordic Lamps AS, Oslo. Invoice 2026-114, 3 November 2026.
2 x desk lamp at 49.00, 1 x delivery at 12.50. Total due: 110.50 EUR
"""


@dataclass
class Line:
    description: str
    quantity: int
    unit_price: Decimal


@dataclass
class Invoice:
    number: str
    issued: date
    lines: list[Line]
    total: Decimal


agent = Agent("gemini:gemini-3.8-flash", output=Invoice, system="Extract the invoice.")


def main() -> None:
    try:
        invoice = agent.run_sync(TEXT).output
    except OutputError as error:  # the model did not return a valid invoice after several attempts
        raise SystemExit(f"no invoice: {error}") from error
    for line in invoice.lines:
        print(f"{line.quantity} x {line.description} = {line.quantity * line.unit_price}")
    print(f"invoice {invoice.number} of {invoice.issued:%d %B %Y}: {invoice.total}")


if __name__ == "__main__":
    main()
