"""Runs of hangs, played on one fleet in the namespaces of its own."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from field.hangs.__main__ import parse
from field.hangs.runs import BOUND_S, HangRun, Runs, failed_run, kept, left, run
from field.machines.fleet import Fleet, booted_fleet
from field.machines.site import make_site
from field.namespaces import STOPPED, stop_when_asked


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says, on machines whose controller only advises, as shipped."""
    work, image, kept_at, *rest = arguments
    told, path = parse(rest), Path(kept_at)
    stopping = threading.Event()
    stop_when_asked(stopping.set)
    missing = left(kept(path), told.repeats, told.scripts, told.only)
    runs = Runs(path, missing, told.seed, told.torch_ranks)
    site = make_site(told.machines)
    memory = told.memory_mib << 20
    with booted_fleet(site, Path(work) / "hangs", Path(image), memory, mode="advise") as fleet:
        with ThreadPoolExecutor(told.tracks) as pool:
            tracks = [pool.submit(_run_track, runs, fleet, stopping) for _ in range(told.tracks)]
        for one in tracks:
            one.result()
    return STOPPED if stopping.is_set() else 0


def _run_track(runs: Runs, fleet: Fleet, stopping: threading.Event) -> None:
    for number, case in runs.take():
        if stopping.is_set():
            return
        try:
            made = run(case, number, fleet, stopping.is_set)
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            made = failed_run(case, f"{type(error).__name__}: {error}"[:500])
        if stopping.is_set():
            return
        runs.keep(made)
        print(f"{number + 1:4}  {case.name}: {_words(made)}", flush=True)


def _words(made: HangRun) -> str:
    if made.failed:
        return f"says nothing: {made.failed}"
    if made.next_step_s is None:
        return f"{made.restarts} restarts" + f", no step in {BOUND_S:g} s" * bool(made.marks)
    marks = {name: round(seconds, 1) for name, seconds in sorted(made.marks.items())}
    return f"new step after {made.next_step_s:.1f} s, {marks}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
