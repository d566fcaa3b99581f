"""Dump entries: one operation of a Flight Recorder, as far as it is understood. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_P2P = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


@dataclass(frozen=True, slots=True)
class DumpEntry:
    """One operation of the ring, as far as it is understood."""

    record: int
    group: int
    group_name: str
    description: str
    collective: int
    p2p: int
    is_p2p: bool
    # Name without its backend, and the ranks within the group of a send or recv.
    name: str
    backend: str
    ends: tuple[int, int] | None
    done: bool
    raw: Mapping[str, object]


def dump_entry(value: object) -> DumpEntry | None:
    """Return one operation as a recorder tells it; None where it is malformed."""
    if not isinstance(value, dict):
        return None
    group = value.get("process_group")
    numbers = [number_in(value.get(name)) for name in ("record_id", "pg_id", "collective_seq_id")]
    if not isinstance(group, list | tuple) or len(group) != 2 or None in numbers:
        return None
    record, number, collective = (one or 0 for one in numbers)
    backend, _, name = text_in(value.get("profiling_name")).rpartition(":")
    p2p = _P2P.fullmatch(name)
    done = value.get("retired") is True or value.get("state") == "completed"
    return DumpEntry(
        record=record,
        group=number,
        group_name=text_in(group[0]),
        description=text_in(group[1]) or text_in(group[0]),
        collective=max(0, collective),
        p2p=max(0, number_in(value.get("p2p_seq_id")) or 0),
        is_p2p=value.get("is_p2p") is True,
        name=p2p[1] if p2p else name[:40],
        backend=backend,
        ends=(int(p2p[2]), int(p2p[3])) if p2p else None,
        done=done,
        raw=value,
    )


def number_in(value: object) -> int | None:
    """Return an integer of 64 bits, which JSON may write as text; None for anything else."""
    if isinstance(value, str) and len(value) <= 20 and value.lstrip("-").isascii():
        try:
            value = int(value)
        except ValueError:
            return None
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def text_in(value: object) -> str:
    """Return text, cut, and without what cannot be printed as UTF-8; "" for anything else."""
    if not isinstance(value, str):
        return ""
    return value[:400].encode("utf-8", "replace").decode()
