"""Dump files: what ranks left that have ended, by torch or by the hook at their exit."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from everstep.rank.interpreter.everstep_exit_dump import PREFIX
from everstep_common.hangs.dumps.dump_values import DumpError
from everstep_common.hangs.dumps.flight_recorder import NOTHING_NOTED
from everstep_common.hangs.dumps.folder import file_bytes
from everstep_common.hangs.dumps.noted_calls import NotedCalls
from everstep_common.hangs.dumps.rank_dumps import blind_report
from everstep_common.hangs.dumps.two_recorders import report_of_content
from everstep_common.hangs.reports.rank_report import RankHangReport

# A dump is of this generation if it is not older than its start, by the clock of its file system.
_CLOCK_NS = 1_000_000_000


def fresh_dumps(prefixes: tuple[str, ...], rank: int, since_ns: int) -> list[Path]:
    """Return the dumps of a rank that are not older than its generation."""
    paths = [Path(f"{prefix}{rank}") for prefix in prefixes]
    return [path for path in paths if _written_ns(path) >= max(0, since_ns - _CLOCK_NS)]


def report_of_files(
    prefixes: tuple[str, ...],
    rank: int,
    since_ns: int,
    world_size: int,
    noted: NotedCalls = NOTHING_NOTED,
) -> RankHangReport:
    """Return what the first usable dump tells; a report that says why, where none is."""
    report = blind_report(rank, "it has ended, and left no dump of its operations")
    for path in fresh_dumps(prefixes, rank, since_ns):
        try:
            return report_of_content(file_bytes(path), rank, world_size=world_size, noted=noted)
        except DumpError as error:
            report = blind_report(rank, f"{path.name}: {error}")
    return report


def remove_exit_dumps(prefix: str, ranks: Iterable[int]) -> None:
    """Remove what ranks of a generation before have left: the next one may start within a tick."""
    for rank in ranks:
        with contextlib.suppress(OSError):
            os.unlink(f"{prefix}{rank}")


def exit_prefix(folder: Path) -> str:
    """Return how the names of the dumps begin that ranks write when they end."""
    return str(folder / PREFIX)


def _written_ns(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return -1
