"""Detector of the agent's own health: a probe that fails or hangs is a finding, never silence."""

from collections.abc import Collection

from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

CONDITIONS = (
    Condition(
        name="ProbeFailed",
        component="probe/NAME",
        meaning="a probe cannot read its source",
        source="three: a counter file that vanishes while its driver reloads is back in a second",
        clears_when="the probe reads again",
        raise_after=3,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="ProbeHang",
        component="probe/NAME",
        meaning="a probe missed its deadline (probe_deadline_s, gpu_deadline_s)",
        source="ours: a healthy read takes milliseconds",
        clears_when="the probe answers within its deadline",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MonitorDegraded",
        component="probe/NAME",
        meaning="a whole class of devices cannot be read: the monitor fails, not the devices",
        source="NVSentinel issue 1488: a driver reload looked like 18 dead network cards",
        clears_when="the class of devices is readable again",
        raise_after=3,
        clear_after=3,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="KernelLogGap",
        component="probe/kernel_log",
        meaning="kernel lines were overwritten before they could be read",
        source="any gap in the sequence numbers of /dev/kmsg",
        clears_when="no line was lost in the last minute",
        quiet_ns=MINUTE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="OutboxNotDurable",
        component="disk/FOLDER",
        meaning="records cannot be written to disk; they are sent from memory",
        source="outbox_write_timeout_s",
        clears_when="everything is written to disk again",
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="JobsNotDurable",
        component="disk/FOLDER",
        meaning="what the next agent must know of jobs cannot be written to the runtime folder "
        "(jobs.runtime_folder); if the agent ends now, their snapshots here may be given up",
        source="ours: the last change of it was not written, as where its file system is full",
        clears_when="the newest change of it was written",
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="OutboxOverflow",
        component="outbox",
        meaning="the controller was away for so long that progress records were dropped",
        source="outbox_records_max",
        clears_when="nothing was dropped in ten polls",
        clear_after=10,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="TaskFailed",
        component="agent/TASK",
        meaning="a task of the agent failed and was started again",
        source="any failure",
        clears_when="the task ran for a minute",
        mode=Mode.ADVISE,
    ),
)


def judge_probe(probe: str, failure: str, hang: str) -> list[Judgement]:
    """Judge one call of a probe; ``failure`` and ``hang`` say what went wrong, if anything did."""
    return [
        _degraded(
            f"probe/{probe}",
            "ProbeFailed",
            f"probe {probe} fails",
            failure,
            "it read without error",
        ),
        _degraded(
            f"probe/{probe}", "ProbeHang", f"probe {probe} hangs", hang, "it answered in time"
        ),
    ]


def judge_store(folder: str, trouble: str) -> Judgement:
    """Judge whether the outbox reaches its disk. Sending goes on either way."""
    return _degraded(
        f"disk/{folder}",
        "OutboxNotDurable",
        f"records cannot be written to {folder}; they are sent from memory",
        trouble,
        "everything is written",
    )


def judge_runtime_folder(
    folder: str, trouble: str, open_keys: Collection[FindingKey]
) -> list[Judgement]:
    """Judge whether what the next agent must know is written. Training goes on either way."""
    judged = _degraded(
        f"disk/{folder}",
        "JobsNotDurable",
        f"what the next agent must know of jobs cannot be written to {folder}: make room there "
        "before the agent is restarted, or snapshots of this node are given up",
        trouble,
        "the newest change is written",
    )
    return [judged] if trouble or judged.key in open_keys else []


def judge_backlog(dropped: int) -> Judgement:
    """Judge whether records were dropped since the last poll."""
    return _degraded(
        "outbox",
        "OutboxOverflow",
        "the controller was away for so long that the outbox dropped its oldest progress records",
        f"{dropped} records dropped" if dropped else "",
        "nothing was dropped",
    )


def judge_kernel_log(lost: int) -> list[Judgement]:
    """Judge whether kernel lines were overwritten before they were read: an event."""
    if not lost:
        return []
    gap = _degraded(
        "probe/kernel_log",
        "KernelLogGap",
        "the kernel wrote more lines than could be read",
        f"{lost} lines lost",
        "",
    )
    return [gap]


def judge_task(task: str, failure: str) -> Judgement:
    """Judge whether a task of the agent runs."""
    return _degraded(f"agent/{task}", "TaskFailed", f"task {task} failed", failure, "it runs")


def _degraded(component: str, condition: str, message: str, trouble: str, fine: str) -> Judgement:
    key = FindingKey(component, condition)
    if not trouble:
        return Healthy(key, fine)
    return Faulty(
        Finding(
            component=component,
            condition=condition,
            severity=Severity.DEGRADED,
            message=message,
            evidence=trouble[:300],
            suggested_action=SuggestedAction.WATCH,
            rule="self-observation of the agent",
        )
    )
