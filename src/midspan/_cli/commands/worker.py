"""`midspan worker`: a worker process that connects to a host, and the supervisor that replaces it."""

import os
import sys
import time
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_path
from midspan._cli.text import print_line
from midspan._types.texts import count_noun
from midspan.errors import ConfigError

_TOKEN = "MIDSPAN_WORKER_TOKEN"  # noqa: S105 - the name of a variable
_ADDRESS = "MIDSPAN_WORKER_CONNECT"
_RESTART_SECONDS = 1.0


def add_arguments(parser: ArgumentParser) -> None:
    add_path(parser, "tools", metavar="FILE.py|MODULE", help="the file or module of the tools")
    forms = f"unix:PATH or tcp:HOST:PORT (default: ${_ADDRESS})"
    connect_help = f"the address of the host: {forms}; without it, the tools are only listed"
    parser.add_argument("--connect", metavar="ADDRESS", default=os.environ.get(_ADDRESS), help=connect_help)


def run(options: Namespace) -> int:
    if not hasattr(os, "fork"):
        raise ConfigError("worker processes need a system with fork, such as Linux, macOS or WSL")
    from midspan.tools.workers.address import HostAddress
    from midspan.tools.workers.setup import WorkerSetup, load_tools
    from midspan.tools.workers.supervisor import supervise
    from midspan.tools.workers.worker import REFUSED, run_worker

    if options.connect is None:
        tools = load_tools(WorkerSetup(options.tools))
        sys.stdout.write("".join(f"{tool}\n" for tool in tools))
        print_line(f"{count_noun(len(tools), 'tool')}; pass --connect ADDRESS to run them for a host")
        return 0
    address, token = HostAddress.of(options.connect), os.environ.get(_TOKEN)
    if not token:
        raise ConfigError(f"a worker needs the token of its host; set {_TOKEN}")
    setup = WorkerSetup(options.tools, token=token)
    has_connected = False
    os.dup2(2, 1)  # what workers print is not a result of this command
    while True:
        started = time.monotonic()
        try:
            connection = address.connect()
        except OSError as error:
            if has_connected:
                print_line(f"the host at {address} has ended")
                return 0
            raise ConfigError(f"cannot connect to {address}: {error.strerror or error}") from error
        has_connected = True
        with connection:
            try:
                code = supervise(connection, lambda end, output: run_worker(end, output, setup))
            except SystemExit:
                return 0  # this is the forked process, whose host has told it to stop
        if code == REFUSED:
            return 1
        time.sleep(max(0.0, started + _RESTART_SECONDS - time.monotonic()))
