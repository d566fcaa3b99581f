"""Crash record probe: the last kernel lines before a crash, as the firmware kept them (pstore)."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from everstep_agent.detectors.kernel.logs.pstore import CrashRecord, PstoreReading

# Firmware keeps a crash as dozens of records of a kilobyte; more than this is an archive.
_RECORDS_MAX = 64
# The end of a record has the crash.
_TAIL_BYTES = 64 << 10
# systemd-pstore(8) moves records to a folder, and there to one for each crash.
_DEPTH_MAX = 3


def read_pstore(folders: Sequence[Path]) -> PstoreReading:
    """Read the newest crash records. Folders that do not exist are no error. Raises OSError."""
    denied: list[str] = []
    found = sorted(_files(folders, denied), reverse=True)
    records = tuple(_records(found, denied))
    return PstoreReading(records, denied[0] if denied else "")


def _files(folders: Sequence[Path], denied: list[str]) -> Iterator[tuple[int, Path]]:
    """Yield the files with the time at which they were written here."""
    for folder in folders:
        for place, folders_in_it, names in os.walk(folder, onerror=lambda e: _note(e, denied)):
            if len(Path(place).relative_to(folder).parts) >= _DEPTH_MAX:
                folders_in_it.clear()
            for path in (Path(place) / name for name in names if name.startswith("dmesg")):
                try:
                    status = path.stat()
                except OSError as error:
                    _note(error, denied)
                    continue
                # A record that systemd moved keeps its time of the crash; both will do.
                yield max(status.st_mtime_ns, status.st_ctime_ns), path


def _records(found: Iterable[tuple[int, Path]], denied: list[str]) -> Iterator[CrashRecord]:
    for written_ns, path in islice(found, _RECORDS_MAX):
        try:
            data = _tail(path)
        except OSError as error:
            _note(error, denied)
            continue
        yield CrashRecord(str(path), written_ns, data.decode(errors="replace"))


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)


def _note(error: OSError, denied: list[str]) -> None:
    if isinstance(error, FileNotFoundError):
        # It does not exist, or it was removed while it was looked for.
        return
    if not isinstance(error, PermissionError):
        raise error
    denied.append(f"{error.filename} may not be read: crashes of the boot before are not seen")
