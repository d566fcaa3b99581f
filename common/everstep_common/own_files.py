"""Own files: a step that ranks without an agent write to the job's folder by themselves.

The folder of the step has the order for it, and for each of these ranks its copy as it lies in a
slot and a record of it. Order and records are sealed with the job's token, so that none of another
job is ever taken for one of this.
"""

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import TypeVar

from everstep_common import quantities as q
from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.rank_messages import Entry

T = TypeVar("T")
ORDER = "save.json"
ORDER_BYTES_MAX = 64 * 1024
_SEAL_BYTES = 64
_STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")


class OwnFileError(Exception):
    """An order or a record that is none of this job's; one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOrder:
    """Order to the ranks without an agent: save this step; ``nonce`` is new with each order."""

    job: q.JobName
    generation: q.Generation
    step: q.Step
    nonce: q.TokenHash


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRecord:
    """Record of a rank's own file: what an order asked for, by the rank's own memory."""

    order: OwnOrder
    rank: q.Rank
    size_bytes: q.SizeBytes
    # SHA-256 of the copy in the rank's memory, taken before a byte of it was written: a rank has
    # the standard library only.
    sha256: q.TokenHash
    entries: tuple[Entry, ...]


def seal(record: OwnOrder | OwnRecord, token_sha256: str) -> bytes:
    """Return an order or a record as it is written."""
    body = json_text(record).encode()
    return _seal(type(record), body, token_sha256) + b"\n" + body


def unseal(kind: type[T], content: bytes, token_sha256: str) -> T:
    """Return what was sealed with the job's token. Raises OwnFileError."""
    seal, body = content[:_SEAL_BYTES], content[_SEAL_BYTES + 1 :]
    if not hmac.compare_digest(seal, _seal(kind, body, token_sha256)):
        raise OwnFileError(f"a {kind.__name__} that was not sealed by this job")
    try:
        return from_json(kind, json.loads(body))
    except (CodecError, ValueError, RecursionError) as error:
        raise OwnFileError(f"not a {kind.__name__}: {error}"[:300]) from error


def _seal(kind: type, body: bytes, token_sha256: str) -> bytes:
    sealed = f"everstep {kind.__name__}\n".encode() + body
    return hmac.new(token_sha256.encode(), sealed, hashlib.sha256).hexdigest().encode()


def own_data_name(rank: int) -> str:
    """Return the name of a rank's copy."""
    return f"rank-{rank}.own"


def own_record_name(rank: int) -> str:
    """Return the name of the record beside it, which comes after it."""
    return f"rank-{rank}.own.json"


def step_of_folder(name: str) -> int | None:
    """Return which step a folder is of; None: it is none of a step."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None
