"""The version before the last change of messages between agent and controller, to run beside."""

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("common", "proto", "agent", "controller", "trainer")
# Before records named their user, and agents the orders that they cannot use.
COMMIT = "6567858245b0491b7c03635e1ce7d2246e31e9da"
# What its agent speaks with trainers, which are of its version, too.
TRAINER_PROTOCOL = 6


def older_packages(folder: Path) -> tuple[Path, ...]:
    """Return where the packages of that version are, taken from the history of this repository."""
    line = ["git", "-C", str(_ROOT), "archive", COMMIT, *_PACKAGES]
    made = subprocess.run(line, capture_output=True, check=False)
    if made.returncode:
        pytest.skip("needs the history of the repository")
    with tarfile.open(fileobj=BytesIO(made.stdout)) as archive:
        # Python before 3.11.4 knows no filter; the archive is one that git has made.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return tuple(folder / name for name in _PACKAGES)
