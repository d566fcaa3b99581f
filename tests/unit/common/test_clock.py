"""Stamps name the boot that their clock counts from."""

from pathlib import Path

import pytest

from everstep_common.clock import boot_ns, stamp_clock


def test_a_stamp_carries_the_boot_id_and_times_that_do_not_go_back(tmp_path: Path) -> None:
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("6f1c\n")
    clock = stamp_clock(boot_id)
    before, stamp, after = boot_ns(), clock(), boot_ns()
    assert stamp.boot_id == "6f1c"
    assert before <= stamp.boot_ns <= after
    assert stamp.wall_ns > 0


def test_a_machine_without_a_boot_id_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="boot_id"):
        stamp_clock(tmp_path / "boot_id")
