"""Folder of dumps: one file for each rank, as torch writes them or as a report was kept."""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_common.codec import CodecError, from_json
from everstep_common.hangs.dumps.dump_groups import DEFAULT_GROUP
from everstep_common.hangs.dumps.dump_values import BYTES_MAX, DumpError, read_dump
from everstep_common.hangs.dumps.pickles import Effort
from everstep_common.hangs.dumps.rank_dumps import blind_report, is_unusable, merged
from everstep_common.hangs.dumps.two_recorders import report_of_values
from everstep_common.hangs.reports.rank_report import EvidenceSource, RankHangReport
from everstep_common.reports.quantities import RANKS_MAX

# torch ends a dump's name with the rank; people add an ending, or put the rank before one.
_NAME = re.compile(r"(.*?)(\d{1,6})(?:\.(?:json|pickle|pkl|bin|trace|dump))?")


# What reading may take in operations of a pickle, some 3,000,000 a second: for each file that is a
# dump, and for all beyond that together. A dump of 2,000 operations with stacks takes 600,000.
_FREE = 1_000_000
SHARED_OPERATIONS = 60_000_000
# So many bytes of a file that is no dump count as one of them, and each such file as so many.
_BYTES_EACH = 16
_FILE_EACH = 1_000


class FolderError(Exception):
    """A folder has no dumps; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What the dumps of a folder tell, by rank."""

    reports: Mapping[int, RankHangReport]
    world_size: int
    files: int
    # Names of files that look like dumps, and are of no rank of this job.
    left_out: tuple[str, ...] = ()


def read_folder(
    folder: Path,
    prefix: str = "",
    world_size: int = 0,
    *,
    shared_operations: int = SHARED_OPERATIONS,
) -> Folder:
    """Read all dumps whose names begin with a prefix. Raises FolderError."""
    files = _files(folder, prefix)
    if not files:
        named = f" whose names begin with {prefix!r}" if prefix else ""
        raise FolderError(
            f"{folder}: no dumps{named}; a dump's name ends with its rank: nccl_trace_rank_0, …, or"
            " dump_0.json ('everstep hang --help' says how to get dumps)"
        )
    highest = max(rank for rank, _ in files)
    if highest >= RANKS_MAX:
        raise FolderError(f"{folder}: rank {highest} is more than any job has; see --prefix")
    reading = _FolderReading(files, shared_operations)
    size = world_size or highest + 1
    reports = reading.reports(size)
    if all(is_unusable(report) for report in reports.values()):
        first = next(iter(reports.values())).blind[0].reason
        told = f"none of its {len(files)} dumps can be used; the first: {first}"
        raise FolderError(f"{folder}: {told}")
    if not world_size and (told_size := _size_told(reports, files)) != size:
        # What a name says was taken for the number of ranks, which members of groups depend on.
        size = told_size
        reports = reading.reports(size)
    left_out = tuple(path.name for rank, path in files if rank >= size)
    return Folder(reports, size, len(files) - len(left_out), left_out)


def _size_told(reports: Mapping[int, RankHangReport], files: Sequence[tuple[int, Path]]) -> int:
    """Return how many ranks the job has: what most dumps tell, or the names of those of them.

    A file that is no dump counts only where its name is like that of one.
    """
    usable = {rank: one for rank, one in reports.items() if not is_unusable(one)}
    told = Counter(map(_own_size, usable.values()))
    size, times = told.most_common(1)[0]
    if size and 2 * times > len(usable):
        return size
    stems = {_stem(path) for rank, path in files if rank in usable}
    return max(rank for rank, path in files if rank in usable or _stem(path) in stems) + 1


def _own_size(report: RankHangReport) -> int:
    """Return how many ranks the job has, as a dump or a report tells; 0 where it does not."""
    if report.pid:  # a report that a launcher made
        return report.world_size
    if report.backend == "gloo":  # its group of all has no members, those here are by the names
        return 0
    return max((one.size for one in report.groups if one.description == DEFAULT_GROUP), default=0)


def _stem(path: Path) -> str:
    matched = _NAME.fullmatch(path.name)
    return matched[1] if matched else ""


class _FolderReading:
    """Reads the files of a folder, with one bound over all."""

    def __init__(self, files: Sequence[tuple[int, Path]], shared: int) -> None:
        self._files = files
        self._shared = shared
        self._left = 0

    def reports(self, size: int) -> dict[int, RankHangReport]:
        """Return what is told of each rank below a number of ranks."""
        self._left = self._shared
        return merged(self._report(path, rank, size) for rank, path in self._files if rank < size)

    def _report(self, path: Path, rank: int, size: int) -> RankHangReport:
        if self._left <= 0:
            told = "not read: the files before it are no dumps, or too large for a folder of them"
            return blind_report(rank, f"{path.name}: {told}")
        effort = Effort(_FREE + self._left)
        try:
            data = file_bytes(path)
        except DumpError as error:
            self._left -= _FILE_EACH
            return blind_report(rank, f"{path.name}: {error}", _source(error))
        report = _report(data, path.name, rank, size, effort)
        free = 0 if is_unusable(report) else _FREE
        other = len(data) // _BYTES_EACH + _FILE_EACH if is_unusable(report) else 0
        self._left -= max(0, effort.operations - free) + other
        return report


def _files(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    try:
        with os.scandir(folder) as entries:
            names = [one.name for one in entries if one.name[0] != "." and not _is_folder(one)]
    except NotADirectoryError as error:
        raise FolderError(f"{folder} is a file: name the folder that has all dumps") from error
    except FileNotFoundError as error:
        told = "no such folder; 'everstep hang --help' says how to get dumps"
        raise FolderError(f"{folder}: {told}") from error
    except OSError as error:
        raise FolderError(f"{folder}: {error.strerror}") from error
    return sorted(_ranked(folder, names, prefix))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself: that it cannot be read is told as of any file


def _ranked(folder: Path, names: list[str], prefix: str) -> Iterator[tuple[int, Path]]:
    for name in names:
        matched = _NAME.fullmatch(name)
        if matched and name.startswith(prefix):
            yield int(matched[2]), folder / name


def _report(data: bytes, name: str, rank: int, size: int, effort: Effort) -> RankHangReport:
    try:
        values = read_dump(data, effort)
        if "groups" in values and "rank" in values:
            return _kept_report(values, rank)
        return report_of_values(values, rank, world_size=size)
    except DumpError as error:
        return blind_report(rank, f"{name}: {error}", _source(error))


def _kept_report(values: Mapping[str, object], rank: int) -> RankHangReport:
    try:
        report = from_json(RankHangReport, values)
    except CodecError as error:
        raise DumpError(str(error)) from error
    if report.rank != rank:
        raise DumpError(f"it is not rank {rank}'s: it says that it is rank {report.rank}'s")
    return report


def _source(error: DumpError) -> EvidenceSource:
    return (
        EvidenceSource.IDENTITY
        if "it is not rank" in str(error)
        else EvidenceSource.FLIGHT_RECORDER
    )


def file_bytes(path: Path) -> bytes:
    """Return a file's bytes, of which there may be too many; no more are read. Raises DumpError."""
    try:
        # A device must not be opened at all, and a pipe must not make the reader wait.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DumpError("it is no regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise DumpError(f"it cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DumpError("it is no regular file")
        if found.st_size > BYTES_MAX:
            raise DumpError(f"it has {found.st_size:,} bytes, more than {BYTES_MAX:,}: not read")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(BYTES_MAX + 1)
    except OSError as error:
        raise DumpError(f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
