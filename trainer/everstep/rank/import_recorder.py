"""Import recorder: notes the modules that this process has loaded, for standbys to import ahead.

Frameworks import much when it is first used: the constructor of torch's DistributedDataParallel
alone loads 800 modules. Nothing of that can be read from the script.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

# Descriptor of a memory file that the launcher reads; each rank has its own.
VARIABLE = "EVERSTEP_PRELOAD"
NAME = "everstep-preload"
_BYTES_MAX = 4 * 1024 * 1024


class ImportRecorder:
    """Record of this process's loaded modules, written once, when a step is complete."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        number = environ.get(VARIABLE, "")
        self._descriptor = int(number) if number.isdecimal() else -1

    def write(self, proc: Path = Path("/proc/self")) -> None:
        """Write it; what is wrong with it costs only time at the next restart."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with contextlib.suppress(OSError, ValueError):
            # A script may have closed what it did not open, and opened something else there.
            if NAME not in os.readlink(proc / "fd" / str(descriptor)):
                return
            # Not only what has changed since the start: a standby was started with what its
            # script sets.
            preload = {"modules": _modules(), "environ": dict(os.environ)}
            content = json.dumps(preload).encode()
            if len(content) <= _BYTES_MAX:
                os.pwrite(descriptor, content, 0)
                os.ftruncate(descriptor, len(content))  # the one before may have been longer


def _modules() -> list[str]:
    """Return what was imported, in order; not what lies beside the script, which may change."""
    beside = sys.path[0] if sys.path else ""
    return [name for name, module in list(sys.modules.items()) if _is_elsewhere(module, beside)]


def _is_elsewhere(module: ModuleType | None, beside: str) -> bool:
    spec = getattr(module, "__spec__", None)
    if spec is None or spec.name != getattr(module, "__name__", ""):
        return False
    origin = spec.origin or ""
    # A virtual environment often lies in the project's own folder.
    installed = "site-packages" in origin or "dist-packages" in origin
    return installed or not (beside and origin.startswith(beside.rstrip(os.sep) + os.sep))
