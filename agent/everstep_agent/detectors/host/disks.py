"""Disk detector: full, read-only, missing or failing disks."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Healthy, Judgement

CONDITIONS = (
    Condition(
        name="DiskFull",
        component="disk/MOUNT",
        meaning=f"free space is at or below {_D.disk_free_min_ratio:.0%}, or "
        f"{_D.disk_free_bytes_min >> 20} MiB on disks larger than 25 GiB",
        source="below these logs and checkpoints, or the agent's own outbox, are about to fail",
        clears_when="more than the limit is free again in two polls",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="InodesExhausted",
        component="disk/MOUNT",
        meaning=f"{_D.inodes_free_min_ratio:.0%} or less of the inodes are free",
        source="Meta's gcm checks inodes; without one no file can be made, however much is free",
        clears_when="more than the limit is free again in two polls",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MountReadOnly",
        component="disk/MOUNT",
        meaning="a file system is read-only that was writable before, or that /etc/fstab mounts "
        "writable",
        source="its own past, or /etc/fstab: a file system with errors makes itself read-only",
        clears_when="it is writable in two polls, or mounted no more",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="MountMissing",
        component="disk/MOUNT",
        meaning="a mount point that signals.host.mounts names is not mounted in three polls",
        source="the operator's list",
        clears_when="it is mounted in two polls",
        raise_after=3,
        clear_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvmeNotLive",
        component="disk/NVME",
        meaning='an NVMe controller is in another state than "live" in three polls',
        source="reported by the driver: resetting, connecting, dead",
        clears_when="it is live in two polls",
        raise_after=3,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="RaidDegraded",
        component="disk/MD",
        meaning="an md array runs with fewer disks than it has (its file degraded)",
        source="counted by the driver",
        clears_when="it is complete in two polls",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


# Conditions of a mount, cleared when it is unmounted; all others are of a device and stay open.
_OF_MOUNTS = ("DiskFull", "InodesExhausted", "MountReadOnly", "MountHang", "MountFailed")


@dataclass(frozen=True, slots=True)
class DiskReading:
    """A mounted disk; sizes in bytes. ``inodes`` is 0 where the file system makes them at will.

    ``kernel_name`` is what the kernel calls the device: "dm-0" for "/dev/mapper/data".
    """

    device: str
    mount: str
    filesystem: str
    size_bytes: int
    free_bytes: int
    writable: bool = True
    inodes: int = 0
    inodes_free: int = 0
    kernel_name: str = ""


@dataclass(frozen=True, slots=True)
class StorageReading:
    """All disks, which mount points there are, and what the drivers say of the hardware.

    ``writable_by_table`` are the mount points that /etc/fstab mounts writable; ``nvme`` maps
    controllers to their state, ``arrays`` md arrays to the number of disks that are missing.
    """

    disks: tuple[DiskReading, ...]
    mounts: frozenset[str] = frozenset()
    writable_by_table: frozenset[str] = frozenset()
    nvme: tuple[tuple[str, str], ...] = ()
    arrays: tuple[tuple[str, int], ...] = ()


class DiskDetector:
    """Detector of disks; remembers which were writable."""

    def __init__(self, limits: HostLimits = _D) -> None:
        self._limits = limits
        self._were_writable: set[str] = set()

    def judge(self, storage: StorageReading) -> list[Judgement]:
        """Judge one reading."""
        found: list[Judgement] = []
        for disk in storage.disks:
            found += [_judge_space(disk, self._limits), _judge_inodes(disk, self._limits)]
            found += self._judge_writable(disk, storage.writable_by_table)
        found += _judge_missing(self._limits.mounts, storage.mounts)
        found += [_judge_nvme(name, state) for name, state in storage.nvme]
        found += [_judge_array(name, missing) for name, missing in storage.arrays]
        return found

    def _judge_writable(self, disk: DiskReading, by_table: Collection[str]) -> Iterable[Judgement]:
        component = f"disk/{disk.mount}"
        if disk.writable:
            self._were_writable.add(disk.mount)
            # A kernel message may have raised this finding, by the name of the device. No message
            # clears it: a mount that is writable does.
            name = disk.kernel_name or disk.device.rpartition("/")[2]
            told = f"{disk.device} is mounted writable"
            yield Healthy(FindingKey(f"disk/{name}", "FilesystemReadOnly"), told)
            yield judged(component, "MountReadOnly", told, None)
        elif disk.mount in self._were_writable or disk.mount in by_table:
            was = disk.mount in self._were_writable
            fault = Fault(
                message=f"the file system at {disk.mount} is read-only",
                rule="it was writable before" if was else "/etc/fstab mounts it writable",
                action=SuggestedAction.REPAIR_HARDWARE,
            )
            yield judged(component, "MountReadOnly", f"{disk.device} is mounted read-only", fault)


def judge_gone(
    open_keys: Iterable[FindingKey], mounts: Collection[str], required: Collection[str]
) -> list[Judgement]:
    """Clear what is open of mount points that are mounted no more, or named no more."""
    return [
        Healthy(key, "it is not required any more" if is_missing else "it is mounted no more")
        for key in open_keys
        if (mount := key.component.removeprefix("disk/")).startswith("/")
        and ((is_missing := key.condition == "MountMissing") or key.condition in _OF_MOUNTS)
        and mount not in (required if is_missing else mounts)
    ]


def _judge_space(disk: DiskReading, limits: HostLimits) -> Judgement:
    limit = min(limits.disk_free_bytes_min, int(disk.size_bytes * limits.disk_free_min_ratio))
    # Read-only images (squashfs, ISO) are full by nature.
    full = disk.writable and disk.free_bytes <= limit
    fault = Fault(
        message=f"the disk at {disk.mount} is full", rule=f"free space at or below {limit} bytes"
    )
    evidence = f"{disk.free_bytes} of {disk.size_bytes} bytes are free"
    return judged(f"disk/{disk.mount}", "DiskFull", evidence, fault if full else None)


def _judge_inodes(disk: DiskReading, limits: HostLimits) -> Judgement:
    least = disk.inodes * limits.inodes_free_min_ratio
    full = disk.writable and disk.inodes > 0 and disk.inodes_free <= least
    fault = Fault(
        message=f"the disk at {disk.mount} has no inode left for new files",
        rule=f"{limits.inodes_free_min_ratio:.0%} or less of the inodes are free",
    )
    evidence = f"{disk.inodes_free} of {disk.inodes} inodes are free"
    return judged(f"disk/{disk.mount}", "InodesExhausted", evidence, fault if full else None)


def _judge_missing(required: Sequence[str], mounts: Collection[str]) -> Iterable[Judgement]:
    for mount in required:
        is_there = mount in mounts
        fault = Fault(
            message=f"nothing is mounted at {mount}",
            rule="signals.host.mounts",
            severity=Severity.FATAL,
        )
        evidence = "mounted" if is_there else "not in the table of mounts"
        yield judged(f"disk/{mount}", "MountMissing", evidence, None if is_there else fault)


def _judge_nvme(name: str, state: str) -> Judgement:
    fault = Fault(
        message=f"NVMe controller {name} does not work",
        rule="a state other than live",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    is_live = state == "live"
    return judged(f"disk/{name}", "NvmeNotLive", f"state {state}", None if is_live else fault)


def _judge_array(name: str, missing: int) -> Judgement:
    fault = Fault(
        message=f"array {name} is degraded",
        rule="fewer disks than the array has",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    evidence = f"{missing} disks are missing"
    return judged(f"disk/{name}", "RaidDegraded", evidence, fault if missing > 0 else None)
