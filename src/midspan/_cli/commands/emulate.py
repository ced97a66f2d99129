"""`midspan emulate`: a local Gemini server that runs until Ctrl-C."""

import asyncio
from argparse import ArgumentParser, Namespace

from midspan._cli.arguments import add_host_argument, add_path, comma_list, port_number
from midspan._cli.interrupts import serve_until_interrupted
from midspan._cli.text import announce, print_line


def add_arguments(parser: ArgumentParser) -> None:
    port_help = "the port to listen on (default: any free one)"
    parser.add_argument("--port", metavar="N", type=port_number, default=0, help=port_help)
    add_host_argument(parser)
    source = parser.add_mutually_exclusive_group()
    add_path(source, "--script", metavar="FILE", help="take the answers from a TOML file")
    source.add_argument("-m", "--model", metavar="PROVIDER:MODEL", help="let another model answer")
    faults_help = "inject errors: a random seed, or a plan like 0:status_503 2:stall(chunk=1)"
    parser.add_argument("--faults", metavar="SEED|PLAN", help=faults_help)
    parser.add_argument("--api-key", metavar="KEY", help="accept only this key")
    models = parser.add_mutually_exclusive_group()
    models.add_argument("--models", metavar="NAME,…", type=comma_list, help="accept only these models")
    models.add_argument("--retired-models", action="store_true", help="also accept models that were shut down")


def run(options: Namespace) -> int:
    from midspan.emulator import FaultPlan, LocalGemini
    from midspan.providers import provider_of
    from midspan.providers.registry import check_credentials

    if options.model is not None:
        check_credentials(options.model)
    faults = options.faults
    if faults is not None and faults.isdecimal():
        faults = FaultPlan.random(int(faults))
        print_line(f"faults: {faults}")
    server = LocalGemini(
        options.script,
        model=None if options.model is None else provider_of(options.model),
        faults=faults,
        api_key=options.api_key,
        models=options.models,
        retired_models=options.retired_models,
        host=options.host,
        port=options.port,
    )

    async def serve() -> None:
        async with server:
            hint = f"set GOOGLE_GEMINI_BASE_URL={server.url} for its clients"
            announce(server.url, f"the local Gemini is ready; {hint}")
            await asyncio.Event().wait()

    serve_until_interrupted(serve())
    return 0
