"""Where the launcher finds its own control group."""

from pathlib import Path

import pytest

from everstep.launch.processes.generation_group import (
    GenerationGroup,
    group_name,
    own_group,
    remove_left,
)

HYBRID = (
    "30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
)
UNIFIED = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
CONTAINER = "31 30 0:27 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def proc(folder: Path, cgroup: str, mounts: str) -> Path:
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mounts)
    return folder


@pytest.mark.parametrize(
    ("cgroup", "mounts", "own"),
    [
        ("4:memory:/x\n0::/\n", HYBRID, "/sys/fs/cgroup/unified"),
        ("0::/user.slice/a.service\n", UNIFIED, "/sys/fs/cgroup/user.slice/a.service"),
        ("0::/box/job\n", CONTAINER, "/sys/fs/cgroup/job"),
        ("0::/boxer\n", CONTAINER, None),
        ("0::/../above\n", UNIFIED, None),
        ("4:memory:/x\n", HYBRID, None),
        ("0::/\n", "", None),
    ],
)
def test_the_own_group(tmp_path: Path, cgroup: str, mounts: str, own: str | None) -> None:
    assert own_group(proc(tmp_path, cgroup, mounts)) == (Path(own) if own else None)


def test_without_groups_there_is_none(tmp_path: Path) -> None:
    assert own_group(tmp_path / "none") is None
    nowhere = proc(tmp_path, "0::/\n", f"31 30 0:27 / {tmp_path}/no rw - cgroup2 cgroup2 rw\n")
    assert GenerationGroup.make("x", nowhere) is None


def test_groups_of_launchers_that_are_gone_are_removed(tmp_path: Path) -> None:
    (tmp_path / "proc/77").mkdir(parents=True)
    own = tmp_path / "own"
    names = [group_name(77, 1), group_name(78, 2), "everstep-79-gen-x", "other"]
    used = own / group_name(80, 1)
    for folder in (*(own / name for name in names), used / "inside"):
        folder.mkdir(parents=True)
    remove_left(own, tmp_path / "proc")
    kept = {names[0], names[2], names[3], used.name}
    assert {folder.name for folder in own.iterdir()} == kept
