"""Mount detector: network and user-space file systems that do not answer, or only with errors."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement

CONDITIONS = (
    Condition(
        name="MountHang",
        component="disk/MOUNT",
        meaning="a network or user-space file system that root mounted did not answer within "
        f"{_D.mount_deadline_s:g} s (signals.host.mount_deadline_s) in two polls",
        source="gpud probes NFS with a deadline; two polls, because a server fails over in seconds",
        clears_when="it answers in two polls, or is mounted no more",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MountFailed",
        component="disk/MOUNT",
        meaning="a network or user-space file system that root mounted answers with an error "
        "(stale handle, I/O error, not connected) in two polls",
        source="reported by the server; a refused permission is an answer, and no fault",
        clears_when="it answers without an error in two polls, or is mounted no more",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MountReading:
    """One file system that somebody else answers for. ``hang`` and ``error`` say what is wrong."""

    mount: str
    server: str
    filesystem: str
    answered_s: float = 0.0
    hang: str = ""
    error: str = ""


def judge_mounts(mounts: Sequence[MountReading]) -> list[Judgement]:
    """Judge each mount by itself."""
    return [judge(mount) for mount in mounts for judge in (_judge_hang, _judge_error)]


def _judge_hang(mount: MountReading) -> Judgement:
    fault = Fault(
        message=f"{mount.mount} does not answer ({mount.filesystem}, from {mount.server})",
        rule="no answer within the deadline",
    )
    evidence = mount.hang or f"answered in {mount.answered_s:.3f} s"
    return judged(f"disk/{mount.mount}", "MountHang", evidence, fault if mount.hang else None)


def _judge_error(mount: MountReading) -> Judgement:
    fault = Fault(
        message=f"{mount.mount} fails ({mount.filesystem}, from {mount.server})",
        rule="the file system answers with an error",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    evidence = mount.error or "answered without an error"
    return judged(f"disk/{mount.mount}", "MountFailed", evidence, fault if mount.error else None)
