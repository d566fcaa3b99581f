"""Storage rules: kernel messages about file systems, disks and file servers."""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OVER = "no further message"
_OWN_WORDS = "kernel message"
_REPAIR = SuggestedAction.REPAIR_HARDWARE


def _condition(name: str, meaning: str, component: str = "disk/DEVICE") -> Condition:
    return Condition(
        name=name,
        component=component,
        meaning=meaning,
        source=_OWN_WORDS,
        clears_when=_OVER,
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    )


CONDITIONS = (
    Condition(
        name="FilesystemReadOnly",
        component="disk/DEVICE",
        meaning="the kernel made a file system read-only",
        source=_OWN_WORDS,
        clears_when="the file system is mounted writable in two polls, or the node was rebooted",
        clear_after=2,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FilesystemShutDown",
        component="disk/DEVICE",
        meaning="XFS has shut a file system down: every access fails",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NvmeControllerLost",
        component="disk/DEVICE",
        meaning="an NVMe disk was given up after it did not come back from a reset",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NfsServerSilent",
        component="disk/nfs:SERVER",
        meaning="an NFS server does not respond; its readers wait",
        source="the client asks for a minute before it says so",
        clears_when="the kernel says that the server is back, or the node was rebooted",
        mode=Mode.ADVISE,
    ),
    _condition(
        "FilesystemError", "a file system found an error in what it read or could not write"
    ),
    _condition("DiskIoError", "a read or write of a disk failed"),
    _condition("DiskMediumError", "a disk cannot read what it has written (critical medium error)"),
    _condition("NvmeTimeout", "an NVMe disk did not answer a command in time, or was reset for it"),
    _condition("RaidDiskFailed", "a software RAID has thrown a disk out", "disk/ARRAY"),
)


def _rule(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    action: SuggestedAction = SuggestedAction.WATCH,
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern, re.I),
        condition=condition,
        component="disk/{device}",
        message=f"{message}: {{device}}",
        action=action,
    )


_READ_ONLY = "the kernel made a file system read-only"
_SHUT_DOWN = "XFS has shut a file system down"
_BROKEN = "a file system reports an error"
_IO = "a read or write of a disk failed"
_LATE = "an NVMe disk does not answer in time"
_GIVEN_UP = "an NVMe disk was given up"
_DEVICE = r"(?P<device>[\w!.-]{0,63}\w)"

RULES = (
    _rule(
        "filesystem read-only",
        rf"\({_DEVICE}\): re-?mounting filesystem read-only",
        "FilesystemReadOnly",
        _READ_ONLY,
        _REPAIR,
    ),
    _rule(
        "forced readonly",
        rf"BTRFS[^:]{{0,40}}\(device {_DEVICE}[^)]{{0,40}}\)[^:]{{0,40}}: .{{0,40}}forced readonly",
        "FilesystemReadOnly",
        _READ_ONLY,
        _REPAIR,
    ),
    _rule(
        "XFS (",
        rf"XFS \({_DEVICE}\): .{{0,200}}(?:shutting down filesystem|has been shut down)",
        "FilesystemShutDown",
        _SHUT_DOWN,
        _REPAIR,
    ),
    _rule(
        "XFS (",
        rf"XFS \({_DEVICE}\): (?:xfs_do_force_shutdown|.{{0,80}}forced shutdown)",
        "FilesystemShutDown",
        _SHUT_DOWN,
        _REPAIR,
    ),
    _rule(
        "XFS (",
        rf"XFS \({_DEVICE}\): .{{0,40}}(?:I/O error|corruption|corrupt)",
        "FilesystemError",
        _BROKEN,
    ),
    _rule("EXT4-fs error", rf"EXT4-fs error \(device {_DEVICE}\)", "FilesystemError", _BROKEN),
    _rule("EXT4-fs (", rf"EXT4-fs \({_DEVICE}\): I/O error", "FilesystemError", _BROKEN),
    _rule("Aborting journal", rf"Aborting journal on device {_DEVICE}", "FilesystemError", _BROKEN),
    _rule(
        "BTRFS",
        rf"BTRFS(?:: error| error| critical) \(device {_DEVICE}",
        "FilesystemError",
        _BROKEN,
    ),
    _rule(
        "critical medium error",
        rf"critical medium error, dev {_DEVICE},",
        "DiskMediumError",
        "a disk cannot read its medium",
        _REPAIR,
    ),
    # A floppy (fd0) and a DVD drive (sr0) without a medium say it at every boot.
    _rule("I/O error, dev", rf"I/O error, dev (?!fd\d|sr\d){_DEVICE},", "DiskIoError", _IO),
    _rule(
        "I/O error on dev",
        rf"Buffer I/O error on dev (?!fd\d|sr\d){_DEVICE},",
        "DiskIoError",
        _IO,
    ),
    _rule(
        "nvme",
        rf"nvme {_DEVICE}: I/O .{{0,80}}timeout, (?:aborting|reset|disable)",
        "NvmeTimeout",
        _LATE,
    ),
    _rule(
        "nvme", rf"nvme {_DEVICE}: controller is down; will reset", "NvmeTimeout", _LATE, _REPAIR
    ),
    _rule(
        "nvme",
        rf"nvme {_DEVICE}: (?:Removing after probe failure|Disabling device after reset failure|"
        r"Device not ready; aborting)",
        "NvmeControllerLost",
        _GIVEN_UP,
        _REPAIR,
    ),
    _rule(
        "Disk failure on",
        r"md/raid\w*:(?P<device>\w+): Disk failure on",
        "RaidDiskFailed",
        "a software RAID has thrown a disk out",
        _REPAIR,
    ),
    LineRule(
        needle="not responding",
        pattern=re.compile(r"nfs: server (?P<server>\S{1,255}) not responding"),
        condition="NfsServerSilent",
        component="disk/nfs:{server}",
        message="the NFS server {server} does not respond",
        severity=Severity.DEGRADED,
    ),
    LineRule(
        needle="nfs: server",
        pattern=re.compile(r"nfs: server (?P<server>\S{1,255}) OK"),
        condition="NfsServerSilent",
        component="disk/nfs:{server}",
        message="the NFS server {server} is back",
        ends=True,
    ),
)
