"""Crash records: whose boot they belong to, what they say, and what cannot be read."""

import os
from pathlib import Path

import pytest

from everstep_agent.detectors.kernel.logs.pstore import CrashRecord, PstoreReading, judge_pstore
from everstep_agent.probes.kernel.pstore import read_pstore
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Faulty, Healthy, Unknown
from fakes.nobody import nobody

_HOUR = 3600 * 10**9
# Two hours after a boot that began at hour 100.
_NOW = Stamp("boot-2", 2 * _HOUR, 102 * _HOUR)
_TEXT = (
    "Panic#1 Part1\n"
    "<4>[  100.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    "<4>[  100.2] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    "<1>[  100.3] BUG: kernel NULL pointer dereference, address: 0000000000000010\n"
    "<0>[  100.4] Kernel panic - not syncing: Fatal exception\n"
)


def _record(hour: float, text: str = _TEXT) -> CrashRecord:
    return CrashRecord("/sys/fs/pstore/dmesg-efi-1", int(hour * _HOUR), text)


@pytest.mark.parametrize("hour", [99.5, 100.1])
def test_a_record_of_the_boot_before_is_told_with_its_end_and_its_xids(hour: float) -> None:
    judgement = judge_pstore(PstoreReading((_record(hour),)), _NOW)
    assert isinstance(judgement, Faulty)
    finding = judgement.finding
    assert "the kernel panicked: Fatal exception" in finding.message
    assert finding.message.endswith("Xids before it: 79 of GPU 0000:3b:00.0")
    assert (finding.condition, finding.severity) == ("PreviousBootCrashed", Severity.DEGRADED)


def test_a_record_of_a_boot_before_that_is_over() -> None:
    assert isinstance(judge_pstore(PstoreReading((_record(98),)), _NOW), Healthy)
    assert isinstance(judge_pstore(PstoreReading(), _NOW), Healthy)


def test_a_record_that_nobody_can_decode_is_told_by_its_name() -> None:
    judgement = judge_pstore(PstoreReading((_record(100, "\ufffd\ufffd"),)), _NOW)
    assert isinstance(judgement, Faulty)
    assert "/sys/fs/pstore/dmesg-efi-1" in judgement.finding.message


def test_what_may_not_be_read_is_unknown() -> None:
    assert isinstance(judge_pstore(PstoreReading(denied="no"), _NOW), Unknown)


def test_records_are_read_where_the_kernel_and_systemd_keep_them(tmp_path: Path) -> None:
    kernel, archive = tmp_path / "pstore", tmp_path / "archive"
    (archive / "1762171201" / "001").mkdir(parents=True)
    kernel.mkdir()
    (kernel / "dmesg-efi-1").write_text("first")
    (kernel / "console-ramoops-0").write_text("no crash")
    (archive / "1762171201" / "001" / "dmesg.txt").write_bytes(b"x" * 100_000 + b"\xff the end")
    records = read_pstore((kernel, archive, tmp_path / "no")).records
    assert {Path(record.path).name for record in records} == {"dmesg-efi-1", "dmesg.txt"}
    assert max(len(record.text) for record in records) == 64 << 10
    assert any(record.text.endswith("the end") for record in records)


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "pstore"
    folder.mkdir(mode=0)
    with nobody():
        assert "may not be read" in read_pstore((folder,)).denied


def test_an_archive_of_years_is_read_from_its_newest_end(tmp_path: Path) -> None:
    for number in range(100):
        path = tmp_path / f"dmesg-{number}"
        path.write_text(str(number))
        os.utime(path, ns=(number, number))
    assert len(read_pstore((tmp_path,)).records) == 64
