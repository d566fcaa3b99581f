"""Exit dumps: what a rank wrote that ended because others did not come. Pure.

gloo retires an operation also when it fails, so such a dump says that nothing is left to wait for.
The rank adds how it ended; by that the operation in which it gave up is found again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everstep_common.failures.classification import WAITED_IN_VAIN
from everstep_common.hangs.reports.rank_report import ProcessEnding, ProcessFacts, ProcessState

# What a rank adds to torch's dump (trainer/everstep/rank/interpreter).
ENDED = "everstep_ended"
_FRAMES_MAX = 24
_MS: Final = 1_000_000
# A rank that has waited for less than this share of the timeout when the others' connections close
# came after they gave up. They close when the processes are gone, which takes a second or two.
_CAME_LATE: Final = 0.1
_ENDING_NS: Final = 2_000_000_000
_ENDING_SHARE: Final = 0.4
# The calls of torch that gloo's recorder does not show.
_UNRECORDED = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a rank says that it ended."""

    # By its node's wall clock, as the times of its operations are.
    at_ns: int
    timed_out: bool
    # The function of torch.distributed that raised; "" where an operation was waited for later.
    call: str
    frames: tuple[str, ...]


def before_giving_up(dump: Mapping[str, object]) -> tuple[Mapping[str, object], ProcessFacts]:
    """Return a dump as it was before its rank gave up, and what it tells of the rank's end.

    The operation in which it gave up is not done then. Who came when the others had given up
    has not enqueued it, and is not one of those who waited.
    """
    ended, entries = _ended(dump), dump.get("entries")
    if ended is None or not isinstance(entries, list):
        return dump, ProcessFacts()
    failed = None
    if ended.call not in _UNRECORDED and (ended.call or not _has_p2p(dump, entries)):
        failed = _failed([one for one in entries if _of_gloo(one)], ended)
    if failed is None:
        return dump, _facts(ended)
    late = not ended.timed_out and _came_late(failed, ended)
    group, number = _number(failed.get("pg_id")), _number(failed.get("record_id"))
    before = {**dump, "entries": _corrected(entries, group, number, late=late)}
    return before, ProcessFacts() if late else _facts(ended)


def _facts(ended: _Ended) -> ProcessFacts:
    kind = WAITED_IN_VAIN if ended.timed_out else "collective"
    ending = ProcessEnding(exit_code=1, signal=0, kind=kind)
    return ProcessFacts(state=ProcessState.DEAD, ending=ending, python_stack=ended.frames)


def _corrected(entries: Sequence[object], group: int, number: int, *, late: bool) -> list[object]:
    found: list[object] = []
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or _number(entry.get("pg_id")) != group
            or _number(entry.get("record_id")) < number
        ):
            found.append(entry)
        elif not late:
            found.append({**entry, "retired": False})
    return found


def _failed(waits: Sequence[dict[str, object]], ended: _Ended) -> dict[str, object] | None:
    """Return the operation in which the rank gave up: one that has waited for its timeout.

    What was enqueued after it in its group has waited behind it.
    """
    if ended.timed_out:
        waits = [
            one
            for one in waits
            if _number(one.get("time_created_ns")) + _timeout_ns(one) <= ended.at_ns
        ]
    return max(waits, key=lambda one: _number(one.get("record_id")), default=None)


def _came_late(failed: Mapping[str, object], ended: _Ended) -> bool:
    waited_ns = ended.at_ns - _number(failed.get("time_created_ns"))
    timeout_ns = _timeout_ns(failed)
    return waited_ns < max(_CAME_LATE * timeout_ns, min(_ENDING_NS, _ENDING_SHARE * timeout_ns))


def _timeout_ns(entry: Mapping[str, object]) -> int:
    return max(0, _number(entry.get("timeout_ms"))) * _MS


def _of_gloo(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and _text(entry.get("profiling_name")).startswith("gloo:")
        and entry.get("is_p2p") is not True
    )


def _has_p2p(dump: Mapping[str, object], entries: Sequence[object]) -> bool:
    """Return whether the process counts more operations than it has recorded collectives."""
    status = dump.get("pg_status")
    counted = status.values() if isinstance(status, dict) else ()
    known = [_number(one.get("collective_seq_id")) for one in entries if isinstance(one, dict)]
    most = max(known, default=0)
    return any(
        isinstance(one, dict) and _number(one.get("last_enqueued_collective")) > most
        for one in counted
    )


def _ended(dump: Mapping[str, object]) -> _Ended | None:
    told = dump.get(ENDED)
    if not isinstance(told, dict):
        return None
    frames = told.get("frames")
    listed = frames[:_FRAMES_MAX] if isinstance(frames, list) else []
    return _Ended(
        at_ns=_number(told.get("at_ns")),
        timed_out=told.get("timed_out") is True,
        call=_text(told.get("call"))[:40],
        frames=tuple(one[:120] for one in listed if isinstance(one, str) and one.isprintable()),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    """Return a number that JSON may have as text; 0 for anything else."""
    if isinstance(value, str) and len(value) <= 20 and value.isdecimal():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else 0
