"""Remembered ends: which jobs have ended within a day, for a controller that has lost its journal.

They are one note of the data folder, so that they outlive the agent and the boot of its node.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.orders import EndJob
from everstep_common.reports import EndedJob

logger = logging.getLogger(__name__)

# A journal is put back within hours. A clock that was set, or that a machine without a battery
# begins with, makes an end look older than it is or yet to come: then nothing is said of it.
KEPT_NS = 24 * 3600 * 1_000_000_000
# The newest are kept: 10 KB on the disk and in a Hello.
KEPT_MAX = 64
_REASON_MAX = 300


@dataclass(frozen=True, slots=True)
class _Remembered:
    told: EndedJob
    # On the node's wall clock.
    at_ns: int


class RememberedEnds:
    """Ends of jobs as controllers have ordered them; the note is written at each change."""

    def __init__(self, text: str, keep: Callable[[str], None], wall_ns: Callable[[], int]) -> None:
        # By the job's id, oldest first.
        self._ends = {one.told.job_id: one for one in _load(text)}
        self._keep = keep
        self._wall_ns = wall_ns

    def note(self, order: EndJob, seen: int, term: int) -> None:
        """Remember that a job is over, of which the agent has seen this generation last.

        A spare has seen none, and was told. What is ordered again, as whenever the agent comes
        back, makes the end no younger.
        """
        if not order.job_id:
            return
        generation = max(seen, order.generation)
        known = self._ends.get(order.job_id)
        if known is None:
            self._add(order, generation, term)
        else:
            told = known.told
            newest = max(told.generation, generation), max(told.term, term)
            told = replace(told, generation=newest[0], term=newest[1])
            self._ends[order.job_id] = replace(known, told=told)
            if told == known.told:
                return
        self._write()

    def forget(self, job_id: str) -> None:
        """Forget the end of a job with which a controller goes on."""
        if self._ends.pop(job_id, None) is not None:
            self._write()

    def told(self) -> tuple[EndedJob, ...]:
        """Return what Hello tells of them."""
        now_ns = self._wall_ns()
        return tuple(one.told for one in self._ends.values() if abs(now_ns - one.at_ns) <= KEPT_NS)

    def _add(self, order: EndJob, generation: int, term: int) -> None:
        told = EndedJob(
            job=order.job,
            job_id=order.job_id,
            generation=generation,
            term=term,
            succeeded=order.succeeded,
            unsaved=order.unsaved,
            reason=order.reason[:_REASON_MAX],
        )
        self._ends[order.job_id] = _Remembered(told, self._wall_ns())
        while len(self._ends) > KEPT_MAX:
            del self._ends[next(iter(self._ends))]

    def _write(self) -> None:
        self._keep(json_text(tuple(self._ends.values()), tuple[_Remembered, ...]))


def no_ends() -> RememberedEnds:
    """Return the memory of an agent without a data folder."""
    return RememberedEnds("[]", lambda _: None, lambda: 0)


def _load(text: str) -> tuple[_Remembered, ...]:
    try:
        return from_json(tuple[_Remembered, ...], json.loads(text), "ended jobs")
    except (ValueError, CodecError) as error:
        logger.warning("which jobs have ended cannot be read: %s", error)
        return ()
