"""Host detector: full or read-only disks, and memory that runs out."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.detectors.condition import Condition
from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement
from everstep_common.findings import Finding, FindingKey, Mode, Severity, SuggestedAction

# Below these a job's logs and checkpoints, or the agent's own outbox, are about to fail.
DISK_FREE_RATIO_MIN = 0.02
DISK_FREE_BYTES_MIN = 512 << 20
MEMORY_AVAILABLE_RATIO_MIN = 0.02


CONDITIONS = (
    Condition(
        name="DiskFull",
        component="disk/MOUNT",
        meaning="free space is at or below 2 %, or 512 MiB on disks larger than 25 GiB",
        source="below these logs and checkpoints, or the agent's own outbox, are about to fail",
        clears_when="more than the limit is free again in two looks",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MemoryLow",
        component="memory",
        meaning="less than 2 % of main memory is available in ten looks",
        source="ours: below it the kernel kills processes",
        clears_when="more than the limit is available in ten looks",
        raise_after=10,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True)
class DiskReading:
    """A mounted disk; sizes in bytes."""

    device: str
    mount: str
    filesystem: str
    size_bytes: int
    free_bytes: int
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """Load of the node and of this agent. Counters count since boot; None where unreadable."""

    cpu_busy_ratio: float
    load_1m: float
    memory_total_bytes: int
    memory_available_bytes: int
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    network_errors: int | None = None
    agent_cpu_s: float = 0.0
    agent_memory_bytes: int = 0


def judge_disks(disks: Iterable[DiskReading]) -> list[Judgement]:
    """Judge every disk's free space, and whether it is writable again."""
    judgements: list[Judgement] = []
    for disk in disks:
        judgements.append(_judge_space(disk))
        if disk.writable:
            name = disk.device.rpartition("/")[2]
            key = FindingKey(f"disk/{name}", "FilesystemReadOnly")
            judgements.append(Healthy(key, f"{disk.device} is mounted writable"))
    return judgements


def _judge_space(disk: DiskReading) -> Judgement:
    key = FindingKey(f"disk/{disk.mount}", "DiskFull")
    evidence = f"{disk.free_bytes} of {disk.size_bytes} bytes are free"
    limit = min(DISK_FREE_BYTES_MIN, int(disk.size_bytes * DISK_FREE_RATIO_MIN))
    # Read-only images (squashfs, ISO) are full by nature.
    if not disk.writable or disk.free_bytes > limit:
        return Healthy(key, evidence)
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message=f"the disk at {disk.mount} is full",
            evidence=evidence,
            suggested_action=SuggestedAction.WATCH,
            rule=f"free space at or below {limit} bytes",
        )
    )


def judge_memory(host: HostReading) -> Judgement:
    """Judge whether main memory runs out."""
    key = FindingKey("memory", "MemoryLow")
    ratio = host.memory_available_bytes / max(1, host.memory_total_bytes)
    evidence = f"{host.memory_available_bytes} of {host.memory_total_bytes} bytes are available"
    if ratio >= MEMORY_AVAILABLE_RATIO_MIN:
        return Healthy(key, evidence)
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message="main memory runs out",
            evidence=evidence,
            suggested_action=SuggestedAction.WATCH,
            rule=f"less than {MEMORY_AVAILABLE_RATIO_MIN:.0%} available",
        )
    )
