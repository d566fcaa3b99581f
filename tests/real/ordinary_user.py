"""An ordinary user of the machine, for tests: no root, perhaps no account, no rights of a group."""

import os
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LINE = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")


@dataclass(frozen=True, slots=True)
class User:
    """Who runs a job."""

    uid: int
    gid: int

    @property
    def become(self) -> tuple[str, ...]:
        """Return the command that runs another one as this user, with no way back."""
        return ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", *_LINE)

    def own(self, *folders: Path) -> None:
        """Make folders that are this user's, and nobody else's business."""
        for folder in folders:
            folder.mkdir(mode=0o700, exist_ok=True)
            os.chown(folder, self.uid, self.gid)


# Numbers that no account has: a container's users, as the host sees them.
ALICE, BOB = User(54331, 54331), User(54332, 54332)


@cache
def python_for_all() -> str:
    """Return an interpreter of this version that every user may run; empty when there is none."""
    system = shutil.which(_NAME, path="/usr/local/bin:/usr/bin")
    return next((path for path in (sys.executable, system) if path and _is_open(path)), "")


def import_path() -> str:
    """Return where that interpreter finds what the tests find, but for what it has itself."""
    own = Path(sys.base_prefix) / "lib"
    return os.pathsep.join(path for path in sys.path if path and not _is_below(path, own))


def missing() -> str:
    """Return why no other user can run a job here; empty when one can."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "needs root and setpriv, to become another user"
    return "" if python_for_all() else f"no {_NAME} here that every user may run"


def _is_below(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder) and "site-packages" not in path


def _is_open(path: str) -> bool:
    real = Path(path).resolve()
    folders = (folder.stat().st_mode & 0o001 for folder in real.parents)
    return all(folders) and os.stat(real).st_mode & 0o005 == 0o005
