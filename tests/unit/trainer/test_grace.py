"""How long a launcher has from a signal to SIGKILL, by what can be read of whoever sends it."""

from pathlib import Path

import pytest

from everstep.launch.command_line.grace import GRACE_MAX_S, Grace, known_grace

_NOW_S = 1_000_000.0


def test_who_is_told_believes_it(tmp_path: Path) -> None:
    environ = {"SLURM_JOB_ID": "7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert known_grace(120.0, environ).seconds == 120


def test_where_nobody_kills_anything_it_is_short() -> None:
    assert known_grace(None, {}) == Grace(10.0)


def test_a_pod_has_what_kubernetes_gives_by_default() -> None:
    grace = known_grace(None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert grace.seconds == 30
    assert "terminationGracePeriodSeconds" in grace.set_by


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("KillWait=45\n", 45), ("# KillWait=9\n  killwait = 7 # s\n", 7), ("ClusterName=x\n", 30)],
)
def test_slurms_kill_wait_is_read_from_its_file(tmp_path: Path, text: str, seconds: int) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(text)
    for environ, files in (
        ({"SLURM_CONF": str(path)}, []),
        ({}, [str(tmp_path / "none"), str(path)]),
    ):
        grace = known_grace(None, {"SLURM_JOB_ID": "7", **environ}, _NOW_S, files)
        assert grace.seconds == seconds
        assert "KillWait" in grace.set_by


def test_a_grace_that_fits_no_message_is_a_week(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(f"KillWait={'9' * 400}\n")
    assert known_grace(None, {"SLURM_JOB_ID": "7"}, _NOW_S, [str(path)]).seconds == GRACE_MAX_S
    environ = {
        "SLURM_JOB_ID": "7",
        "SBATCH_SIGNAL": f"TERM@{'9' * 30}",
        "SLURM_JOB_END_TIME": "9" * 20,
    }
    assert known_grace(None, environ, _NOW_S, []).seconds == GRACE_MAX_S


def test_without_a_file_it_is_slurms_default() -> None:
    assert known_grace(None, {"SLURM_JOB_ID": "7"}, _NOW_S, []).seconds == 30


@pytest.mark.parametrize(
    ("told", "ends_in_s", "seconds"),
    [
        ("TERM@120", 119, 119),
        ("B:SIGTERM@120", 175, 175),  # it comes up to a minute early
        ("R:15@300", 290, 290),
        ("TERM", 60, 60),
        ("TERM@120", 500, 30),  # long before: somebody's scancel
        ("TERM@120", -1, 30),  # Slurm's own signal at the end
        ("USR1@120", 119, 30),
        ("15x@120", 119, 30),
    ],
)
def test_a_warning_before_the_time_limit_leaves_what_is_left_of_the_allocation(
    told: str, ends_in_s: int, seconds: int
) -> None:
    environ = {
        "SLURM_JOB_ID": "7",
        "SBATCH_SIGNAL": told,
        "SLURM_JOB_END_TIME": str(round(_NOW_S) + ends_in_s),
    }
    assert known_grace(None, environ, _NOW_S, []).seconds == seconds
