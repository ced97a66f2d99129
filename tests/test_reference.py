"""The API reference lists every public name, and the documentation builds as a site without a warning."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_reference_pages_list_the_public_names() -> None:
    command = [sys.executable, "scripts/reference_pages.py", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "reference" / "midspan" / "index.html").exists()
