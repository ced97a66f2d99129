"""The client that the official conformance suite of MCP tests: python client.py URL

An agent whose scripted model calls every tool of the server. The suite names the scenario in MCP_CONFORMANCE_SCENARIO,
and gives calls and credentials in MCP_CONFORMANCE_CONTEXT. Scenarios of authorization use the OAuth provider of the
SDK; in place of a browser, a request is sent to the authorization server, which redirects it with a code.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from midspan import Agent
from midspan.messages import ToolCall
from midspan.testing import ScriptedProvider
from midspan.tools import MCPServer, ToolSpec

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
REDIRECT_URI = "http://127.0.0.1:3030/callback"
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
VALUES = {"number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}
"""By type, what the model fills in."""


class Memory:
    """Tokens and the registration of the client, for one run."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if "client_id" in CONTEXT:
            fields = {"client_id": CONTEXT["client_id"], "client_secret": CONTEXT.get("client_secret")}
            self.client = OAuthClientInformationFull.model_validate(
                {**fields, "redirect_uris": [REDIRECT_URI], "token_endpoint_auth_method": "client_secret_basic"}
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """Opens the page of the authorization server, which agrees at once."""

    def __init__(self) -> None:
        self._location = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            response = await client.get(url, follow_redirects=False)
        self._location = response.headers["location"]

    async def result(self) -> AuthorizationCodeResult:
        fields = {name: values[0] for name, values in parse_qs(urlsplit(self._location).query).items()}
        return AuthorizationCodeResult(code=fields["code"], state=fields.get("state"), iss=fields.get("iss"))


def authorization(url: str) -> OAuthClientProvider | None:
    if not SCENARIO.startswith("auth/"):
        return None
    browser = Browser()
    metadata = OAuthClientMetadata.model_validate(
        {
            "redirect_uris": [REDIRECT_URI],
            "client_name": "midspan-conformance",
            "grant_types": ["authorization_code", "refresh_token"],
        }
    )
    return OAuthClientProvider(url, metadata, Memory(), browser.open, browser.result, CLIENT_METADATA_URL)


async def answer(_question: str, schema: dict[str, Any] | None) -> Any:
    """Accept what is asked, with the defaults of the form where there are any."""
    fields = (schema or {}).get("properties", {})
    return {name: field.get("default", VALUES.get(field.get("type"), "text")) for name, field in fields.items()}


def call_of(number: int, spec: ToolSpec) -> ToolCall:
    schema = spec.parameters or {}
    required = schema.get("required", ())
    types = {name: prop.get("type") for name, prop in schema.get("properties", {}).items() if name in required}
    return ToolCall(f"call-{number}", spec.name, {name: VALUES.get(kind, "text") for name, kind in types.items()})


async def main() -> int:
    url = sys.argv[-1]
    server = MCPServer(url=url, name="conformance", auth=authorization(url), approve=True)
    listing = await server.list_tools()
    for source in listing.unavailable:
        sys.stderr.write(f"{source.name}: {source.message}\n")
    if "toolCalls" in CONTEXT:
        calls = [ToolCall(f"call-{n}", call["name"], call["arguments"]) for n, call in enumerate(CONTEXT["toolCalls"])]
    elif SCENARIO == "json-schema-2020-12-preservation":
        schemas = {spec.name: spec.parameters for spec in listing}
        calls = [ToolCall("call-0", "json_schema_echo", {"schema": schemas.get("json_schema_2020_12_tool")})]
    else:
        calls = [call_of(number, spec) for number, spec in enumerate(listing.tools)]
    if calls:
        agent = Agent(ScriptedProvider([calls, "done"]), [server], on_question=answer)
        await agent.run("Call every tool.")
    await server.aclose()
    return 1 if any(source.name == server.name for source in listing.unavailable) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
