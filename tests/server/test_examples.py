"""The commands of the documentation work as they are written, but for the port."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from midspan._server.openapi import OPERATIONS
from midspan.emulator import LocalGemini
from tests.bounds import BOUND
from tests.server.serving import ServerProcess, serving, sum_agent

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "server.md").read_text("utf-8")
ADDRESS = "http://localhost:8081"
_STRICT = 'set -eo pipefail\ncurl() { command curl --fail-with-body "$@"; }\n'
CURL = """
curl -s -X POST http://localhost:8081/api/v1/chat \\
  -H "Content-Type: application/json" \\
  -d '{"prompt": "%s", "provider": "gemini"}'
"""


@pytest.mark.requirement("S2-12")
def test_cloudgenie_answers_the_three_requests_of_its_design(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("from midspan.toolsets import cloudgenie_tools\n\ntools = cloudgenie_tools()\n")
    expected = {
        "Show me all blueprints": ["cloudgenie_get_blueprints"],
        "Create a database named test-db": ["cloudgenie_get_blueprints", "cloudgenie_create_resource"],
        "List all my resources and their status": ["cloudgenie_get_resources"],
    }
    environment = {"GEMINI_API_KEY": "any"}
    with LocalGemini(str(ROOT / "examples" / "cloudgenie.toml")) as gemini:
        environment["GOOGLE_GEMINI_BASE_URL"] = gemini.url
        arguments = ("--port", "0", "--tools", str(tmp_path / "tools.py"))
        with ServerProcess(*arguments, folder=tmp_path, environment=environment) as server:
            for prompt, names in expected.items():
                document = json.loads(shell((CURL % prompt).replace(ADDRESS, server.url)))
                assert [call["name"] for call in document["tool_calls"]] == names
                assert not any(result["is_error"] for result in document["tool_results"])
                assert document["response"]
            assert "test-db" in str(document["tool_results"])


def test_commands_of_the_page_work_and_name_every_endpoint() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    script = "\n".join(block for block in blocks if "curl" in block)
    with serving(sum_agent()) as server:
        output = shell(_STRICT + script.replace(ADDRESS, server.url))
    assert output.count("It is 3.") > 5
    called = re.findall(rf'(?:-X (\w+) )?"?{ADDRESS}(/[^\s"?]*)', script)
    paths = {path.replace("$RUN", "{run_id}").replace("my-session", "{session_id}").replace("chat-1", "{session_id}")
             for _, path in called}  # fmt: skip
    assert {operation.path for operation in OPERATIONS} - {"/v1/models/{model}"} <= paths


def shell(script: str) -> str:
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=BOUND)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
