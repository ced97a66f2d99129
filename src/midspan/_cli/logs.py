"""What the library logs, on stderr: warnings always, more for those who asked."""

import logging
import sys
import traceback
from contextlib import suppress


class _Lines(logging.Handler):
    """Finds stderr anew each time, because a spinner may stand before it."""

    with_tracebacks = False

    def emit(self, record: logging.LogRecord) -> None:
        from midspan._cli.visible import visible, visible_lines

        error = record.exc_info[1] if record.exc_info else None
        words = visible(record.getMessage())
        if error is not None and not self.with_tracebacks:
            words = f"{words}; -v shows where"
        with suppress(OSError, ValueError):  # nobody reads it, or a tool has closed it
            if error is not None and self.with_tracebacks:
                sys.stderr.write(visible_lines("".join(traceback.format_exception(error))))
            sys.stderr.write(f"midspan: {words}\n")


def listen(verbose: int) -> None:
    """`verbose` is how often -v was given."""
    log = logging.getLogger("midspan")
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    if not any(isinstance(handler, _Lines) for handler in log.handlers):
        log.addHandler(_Lines())
    for handler in log.handlers:
        if isinstance(handler, _Lines):
            handler.with_tracebacks = bool(verbose)
