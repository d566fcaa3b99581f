"""What a rank wrote by itself, as a storage worker reads it in: whole and of this job, or not."""

import ctypes
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from everstep.rank.agent_link import AgentLink
from everstep.rank.environment import Membership
from everstep.saving.exchange import Grant
from everstep.saving.own_files import OwnExchange, OwnFiles
from everstep_agent.storage.backends.backend import BackendError
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import OrderOwnFiles, ReadInOwnFile, StorageLocation
from everstep_agent.storage.worker.own_files import read_in, write_order
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_common.job_ids import token_hash
from everstep_common.own_files import (
    OwnOrder,
    OwnRecord,
    own_data_name,
    own_record_name,
    seal,
)
from everstep_common.rank_messages import Entry
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


_NOTHING = (Entry("none", 0, 0, "F32", (0,)),)


@pytest.mark.parametrize("entries", [ENTRIES, _NOTHING], ids=["some", "no bytes"])
def test_what_a_rank_writes_by_itself_is_what_is_read_in(
    tmp_path: Path, entries: tuple[Entry, ...]
) -> None:
    location, token_sha256 = StorageLocation(str(tmp_path), "demo"), token_hash("t")
    ordered = OrderOwnFiles(location=location, key=_KEY, content=seal(_ORDER, token_sha256))
    write_order(_backend(tmp_path), ordered)
    member = Membership(
        job="demo", generation=2, rank=1, socket=str(tmp_path / "nobody"), token="t",
        starts_fresh=False, persist=str(tmp_path),
    )  # fmt: skip
    exchange = OwnExchange(OwnFiles(AgentLink(member)), _ORDER)
    copy = content(30) if entries is ENTRIES else b""
    grant = exchange.begin(30, len(copy), None)
    assert isinstance(grant, Grant), grant
    ctypes.memmove(grant.address, copy, len(copy))
    exchange.commit(grant, entries)
    for thread in threading.enumerate():
        if thread.name == "everstep-own":
            thread.join(60)
    described = read_in(
        _backend(tmp_path), replace(_wanted(tmp_path), token_sha256=token_sha256), _silent
    )
    assert described is not None
    assert described.root_hash == hash_bytes(memoryview(copy))
    assert (described.size_bytes, described.entries) == (len(copy), entries)
    assert (tmp_path / "demo" / "gen-2" / "step-30" / "rank-1.safetensors").exists()


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
