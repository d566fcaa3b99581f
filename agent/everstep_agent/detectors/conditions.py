"""Every condition the agent can find: how often it must be seen, and what ends it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Condition:
    """How many consecutive polls raise and clear it, and the sentence that says what clears it."""

    raise_after: int
    clear_after: int
    clears_when: str
    # Not raised in the first moments after boot, while drivers and links come up.
    boot_grace_ns: int = 0


# Polls are seconds apart unless said. A kernel line is an event: seen once is seen.
CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        # The kernel never says that it is over, and a GPU that answers again after a reset may have
        # the same fault. An operator who knows better releases the node.
        "XidFatal": Condition(1, 1, "the node was rebooted and the GPU answers"),
        "XidDegraded": Condition(1, 1, "the node was rebooted and the GPU answers"),
        "FallenOffTheBus": Condition(1, 1, "the node was rebooted and the GPU answers"),
        # Three: the driver answers GPU_IS_LOST for a moment while somebody resets the GPU.
        "GpuLost": Condition(3, 10, "the GPU answers again in ten consecutive polls"),
        "GpuRecoveryAction": Condition(1, 1, "the driver asks for no action"),
        "RowRemapFailed": Condition(2, 10, "the driver reports no failed row remapping"),
        "RowRemapPending": Condition(2, 10, "the driver reports no pending row remapping"),
        "GpuCountMismatch": Condition(
            10, 10, "the configured number of GPUs answers", 120 * _SECOND_NS
        ),
        "GpuDriverUnavailable": Condition(
            10, 3, "the driver library answers and lists GPUs", 120 * _SECOND_NS
        ),
        # The probe's child was killed and replaced between two misses.
        "DriverHang": Condition(3, 10, "the driver answers within the deadline in ten polls"),
        # Links bounce for seconds when a switch is restarted; planned reboots raise thousands of
        # false alarms at agents that look once.
        "LinkDown": Condition(5, 10, "the link is up in ten consecutive polls", 120 * _SECOND_NS),
        "LinkSlow": Condition(10, 10, "the link is back at its best speed", 120 * _SECOND_NS),
        "DiskFull": Condition(2, 2, "more than the limit is free again"),
        "FilesystemReadOnly": Condition(1, 2, "the file system is mounted writable"),
        "MemoryLow": Condition(10, 10, "more than the limit is available again"),
        "ProbeFailed": Condition(3, 1, "the probe reads again"),
        "ProbeHang": Condition(1, 1, "the probe answers within its deadline"),
        "MonitorDegraded": Condition(3, 3, "the class of devices is readable again"),
        "KernelLogGap": Condition(1, 300, "no line was lost in the last minute"),
        "OutboxNotDurable": Condition(1, 2, "everything is written to disk again"),
        "OutboxOverflow": Condition(1, 10, "the backlog is below the limit again"),
        "TaskFailed": Condition(1, 1, "the task ran for a minute"),
    }
)
