"""File system rules: kernel messages about local file systems that fail, lose writes, or stop."""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OWN_WORDS = "kernel message"
_WATCH, _REPAIR = SuggestedAction.WATCH, SuggestedAction.REPAIR_HARDWARE
_INFO, _DEGRADED, _FATAL = Severity.INFO, Severity.DEGRADED, Severity.FATAL

CONDITIONS = (
    Condition(
        name="FilesystemReadOnly",
        component="disk/DEVICE",
        meaning="the kernel made a file system read-only",
        source=_OWN_WORDS,
        clears_when="the file system is mounted writable in two polls, or the node was rebooted",
        clear_after=2,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="FilesystemShutDown",
        component="disk/DEVICE",
        meaning="the kernel has shut a file system down: every access fails",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="FilesystemWriteLost",
        component="disk/DEVICE",
        meaning="a file system could not write what programs had written: data is lost",
        source=_OWN_WORDS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FilesystemError",
        component="disk/DEVICE",
        meaning="a file system found an error in what it read or could not write",
        source=_OWN_WORDS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
)

_DEVICE = r"(?!fd\d|sr\d)(?P<device>[\w!.-]{0,63}\w)"


def _rule(
    needle: str,
    pattern: str,
    condition: str,
    severity: Severity = _DEGRADED,
    action: SuggestedAction = _WATCH,
    component: str = "disk/{device}",
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern, re.I),
        condition=condition,
        component=component,
        message=f"{_MESSAGES[condition]}: {component.removeprefix('disk/')}",
        severity=severity,
        action=action,
    )


_MESSAGES = {
    "FilesystemReadOnly": "the kernel made a file system read-only",
    "FilesystemShutDown": "the kernel has shut a file system down",
    "FilesystemWriteLost": "a file system has lost data that programs wrote",
    "FilesystemError": "a file system reports an error",
}


def _read_only(needle: str, pattern: str) -> LineRule:
    return _rule(needle, pattern, "FilesystemReadOnly", _FATAL, _REPAIR)


def _shut_down(needle: str, pattern: str) -> LineRule:
    return _rule(needle, pattern, "FilesystemShutDown", _FATAL, _REPAIR)


_XFS = rf"XFS \({_DEVICE}\): "
_BTRFS = rf"BTRFS(?:: |:? \w{{1,12}} )\(device {_DEVICE}[^)]{{0,40}}\)[^:]{{0,40}}: "

RULES = (
    _read_only("filesystem read-only", rf"\({_DEVICE}\): re-?mounting filesystem read-only"),
    _read_only(
        "forced readonly",
        rf"BTRFS.{{0,20}} \(device {_DEVICE}[^)]{{0,40}}\).{{0,120}}forced readonly",
    ),
    _read_only("set read-only", rf"\({_DEVICE}\): Filesystem has been set read-only"),
    _shut_down(
        "XFS (",
        rf"{_XFS}.{{0,200}}(?:shutting down filesystem|has been shut down"
        rf"|please u\w{{0,2}}mount the filesystem and rectify)",
    ),
    _shut_down("XFS (", rf"{_XFS}(?:xfs_do_force_shutdown|.{{0,80}}forced shutdown)"),
    _shut_down("EXT4-fs (", rf"EXT4-fs \({_DEVICE}\): shut down requested"),
    _shut_down(
        "has been suspended",
        r"WARNING: Pool '(?P<device>[\w.:-]{1,64})' has encountered an uncorrectable I/O failure",
    ),
    # Lost writes
    _rule(
        "EXT4-fs warning",
        rf"EXT4-fs warning \(device {_DEVICE}\): \w{{1,40}}:\d+: I/O error -?\d+ writing to inode",
        "FilesystemWriteLost",
    ),
    _rule(
        "EXT4-fs (",
        rf"EXT4-fs \({_DEVICE}\): (?:This should not happen!! +Data will be lost|Delayed block "
        r"allocation failed|.{0,100}potential data loss)",
        "FilesystemWriteLost",
    ),
    _rule(
        "Detected IO error",
        rf"JBD2: Detected IO errors? (?:-\d+ |while )?flushing file data on {_DEVICE}",
        "FilesystemWriteLost",
    ),
    _rule(
        "XFS (",
        rf"{_XFS}(?:writeback error on|Failing async write|page discard on|.{{0,40}}"
        r"unwritten extent conversion.{0,40}error)",
        "FilesystemWriteLost",
    ),
    _rule(
        "BTRFS",
        rf"{_BTRFS}.{{0,80}}(?:lost (?:page )?write due to|error writing)",
        "FilesystemWriteLost",
    ),
    # Errors
    _rule(
        "XFS (",
        rf"{_XFS}.{{0,60}}(?:I/O error|corrupt|CRC error|Internal error|log mount failed"
        r"|log mount/recovery failed|error -?\d+ returned|Unmount and run xfs_repair)",
        "FilesystemError",
    ),
    _rule("EXT4-fs error", rf"EXT4-fs error \(device {_DEVICE}\)", "FilesystemError"),
    _rule(
        "EXT4-fs warning",
        rf"EXT4-fs warning \(device {_DEVICE}\): .{{0,80}}(?:error|corrupt)",
        "FilesystemError",
    ),
    _rule(
        "EXT4-fs (",
        rf"EXT4-fs \({_DEVICE}\): (?:I/O error|previous I/O error|warning: mounting fs with errors"
        r"|.{0,40}[Cc]hecksum|ext4_check_descriptors|group descriptors corrupted|no journal found"
        r"|error loading journal)",
        "FilesystemError",
    ),
    # What is told a day after a mount of a file system that had an error before it.
    _rule(
        "EXT4-fs (",
        rf"EXT4-fs \({_DEVICE}\): (?:error count since last fsck|(?:initial|last) error at time)",
        "FilesystemError",
        _INFO,
    ),
    _rule("Aborting journal", rf"Aborting journal on device {_DEVICE}", "FilesystemError"),
    _rule(
        "JBD2: ",
        rf"JBD2: (?:Error -?\d+ detected|.{{0,20}}I/O error).{{0,20}} when updating journal"
        rf" superblock "
        rf"for {_DEVICE}",
        "FilesystemError",
    ),
    _rule(
        "JBD2: ",
        r"JBD2: (?:Spotted dirty metadata|I/?O error (?:reading|recovering)|recovery "
        r"failed|Invalid checksum|.{0,40}corrupt|Failed to read block)",
        "FilesystemError",
        component="disk/journal",
    ),
    _rule(
        "BTRFS",
        rf"BTRFS(?:: error| error| critical) \(device {_DEVICE}",
        "FilesystemError",
    ),
    _rule("BTRFS", rf"{_BTRFS}.{{0,40}}csum failed", "FilesystemError"),
    _rule("FAT-fs (", rf"FAT-fs \({_DEVICE}\): error, ", "FilesystemError"),
    _rule(
        "F2FS-fs (",
        rf"F2FS-fs \({_DEVICE}\): .{{0,60}}(?:corrupt|inconsistent|I/O error)",
        "FilesystemError",
    ),
    _rule(
        "journal commit I/O error",
        r"journal commit I/O error",
        "FilesystemError",
        component="disk/journal",
    ),
)
