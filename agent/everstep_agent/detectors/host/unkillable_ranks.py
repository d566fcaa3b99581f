"""Unkillable rank detector: ranks that were killed and still run, because the kernel holds them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.host.tasks import is_in_driver
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

HELD = "RanksHeld"
STUCK = FindingKey("host/tasks", "RanksStuckInKernel")
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
    Condition(
        name=STUCK.condition,
        component=STUCK.component,
        meaning="ranks that were killed wait in the kernel, where no signal reaches them (state "
        "D), in a driver of a device of this node; where the kernel does not say in what they "
        "wait, people are told, and automation does nothing: users can have processes wait so",
        source="ours: not gone 10 s after SIGKILL, and in state D then; without CAP_SYS_PTRACE "
        "an agent is not told in what processes of others wait",
        clears_when="none of them waits so any more",
        mode=Mode.ENFORCE,
    ),
)


@dataclass(frozen=True, slots=True)
class HeldRank:
    """A rank that SIGKILL has not ended."""

    pid: int
    # The kernel function in which it waits in state D; "": not known; None: it does not.
    where: str | None = None


def judge_held(
    held: Mapping[str, Sequence[HeldRank]], open_keys: Collection[FindingKey]
) -> Iterator[Judgement]:
    """Judge the ranks of each job that were given up and still run, and the node by them.

    What a file server holds, or a file system that the user serves himself, is no fault of the
    node.
    """
    for job, ranks in held.items():
        key = FindingKey(f"job/{job}", HELD)
        if ranks:
            yield Faulty(_finding(key, [one.pid for one in ranks]))
        elif key in open_keys:
            yield Healthy(key, "the processes are gone")
    yield from _judge_node([one for ranks in held.values() for one in ranks], open_keys)


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


def _judge_node(
    ranks: Sequence[HeldRank], open_keys: Collection[FindingKey]
) -> Iterator[Judgement]:
    in_driver = [one for one in ranks if one.where and is_in_driver(one.where)]
    unknown = [one for one in ranks if one.where == ""]
    stuck = in_driver or unknown
    if stuck:
        yield Faulty(_node_finding(stuck, Mode.ENFORCE if in_driver else Mode.ADVISE))
    elif STUCK in open_keys:
        yield Healthy(STUCK, "no rank that was killed waits in the kernel any more")


def _node_finding(stuck: Sequence[HeldRank], mode: Mode) -> Finding:
    listed = ", ".join(
        f"{one.pid} in {one.where or 'an unknown place'}" for one in stuck[:_LISTED_MAX]
    )
    return Finding(
        component=STUCK.component,
        condition=STUCK.condition,
        severity=Severity.FATAL,
        message="ranks that were killed are stuck in the kernel, and keep their devices",
        evidence=f"processes {listed}{' …' if len(stuck) > _LISTED_MAX else ''}",
        suggested_action=SuggestedAction.REBOOT_NODE,
        rule="state D, 10 s after SIGKILL",
        mode=mode,
    )
