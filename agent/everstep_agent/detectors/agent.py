"""Detector of the agent's own health: a probe that fails or hangs is a finding, never silence."""

from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement
from everstep_common.findings import Finding, FindingKey, Severity, SuggestedAction


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


def judge_backlog(dropped: int) -> Judgement:
    """Judge whether records were dropped since the last look."""
    return _degraded(
        "outbox",
        "OutboxOverflow",
        "the controller was away for so long that the outbox dropped its oldest progress records",
        f"{dropped} records dropped" if dropped else "",
        "nothing was dropped",
    )


def judge_kernel_log(lost: int) -> Judgement:
    """Judge whether kernel lines were overwritten before they were read."""
    return _degraded(
        "probe/kernel_log",
        "KernelLogGap",
        "the kernel wrote more lines than could be read",
        f"{lost} lines lost" if lost else "",
        "no line was lost",
    )


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
