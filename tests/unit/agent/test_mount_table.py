"""The table of mounts: which are disks, which are somebody else's, and which are writable."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.probes.machine.mounts import MountTable, parse_mount, writable_by_table


@given(line=st.text(max_size=200) | st.text("0:/ -,rwo\\", max_size=200))
def test_any_line_is_a_mount_or_none(line: str) -> None:
    parse_mount(line)


def test_a_confined_agent_sees_whether_the_file_system_is_writable_not_its_own_view() -> None:
    shown = "27 1 259:1 / / ro,nosuid - ext4 /dev/nvme0n1p1 rw"
    assert (mount := parse_mount(shown)) is not None
    assert mount.writable
    assert (broken := parse_mount(shown.replace("p1 rw", "p1 ro"))) is not None
    assert not broken.writable


@pytest.mark.parametrize(
    ("filesystem", "remote"),
    [("nfs4", True), ("lustre", True), ("ceph", True), ("fuse.gcsfuse", True), ("fuse", True),
     ("ext4", False), ("tmpfs", False), ("fuse.lxcfs", False), ("fusectl", False)],
)  # fmt: skip
def test_file_systems_that_somebody_answers_for_are_known(filesystem: str, remote: bool) -> None:
    mount = parse_mount(f"1 1 0:5 / /x rw shared:1 master:2 - {filesystem} src rw")
    assert mount is not None
    assert mount.is_remote is remote


_FUSE = "1 1 0:5 / /home/me/x rw - {} me@host:/x rw,user_id={},group_id=1000,allow_other"


@pytest.mark.parametrize("filesystem", ["fuse", "fuse.sshfs", "fuse.lxcfs", "fuse.\\040x"])
def test_what_a_user_mounted_and_serves_is_never_asked(tmp_path: Path, filesystem: str) -> None:
    """It hangs whenever that user wishes, and many of it would leave no thread for the others."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(_FUSE.format(filesystem, 1000) + "\n")
    (tmp_path / "filesystems").write_text("nodev\tfuse\n")
    table = MountTable(tmp_path)
    (mount,) = table.read()
    assert not mount.is_remote
    assert table.disks([mount]) == ()


def test_what_root_mounted_is_asked_though_it_is_served_by_a_process() -> None:
    mount = parse_mount(_FUSE.format("fuse.sshfs", 0))
    assert mount is not None
    assert mount.is_remote


def test_a_disk_that_is_mounted_in_parts_is_listed_once_by_its_top_folder(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "1 1 8:1 /home /home rw - ext4 /dev/sda1 rw\n"
        "2 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "3 1 8:1 /var /var/lib/everstep-agent rw - ext4 /dev/sda1 rw\n"
        "4 1 0:9 / /sys rw - sysfs sysfs rw\n"
        "5 1 0:33 / /dev/shm rw - tmpfs tmpfs rw\n"
        "6 1 0:34 / /run/user/0 rw - tmpfs tmpfs rw\n"
    )
    (tmp_path / "filesystems").write_text("nodev\tsysfs\nnodev\ttmpfs\n\text4\n")
    table = MountTable(tmp_path)
    assert [mount.path for mount in table.disks(table.read())] == ["/", "/dev/shm"]


def test_options_of_the_table_decide_whether_a_mount_should_be_writable(tmp_path: Path) -> None:
    table = tmp_path / "fstab"
    table.write_text(
        "UUID=1 / ext4 defaults 0 1\nUUID=2 /my\\040data xfs rw,noatime 0 2\n"
        "UUID=3 /image squashfs loop,ro 0 0\nUUID=4 none swap sw 0 0\n#UUID=5 /old ext4 rw 0 0\n"
    )
    assert writable_by_table(table) == {"/", "/my data"}
