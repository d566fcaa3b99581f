"""Peers' environment: a virtual environment with torch and DLRover, made on first use.

``python bench/harness/peers.py`` makes it. DLRover pins nothing of torch, so the pin is given here.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

_REQUIREMENTS = ("dlrover[k8s,torch]==0.6.1", "torch==2.13.0", "numpy")
_READY = ".ready"


def folder() -> Path:
    """Return where the environment is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "everstep-bench/peers"


def python() -> Path:
    """Return the interpreter of the environment, which is made if it is not there."""
    home = folder()
    if not (home / _READY).exists():
        print(f"Installing {', '.join(_REQUIREMENTS)} into {home} ...", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", *_REQUIREMENTS]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        (home / _READY).touch()
    return home / "bin/python"


if __name__ == "__main__":
    print(python())
