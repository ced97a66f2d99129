"""Which way a run is shown: live where somebody looks, in plain lines elsewhere."""

import os
import sys
from typing import Protocol

from midspan._cli.progress.plain import PlainProgress
from midspan._types.events import RunEvent


class Progress(Protocol):
    """Shows a run."""

    def show(self, event: RunEvent) -> None:
        """Show what happened."""

    def stop(self) -> None:
        """Leave the terminal as it was."""


def progress(*, verbose: int = 0) -> Progress:
    """By where stderr leads."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", ""):
        return PlainProgress(verbose=verbose)
    try:
        from midspan._cli.progress.live import LiveProgress  # which needs rich
    except ImportError:
        return PlainProgress(verbose=verbose)
    return LiveProgress(verbose=verbose)
