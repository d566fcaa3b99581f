"""Snapshot skip detector: jobs that go on training while their snapshots are skipped."""

from dataclasses import dataclass, field

from everstep_common.judging.condition import SECOND_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

SKIPPED = "SnapshotsSkipped"
# How long skips are counted: longer than a storage that falls behind takes to catch up.
WINDOW_NS = 30 * SECOND_NS

CONDITIONS = (
    Condition(
        name=SKIPPED,
        component="job/NAME",
        meaning="snapshots of the job are skipped again and again, because no slot is free in time",
        source="ours: a skip in every half minute, for a minute; training goes on, a fault would "
        "cost more steps than it should",
        clears_when="a snapshot was saved, and none was skipped, for half a minute",
        raise_after=60,
        mode=Mode.ADVISE,
    ),
)


def job_key(job: str) -> FindingKey:
    """Return what the skips of a job are judged as."""
    return FindingKey(f"job/{job}", SKIPPED)


@dataclass(slots=True)
class _Saving:
    """One job: what was skipped and what was saved. Times are of any steady clock in ns."""

    skipped_ns: int | None = None
    skips: int = 0
    saves: int = 0


@dataclass(slots=True)
class SkipWatch:
    """Skipped and saved snapshots of all jobs on the node."""

    _jobs: dict[str, _Saving] = field(default_factory=dict)

    def skipped(self, job: str, now_ns: int) -> None:
        """A rank got no slot for a step that it should have saved."""
        known = self._jobs.setdefault(job, _Saving())
        known.skipped_ns, known.skips = now_ns, known.skips + 1
        known.saves = 0

    def saved(self, job: str) -> None:
        """A rank committed a snapshot."""
        self._jobs.setdefault(job, _Saving()).saves += 1

    def forget(self, job: str) -> None:
        """The job is not here any more."""
        self._jobs.pop(job, None)

    def judge(self, now_ns: int) -> list[Judgement]:
        """Judge every job of which something is known; one that does not train is not judged."""
        return [
            judged for job, known in self._jobs.items() if (judged := _judge(job, known, now_ns))
        ]


def _judge(job: str, known: _Saving, now_ns: int) -> Judgement | None:
    if known.skipped_ns is not None and now_ns - known.skipped_ns < WINDOW_NS:
        return Faulty(_finding(job, known))
    if known.saves == 0:
        return None
    return Healthy(job_key(job), f"{known.saves} snapshots saved since the last one was skipped")


def _finding(job: str, known: _Saving) -> Finding:
    return Finding(
        component=f"job/{job}",
        condition=SKIPPED,
        severity=Severity.DEGRADED,
        message=f"snapshots of job {job} are skipped: its slots are not free in time",
        evidence=f"{known.skips} skipped, {known.saves} saved since the last of them",
        suggested_action=SuggestedAction.WATCH,
        rule="self-observation of the agent",
    )
