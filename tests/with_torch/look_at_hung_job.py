"""Start a job that hangs, look at its ranks by the command line, print the reports, end it.

A program of its own, so that all of it can run as another user or within a container.
"""

import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_RANKS = 4
_JOB = Path(__file__).with_name("hung_job.py")
_EVERSTEP = [sys.executable, "-P", "-m", "everstep.entry"]
# A look may come before the others have begun to wait, or the culprit to hold them back.
_LOOKS_MAX = 20
# What a report says where the machine is too busy for a look.
_LATE = "too long"


def main(launched: Sequence[str], how: str) -> None:
    """Print a list with the report of each rank; ``launched`` starts a rank's script."""
    name = f"hung-{uuid.uuid4().hex[:8]}"
    options = ["run", "--standalone", "--job", name, "--nproc-per-node", str(_RANKS)]
    with subprocess.Popen(
        [*_EVERSTEP, *options, *launched, str(_JOB), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:
            assert launcher.stdout is not None
            hung, said = 0, []
            while hung < _RANKS:
                said.append(line := launcher.stdout.readline())
                assert line, "".join(said)
                hung += "hangs now" in line
            print(json.dumps({"reports": look(name), "said": said}))
        finally:
            launcher.terminate()
            launcher.terminate()
            launcher.communicate()


def look(name: str) -> list[Any]:
    """Look until all but the culprit wait for it."""
    reports: list[Any] = []
    for _ in range(_LOOKS_MAX):
        with tempfile.TemporaryDirectory() as folder:
            line = [*_EVERSTEP, "hang", "--job", name, "--out", folder]
            subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
            reports = [json.loads(one.read_bytes()) for one in sorted(Path(folder).iterdir())]
        waiting = [one for one in reports if any(group["pending"] for group in one["groups"])]
        late = [blind for one in reports for blind in one["blind"] if _LATE in blind["reason"]]
        readable = any(one["process"]["answers_ping"] is not None for one in reports)
        if (len(waiting) >= _RANKS - 1 or not readable) and not late and holds_back(reports[1]):
            break
    return reports


def holds_back(report: dict[str, dict[str, list[str]]]) -> bool:
    """Return whether a rank is where it holds the others back, as far as its stack can be read."""
    stack = report["process"]["python_stack"]
    return not stack or any(frame.endswith(" hold_back") for frame in stack)


if __name__ == "__main__":
    main(sys.argv[2:], sys.argv[1])
