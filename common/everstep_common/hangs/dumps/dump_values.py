"""Dump values: the bytes of a dump, pickle or JSON, as plain values, within bounds. Pure."""

import json
from collections.abc import Mapping

from everstep_common.hangs.dumps.pickles import Effort, PickleError, plain_values

# 2,000 operations take 1 MB without stacks, and 8 MB with them.
BYTES_MAX = 64 * 1024 * 1024
# Of JSON, which becomes values of up to thirty times its size, by its brackets and commas.
_JSON_ITEMS_MAX = 4_000_000
# A recorder that has recorded no operation leaves their list out; a report has groups.
_PARTS = frozenset({"entries", "groups", "pg_status"})


class DumpError(ValueError):
    """A dump cannot be used; the message says why in one sentence."""


def read_dump(data: bytes, effort: Effort | None = None) -> Mapping[str, object]:
    """Return the values of a dump, pickle or JSON, or of a report. Raises DumpError."""
    if len(data) > BYTES_MAX:
        raise DumpError(f"it has {len(data):,} bytes, more than {BYTES_MAX:,}")
    if not data:
        raise DumpError("it is empty: its rank ended while it wrote")
    effort = effort or Effort()
    is_json = data.lstrip()[:1] == b"{"
    values = _json_values(data, effort) if is_json else _pickle_values(data, effort)
    if not isinstance(values, dict) or not _PARTS & values.keys():
        raise DumpError("it is no Flight Recorder dump: it has no entries")
    return values


def _json_values(data: bytes, effort: Effort) -> object:
    items = data.count(b"[") + data.count(b"{") + data.count(b",")
    most = min(_JSON_ITEMS_MAX, effort.operations_max)
    if items > most:
        raise DumpError(f"it has more than {most:,} values")
    effort.operations += items
    try:
        return json.loads(data)
    except RecursionError:
        raise DumpError("its values are nested too deeply") from None
    except ValueError as error:
        raise DumpError(f"it is no JSON, or was cut off: {error}") from None


def _pickle_values(data: bytes, effort: Effort) -> object:
    try:
        return plain_values(data, effort)
    except PickleError as error:
        raise DumpError(str(error)) from error
