"""Controller cost per step of a job whose ranks are watched, beside the tree before that was built.

    python bench/hang_controller.py [--base COMMIT] [--pairs 5] [--seconds 60] [--json]

A job of eight ranks under `everstep run --standalone` tells ten steps a second by the SDK; what is
counted is the processor time of its controller process for each step. The other tree is unpacked
from git into a temporary folder and runs in this environment. The trees take turns, and a ratio is
that of one pair; of five pairs the lowest and the highest hold the true median in 94 % of cases.
"""

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from processes import process_cpu_s, tree
from vault_figures import Series, Target, show

_HERE = Path(__file__).parent.parent
_SCRIPT = Path(__file__).with_name("hang_controller_rank.py")
_PACKAGES = ("common", "proto", "agent", "controller", "trainer")
# The commit before the first one of the search for hung ranks.
_BASE = "3ebab4d8~1"
_RANKS = 8
_STEP_S = 0.1
_WARM_STEPS = 100
_STARTS_S = 120.0
_POLL_S = 0.1
_RATIO = Target(1.0)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default=_BASE, help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=5, help="of runs, for the interval")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    ours: list[float] = []
    theirs: list[float] = []
    with _unpacked(options.base) as other:
        for number in range(options.pairs):
            both = [(_HERE, ours), (other, theirs)]
            for folder, into in both if number % 2 else reversed(both):
                into.append(_step_us(folder, options.seconds))
                print(f"pair {number + 1}, {folder.name}: {into[-1]:.0f} us", file=sys.stderr)
    before = Series(f"controller: a step of {_RANKS} ranks, before ({options.base})", theirs, "us")
    now = Series(f"controller: a step of {_RANKS} ranks", ours, "us")
    show([now.against(before, _RATIO), before.figure()], options.json)
    return 0


@contextlib.contextmanager
def _unpacked(commit: str) -> Iterator[Path]:
    """Yield a folder with the tree of a commit."""
    command = ["git", "-C", str(_HERE), "archive", commit, *_PACKAGES]
    packed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="before-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def _step_us(folder: Path, seconds: float) -> float:
    """Return the controller's processor time for each step of a job under a tree."""
    with tempfile.TemporaryDirectory(prefix="es-step-") as place:
        steps = Path(place) / "steps"
        with _job(folder, Path(place), steps) as launcher:
            _until(steps, _WARM_STEPS, launcher)
            controller = _controller(launcher.pid)
            began_s, first = process_cpu_s(controller), _steps(steps)
            time.sleep(seconds)
            made = _steps(steps) - first
            assert made > 0, "the job has stopped making steps"
            return (process_cpu_s(controller) - began_s) / made * 1e6


@contextlib.contextmanager
def _job(folder: Path, place: Path, steps: Path) -> Iterator["subprocess.Popen[bytes]"]:
    path = os.pathsep.join(str(folder / name) for name in _PACKAGES)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
    line = [sys.executable, "-m", "everstep.entry", "run", "--standalone"]
    line += ["--job", f"cost-{os.getpid()}", "--nproc-per-node", str(_RANKS), "--"]
    line += [sys.executable, str(_SCRIPT), str(steps), str(_STEP_S)]
    with (place / "output").open("wb") as said:
        launcher = subprocess.Popen(
            line, env=environ | {"PYTHONPATH": path}, cwd=place, stdout=said, stderr=said
        )
    try:
        yield launcher
    finally:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if launcher.poll() is None:
                launcher.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    launcher.wait(10)


def _until(steps: Path, count: int, launcher: "subprocess.Popen[bytes]") -> None:
    ends_s = time.monotonic() + _STARTS_S
    while _steps(steps) < count:
        said = (steps.parent / "output").read_text(errors="replace")[-2000:]
        assert launcher.poll() is None, said
        assert time.monotonic() < ends_s, said
        time.sleep(_POLL_S)


def _steps(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return 0


def _controller(launcher: int) -> int:
    """Return the process of the controller that a launcher has started."""
    for pid in tree(launcher):
        with contextlib.suppress(OSError):
            if b"everstep_controller" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise SystemExit("the launcher has started no controller")


if __name__ == "__main__":
    sys.exit(main())
