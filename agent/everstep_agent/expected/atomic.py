"""Atomic file writing: a file appears whole under its name or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_new(path: Path, text: str, *, replace: bool) -> None:
    """Write a file at once. Raises FileExistsError unless it may be replaced, and OSError."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o644)
            file.write(text)
            file.flush()
            os.fsync(fd)
        if replace:
            temporary.replace(path)
        else:
            # Unlike a rename, a link never takes the place of a file that came in between.
            path.hardlink_to(temporary)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
