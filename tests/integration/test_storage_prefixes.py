"""Each interrupted prefix of a job's life in storage: its newest complete step is gone on from.

A life is recorded once, with a copy of the whole storage before each of its operations. Each copy
is what a job that was killed there would have left behind.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from everstep_agent.storage.backends.backend import StorageBackend
from everstep_agent.storage.backends.bucket import BucketBackend
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey, key_of
from everstep_agent.storage.worker.generation_beginning import ensure_beginning
from everstep_agent.storage.worker.messages import FillCopy, StepListing
from everstep_agent.storage.worker.rank_files import fill_copy, write_copy
from everstep_agent.storage.worker.step_listing import list_steps
from everstep_agent.storage.worker.step_publication import move_latest
from integration.object_store import MemoryStore
from integration.storage_files import beginning, content, order, publication

_PLACE = "s3://bucket/runs"


class Place(Protocol):
    """Storage of a job whose state can be copied at any moment."""

    def backend(self) -> StorageBackend: ...

    def copied(self) -> "Place": ...

    def record(self, before: Callable[[], None]) -> None: ...

    def change_latest(self, content: bytes | None) -> None: ...


_watch: list[Callable[[], None]] = []


_CHANGES = frozenset({"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir"})


def _on_event(event: str, arguments: tuple[object, ...]) -> None:
    changes = event in _CHANGES
    if event == "open" and isinstance(arguments[2], int):
        changes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if _watch and changes:
        watching = _watch.pop()
        try:
            watching()
        finally:
            _watch.append(watching)


@dataclass
class Folder:
    """A folder, copied before each call to the kernel that changes files."""

    path: Path
    _copies: Iterator[int] = field(default_factory=lambda: iter(range(100_000)))

    def backend(self) -> StorageBackend:
        return FolderBackend(str(self.path), "demo", lock_s=0.02)

    def copied(self) -> "Folder":
        copy = self.path.with_name(f"{self.path.name}-{next(self._copies)}")
        shutil.copytree(self.path, copy)
        return Folder(copy)

    def record(self, before: Callable[[], None]) -> None:
        sys.addaudithook(_on_event)
        _watch.append(before)

    def change_latest(self, content: bytes | None) -> None:
        latest = self.path / "demo/latest"
        latest.unlink(missing_ok=True)
        if content is not None and latest.parent.exists():
            latest.write_bytes(content)


@dataclass
class Bucket:
    """A bucket, copied before each call."""

    store: MemoryStore = field(default_factory=MemoryStore)

    def backend(self) -> StorageBackend:
        return BucketBackend(self.store, _PLACE, "demo")

    def copied(self) -> "Bucket":
        return Bucket(self.store.copied())

    def record(self, before: Callable[[], None]) -> None:
        self.store.before = lambda name: before()

    def change_latest(self, content: bytes | None) -> None:
        self.store.objects.pop("runs/demo/latest", None)
        if content is not None:
            self.store.objects["runs/demo/latest"] = content


@dataclass
class Life:
    """A job that begins, stores, is rolled back and stores again; and what may be found of it."""

    place: Place
    # What whoever looks now may go on from: what was there before an operation, or after it.
    allowed: set[StepKey | None] = field(default_factory=lambda: {None})
    prefixes: list[tuple[Place, frozenset[StepKey | None]]] = field(default_factory=list)

    def note(self) -> None:
        self.prefixes.append((self.place.copied(), frozenset(self.allowed)))

    def begin(self, generation: int, *lineage: StepKey) -> None:
        """The publisher fences older generations off."""
        self._do(lineage[-1] if lineage else None)
        began = beginning(generation, *lineage)
        target = lineage[-1] if lineage else None
        publish(self.place, generation, target, lineage[-1:], began)
        self._done(lineage[-1] if lineage else None)

    def store(self, generation: int, step: int, *lineage: StepKey, keep: int = 2) -> None:
        key = StepKey(generation, step)
        mine = [one for one in self._stored if one.generation == generation]
        self._stored.append(key)
        kept = tuple([*lineage[-1:], *mine, key][-keep:])
        write(self.place, generation, step, *lineage)
        self._do(key)
        publish(self.place, generation, key, kept, beginning(generation, *lineage))
        self._done(key)

    _stored: list[StepKey] = field(default_factory=list)

    def _do(self, key: StepKey | None) -> None:
        self.allowed.add(key)

    def _done(self, key: StepKey | None) -> None:
        self.allowed = {key}


def write(place: Place, generation: int, step: int, *lineage: StepKey) -> None:
    """Have a rank's file written, as a storage worker does."""
    backend = place.backend()
    ensure_beginning(backend, beginning(generation, *lineage))
    memory = memoryview(content(step))
    write_copy(backend, order(_PLACE, generation, step), memory, lambda n: None)


def publish(
    place: Place,
    generation: int,
    key: StepKey | None,
    keep: tuple[StepKey, ...],
    began: object,
) -> None:
    """Have ``latest`` moved, and what nobody needs removed."""
    wanted = publication(_PLACE, generation, key, keep, began)  # type: ignore[arg-type]
    move_latest(place.backend(), wanted)


def _life(place: Place) -> Life:
    life = Life(place)
    place.backend().list_generations()  # the job's folder
    place.record(life.note)
    life.begin(1)
    for step in (10, 20, 30, 40):
        life.store(1, step, keep=3)
    back = StepKey(1, 30)
    life.begin(2, back)
    for step in (35, 38, 39):
        life.store(2, step, back)
    further = (back, StepKey(2, 38))
    life.begin(3, *further)
    for step in (50, 60):
        life.store(3, step, *further)
    if isinstance(place, Folder):
        _watch.clear()
    life.note()
    return life


def _look(place: Place) -> StepListing:
    return list_steps(place.backend(), None)


def _found(place: Place) -> StepKey | None:
    seen = _look(place)
    assert seen.doubt == ""
    return seen.latest.target if seen.latest else None


def _read(place: Place, key: StepKey) -> bytes:
    wanted = order(_PLACE, key.generation, key.step)
    memory = bytearray(wanted.size_bytes)
    request = FillCopy(wanted.location, key, 0, wanted.root_hash)
    fill_copy(place.backend(), request, memoryview(memory), lambda n: None)
    return bytes(memory)


def _go_on(place: Place) -> None:
    """A next generation from what is there: it stores two steps, and removes only older ones."""
    seen = _look(place)
    restored = seen.latest.target if seen.latest else None
    before = {key_of(step) for step in seen.steps}
    lineage = (*seen.branch, restored) if restored else ()
    generation, at = seen.newest_generation + 1, restored.step if restored else 0
    began = beginning(generation, *lineage)
    publish(place, generation, restored, lineage[-1:], began)
    keys = [StepKey(generation, at + 1), StepKey(generation, at + 2)]
    for key in keys:
        write(place, generation, key.step, *lineage)
        publish(place, generation, key, (*keys[:1], key), began)
    after = _look(place)
    assert after.latest is not None
    assert after.latest.target == keys[-1]
    gone = before - {key_of(step) for step in after.steps}
    assert all(restored is not None and key.step <= restored.step for key in gone)
    assert {key for key in before if restored is None or key.step > restored.step} <= {
        key_of(step) for step in after.steps
    }


def _places(tmp_path: Path) -> dict[str, Place]:
    (tmp_path / "steps").mkdir()
    return {"folder": Folder(tmp_path / "steps"), "bucket": Bucket()}


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_whatever_was_cut_short_the_newest_complete_step_is_found_and_gone_on_from(
    tmp_path: Path, kind: str
) -> None:
    life = _life(_places(tmp_path)[kind])
    assert len(life.prefixes) > 100
    for place, allowed in life.prefixes:
        found = _found(place)
        assert found in allowed
        if found is not None:
            assert _read(place, found) == content(found.step)
        _go_on(place)


_DAMAGES = (None, b"", b'{"generation": 2, "tar', b'{"generation": 1}')


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_it_is_found_in_each_of_them_without_a_latest_that_can_be_read(
    tmp_path: Path, kind: str
) -> None:
    life = _life(_places(tmp_path)[kind])
    for number, (place, allowed) in enumerate(life.prefixes[::3]):
        found = _found(place)
        place.change_latest(_DAMAGES[number % len(_DAMAGES)])
        assert _found(place) == found
        assert found in allowed
        if found is not None:
            assert "latest" in _look(place).note
        _go_on(place)
