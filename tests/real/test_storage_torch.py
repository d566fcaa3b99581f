"""Steps in storage are opened without Everstep: by safetensors, and by torch's own reader."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import StorageLocation, WriteCopy
from everstep_agent.storage.worker.rank_files import write_copy
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_agent.vault.snapshots.manifest import extent_bytes, layout_of
from everstep_common.rank_messages import Entry

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled"),
]
_KEY = StepKey(1, 7)
_WORLD = 2


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _write(folder: Path, rank: int, shards: list[tuple[Entry, torch.Tensor]]) -> Path:
    entries, memory = [], b""
    for entry, tensor in shards:
        content = _bytes_of(tensor)
        entries.append(
            Entry(
                entry.name,
                len(memory),
                len(content),
                entry.format,
                tuple(tensor.shape),
                entry.tensor,
                entry.begins,
                entry.whole,
            )
        )
        memory += content + bytes(-len(content) % 8)
    size = extent_bytes(tuple(entries))
    wanted = WriteCopy(
        location=StorageLocation(str(folder), "demo"),
        key=_KEY,
        rank=rank,
        world_size=_WORLD,
        size_bytes=size,
        root_hash=hash_bytes(memoryview(memory)[:size]),
        layout=layout_of(entries),
        entries=tuple(entries),
    )
    backend = FolderBackend(str(folder), "demo")
    write_copy(backend, wanted, memoryview(memory), lambda count: None)
    return folder / "demo/gen-1/step-7"


def _part(
    name: str, tensor: torch.Tensor, rows: slice, kind: str = "F32"
) -> tuple[Entry, torch.Tensor]:
    begins = (rows.start, *(0,) * (tensor.dim() - 1))
    shard = f"{name}[{rows.start}:{rows.stop}]"
    return Entry(shard, 0, 0, kind, (), name, begins, tuple(tensor.shape)), tensor[rows]


def test_a_tensor_in_parts_is_put_together_by_torch_and_every_type_is_kept(tmp_path: Path) -> None:
    weight = torch.arange(30, dtype=torch.float32).reshape(10, 3)
    moment = torch.randn(10, 3, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    count = torch.tensor(41, dtype=torch.int64)
    bias = torch.tensor([1, 2, 3], dtype=torch.uint8)
    folder = tmp_path
    for rank, rows in enumerate((slice(0, 7), slice(7, 10))):
        folder = _write(
            tmp_path,
            rank,
            [
                (Entry("bias", 0, 0, "U8"), bias),
                _part("model.weight", weight, rows),
                _part("optimizer.moment", moment, rows, "BF16"),
                (Entry("count", 0, 0, "I64"), count),
                (Entry(f"rank-{rank}/random", 0, 0, "U8"), bias + rank),
            ],
        )
    state = {
        "model.weight": torch.zeros(10, 3),
        "optimizer.moment": torch.zeros(10, 3, dtype=torch.bfloat16),
        "count": torch.tensor(0),
        "bias": torch.zeros(3, dtype=torch.uint8),
        "rank-1/random": torch.zeros(3, dtype=torch.uint8),
    }
    load(state, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    assert torch.equal(state["model.weight"], weight)
    assert torch.equal(state["optimizer.moment"], moment)
    assert torch.equal(state["count"], count)
    assert torch.equal(state["bias"], bias)
    assert torch.equal(state["rank-1/random"], bias + 1)


def test_safetensors_opens_a_ranks_file(tmp_path: Path) -> None:
    weight = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    odd = torch.tensor([9, 8, 7], dtype=torch.uint8)
    folder = _write(
        tmp_path, 0, [(Entry("odd", 0, 0, "U8"), odd), (Entry("weight", 0, 0, "F64"), weight)]
    )
    found = load_file(folder / "rank-0.safetensors")
    assert torch.equal(found["weight"], weight)
    assert torch.equal(found["odd"], odd)
