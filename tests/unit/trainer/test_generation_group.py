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


def put(proc_folder: Path, pid: object, cgroup: str) -> None:
    """Let a process be in a control group."""
    (proc_folder / str(pid)).mkdir(parents=True)
    (proc_folder / str(pid) / "cgroup").write_text(cgroup)


def test_groups_of_launchers_that_are_gone_are_removed(tmp_path: Path) -> None:
    own, seen = tmp_path / "own", tmp_path / "proc"
    put(seen, "self", "0::/own\n")
    (seen / "self/mountinfo").write_text(f"31 30 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    put(seen, 77, "0::/own\n")
    names = [group_name(77, 1), group_name(78, 2), "everstep-79-gen-x", "other"]
    used = own / group_name(80, 1)
    for folder in (*(own / name for name in names), used):
        folder.mkdir(parents=True)
    (used / "cgroup.procs").write_text("81")  # a file that keeps the folder, as a process a group
    remove_left(own, seen)
    kept = {names[0], names[2], names[3], used.name}
    assert {folder.name for folder in own.iterdir()} == kept


def test_a_process_elsewhere_that_has_got_the_number_of_a_launcher_keeps_none(
    tmp_path: Path,
) -> None:
    own, seen = tmp_path / "own", tmp_path / "proc"
    put(seen, "self", "0::/own\n")
    (seen / "self/mountinfo").write_text(f"31 30 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    put(seen, 137, "0::/system.slice/another.service\n")
    (own / group_name(137, 1)).mkdir(parents=True)
    remove_left(own, seen)
    assert list(own.iterdir()) == []


def test_a_group_goes_with_those_that_its_ranks_have_made_in_it(tmp_path: Path) -> None:
    folder = tmp_path / group_name(77, 1)
    (folder / "container/inner").mkdir(parents=True)
    (folder / "container/inner/cgroup.procs").write_text("12\n13\n")
    group = GenerationGroup(folder)
    assert group.pids() == {12, 13}
    assert not group.remove()
    (folder / "container/inner/cgroup.procs").unlink()
    assert group.remove()
    assert not folder.exists()
    assert group.remove(), "who has removed it does not matter"
