"""Files that are replaced as a whole."""

import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from midspan._storage.files import replace_file


def test_file_is_private_also_if_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys.json"
    replace_file(path, b"old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_threads_can_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    contents = [bytes([digit]) * 100_000 for digit in b"0123"]
    with ThreadPoolExecutor() as threads:
        for _ in threads.map(partial(replace_file, path), contents * 50):
            assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_symbolic_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(folder, b"data")
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "file", b"data", create_folder=False)
    assert list(tmp_path.iterdir()) == [folder]
