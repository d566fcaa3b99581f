"""Which mount point a path needs that is not mounted, as the tables of a machine say."""

from pathlib import Path

import pytest

from everstep_common.mount_points import MountTables

_ROOT = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"


@pytest.fixture
def tables(tmp_path: Path) -> MountTables:
    """A machine whose root is all that is mounted, with a disk, a share and a unit to come."""
    (tmp_path / "fstab").write_text(
        "UUID=1 / ext4 defaults 0 1\n"
        "# server:/old /old nfs defaults 0 0\n"
        "/dev/sdb1 /data/ ext4 noauto 0 0\n"
        "server:/deep /data/deep\\040er nfs defaults 0 0\n"
        "broken\n"
    )
    (tmp_path / "mountinfo").write_text(_ROOT)
    enabled = tmp_path / "units/multi-user.target.wants"
    enabled.mkdir(parents=True)
    (enabled / "share.mount").write_text("[Mount]\nWhat=x\nWhere=/share\n")
    (tmp_path / "units/off.mount").write_text("[Mount]\nWhat=x\nWhere=/off\n")
    return MountTables(
        str(tmp_path / "fstab"), str(tmp_path / "mountinfo"), str(tmp_path / "units")
    )


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/data", "/data"),
        ("/data/runs/llm", "/data"),
        ("/data/deep er/runs", "/data/deep er"),
        ("/database/runs", ""),
        ("/share/../data/x", "/data"),
        ("/share/x", "/share"),
        ("/off/x", ""),
        ("/old/x", ""),
        ("/home/alice", ""),
        ("/", ""),
    ],
)
def test_a_point_at_or_above_a_path_that_is_not_mounted_is_named(
    tables: MountTables, path: str, point: str
) -> None:
    assert tables.unmounted_point(path) == point


def test_what_is_mounted_is_no_problem(tables: MountTables) -> None:
    mounted = _ROOT + "23 22 8:2 / /data rw shared:1 - ext4 /dev/sdb1 rw\n"
    Path(tables.mounts).write_text(mounted)
    assert tables.unmounted_point("/data/runs") == ""
    assert tables.unmounted_point("/data/deep er/runs") == "/data/deep er"


def test_a_path_that_leads_there_by_a_link_is_below_it_too(
    tables: MountTables, tmp_path: Path
) -> None:
    (tmp_path / "short").symlink_to("/data/runs")
    assert tables.unmounted_point(str(tmp_path / "short/llm")) == "/data"


def test_tables_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    assert MountTables(none, none, none).unmounted_point("/data") == ""
