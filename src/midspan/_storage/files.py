"""Files that other processes read while they are written."""

import os
from pathlib import Path
from threading import get_ident


def replace_file(path: Path, data: bytes, *, mode: int = 0o600, create_folder: bool = True) -> None:
    """Write a file as a whole: a reader sees the old content or the new one. Raises OSError.

    Only its owner can read it, unless `mode` says otherwise. The target of a symbolic link is replaced, not the link.
    """
    path = Path(os.path.realpath(path))
    if create_folder:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.parent / f".{path.name}.{os.getpid()}.{get_ident()}"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
