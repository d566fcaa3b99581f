"""Folder of dumps: one file for each rank, as torch writes them or as a report was kept."""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_common.codec import CodecError, from_json
from everstep_common.hangs.dumps.dump_files import (
    ReadDump,
    dump_name,
    newest_ns_of,
    of_another_hang,
    of_one_hang,
)
from everstep_common.hangs.dumps.dump_groups import DEFAULT_GROUP
from everstep_common.hangs.dumps.dump_values import BYTES_MAX, DumpError, read_dump
from everstep_common.hangs.dumps.pickles import Effort
from everstep_common.hangs.dumps.rank_dumps import blind_report, is_unusable, merged
from everstep_common.hangs.dumps.two_recorders import report_of_values
from everstep_common.hangs.reports.rank_report import EvidenceSource, RankHangReport
from everstep_common.quantities import RANKS_MAX

# Folders of hosts in a folder without dumps: so many are looked into.
_HOSTS_MAX = 16_384
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
    # Why dumps say nothing of this hang, though they are of ranks that have others.
    of_other_hangs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    """A file that may be a dump; ``host`` is the folder that it lies in, where each has one."""

    rank: int
    path: Path
    stem: str
    host: str = ""


def read_folder(
    folder: Path,
    prefix: str = "",
    world_size: int = 0,
    *,
    shared_operations: int = SHARED_OPERATIONS,
) -> Folder:
    """Read all dumps whose names begin with a prefix, of a folder or its hosts'. FolderError."""
    files = _files(folder, prefix)
    if not files:
        named = f" whose names begin with {prefix!r}" if prefix else ""
        raise FolderError(
            f"{folder}: no dumps{named}; a dump's name ends with its rank: nccl_trace_rank_0, …, or"
            " dump_0.json ('everstep hang --help' says how to get dumps)"
        )
    highest = max(one.rank for one in files)
    if highest >= RANKS_MAX:
        raise FolderError(f"{folder}: rank {highest} is more than any job has; see --prefix")
    reading = _FolderReading(files, shared_operations)
    size = max(world_size, highest + 1)
    reports = reading.reports(size)
    if all(is_unusable(report) for report in reports.values()):
        first = next(iter(reports.values())).blind[0].reason
        told = f"none of its {len(files)} dumps can be used; the first: {first}"
        raise FolderError(f"{folder}: {told}")
    if world_size:
        _check_size(folder, world_size, size, reports)
    told_size = world_size or _size_told(reports, files, size)
    if told_size != size:
        # What a name says was taken for the number of ranks, which members of groups depend on.
        size = told_size
        reports = reading.reports(size)
    if not world_size and (told_size := _size_of_most(reports, size)) not in (0, size):
        # That was what names say, and what the dumps say themselves was not seen beside it.
        size = told_size
        reports = reading.reports(size)
    left_out = tuple(one.path.name for one in files if one.rank >= size)
    return Folder(reports, size, len(files) - len(left_out), left_out, reading.of_other_hangs)


def _check_size(
    folder: Path, wanted: int, read_as: int, reports: Mapping[int, RankHangReport]
) -> None:
    """Compare a number of ranks with what dumps tell. Raises FolderError: it names the innocent."""
    usable = {rank: one for rank, one in reports.items() if not is_unusable(one)}
    beyond = [rank for rank in usable if rank >= wanted]
    told = _size_of_most(reports, read_as)
    if not beyond and told in (0, wanted):
        return
    found = f"most dumps tell of {told} ranks" if told else f"rank {beyond[0]} has a dump"
    raise FolderError(
        f"{folder}: --world-size {wanted}, and {found}: leave it out, or read only the dumps of one"
        " job with --prefix"
    )


def _size_told(reports: Mapping[int, RankHangReport], files: Sequence[_File], read_as: int) -> int:
    """Return how many ranks the job has: what most dumps tell, or the names of those of them.

    A file that is no dump counts only where its name is like that of one. ``read_as`` is how many
    the dumps were read for.
    """
    if size := _size_of_most(reports, read_as):
        return size
    usable = {rank: one for rank, one in reports.items() if not is_unusable(one)}
    stems = {one.stem for one in files if one.rank in usable}
    return max(one.rank for one in files if one.rank in usable or one.stem in stems) + 1


def _size_of_most(reports: Mapping[int, RankHangReport], read_as: int) -> int:
    """Return how many ranks most dumps tell of; 0 where most tell it not, or not the same."""
    usable = [one for one in reports.values() if not is_unusable(one)]
    told = Counter(_own_size(one, read_as) for one in usable)
    size, times = told.most_common(1)[0] if told else (0, 0)
    return size if 2 * times > len(usable) else 0


def _own_size(report: RankHangReport, read_as: int) -> int:
    """Return how many ranks the job has, as a dump or a report tells; 0 where it does not."""
    if report.pid:  # a report that a launcher made
        return report.world_size
    size = max((one.size for one in report.groups if one.description == DEFAULT_GROUP), default=0)
    # Of gloo the group of all has no members in most dumps: those here are as many as it is read
    # for, and only another number is its own word.
    return 0 if report.backend == "gloo" and size == read_as else size


class _FolderReading:
    """Reads the files of a folder, with one bound over all."""

    def __init__(self, files: Sequence[_File], shared: int) -> None:
        self._files = files
        self._shared = shared
        self._left = 0
        self.of_other_hangs: tuple[str, ...] = ()

    def reports(self, size: int) -> dict[int, RankHangReport]:
        """Return what is told of each rank below a number of ranks, in one hang."""
        self._left = self._shared
        read = [self._dump(one, size) for one in self._files if one.rank < size]
        ours, others = of_one_hang(read)
        known = {one.report.rank for one in ours}
        said = {one.name: of_another_hang(one, ours) for one in others}
        self.of_other_hangs = tuple(said[one.name] for one in others if one.report.rank in known)
        alone = (
            blind_report(one.report.rank, said[one.name])
            for one in others
            if one.report.rank not in known
        )
        return merged([*(one.report for one in ours), *alone])

    def _dump(self, file: _File, size: int) -> ReadDump:
        name = str(Path(file.host, file.path.name))
        if self._left <= 0:
            told = "not read: the files before it are no dumps, or too large for a folder of them"
            return ReadDump(name, blind_report(file.rank, f"{name}: {told}"))
        effort = Effort(_FREE + self._left)
        try:
            data = file_bytes(file.path)
        except DumpError as error:
            self._left -= _FILE_EACH
            return ReadDump(name, blind_report(file.rank, f"{name}: {error}", _source(error)))
        dump = _read(data, name, file, size, effort)
        free = 0 if is_unusable(dump.report) else _FREE
        other = len(data) // _BYTES_EACH + _FILE_EACH if is_unusable(dump.report) else 0
        self._left -= max(0, effort.operations - free) + other
        return dump


def _files(folder: Path, prefix: str) -> list[_File]:
    """Return the files of a folder that may be dumps, or else those of its folders."""
    entries = _entries(folder)
    files = _ranked(folder, entries, prefix)
    hosts = [one.name for one in entries if _is_folder(one)][:_HOSTS_MAX]
    if not files:
        for host in sorted(hosts):
            with suppress(FolderError):  # it may be nobody's business
                files += _ranked(folder / host, _entries(folder / host), prefix, host)
    return sorted(files, key=lambda one: (one.rank, one.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [one for one in entries if one.name[0] != "."]
    except NotADirectoryError as error:
        raise FolderError(f"{folder} is a file: name the folder that has all dumps") from error
    except FileNotFoundError as error:
        told = "no such folder; 'everstep hang --help' says how to get dumps"
        raise FolderError(f"{folder}: {told}") from error
    except OSError as error:
        raise FolderError(f"{folder}: {error.strerror}") from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself: that it cannot be read is told as of any file


def _ranked(
    folder: Path, entries: Iterable[os.DirEntry[str]], prefix: str, host: str = ""
) -> list[_File]:
    names = [one.name for one in entries if one.name.startswith(prefix) and not _is_folder(one)]
    told = ((name, dump_name(name)) for name in names)
    return [_File(one.rank, folder / name, one.stem, host) for name, one in told if one]


def _read(data: bytes, name: str, file: _File, size: int, effort: Effort) -> ReadDump:
    try:
        values = read_dump(data, effort)
        if "groups" in values and "rank" in values:
            report = _kept_report(values, file.rank)
            return ReadDump(name, report, report.taken_ns)
        report = report_of_values(values, file.rank, world_size=size)
        report = replace(report, node=report.node or file.host)
        return ReadDump(name, report, newest_ns_of(values))
    except DumpError as error:
        return ReadDump(name, blind_report(file.rank, f"{name}: {error}", _source(error)))


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
