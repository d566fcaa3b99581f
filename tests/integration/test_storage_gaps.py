"""What another program than ours leaves between its shards is kept, as far as a page each."""

from pathlib import Path

import pytest

from everstep_agent.storage.backends.backend import BackendError
from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import FillCopy, StorageLocation, WriteCopy
from everstep_agent.storage.worker.rank_files import fill_copy, write_copy
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_agent.vault.snapshots.manifest import extent_bytes, layout_of
from everstep_common.rank_messages import Entry

KEY = StepKey(1, 3)
SHARDS = 300
PAGE = 4096


def apart(distance: int) -> tuple[tuple[Entry, ...], bytes]:
    """Small shards this far apart, with old bytes between them."""
    entries = tuple(Entry(f"step {n}", n * distance, 4, "F32", (1,)) for n in range(SHARDS))
    return entries, bytes(at % 251 + 1 for at in range(extent_bytes(entries)))


def write(backend: FolderBackend, entries: tuple[Entry, ...], memory: bytes) -> WriteCopy:
    wanted = WriteCopy(
        location=StorageLocation(str(backend), "demo"),
        key=KEY,
        rank=0,
        world_size=1,
        size_bytes=len(memory),
        root_hash=hash_bytes(memoryview(memory)),
        layout=layout_of(entries),
        entries=entries,
    )
    write_copy(backend, wanted, memoryview(memory), lambda count: None)
    return wanted


def test_old_bytes_in_every_padding_come_back_with_the_copy(tmp_path: Path) -> None:
    backend = FolderBackend(str(tmp_path), "demo")
    entries, memory = apart(PAGE)
    wanted = write(backend, entries, memory)
    found = bytearray(len(memory))
    fill = FillCopy(wanted.location, KEY, 0, wanted.root_hash)
    fill_copy(backend, fill, memoryview(found), lambda count: None)
    assert found == memory


def test_more_than_paddings_between_the_shards_is_refused(tmp_path: Path) -> None:
    backend = FolderBackend(str(tmp_path), "demo")
    with pytest.raises(BackendError, match="not zero lie between the shards"):
        write(backend, *apart(2 * PAGE))
