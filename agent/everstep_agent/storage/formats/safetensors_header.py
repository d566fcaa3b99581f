"""Header of a safetensors file: where each shard of a copy lies in it. Pure.

A file is the header's length (8 bytes, little-endian), the header (JSON) and data without holes.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.rank_messages import Entry

# Bits of each element type, by the names of safetensors, as far as torch can open them.
_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
}  # fmt: skip
# Data that begins on a page can be mapped, and be written past the page cache.
_PAGE_BYTES = 4096
# Where torch.distributed.checkpoint looks for the offsets of parts (hf_storage.py, torch 2.13).
_PARTS_KEY = "DCP_SHARDING_INFO"
_RESERVED = "__metadata__"


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of the copy that lie together in the file."""

    copy_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A file about to be written: ``head`` (length and header), then the pieces in this order."""

    head: bytes
    pieces: tuple[FilePiece, ...]

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole file."""
        return len(self.head) + sum(piece.size_bytes for piece in self.pieces)


def in_file_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return shards in the order of the file: wide types first.

    Then every tensor is aligned to its own type without a hole, which torch needs to map it.
    """
    return sorted(entries, key=lambda entry: (-_type_of(entry)[1], entry.offset_bytes))


def pieces_of(entries: Iterable[Entry]) -> tuple[FilePiece, ...]:
    """Return where the data of the file comes from, or goes to, in the order of the file."""
    return tuple(FilePiece(one.offset_bytes, one.size_bytes) for one in in_file_order(entries))


def lay_out_file(entries: Iterable[Entry], about: dict[str, str]) -> FileLayout:
    """Return the head and the order of the data; ``about`` goes to the file's metadata."""
    ordered = in_file_order(entries)
    tensors: dict[str, object] = {}
    parts: dict[str, object] = {}
    begins = 0
    for entry in ordered:
        key = _key(entry, tensors)
        kind, _, shape = _type_of(entry)
        ends = begins + entry.size_bytes
        tensors[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [begins, ends]}
        is_part = entry.begins and key == entry.tensor and len(entry.begins) == len(shape)
        parts[key] = {"saved_offsets": list(entry.begins if is_part else (0,) * len(shape))}
        begins = ends
    words = {"format": "pt", "DCP_VERSION": "1.0", _PARTS_KEY: _json(parts)} | about
    return FileLayout(_head({_RESERVED: words} | tensors), pieces_of(ordered))


def _head(header: dict[str, object]) -> bytes:
    text = _json(header).encode()
    text += b" " * (-(8 + len(text)) % _PAGE_BYTES)
    return len(text).to_bytes(8, "little") + text


def _key(entry: Entry, taken: dict[str, object]) -> str:
    """Return the name in the file: the tensor's, so that a reader finds its parts in all files."""
    key = entry.tensor or entry.name
    if key in taken:  # two parts of one tensor in one file: the second keeps the name of the shard
        key = entry.name
    while key in taken or key == _RESERVED:
        key = f"shard/{key}"
    return key


def _type_of(entry: Entry) -> tuple[str, int, tuple[int, ...]]:
    """Return type, bits and shape; bytes in a row for what safetensors has no word for."""
    bits = _BITS.get(entry.format, 0)
    sane = bits and all(extent >= 0 for extent in entry.shape)
    if sane and math.prod(entry.shape) * bits == 8 * entry.size_bytes:
        return entry.format, bits, entry.shape
    return "U8", 8, (entry.size_bytes,)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
