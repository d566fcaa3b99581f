"""Disk rules: kernel messages about block devices, NVMe and SCSI disks, software RAID and paths."""

import re

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_OWN_WORDS = "kernel message"
_WATCH, _REPAIR = SuggestedAction.WATCH, SuggestedAction.REPAIR_HARDWARE


def _condition(name: str, meaning: str, component: str = "disk/DEVICE") -> Condition:
    return Condition(
        name=name,
        component=component,
        meaning=meaning,
        source=_OWN_WORDS,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    )


CONDITIONS = (
    Condition(
        name="NvmeControllerLost",
        component="disk/DEVICE",
        meaning="an NVMe disk was given up after it did not come back from a reset",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="DiskOffline",
        component="disk/DEVICE",
        meaning="the kernel has given a disk or its controller up: every access fails",
        source=_OWN_WORDS,
        clears_when="the node was rebooted",
        mode=Mode.ADVISE,
    ),
    _condition("DiskIoError", "a read or write of a disk failed"),
    _condition("DiskMediumError", "a disk cannot read what it has written (critical medium error)"),
    _condition("DiskPathLost", "a path to a disk failed, or no path to it is left (multipath)"),
    _condition("DiskControllerFault", "the controller of disks reports a fault of its own"),
    _condition("DiskPoolFull", "a pool of thin volumes is full or broken (device-mapper)"),
    _condition("NvmeTimeout", "an NVMe disk did not answer a command in time, or was reset for it"),
    _condition("RaidDiskFailed", "a software RAID has thrown a disk out", "disk/ARRAY"),
    _condition(
        "RaidDisksMissing", "a software RAID runs with too few disks, or not at all", "disk/ARRAY"
    ),
    _condition(
        "RaidReadError", "a software RAID could not read from one of its disks", "disk/ARRAY"
    ),
)

# A floppy (fd0), a DVD drive (sr0) and a network block device that nobody connected (nbd0) say at
# every boot that they have no medium.
_DEVICE = r"(?!fd\d|sr\d|nbd\d)(?P<device>[\w!.-]{0,63}\w)"
_ARRAY = r"(?P<device>md[\w-]{0,31})"


def _rule(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    action: SuggestedAction = _WATCH,
    severity: Severity = Severity.DEGRADED,
    component: str = "disk/{device}",
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern, re.I),
        condition=condition,
        component=component,
        message=f"{message}: {component.removeprefix('disk/')}",
        severity=severity,
        action=action,
    )


_IO = "a read or write of a disk failed"
_LATE = "an NVMe disk does not answer in time"
_GIVEN_UP = "an NVMe disk was given up"
_OFFLINE = "the kernel has given a disk up"
_MEDIUM = "a disk cannot read its medium"
_PATH = "a path to a disk has failed"
_CONTROLLER = "a controller of disks reports a fault"
_THROWN_OUT = "a software RAID has thrown out {member}"
_TOO_FEW = "a software RAID runs with too few disks"
_NOT_READ = "a software RAID could not read from one of its disks"
_MEMBER = r"(?P<member>[\w!.-]{1,64})"
_SCSI = r"(?:sd|sr|scsi) (?:\d{1,4}:){3}\d{1,8}: "

_BLOCK = (
    _rule(
        "critical medium error",
        rf"critical medium error, dev {_DEVICE},",
        "DiskMediumError",
        _MEDIUM,
        _REPAIR,
    ),
    _rule("I/O error, dev", rf"I/O error, dev {_DEVICE},", "DiskIoError", _IO),
    # "Buffer I/O error on dev sda1, logical block 9, lost async page write"; "on device" up to 4.2.
    _rule("I/O error on dev", rf"Buffer I/O error on dev(?:ice)? {_DEVICE},", "DiskIoError", _IO),
    _rule(
        "due to I/O error on", rf"lost page write due to I/O error on {_DEVICE}", "DiskIoError", _IO
    ),
    _rule("error, dev", rf"timeout error, dev {_DEVICE},", "DiskIoError", _IO),
    _rule(
        "error, dev",
        rf"critical space allocation error, dev {_DEVICE},",
        "DiskPoolFull",
        "a pool is full",
    ),
    _rule(
        "error, dev",
        rf"(?:protection|recoverable transport) error, dev {_DEVICE},",
        "DiskIoError",
        _IO,
    ),
)

_NVME = (
    _rule(
        "nvme",
        rf"nvme {_DEVICE}: I/O .{{0,120}}timeout, (?:aborting|reset|disable)",
        "NvmeTimeout",
        _LATE,
    ),
    _rule(
        "nvme", rf"nvme {_DEVICE}: I/O .{{0,120}}timeout, completion polled", "NvmeTimeout", _LATE
    ),
    _rule(
        "nvme", rf"nvme {_DEVICE}: controller is down; will reset", "NvmeTimeout", _LATE, _REPAIR
    ),
    _rule(
        "nvme",
        rf"nvme {_DEVICE}: (?:Removing after probe failure|Disabling device after reset failure|"
        r"Device not ready; aborting|Removing controller|failed to mark controller (?:live"
        r"|CONNECTING))",
        "NvmeControllerLost",
        _GIVEN_UP,
        _REPAIR,
    ),
    _rule(
        "nvme",
        rf"nvme {_DEVICE}: (?:resetting controller due to|frozen state error|Abort status: 0x[1-9]"
        r"|starting error recovery|failed nvme_keep_alive|Failed reconnect attempt|Identify "
        r"Controller failed)",
        "NvmeTimeout",
        _LATE,
    ),
    # "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81)"
    _rule(
        "sct 0x2",
        rf"{_DEVICE}: [\w/]{{1,20}}(?: Cmd)?\(0x[0-9a-f]+\) @ LBA \d+, .{{1,80}}\(sct 0x2 /",
        "DiskMediumError",
        _MEDIUM,
        _REPAIR,
    ),
    _rule(
        "no available path",
        rf"(?:block )?{_DEVICE}: no available path",
        "DiskPathLost",
        _PATH,
        _REPAIR,
    ),
    _rule("no usable path", rf"(?:block )?{_DEVICE}: no usable path", "DiskPathLost", _PATH),
)

_ATTACHED = (
    _rule(
        "timing out command",
        rf"{_SCSI}\[{_DEVICE}\] (?:tag#\d+ )?timing out command, waited",
        "DiskIoError",
        _IO,
    ),
    _rule(
        "exception Emask",
        r"(?P<device>ata\d+(?:\.\d+)?): exception Emask 0x[0-9a-f]+ .{0,80}frozen",
        "DiskIoError",
        _IO,
    ),
    _rule(
        "Device offlined",
        r"(?:sd|scsi) (?P<device>(?:\d{1,4}:){3}\d{1,8}): Device offlined",
        "DiskOffline",
        _OFFLINE,
        _REPAIR,
    ),
    _rule(
        "to offline device",
        r"(?:sd|scsi) (?P<device>(?:\d{1,4}:){3}\d{1,8}): (?:\[\w{1,16}\] )?rejecting I/O to"
        r" offline",
        "DiskOffline",
        _OFFLINE,
        _REPAIR,
    ),
    _rule(
        "Sense Key",
        rf"{_SCSI}\[{_DEVICE}\] (?:tag#\d+ )?Sense Key ?: ?(?:Medium|Hardware) Error",
        "DiskMediumError",
        _MEDIUM,
        _REPAIR,
    ),
    _rule(
        "Synchronize Cache",
        rf"{_SCSI}\[{_DEVICE}\] (?:tag#\d+ )?Synchronize Cache\(1[06]\) failed",
        "DiskIoError",
        _IO,
    ),
    _rule(
        "error: { UNC",
        r"(?P<device>ata\d+\.\d+): error: \{ UNC",
        "DiskMediumError",
        _MEDIUM,
        _REPAIR,
    ),
    _rule("failed command: ", r"(?P<device>ata\d+\.\d+): failed command: ", "DiskIoError", _IO),
    _rule(
        "disable", r"(?P<device>ata\d+\.\d+): disable(?:d|\s|$)", "DiskOffline", _OFFLINE, _REPAIR
    ),
    _rule(
        "COMRESET failed",
        r"(?P<device>ata\d+): COMRESET failed",
        "DiskControllerFault",
        _CONTROLLER,
    ),
    _rule(
        "mpt",
        r"(?P<device>mpt[23]sas\w{0,8}): .{0,40}(?:fault_state\(0x|SAS host is non-operational|"
        r"_scsih_remove_device.{0,20}forcibly|diag reset: FAILED)",
        "DiskControllerFault",
        _CONTROLLER,
        _REPAIR,
    ),
    _rule(
        "megaraid_sas",
        rf"megaraid_sas {PCI.replace('pci', 'device')}: .{{0,40}}(?:(?:/CRIT\)|/DEAD\)|/FATAL\)) - "
        r"|FW in FAULT state|Adapter is dead|Reset failed|Adapter reset failed|Failed from "
        r"megasas_init)",
        "DiskControllerFault",
        _CONTROLLER,
        _REPAIR,
    ),
    _rule(
        "ontroller",
        rf"(?:smartpqi|hpsa|aacraid) {PCI.replace('pci', 'device')}: .{{0,40}}(?:[Cc]ontroller "
        r"(?:is )?offline|[Cc]ontroller lockup detected)",
        "DiskControllerFault",
        _CONTROLLER,
        _REPAIR,
    ),
)

_ARRAYS = (
    _rule(
        "Disk failure on",
        rf"md/\w{{1,16}}:{_ARRAY}: Disk failure on {_MEMBER}[, ]",
        "RaidDiskFailed",
        _THROWN_OUT,
        _REPAIR,
    ),
    _rule(
        "md: kicking non-fresh",
        rf"md: kicking non-fresh {_MEMBER} from array",
        "RaidDiskFailed",
        _THROWN_OUT,
        _REPAIR,
        component="disk/md",
    ),
    _rule(
        "md: super_written",
        r"md: super_written gets error",
        "RaidReadError",
        "the record of a software RAID could not be written",
        component="disk/md",
    ),
    _rule(
        "md/raid",
        rf"md/\w{{1,16}}:{_ARRAY}: .{{0,60}}(?:unrecoverable I/O read error"
        rf"|read error not correctable"
        r"|read error NOT corrected|[Tt]oo many read errors|exceeded read_error threshold)",
        "RaidReadError",
        _NOT_READ,
        _REPAIR,
    ),
    _rule(
        "rescheduling sector",
        rf"md/\w{{1,16}}:{_ARRAY}: .{{0,80}}rescheduling sector",
        "RaidReadError",
        _NOT_READ,
    ),
    _rule(
        "read error corrected",
        rf"md/\w{{1,16}}:{_ARRAY}: read error corrected",
        "RaidReadError",
        _NOT_READ,
    ),
    # "active with 1 out of 2 mirrors", "raid level 5 active with 3 out of 4 devices"
    _rule(
        "active with",
        rf"md/\w{{1,16}}:{_ARRAY}: .{{0,40}}active with (?P<n>\d+) out of (?!(?P=n) )\d+ ",
        "RaidDisksMissing",
        _TOO_FEW,
        _REPAIR,
    ),
    _rule(
        "md/raid",
        rf"md/\w{{1,16}}:{_ARRAY}: (?:not enough operational|Cannot continue operation"
        rf"|failed to run "
        r"raid set|.{0,20}Operation continuing on 0 devices)",
        "RaidDisksMissing",
        "a software RAID does not work any more",
        _REPAIR,
        Severity.FATAL,
    ),
    _rule(
        "continuing on",
        rf"md/\w{{1,16}}:{_ARRAY}: Operation continuing on \d+ devices",
        "RaidDisksMissing",
        _TOO_FEW,
        _REPAIR,
    ),
    _rule(
        "multipath",
        r"device-mapper: multipath: (?P<device>[\d:]{1,16}): Failing path",
        "DiskPathLost",
        _PATH,
    ),
    _rule(
        "multipath",
        r"device-mapper: multipath: Failing path (?P<device>[\d:]{1,16})",
        "DiskPathLost",
        _PATH,
    ),
    _rule(
        "multipath",
        rf"multipath: IO failure on {_DEVICE}, disabling IO path",
        "DiskPathLost",
        _PATH,
    ),
    _rule(
        "device-mapper: thin",
        r"device-mapper: thin: (?P<device>[\d:]{1,16}): switching pool to (?:out-of-data-space"
        r"|read-only|fail)",
        "DiskPoolFull",
        "a pool of thin volumes is full or broken",
        _REPAIR,
    ),
)

RULES = (*_BLOCK, *_NVME, *_ATTACHED, *_ARRAYS)
