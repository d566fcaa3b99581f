"""What a rank wrote by itself, as a storage worker reads it in: whole and of this job, or not."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.storage.backends.backend import BackendError
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import OrderOwnFiles, ReadInOwnFile, StorageLocation
from everstep_agent.storage.worker.own_files import read_in, write_order
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_common.trainer_messages.own_files import (
    OwnOrder,
    OwnRecord,
    own_data_name,
    own_record_name,
    seal,
)
from integration.storage_files import ENTRIES, content

_TOKEN = "a" * 64
_KEY = StepKey(2, 30)
_ORDER = OwnOrder(job="demo", generation=2, step=30, nonce="1" * 32)


def _backend(folder: Path) -> FolderBackend:
    return FolderBackend(str(folder), "demo", 0.02)


def _silent(count: int) -> None:
    """Progress that nobody asks for."""


def _wanted(folder: Path, order: OwnOrder = _ORDER) -> ReadInOwnFile:
    location = StorageLocation(str(folder), "demo")
    return ReadInOwnFile(location=location, rank=1, world_size=2, order=order, token_sha256=_TOKEN)


def _record(order: OwnOrder = _ORDER, rank: int = 1) -> OwnRecord:
    copy = content(30)
    found = hashlib.sha256(copy).hexdigest()
    return OwnRecord(order=order, rank=rank, size_bytes=len(copy), sha256=found, entries=ENTRIES)


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """The folder of a step that was ordered and that a rank has written."""
    location = StorageLocation(str(tmp_path), "demo")
    ordered = OrderOwnFiles(location=location, key=_KEY, content=seal(_ORDER, _TOKEN))
    write_order(_backend(tmp_path), ordered)
    folder = tmp_path / "demo" / "gen-2" / "step-30"
    (folder / own_data_name(1)).write_bytes(content(30))
    (folder / own_record_name(1)).write_bytes(seal(_record(), _TOKEN))
    return folder


def test_what_a_rank_wrote_becomes_a_file_like_all_others(tmp_path: Path, step: Path) -> None:
    for _ in range(2):  # asked again, as after a restart of the agent
        found = read_in(_backend(tmp_path), _wanted(tmp_path), _silent)
        assert found is not None
        assert found.root_hash == hash_bytes(memoryview(content(30)))
        assert found.entries == ENTRIES
    assert (step / "rank-1.safetensors").exists()


def test_a_rank_that_has_not_written_yet_is_waited_for(tmp_path: Path, step: Path) -> None:
    (step / own_record_name(1)).unlink()
    assert read_in(_backend(tmp_path), _wanted(tmp_path), _silent) is None
    again = OwnOrder(job="demo", generation=2, step=30, nonce="2" * 32)
    (step / own_record_name(1)).write_bytes(seal(_record(), _TOKEN))
    assert read_in(_backend(tmp_path), _wanted(tmp_path, again), _silent) is None


def _tear(step: Path) -> None:
    data = step / own_data_name(1)
    data.write_bytes(data.read_bytes()[:-1] + b"\0")


def _cut(step: Path) -> None:
    os.truncate(step / own_data_name(1), 7)


def _link(step: Path) -> None:
    data = step / own_data_name(1)
    data.rename(step / "elsewhere")
    data.symlink_to(step / "elsewhere")


def _pipe(step: Path) -> None:
    (step / own_data_name(1)).unlink()
    os.mkfifo(step / own_data_name(1))


def _pipe_for_record(step: Path) -> None:
    (step / own_record_name(1)).unlink()
    os.mkfifo(step / own_record_name(1))


def _other_token(step: Path) -> None:
    (step / own_record_name(1)).write_bytes(seal(_record(), "b" * 64))


def _older_generation(step: Path) -> None:
    older = OwnOrder(job="demo", generation=1, step=30, nonce="1" * 32)
    (step / own_record_name(1)).write_bytes(seal(_record(older), _TOKEN))


def _other_job(step: Path) -> None:
    other = OwnOrder(job="other", generation=2, step=30, nonce="1" * 32)
    (step / own_record_name(1)).write_bytes(seal(_record(other), _TOKEN))


def _other_rank(step: Path) -> None:
    (step / own_record_name(1)).write_bytes(seal(_record(rank=0), _TOKEN))


def _order_as_record(step: Path) -> None:
    (step / own_record_name(1)).write_bytes(seal(_ORDER, _TOKEN))


@pytest.mark.parametrize(
    "damage",
    [
        _tear,
        _cut,
        _link,
        _pipe,
        _pipe_for_record,
        _other_token,
        _older_generation,
        _other_job,
        _other_rank,
        _order_as_record,
    ],
)
def test_nothing_else_is_read_in(
    tmp_path: Path, step: Path, damage: Callable[[Path], None]
) -> None:
    damage(step)
    with pytest.raises(BackendError):
        read_in(_backend(tmp_path), _wanted(tmp_path), _silent)
    assert not (step / "rank-1.json").exists()
