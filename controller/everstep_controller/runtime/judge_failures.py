"""Judge failures: which judges of the controller failed the last time, at which jobs, and why."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from everstep_common.printable import brief
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import CONTROLLER, State

logger = logging.getLogger(__name__)

# A judge that has judged another job since, and has not failed for as long, works again.
_LASTS_NS = 600 * 10**9

# Subject, reason and message of a line of the event list.
Announcer = Callable[[str, str, str], None]


class JudgeName(Enum):
    """Judge that is asked about single jobs, and what is not known while it fails."""

    HANG = "hang-look"
    END = "end-look"
    COLLECTIVES = "collective-look"
    SLOW_RANKS = "slow-ranks"

    @property
    def unknown(self) -> str:
        """Return what nobody knows while it fails, as a sentence's end."""
        return _UNKNOWN[self]


_UNKNOWN = {
    JudgeName.HANG: "who holds back a job that stands still is not known, and such a job is "
    "restarted by its timeout alone (core.stall_restart_timeout_s)",
    JudgeName.END: "who held up a generation that ended by a timeout is not known",
    JudgeName.COLLECTIVES: "which rank comes last to collectives is not known",
    JudgeName.SLOW_RANKS: "who makes the other ranks of a job wait is not known",
}


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """Failures of one judge, from the first that lasts."""

    judge: str
    # Names of the jobs at which it failed; none: of a judge of all nodes, or in its trial.
    jobs: tuple[str, ...]
    # What is not known meanwhile, and what the newest failure was.
    unknown: str
    why: str
    since_ns: int


@dataclass(frozen=True, slots=True)
class _Failed:
    why: str
    since_ns: int
    newest_ns: int


class JudgeFailures:
    """Book of failed judges: each is a finding of the controller until it judges again."""

    def __init__(
        self, state: Callable[[], State], now_ns: Callable[[], int], announce: Announcer
    ) -> None:
        self._state = state
        self._now_ns = now_ns
        self._announce = announce
        # By judge and job.
        self._failed: dict[tuple[str, str], _Failed] = {}
        self._unknown: dict[str, str] = {name.value: name.unknown for name in JudgeName}

    def note(self, judge: JudgeName, why: str, job_id: str = "") -> None:
        """Note that a judge failed; at a job, where one is named."""
        self._note(judge.value, why, job_id)

    def note_of_fleet(self, judge: str, why: str) -> None:
        """Note that a judge over the samples of all nodes failed."""
        self._unknown[judge] = "what it found is held"
        self._note(judge, why, "")

    def clear(self, judge: JudgeName, job_id: str = "") -> None:
        """Note that a judge has judged."""
        self._clear(judge.value, job_id)

    def clear_of_fleet(self, judge: str) -> None:
        """Note that a judge over the samples of all nodes has judged."""
        self._clear(judge, "")

    def open_failures(self) -> tuple[JudgeFailure, ...]:
        """Return the judges that failed the last time, by name."""
        found: dict[str, JudgeFailure] = {}
        for (judge, job_id), one in sorted(self._failed.items()):
            if not self._counts(job_id):
                continue
            known = found.get(judge)
            if known is None:
                known = JudgeFailure(judge, (), self._unknown[judge], one.why, one.since_ns)
            since_ns = min(known.since_ns, one.since_ns)
            jobs = (*known.jobs, self._job_name(job_id)) if job_id else known.jobs
            found[judge] = replace(known, jobs=jobs, since_ns=since_ns)
        return tuple(found.values())

    def _note(self, judge: str, why: str, job_id: str) -> None:
        self._failed = {key: one for key, one in self._failed.items() if self._counts(key[1])}
        known, now_ns = self._failed.get((judge, job_id)), self._now_ns()
        why = brief(why)
        since_ns = known.since_ns if known is not None else now_ns
        self._failed[judge, job_id] = _Failed(why, since_ns, now_ns)
        if known is None:
            sentence = f"{judge} failed: {self._unknown[judge]}: {why}"
            self._announce(self._job_name(job_id) or CONTROLLER, "JudgeFailed", sentence)
        elif known.why != why:
            logger.warning("%s failed again: %s", judge, why)

    def _clear(self, judge: str, job_id: str) -> None:
        old_ns = self._now_ns() - _LASTS_NS
        self._failed = {
            key: one
            for key, one in self._failed.items()
            if key[0] != judge or (key[1] != job_id and one.newest_ns > old_ns)
        }

    def _counts(self, job_id: str) -> bool:
        """Return whether a failure says anything still: of a job, until it has ended."""
        job = self._state().jobs.get(job_id)
        return not job_id or (job is not None and job.state is not JobState.ENDED)

    def _job_name(self, job_id: str) -> str:
        job = self._state().jobs.get(job_id)
        return job.name if job is not None else ""
