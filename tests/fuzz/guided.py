"""Guided fuzz of one format in a process of its own: libFuzzer, by coverage, with a kept corpus.

Started by the command, which reads the result. libFuzzer never returns to its caller, so this
process ends as soon as its cases or its seconds are used up.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris

PACKAGES = ["everstep_common", "everstep_agent", "everstep_controller", "everstep_proto"]
_INPUT_BYTES_MAX = 1024
_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class Budget:
    """How long one process goes on: until so many cases, or so many seconds."""

    name: str
    folder: Path
    cases: int
    seconds: float
    seed: int


def result_of(folder: Path) -> dict[str, Any]:
    """Return what the runs of a format have come to so far; empty before the first."""
    path = folder / _STATE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def main(budget: Budget) -> None:
    """Fuzz a format, and end the process."""
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    library: Any = atheris
    with library.instrument_imports(include=PACKAGES):
        from fuzz.formats import load_format
        from fuzz.session import Session

        format = load_format(budget.name)
    session = Session(format, budget.folder / "finds")
    session.open()
    before = result_of(budget.folder)
    ready_cpu_s = time.process_time()

    def one(data: bytes) -> None:
        session.run(data)
        if session.cases >= budget.cases or time.monotonic() - begin_s >= budget.seconds:
            session.close()
            session.check_memory()
            cpu_s = time.process_time() - ready_cpu_s
            _write(budget, before, session, cpu_s)
            sys.stderr.flush()
            os._exit(1 if session.finds else 0)

    corpus = budget.folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    # Each run goes on with other random numbers: the seed, and how many runs there were.
    seed = budget.seed * 10_007 + before.get("runs", 0) + 1
    words = [sys.argv[0], str(corpus), f"-seed={seed}", f"-max_len={_INPUT_BYTES_MAX}"]
    words += ["-len_control=20", "-rss_limit_mb=0", "-timeout=120", "-verbosity=0"]
    words += [f"-artifact_prefix={budget.folder}/", "-reload=0"]
    atheris.Setup(words, one)
    del begin_cpu_s
    atheris.Fuzz()


def _write(budget: Budget, before: dict[str, Any], session: Any, cpu_s: float) -> None:  # noqa: ANN401
    finds = {**before.get("finds", {}), **session.finds}
    state = {
        "format": budget.name,
        "seed": budget.seed,
        "runs": before.get("runs", 0) + 1,
        "cases": before.get("cases", 0) + session.cases,
        "cpu_s": before.get("cpu_s", 0.0) + cpu_s,
        "handled_s": before.get("handled_s", 0.0) + session.handled_s,
        "slowest_ms": max(before.get("slowest_ms", 0.0), session.slowest_s * 1e3),
        "growth_bytes": session.growth_bytes(),
        "memory": session.memory[-8:],
        "finds": finds,
    }
    (budget.folder / _STATE).write_text(json.dumps(state, indent=1))


if __name__ == "__main__":
    name, folder, cases, seconds, seed = sys.argv[1:]
    main(Budget(name, Path(folder), int(cases), float(seconds), int(seed)))
