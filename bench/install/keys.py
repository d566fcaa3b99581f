"""Keys: how long a key and a request take, started as a process, and the memory of that process."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.processes import with_paths
from harness.table import Row, row

_LIBRARY = (
    "from everstep_proto.enrolment.certificate_requests import make_request, new_key; "
    "make_request(new_key(), 'gpu-0001')"
)
# As on Linux, ru_maxrss is in KiB.
_KIB = 1024


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield time and memory of both, and of Python alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = {
            "Python alone": [sys.executable, "-c", "pass"],
            "library (cryptography)": [sys.executable, "-c", _LIBRARY],
        }
        if shutil.which("openssl"):
            tools["program (openssl)"] = _program(folder)
        for told, command in tools.items():
            took_s, bytes_max = _timed(command, options.repeats)
            yield row(f"key and request: {told}", took_s, "s")
            yield row(f"memory: {told}", [bytes_max / 1e6], "MB")


def _program(folder: Path) -> list[str]:
    return [
        *("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-subj", "/OU=agent/CN=gpu-0001"),
        *("-keyout", str(folder / "key.pem"), "-out", str(folder / "request.pem")),
    ]


# A small process of its own: a child's figure is never below what its parent had at the fork.
_MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _timed(command: Sequence[str], repeats: int) -> tuple[list[float], float]:
    """Return how long each run took, and the most memory of one in bytes."""
    took_s = list[float]()
    for _ in range(repeats + 1):
        began = time.perf_counter()
        subprocess.run(command, env=with_paths(), capture_output=True, check=True)
        took_s.append(time.perf_counter() - began)
    measuring = [sys.executable, "-I", "-S", "-c", _MEASURE, *command]
    found = subprocess.run(measuring, env=with_paths(), check=True, stdout=subprocess.PIPE)
    return took_s[1:], int(found.stdout) * _KIB  # the first fills the page cache
