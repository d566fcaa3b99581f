"""Which devices a rank has open, and which file it waits for, from a made tree of /proc."""

import os
from pathlib import Path

import pytest

from everstep.launch.inspection.sources.open_files import (
    WaitedFile,
    address_of,
    open_devices,
    waited_file,
)

_MOUNTS = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
40 21 0:50 / /data rw - nfs4 server:/export rw
41 40 0:51 / /data/my\\040set rw - fuse.s3 bucket rw
"""


def _process(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "7" / "fd"
    folder.mkdir(parents=True)
    for number, target in files.items():
        (folder / number.removeprefix("fd")).symlink_to(target)
    (tmp_path / "7" / "mountinfo").write_text(_MOUNTS)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/data/shard-7.bin", "nfs4 server:/export at /data"),
        ("/data/my set/x", "fuse.s3 bucket at /data/my set"),
        ("/database/x", "ext4 /dev/sda1 at /"),
    ],
)
def test_the_file_of_a_read_and_its_mount_are_told_without_asking_the_file_system(
    tmp_path: Path, path: str, mount: str
) -> None:
    proc = _process(tmp_path, fd5=path)
    read = "0 0x5 0x7f00 0x1000 0x0 0x0 0x0 0x7ffc 0x7f01"
    assert waited_file(7, read, proc, "x86_64") == WaitedFile(path, mount)


@pytest.mark.parametrize(
    "syscall",
    ["running", "", "202 0x5 0x0 0x0 0x0 0x0 0x0 0x0 0x0", "0 0x99 0x0", "0", "x y"],
)
def test_what_is_about_no_open_file_names_none(tmp_path: Path, syscall: str) -> None:
    proc = _process(tmp_path, fd5="/data/x")
    assert waited_file(7, syscall, proc, "x86_64") == WaitedFile()


def test_a_socket_is_no_file(tmp_path: Path) -> None:
    proc = _process(tmp_path, fd5="socket:[17]")
    assert waited_file(7, "0 0x5 0x0", proc, "x86_64") == WaitedFile()


def test_a_rank_without_an_accelerator_has_none_open(tmp_path: Path) -> None:
    proc = _process(tmp_path, fd0="/dev/null", fd1="/data/x", fd2="pipe:[4]")
    assert open_devices(7, proc, tmp_path) == ()
    assert open_devices(8, proc, tmp_path) is None


def test_devices_are_told_by_their_addresses(tmp_path: Path) -> None:
    proc = _process(tmp_path, fd3="/dev/null")
    number = os.stat("/dev/null").st_rdev
    (tmp_path / "pci/0000:3b:00.0").mkdir(parents=True)
    device = tmp_path / f"dev/char/{os.major(number)}:{os.minor(number)}"
    device.mkdir(parents=True)
    (device / "device").symlink_to(tmp_path / "pci/0000:3b:00.0")
    gpu = tmp_path / "driver/nvidia/gpus/0000:AF:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model:\t H100\nDevice Minor: \t 3\n")
    names = {"/dev/dri/renderD128": "0000:3b:00.0", "/dev/nvidia3": "0000:af:00.0"}
    for name, address in names.items():
        assert address_of(name, number, proc, tmp_path) == address
    assert address_of("/dev/nvidia4", number, proc, tmp_path) == ""
