"""Files in a job's storage, which its user can write: what a storage worker makes of them."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.storage.backends.backend import BackendError
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import (
    FileDescription,
    LatestPointer,
    RecordError,
    StepKey,
    StepManifest,
    decode_record,
    encode_record,
    seal_description,
)
from everstep_agent.storage.worker.messages import FillCopy, MoveLatest, StorageLocation, WriteCopy
from everstep_agent.storage.worker.rank_files import describe_file, fill_copy, write_copy
from everstep_agent.storage.worker.step_listing import list_steps
from everstep_agent.storage.worker.step_publication import move_latest
from everstep_common.rank_messages import Entry
from everstep_common.reports import StoredStep
from fuzz.choices import Choices, option
from fuzz.edits import edited
from fuzz.format import Format, Handler
from fuzz.shapes import Known, payload, record_of

_JOB = "demo"
_FILES_MAX = 6
_MEMORY_BYTES = 8192
_ROOT_HASH = b"k" * 16
_KEY = StepKey(1, 2)
_KNOWN: Known = {
    "job": option(_JOB),
    "generation": option(1, 1, 2),
    "step": option(2, 2, 1, 3),
    "rank": option(0, 0, 1),
    "world_size": option(1, 2),
    "format": option(1),
    "root_hash": option(_ROOT_HASH.hex()),
    "size_bytes": option(4096, 0, 1, 8192),
    "file_bytes": option(4096, 0, 8192),
    "data_begins": option(0, 4096, 8),
    "offset_bytes": option(0, 1, 4096),
    "folder": option("gen-1/step-2"),
}
_DESCRIPTION = record_of(FileDescription, _KNOWN)
_MANIFEST = record_of(StepManifest, _KNOWN)
_LATEST = record_of(LatestPointer, _KNOWN)
_GENERATIONS = ("gen-1", "gen-1", "gen-2", "gen-01", "gen-999999999999999999", "gen-" + "9" * 40)
_STEPS = ("step-2", "step-2", "step-1", "step-3", "step-", ".trash", "step-" + "9" * 40)
_NAMES = (
    "rank-0.json", "rank-0.safetensors", "manifest.json", "rank-1.json", "rank-1.safetensors",
    ".rank-0.json.0123456789abcdef.tmp", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorageFile:
    """One entry of the job's folder: a file's content, or something else in its place."""

    path: str
    content: bytes
    # "": a file; else what stands there instead.
    kind: str = ""


def _make(choices: Choices) -> tuple[StorageFile, ...]:
    return tuple(_file(choices) for _ in range(1 + choices.below(_FILES_MAX)))


def _file(choices: Choices) -> StorageFile:
    name = choices.of(("latest", *_NAMES, *_NAMES))
    folder = f"{choices.of(_GENERATIONS)}/{choices.of(_STEPS)}/"
    path = name if name == "latest" or choices.rarely(12) else folder + name
    kind = choices.of(("link", "fifo", "folder", "sparse")) if choices.rarely(64) else ""
    return StorageFile(path, _content(name, choices), kind)


def _content(name: str, choices: Choices) -> bytes:
    if name == "latest":
        return edited(payload(_LATEST(choices)), choices)
    if name == "manifest.json":
        return edited(payload(_MANIFEST(choices)), choices)
    if name.endswith("rank-0.json") or name.endswith("rank-1.json"):
        return edited(_sealed(payload(_DESCRIPTION(choices))), choices)
    return b"x" * choices.of((4096, 0, 1, 8192))


def _sealed(content: bytes) -> bytes:
    """Return a description with its own hash, as a hostile writer would."""
    with suppress(RecordError):
        return encode_record(seal_description(decode_record(FileDescription, content)))
    return content


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[Handler]:
    home = folder / _JOB
    memory = memoryview(bytearray(_MEMORY_BYTES))

    async def handle(case: tuple[StorageFile, ...]) -> None:
        shutil.rmtree(home, ignore_errors=True)
        for file in case:
            with suppress(OSError):
                _put(home / file.path, file)
        backend = FolderBackend(str(folder), _JOB, lock_s=0.0)
        for use in _uses(backend, memory):
            with suppress(BackendError, RecordError, OSError):
                use()

    yield handle


def _put(path: Path, file: StorageFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):  # never write through what stands there
        return
    match file.kind:
        case "link":
            path.symlink_to("/nonexistent" if file.content else "/dev/zero")
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "sparse":
            with path.open("wb") as sparse:
                sparse.truncate(2**40)
        case _:
            path.write_bytes(file.content)


def _uses(backend: FolderBackend, memory: memoryview) -> tuple[Callable[[], object], ...]:
    place = StorageLocation("/", _JOB)
    stored = StoredStep(1, 2, 1, "", 0)
    fill = FillCopy(place, _KEY, 0, _ROOT_HASH)
    move = MoveLatest(location=place, generation=2, target=stored, keep=(_KEY, StepKey(1, 1)))
    write = WriteCopy(
        location=place,
        key=_KEY,
        rank=0,
        world_size=1,
        size_bytes=16,
        root_hash=_ROOT_HASH,
        layout=b"l",
        entries=(Entry("w", 0, 16),),
    )
    return (
        lambda: json.dumps(str(list_steps(backend, _KEY))),
        lambda: describe_file(backend, _KEY, 1),
        lambda: fill_copy(backend, fill, memory, lambda _: None),
        lambda: write_copy(backend, write, memory, lambda _: None),
        lambda: move_latest(backend, move),
    )


STORAGE_FILES = Format(
    _make,
    _world,
    (
        "everstep_agent.storage.formats",
        "everstep_agent.storage.backends",
        "everstep_agent.storage.worker",
    ),
    2000,
)
