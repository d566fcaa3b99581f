"""``everstep slow``: which workers make the others of a job wait, from a table of seconds."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from everstep_cli.slow.table import MissingPackageError, Table, TableError, read_table
from everstep_common.codec import json_text
from everstep_common.extras import install_line
from everstep_common.printable import printable
from everstep_controller.slow.analysis import SlowAnalysis
from everstep_controller.slow.explanation import percent, span
from everstep_controller.slow.verdict import SlowVerdict

_NAMED, _NOBODY, _USAGE = 0, 1, 2
_SHOWN_MAX = 40

_DESCRIPTION = """\
Tells who makes the others of a training job wait: which workers are slow, by how much, since when,
and how much of the job's loss they explain. It also tells what only looks so: uneven data, uneven
stages, evaluation, garbage collection, a loader that stalls. Then nobody is blamed.
Reads TABLE, a CSV (also .csv.gz; - for standard input) or Parquet file. It needs no agent, no
controller, no torch and no GPU."""

_EPILOG = """\
The table has one row for each worker and step, and names its columns in the first line:
  step      a whole number
  worker    any name: a rank, a GPU, a node
  seconds   how long this worker computed in this step, WITHOUT waiting for others. The time of a
            whole step does not tell: in it all wait for the slowest
  role      optional: workers that do the same work, such as the stage of a pipeline. Only they
            are compared. Without it all workers are taken to do the same
  node, leaf, rack, power
            optional: what workers share. Where most of them are slow, it is told instead of them

  step,worker,role,seconds
  100,0,stage0,1.402
  100,1,stage0,0.588
  100,2,stage1,0.611

How to get it, in each rank of a job with torch:
  start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
  start.record(); loss = forward(batch); end.record()      # no collective between the two
  torch.cuda.synchronize()
  print(f"{step},{rank},stage{stage},{start.elapsed_time(end) / 1000}", file=table)

At least 10 steps are needed; rows may be missing, and may come in any order. Who has fewer than
three peers is compared with its own past.

Exit code: 0 slow workers are named, 1 nobody is named, 2 usage or no table that can be read.

Examples:
  everstep slow steps.csv
  everstep slow steps.parquet                     needs everstep[tables]
  everstep slow steps.csv --json | jq .slow
  ssh gpu-0042 cat steps.csv | everstep slow -"""


def main() -> int:
    """Run ``everstep slow``; return the exit code."""
    return run(sys.argv[2:])


def run(arguments: Sequence[str]) -> int:
    """Judge the table that the arguments name; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        table = read_table(options.table)
    except TableError as error:
        return _failed(str(error))
    except MissingPackageError:
        return _failed(f"Parquet needs pyarrow; run: {install_line('tables')}, or use CSV")
    verdict = judge_table(table)
    lines = [json_text(verdict)] if options.json else list(told(verdict))
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:  # "everstep slow TABLE | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _NAMED if verdict.slow or verdict.places else _NOBODY


def judge_table(table: Table) -> SlowVerdict:
    """Return who is slow in a table."""
    analysis = SlowAnalysis(table.roster)
    for step, seconds in zip(table.steps.tolist(), table.seconds, strict=True):
        analysis.observe(step, seconds)
    return analysis.verdict()


def _failed(message: str) -> int:
    print(f"everstep slow: {printable(message)}", file=sys.stderr)
    return _USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep slow",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", type=Path, metavar="TABLE", help="CSV, CSV.gz, Parquet, or -")
    parser.add_argument("--json", action="store_true", help="print the verdict as one line of JSON")
    return parser


def told(verdict: SlowVerdict) -> Iterator[str]:
    """Yield a verdict in lines for a terminal."""
    yield f"{verdict.sentence}."
    counted = [(verdict.steps, "step"), (verdict.workers, "worker"), (verdict.roles, "role")]
    table = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counted)
    yield f"  table     {table}"
    yield (
        f"  lost      {percent(verdict.lost_ratio)} of {verdict.seconds:,.0f} s to the slowest "
        "worker of each step"
    )
    if verdict.watched:
        more = ", …" if len(verdict.watched) > _SHOWN_MAX else ""
        yield f"  watched   {', '.join(verdict.watched[:_SHOWN_MAX])}{more}: too few steps to tell"
    yield from _slow(verdict)
    for place in verdict.places:
        if place.sentence.lower() != verdict.sentence.lower():  # that stands above all already
            yield f"\n{place.sentence[:1].upper()}{place.sentence[1:]}."
    said = verdict.sentence.lower()
    undecided = [
        one.sentence
        for one in verdict.imbalances
        if one.is_open and one.sentence.lower() not in said
    ]
    if undecided:
        yield "\nMore work, or slow:"
        yield from (f"  {one}" for one in undecided)
    notes = [
        *(one.sentence for one in verdict.imbalances if not one.is_open),
        *(one.sentence for one in verdict.pauses),
    ]
    if notes:
        yield "\nNo worker's fault:"
        yield from (f"  {one}" for one in notes)
    if verdict.blind:
        yield "\nWhat could not be seen:"
        yield from (f"  {one}" for one in verdict.blind)


def _slow(verdict: SlowVerdict) -> Iterator[str]:
    if not verdict.slow:
        return
    yield "\nSlow workers:"
    rows = [("WORKER", "ROLE", "FACTOR", "WHEN", "EXPLAINS", "ADVICE")]
    rows += [
        (
            one.worker,
            one.role or "-",
            f"{one.factor:.2f}",
            span(one.since_step, one.until_step),
            percent(one.share),
            one.advice.value,
        )
        for one in verdict.slow[:_SHOWN_MAX]
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
    if len(verdict.slow) > _SHOWN_MAX:
        yield f"  … and {len(verdict.slow) - _SHOWN_MAX} more; all are in --json"
