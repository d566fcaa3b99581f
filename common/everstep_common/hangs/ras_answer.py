"""Answer of NCCL RAS: the ranks that NCCL misses, in words. Pure.

RAS counts what was launched, not what is done, and knows no sends, receives and all-to-alls; so it
is evidence beside a verdict, and no verdict follows from it.
"""

import json
import re
from collections.abc import Iterable, Iterator

from everstep_common.hangs.reports.rank_report import RAS_LINES_MAX
from everstep_common.printable import printable

# The first version that neither crashes a job that lives nor writes malformed JSON.
SAFE_SINCE = (2, 29, 2)
# 16,384 ranks take 600 bytes each, as it is indented.
ANSWER_MAX = 16 * 1024 * 1024
_ITEMS_MAX = 2_000_000
_LINE_MAX = 300
# In each line that tells of a missing rank.
MISSING = "is missing, it is"
# NCCL 2.28.7 to 2.28.9 leave out the comma after nvml_dev, where a rank is missing.
_NO_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s*\n\s*"status")')
_TELLING = re.compile(r"missing|unresponsive|dead|mismatch|different|launched|error", re.IGNORECASE)
# Titles of its parts, and of the columns of its table.
_TITLE = re.compile(r"Errors|.* Status Errors")
_NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


class RasError(Exception):
    """RAS could not be asked, or its answer not used; one clause that says why."""


def is_safe(version: str) -> bool:
    """Return whether a version of NCCL may be asked while its job lives; an unknown one not."""
    found = _NUMBERS.match(version)
    return found is not None and tuple(int(one or 0) for one in found.groups()) >= SAFE_SINCE


def read_json(text: str, ours: Iterable[int]) -> tuple[str, ...]:
    """Return which ranks are missing, in words. Raises RasError.

    ``ours`` are processes of the job on this node: another job of the same user has the same port.
    """
    told = _values(text)
    version = printable(str(told.get("nccl_version", "")))[:20]
    communicators = [one for one in _list(told.get("communicators")) if isinstance(one, dict)]
    known = {*ours}
    told_pids = (one.get("pid") for comm in communicators for one in _ranks(comm))
    if communicators and not any(type(pid) is int and pid in known for pid in told_pids):
        raise RasError("it answered for another job of this user")
    lines = dict.fromkeys(line for comm in communicators for line in _missing(comm))
    if not lines:
        return (f"NCCL RAS {version}: no rank is missing in {len(communicators)} communicators",)
    return tuple(f"NCCL RAS {version}: {line}"[:_LINE_MAX] for line in lines)[:RAS_LINES_MAX]


def read_text(text: str) -> tuple[str, ...]:
    """Return the telling lines of an answer before 2.28.7, which is no JSON."""
    lines = (" ".join(line.split()) for line in text.splitlines() if _TELLING.search(line))
    told = (line for line in lines if not _TITLE.fullmatch(line))
    found = [f"NCCL RAS: {printable(line)}"[:_LINE_MAX] for line in told]
    return tuple(dict.fromkeys(found))[:RAS_LINES_MAX] or ("NCCL RAS: no rank is missing",)


def _values(text: str) -> dict[str, object]:
    if text.count("[") + text.count("{") + text.count(",") > _ITEMS_MAX:
        raise RasError(f"its answer has more than {_ITEMS_MAX:,} values")
    try:
        told = json.loads(text)
    except ValueError:
        try:
            told = json.loads(_NO_COMMA.sub(r"\1,\2", text))
        except ValueError as error:
            raise RasError("its answer is no JSON, or was cut off") from error
        except RecursionError as error:
            raise RasError("its answer is nested too deeply") from error
    except RecursionError as error:
        raise RasError("its answer is nested too deeply") from error
    if not isinstance(told, dict):
        raise RasError("its answer is no report")
    return told


def _ranks(comm: dict[str, object]) -> Iterator[dict[str, object]]:
    for name in ("ranks", "missing_ranks"):
        yield from (one for one in _list(comm.get(name)) if isinstance(one, dict))


def _missing(comm: dict[str, object]) -> Iterator[str]:
    size, name = comm.get("size"), comm.get("hash")
    for one in _list(comm.get("missing_ranks")):
        if not isinstance(one, dict):
            continue
        status = one.get("status")
        flags = status if isinstance(status, dict) else {}
        how = "dead" if flags.get("considered_dead") is True else "unresponsive"
        told = (
            f"rank {one.get('rank')} of communicator {name} ({size} ranks) {MISSING} {how}: process"
            f" {one.get('pid')} on {one.get('host')}, GPU {one.get('nvml_dev')}"
        )
        yield printable(told)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
