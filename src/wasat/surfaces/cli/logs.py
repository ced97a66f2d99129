"""What the library logs, on stderr: warnings always, more for those who asked."""

import logging
import sys


class _Lines(logging.Handler):
    """Finds stderr anew each time, because a spinner may stand before it."""

    def emit(self, record: logging.LogRecord) -> None:
        from wasat.surfaces.cli.visible import visible

        sys.stderr.write(f"wasat: {visible(self.format(record))}\n")


def listen(verbose: int) -> None:
    """`verbose` is how often -v was given."""
    log = logging.getLogger("wasat")
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
