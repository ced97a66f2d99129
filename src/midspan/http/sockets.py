"""Sockets that notice a dead peer, and how to close them at once."""

import asyncio
import select
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

_BUFFER = 2**16
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


def probing_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose idle connection is probed: a dead peer is noticed in 90 s, and gateways do not forget a live one.

    A model may think for minutes without a byte, and gateways forget silent connections sooner than that.
    """
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def read_in_small_buffers(transport: asyncio.Transport) -> None:
    """Have a transport of asyncio read into buffers that the C library keeps at hand.

    For each piece that comes it makes a buffer of 256 KiB and gives back all but the few hundred bytes that were read.
    So large a buffer the C library fetches from the system and returns to it: three system calls and two page faults,
    more than all else that a chunk of a stream costs. Loops that read otherwise do not have the attribute.
    """
    reader: Any
    for reader in (transport, getattr(transport, "_ssl_protocol", None)):
        if hasattr(reader, "max_size"):
            with suppress(AttributeError):
                reader.max_size = _BUFFER


def has_unread(transport: asyncio.Transport) -> bool:
    """Whether something has come that the loop, which may have stood still, has not read yet: an answer, or the end.

    Some gateways say that they are tired of waiting, and so answer what nobody has asked.
    """
    made = transport.get_extra_info("socket")
    if made is None or not hasattr(select, "poll"):  # as on Windows: then it is found out later, or never
        return False
    poll = select.poll()
    poll.register(made, select.POLLIN)
    return bool(poll.poll(0))


def abort(transports: Iterable[asyncio.Transport]) -> None:
    for transport in transports:
        transport.abort()


def abort_on_closed_loop(loop: asyncio.AbstractEventLoop, transports: Iterable[asyncio.Transport]) -> None:
    """Close sockets whose loop was closed before them.

    To close a transport is to have its loop close the socket in the next round, and a closed loop refuses that. So the
    step that it would schedule is taken here. What that step schedules in turn is for tasks that will never run.
    """
    steps: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def note(callback: Callable[..., object], *arguments: Any, context: object = None) -> None:  # noqa: ARG001 - as the loop's own
        steps.append((callback, arguments))

    try:
        loop.call_soon = note  # type: ignore[method-assign, assignment]
    except AttributeError:  # a loop in C closes its sockets itself
        return
    abort(transports)
    for callback, arguments in tuple(steps):
        callback(*arguments)
