"""What each source tells of ranks that hang on a real GPU: one session of minutes, all of NCCL.

One GPU is enough: NCCL is told that its ranks are on different nodes. Dumps, reports and answers
are kept in an archive in the folder that $OUT names, else a new one. ``--cpu`` does with gloo what
can be done without a GPU.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import hang_gpu_whole
from hang_gpu_parts import DIRECT, Cell, Session, graph

from everstep.launch.inspection.reading import DEADLINE_S

# Each part ends itself by then; one that does not is left.
_PART_S = 200.0
# So many parts at a time: more would only wait for one another on the GPU.
_BESIDE = 3
_FOUND_MAX = 160

Part = Callable[[Session], Iterator[Cell]]


def machine() -> Iterator[Cell]:
    """Yield what the session runs on."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
        gpu = done.stdout.strip() or done.stderr.strip()[:200]
    except OSError as error:
        gpu = f"none: {error.strerror}"
    yield Cell("machine", "GPU", gpu)
    yield Cell("machine", "Python", sys.version.split()[0])
    yield Cell("machine", "kernel", os.uname().release)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    yield Cell("machine", "ptrace_scope", scope.read_text().strip() if scope.exists() else "none")


def parts(session: Session) -> tuple[dict[str, Part], dict[str, Part]]:
    """Return the parts that need the GPU's memory for themselves, and those that run together."""
    whole = hang_gpu_whole.whole
    together: dict[str, Part] = {
        **DIRECT,
        "run-sleep": lambda one: whole(one, "sleep", 2, 10.0, 150.0),
        "run-stop": lambda one: whole(one, "stop", 2, 600.0, 90.0),
        "run-gil": lambda one: whole(one, "gil", 2, 600.0, 90.0),
    }
    killed: Part = lambda one: whole(one, "kill", 1, 600.0, 90.0)  # noqa: E731
    if not session.has_gpu:
        return {}, {**together, "run-kill": killed}
    alone = {"memory": hang_gpu_whole.memory, "run-kill": killed}
    return alone, {**together, "graph": graph, "duplicate": hang_gpu_whole.duplicate}


class Sessions:
    """The parts as they run: each in a thread, and what they have found so far."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.cells: list[Cell] = []
        self._turn = threading.Lock()

    def run(self, chosen: dict[str, Part], beside: int, ends_s: float) -> None:
        """Run them, so many at a time, until all have ended or the time is over."""
        waiting: queue.SimpleQueue[tuple[str, Part]] = queue.SimpleQueue()
        for one in chosen.items():
            waiting.put(one)

        def work() -> None:
            while time.monotonic() < ends_s:
                try:
                    self._run_one(*waiting.get_nowait())
                except queue.Empty:
                    return

        threads = [threading.Thread(target=work, daemon=True) for _ in range(beside)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, ends_s - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.add(Cell("session", "parts that did not end in time", "some"))

    def _run_one(self, name: str, part: Part) -> None:
        began_s = time.monotonic()
        try:
            for cell in part(self._session):
                self.add(cell)
        except Exception as error:  # noqa: BLE001 - one part that fails ends no other
            self.add(Cell(name, "failed", f"{type(error).__name__}: {error}"))
            (self._session.kept / f"failed-{name}").write_text(traceback.format_exc())
        self.add(Cell(name, "the whole part", "", time.monotonic() - began_s))

    def add(self, cell: Cell) -> None:
        """Keep what was found, and print it."""
        with self._turn:
            self.cells.append(cell)
            seconds = "" if cell.seconds is None else f"{cell.seconds:8.2f} s"
            print(
                f"{cell.part:18} {cell.what:44} {seconds:>10}  {cell.found[:_FOUND_MAX]}",
                flush=True,
            )


def main(arguments: Sequence[str]) -> None:
    """Run the session."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="gloo, and no part that needs a GPU")
    parser.add_argument("--only", default="", help="names of parts, with commas")
    parser.add_argument("--look-seconds", type=float, default=DEADLINE_S, help="for each look")
    parser.add_argument("--seconds", type=float, default=280.0, help="all of it takes no longer")
    options = parser.parse_args(arguments)
    ends_s = time.monotonic() + options.seconds
    out = Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="hang-gpu-"))
    kept = Path(tempfile.mkdtemp(prefix="hang-gpu-kept-"))
    session = Session("gloo" if options.cpu else "nccl", kept, options.look_seconds)
    only = {one for one in options.only.split(",") if one}
    alone, together = (
        {name: part for name, part in some.items() if not only or name in only}
        for some in parts(session)
    )
    sessions = Sessions(session)
    for cell in machine():
        sessions.add(cell)
    sessions.run(alone, 1, ends_s)
    sessions.run(together, _BESIDE, ends_s)
    (out / "hang_gpu.json").write_text(
        json.dumps([asdict(one) for one in sessions.cells], indent=1)
    )
    with tarfile.open(out / "hang_gpu_kept.tar.gz", "w:gz") as archive:
        archive.add(kept, "kept")
    print(f"kept in {out}", flush=True)
    # A part that hangs in the driver would keep the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
