"""Report of a run: a table of its invariants, for people and for docs/benchmarks.md."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from field.faults.catalogue import KINDS
from field.invariants.table import INVARIANTS, Judged, judge, too_late, void_minutes
from field.observation.records import Round

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Report:
    """What all rounds of a run came to."""

    rounds: tuple[Round, ...]
    judged: tuple[tuple[Judged, ...], ...]

    @property
    def violations(self) -> int:
        """Return how many violations count."""
        return sum(len(one.violations) for judged in self.judged for one in judged)

    @property
    def faults(self) -> int:
        """Return how many faults were done."""
        every = [fault for one in self.rounds for fault in one.faults]
        return sum(fault.kind in KINDS and not fault.failed for fault in every)

    @property
    def too_late(self) -> bool:
        """Return whether this machine was too slow for what is timed in any round."""
        return any(map(too_late, self.rounds))


def report(rounds: Sequence[Round]) -> Report:
    """Judge all rounds."""
    return Report(tuple(rounds), tuple(tuple(judge(one)) for one in rounds))


def text(made: Report) -> str:
    """Return the report for a terminal."""
    return "\n".join([*_facts(made), "", *_table(made), "", *_violations(made)])


def markdown(made: Report) -> str:
    """Return the tables for a page."""
    return "\n".join(
        [
            *(f"* {line}" for line in _facts(made)),
            "",
            "| invariant | held in rounds | violations | void |",
            "|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in _rows(made)),
            "",
            "| fault | times | not done |",
            "|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in _fault_rows(made)),
        ]
    )


def _facts(made: Report) -> Iterator[str]:
    rounds = made.rounds
    minutes = sum(one.lasted_s for one in rounds) / 60
    seeds = ", ".join(str(one.seed) for one in rounds)
    yield f"{len(rounds)} rounds, {minutes:.0f} minutes, seeds {seeds}"
    results = [job for one in rounds for job in one.results]
    shapes = Counter(job.shape for job in results)
    told = ", ".join(f"{count} {name}" for name, count in sorted(shapes.items()))
    yield f"{len(results)} jobs: {told}"
    yield f"{made.faults} faults"
    modes = Counter(one.mode for one in rounds)
    yield ", ".join(f"{count} rounds in {mode}" for mode, count in sorted(modes.items()))
    restores = [one for each in rounds for one in each.restores]
    wrong = sum(not one.right for one in restores)
    yield f"{len(restores)} rank restores proven, {wrong} wrong"
    if lost := sorted(steps_lost(made)):
        middle, most = lost[len(lost) // 2], lost[-1]
        yield f"{len(lost)} restarts with snapshots: median {middle} steps lost, at most {most}"
    void = sum(len(void_minutes(one)) for one in rounds)
    verdict = "too many" if made.too_late else "few enough"
    yield f"{void} of {minutes:.0f} minutes void for what is timed: {verdict}"
    for one in sorted({name for each in rounds for name in each.left_out}):
        yield f"left out: {one}"


def figures(made: Report) -> list[dict[str, object]]:
    """Return rows as benchmarks print them with --json."""
    return [{"name": name, "value": value, "unit": unit} for name, value, unit in _figures(made)]


def _figures(made: Report) -> Iterator[tuple[str, float, str]]:
    rounds = made.rounds
    restores = [one for each in rounds for one in each.restores]
    yield "rounds", len(rounds), "rounds"
    yield "machines", max(len(one.machines) for one in rounds), "machines"
    yield "rounds in advise, as shipped", sum(one.mode == "advise" for one in rounds), "rounds"
    yield "minutes", round(sum(one.lasted_s for one in rounds) / 60), "min"
    yield "load average", max(one.load for one in rounds), "processes"
    yield "jobs", sum(len(one.results) for one in rounds), "jobs"
    yield "faults", made.faults, "faults"
    yield "rank restores", len(restores), "restores"
    yield "rank restores, wrong", sum(not one.right for one in restores), "restores"
    lost = sorted(steps_lost(made))
    if lost:
        yield "steps lost per restart with snapshots, p50", lost[len(lost) // 2], "steps"
        yield "steps lost per restart with snapshots, most", lost[-1], "steps"
    yield "minutes void for what is timed", sum(len(void_minutes(one)) for one in rounds), "min"
    for number, invariant in enumerate(INVARIANTS):
        found = sum(len(judged[number].violations) for judged in made.judged)
        yield f"violations: {invariant.name}", found, "violations"
    for number, invariant in enumerate(INVARIANTS):
        if invariant.depends_on_mode:
            found = sum(
                len(judged[number].violations)
                for one, judged in zip(rounds, made.judged, strict=True)
                if one.mode == "advise"
            )
            yield f"violations in advise: {invariant.name}", found, "violations"


def steps_lost(made: Report) -> Iterator[int]:
    """Yield for each restart of a job that proves restores the steps that it made again.

    All ranks of a generation are given the same step, and the newest that was written down before
    is the one at which the job went back.
    """
    for one in made.rounds:
        back = {(redo.job, redo.from_step): redo for redo in one.redone}
        again = {(each.job, each.generation, each.step) for each in one.restores}
        for job, _, step in sorted(again):
            redo = back.get((job, step + 1))
            yield 0 if redo is None else redo.to_step - step


def _rows(made: Report) -> Iterator[tuple[str, ...]]:
    for number, invariant in enumerate(INVARIANTS):
        per_round = [judged[number] for judged in made.judged]
        held = sum(not one.violations for one in per_round)
        yield (
            invariant.name,
            f"{held} of {len(per_round)}",
            str(sum(len(one.violations) for one in per_round)),
            str(sum(len(one.void) for one in per_round)) if invariant.timed else "-",
        )


def _fault_rows(made: Report) -> Iterator[tuple[str, ...]]:
    faults = [fault for one in made.rounds for fault in one.faults]
    for kind in sorted({fault.kind for fault in faults}):
        of_it = [fault for fault in faults if fault.kind == kind]
        failed = sum(bool(fault.failed) for fault in of_it)
        yield kind, str(len(of_it) - failed), str(failed)


def _table(made: Report) -> Iterator[str]:
    rows = [("invariant", "held in rounds", "violations", "void"), *_rows(made)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _violations(made: Report) -> Iterator[str]:
    for round_, judged in zip(made.rounds, made.judged, strict=True):
        for one in judged:
            if one.violations:
                yield f"round {round_.number}: {one.invariant.name}"
            for violation in one.violations[:_SHOWN]:
                yield f"  {violation.at_s:7.1f} s  {violation.subject}: {violation.sentence}"
            if len(one.violations) > _SHOWN:
                yield f"  … and {len(one.violations) - _SHOWN} more"
