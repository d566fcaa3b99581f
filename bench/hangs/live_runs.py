"""Runs of live hangs: jobs side by side in processes of their own, and outcomes kept in files.

    hang_live_runs.py FILE PART PARTS KIND,KIND FIRST_SEED SEEDS

A file has a line of JSON for each injection, written as it is over, so that a run that is ended
keeps what it has.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hangs.cases import Case, Outcome, draw_case, plan
from hangs.live import run_cases
from hangs.scores import wrong
from harness.processes import module_command, with_paths

from everstep_common.codec import from_json, to_json
from everstep_common.hangs.reports.verdict import HangVerdict

# A second look that a busy machine leaves incomplete is taken again, as the controller does.
_LOOKS_MAX = 3
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Injections:
    """What is injected: so many seeds of each kind, and of their jobs one part of so many."""

    kinds: tuple[str, ...]
    first_seed: int
    seeds: int
    part: int = 0
    parts: int = 1

    @property
    def cases(self) -> list[Case]:
        """Return all of them, also of the other parts."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [draw_case(kind, one) for kind in self.kinds for one in seeds]

    @property
    def count(self) -> int:
        """Return how many are in this part."""
        return sum(map(len, plan(self.cases)[self.part :: self.parts]))

    def lane(self, number: int, lanes: int) -> "Injections":
        """Return a share of this part."""
        part, parts = self.part + number * self.parts, self.parts * lanes
        return Injections(self.kinds, self.first_seed, self.seeds, part, parts)

    def words(self) -> list[str]:
        """Return it as arguments of this program."""
        told = (self.part, self.parts, ",".join(self.kinds), self.first_seed, self.seeds)
        return [str(one) for one in told]


def main(path: Path, words: Sequence[str]) -> None:
    """Run one lane, and add its outcomes to a file."""
    part, parts, kinds, first, seeds = words
    lane = Injections(tuple(kinds.split(",")), int(first), int(seeds), int(part), int(parts))
    with path.open("a", encoding="utf-8") as file:
        for outcome in run_cases(lane.cases, _LOOKS_MAX, (lane.part, lane.parts), quick=False):
            file.write(json.dumps(told(outcome)) + "\n")
            file.flush()


def run_lanes(injections: Injections, lanes: int) -> list[Outcome]:
    """Run so many jobs side by side; progress, and what was wrong, go to standard error."""
    with tempfile.TemporaryDirectory(prefix="es-lanes-") as folder:
        paths = [Path(folder) / str(number) for number in range(lanes)]
        running = []
        for number, path in enumerate(paths):
            words = [str(path), *injections.lane(number, lanes).words()]
            running.append(
                subprocess.Popen(module_command("hangs.live_runs", *words), env=with_paths())
            )
        try:
            found = _follow(running, paths, injections.count)
        finally:
            for one in running:
                one.terminate()
                one.wait()
    return found


def _follow(
    running: Sequence[subprocess.Popen[bytes]], paths: Sequence[Path], count: int
) -> list[Outcome]:
    began_s = time.monotonic()
    said: set[Case] = set()
    while True:
        over = all(one.poll() is not None for one in running)
        found = read(paths)
        for outcome in found:
            if outcome.case not in said:
                said.add(outcome.case)
                _say(outcome, count - len(said), time.monotonic() - began_s)
        if over:
            break
        time.sleep(_POLL_S)
    if any(one.returncode for one in running):
        print("a lane failed: what it had not come to is missing", file=sys.stderr)
    return found


def _say(outcome: Outcome, left: int, passed_s: float) -> None:
    case, verdict = outcome.case, outcome.verdict
    told = "hung nothing" if verdict is None else verdict.kind.value
    print(
        f"{passed_s:6.0f} s, {left} left: {case.kind} {case.seed}, {case.layout} of {case.ranks}:"
        f" {told}, detected {outcome.detected_s:.1f} s, named {outcome.verdict_s:.1f} s",
        file=sys.stderr,
        flush=True,
    )
    if what := wrong(outcome):
        print(what, file=sys.stderr, flush=True)


def told(outcome: Outcome) -> dict[str, object]:
    """Return an outcome as a file has it: its case is drawn again, its reports are left out."""
    return {
        "kind": outcome.case.kind,
        "seed": outcome.case.seed,
        "verdict": to_json(outcome.verdict) if outcome.verdict else None,
        "detected_s": outcome.detected_s,
        "first_s": outcome.first_s,
        "verdict_s": outcome.verdict_s,
        "judged_ms": outcome.judged_ms,
        "went_on": outcome.went_on,
    }


def read(paths: Iterable[Path]) -> list[Outcome]:
    """Return the outcomes of some files."""
    return [one for path in paths if path.exists() for one in _outcomes(path)]


def write(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Keep outcomes."""
    path.write_text("".join(json.dumps(told(one)) + "\n" for one in outcomes), encoding="utf-8")


def _outcomes(path: Path) -> Iterator[Outcome]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            one = json.loads(line)
            case, verdict = draw_case(one.pop("kind"), one.pop("seed")), one.pop("verdict")
            known = from_json(HangVerdict, verdict) if verdict else None
            yield Outcome(case, verdict=known, **one)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
