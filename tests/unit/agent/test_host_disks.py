"""Disks and file systems: full, read-only, missing, failing, or not answering."""

from dataclasses import replace

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.host.disks import (
    DiskDetector,
    DiskReading,
    StorageReading,
    judge_gone,
)
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.host.mounts import MountReading, judge_mounts
from everstep_common.judging.findings import FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy
from unit.agent.open_book import OpenBook

_ROOT = DiskReading(
    "/dev/vda1", "/", "ext4", 100 << 30, 50 << 30, inodes=1000, inodes_free=500, kernel_name="vda1"
)
_FINE = StorageReading((_ROOT,), frozenset({"/", "/data"}), nvme=(("nvme0", "live"),))
_NFS = MountReading(mount="/data", server="filer:/export", filesystem="nfs4", answered_s=0.002)


class Disks:
    """The disks of a node that names /data as required."""

    def __init__(self) -> None:
        self.book = OpenBook()
        self._detector = DiskDetector(HostLimits(mounts=("/data",)))

    def look(self, storage: StorageReading, times: int = 1) -> set[str]:
        """Look so often, and return what is open."""
        self.book.look(lambda _: self._detector.judge(storage), times)
        return self.book.open


@pytest.mark.parametrize(
    ("name", "faulty"),
    [
        ("DiskFull", replace(_FINE, disks=(replace(_ROOT, free_bytes=1000),))),
        ("InodesExhausted", replace(_FINE, disks=(replace(_ROOT, inodes_free=20),))),
        ("MountMissing", replace(_FINE, mounts=frozenset({"/"}))),
        ("NvmeNotLive", replace(_FINE, nvme=(("nvme0", "dead"),))),
        ("RaidDegraded", replace(_FINE, arrays=(("md0", 1),))),
        ("MountReadOnly", replace(_FINE, disks=(replace(_ROOT, writable=False),))),
    ],
)
def test_a_condition_is_raised_after_as_many_looks_as_it_says_and_clears(
    name: str, faulty: StorageReading
) -> None:
    fine = replace(_FINE, arrays=(("md0", 0),))
    rule, disks = CONDITIONS[name], Disks()
    assert disks.look(fine) == set()
    assert disks.look(faulty, rule.raise_after - 1) == set()
    assert disks.look(faulty) == {name}
    assert disks.look(fine, rule.clear_after - 1) == {name}
    assert disks.look(fine) == set()


def test_an_image_that_is_full_by_nature_is_no_fault() -> None:
    image = DiskReading("/dev/loop0", "/snap/core", "squashfs", 1 << 20, 0, writable=False)
    assert Disks().look(replace(_FINE, disks=(_ROOT, image)), 10) == set()


def test_a_file_system_without_a_fixed_number_of_inodes_never_runs_out_of_them() -> None:
    btrfs = replace(_ROOT, inodes=0, inodes_free=0)
    assert Disks().look(replace(_FINE, disks=(btrfs,)), 10) == set()


def test_what_was_read_only_when_the_agent_came_is_a_fault_only_if_the_table_says_writable() -> (
    None
):
    read_only = replace(_FINE, disks=(replace(_ROOT, writable=False),))
    assert Disks().look(read_only, 10) == set()
    disks = Disks()
    assert disks.look(replace(read_only, writable_by_table=frozenset({"/"})), 2) == {
        "MountReadOnly"
    }
    assert disks.book.finding("MountReadOnly").rule == "/etc/fstab mounts it writable"


def test_a_read_only_file_system_that_is_mounted_no_more_is_no_fault() -> None:
    disks = Disks()
    disk = replace(_ROOT, mount="/scratch")
    disks.look(replace(_FINE, disks=(disk,)))
    assert disks.look(replace(_FINE, disks=(replace(disk, writable=False),)), 2) == {
        "MountReadOnly"
    }
    book = disks.book
    book.look(lambda _: judge_gone(book.book.open_keys, {"/scratch"}, ()), 5)
    assert book.open == {"MountReadOnly"}
    book.look(lambda _: judge_gone(book.book.open_keys, {"/"}, ()), 2)
    assert book.open == set()


def test_a_writable_disk_clears_what_the_kernel_said_of_its_device() -> None:
    mapped = replace(_ROOT, device="/dev/mapper/data", kernel_name="dm-0")
    judgements = DiskDetector().judge(StorageReading((mapped,)))
    healthy = [judgement.key for judgement in judgements if isinstance(judgement, Healthy)]
    assert FindingKey("disk/dm-0", "FilesystemReadOnly") in healthy


def test_a_missing_mount_that_the_operator_named_is_fatal() -> None:
    disks = Disks()
    disks.look(replace(_FINE, mounts=frozenset({"/"})), 3)
    assert disks.book.finding("MountMissing").severity is Severity.FATAL


@pytest.mark.parametrize(
    ("name", "reading"),
    [
        ("MountHang", replace(_NFS, hang="no answer for 35 s")),
        ("MountFailed", replace(_NFS, error="Stale file handle")),
    ],
)
def test_a_file_system_that_does_not_answer_or_fails_is_told_with_its_server(
    name: str, reading: MountReading
) -> None:
    book = OpenBook(interval_s=30)
    book.look(lambda _: judge_mounts([_NFS]))
    book.look(lambda _: judge_mounts([reading]))
    assert book.open == set()
    book.look(lambda _: judge_mounts([reading]))
    finding = book.finding(name)
    assert finding.component == "disk//data"
    assert "filer:/export" in finding.message
    assert finding.evidence in (reading.hang, reading.error)
    book.look(lambda _: judge_mounts([_NFS]), 2)
    assert book.open == set()


def test_a_hanging_file_system_that_is_mounted_no_more_is_no_fault() -> None:
    book = OpenBook(interval_s=30)
    book.look(lambda _: judge_mounts([replace(_NFS, hang="no answer for 5 s")]), 3)
    assert book.open == {"MountHang"}
    book.look(lambda _: judge_gone(book.book.open_keys, {"/"}, ()), 2)
    assert book.open == set()


def test_a_mount_that_the_operator_names_no_more_is_not_missing() -> None:
    disks = Disks()
    disks.look(replace(_FINE, mounts=frozenset({"/"})), 3)
    book = disks.book
    book.look(lambda _: judge_gone(book.book.open_keys, {"/"}, ("/data",)), 5)
    assert book.open == {"MountMissing"}
    book.look(lambda _: judge_gone(book.book.open_keys, {"/"}, ("/scratch",)), 2)
    assert book.open == set()


def test_one_hanging_file_system_says_nothing_of_another() -> None:
    other = replace(_NFS, mount="/home")
    judged = judge_mounts([replace(_NFS, hang="no answer for 5 s"), other])
    assert [one.key.component for one in judged if isinstance(one, Faulty)] == ["disk//data"]
