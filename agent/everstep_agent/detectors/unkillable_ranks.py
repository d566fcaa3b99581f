"""Unkillable rank detector: ranks that were killed and still run, because the kernel holds them."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

HELD = "RanksHeld"
_LISTED_MAX = 8

CONDITIONS = (
    Condition(
        name=HELD,
        component="job/NAME",
        meaning="ranks of a generation that is over were killed, but the kernel holds them for a "
        "device or a file system; they keep memory and devices, and nobody waits for them",
        source="the launcher: not gone 10 s after SIGKILL",
        clears_when="the processes are gone",
        mode=Mode.ADVISE,
    ),
)


def judge_held(
    held: Mapping[str, Sequence[int]], open_keys: Collection[FindingKey]
) -> Iterator[Judgement]:
    """Judge the ranks of each job that were given up and still run."""
    for job, pids in held.items():
        key = FindingKey(f"job/{job}", HELD)
        if pids:
            yield Faulty(_finding(key, pids))
        elif key in open_keys:
            yield Healthy(key, "the processes are gone")


def _finding(key: FindingKey, pids: Sequence[int]) -> Finding:
    more = " …" if len(pids) > _LISTED_MAX else ""
    return Finding(
        component=key.component,
        condition=HELD,
        severity=Severity.DEGRADED,
        message="ranks that were killed are held in the kernel by a device or a file system",
        evidence=f"processes {', '.join(map(str, pids[:_LISTED_MAX]))}{more}; /proc/PID/stack and "
        "/proc/PID/wchan tell where they wait",
        suggested_action=SuggestedAction.WATCH,
        rule="not gone 10 s after SIGKILL",
    )
