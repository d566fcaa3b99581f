"""Folder of dumps: one file for each rank, as torch writes them or as a report was kept."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep_common.codec import CodecError, from_json
from everstep_common.hangs.flight_recorder import (
    BYTES_MAX,
    DumpError,
    blind_report,
    merged,
    read_dump,
)
from everstep_common.hangs.rank_report import EvidenceSource, RankHangReport
from everstep_common.hangs.two_recorders import report_of_values
from everstep_common.reports.quantities import RANKS_MAX

# torch ends a dump's name with the rank; people add an ending, or put the rank before one.
_NAME = re.compile(r"(.*?)(\d{1,6})(?:\.(?:json|pickle|pkl|bin|trace|dump))?")


class FolderError(Exception):
    """A folder has no dumps; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What the dumps of a folder tell, by rank."""

    reports: Mapping[int, RankHangReport]
    world_size: int
    files: int


def read_folder(folder: Path, prefix: str = "", world_size: int = 0) -> Folder:
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
    size = world_size or highest + 1
    reports = merged(_report(path, rank, size) for rank, path in files)
    if all(report.blind and not report.groups for report in reports.values()):
        first = next(iter(reports.values())).blind[0].reason
        told = f"none of its {len(files)} dumps can be used; the first: {first}"
        raise FolderError(f"{folder}: {told}")
    size_told = max(report.world_size for report in reports.values())
    return Folder(reports, world_size or max(size, size_told), len(files))


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


def _report(path: Path, rank: int, world_size: int) -> RankHangReport:
    try:
        values = read_dump(file_bytes(path))
        if "groups" in values and "rank" in values:
            return _kept_report(values, rank)
        return report_of_values(values, rank, world_size=world_size)
    except DumpError as error:
        return blind_report(rank, f"{path.name}: {error}", _source(error))


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
        # A pipe or a device in its place must not make the reader wait.
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
