"""Versions of the libraries that a rank has mapped."""

import os
from pathlib import Path

import pytest

from everstep.launch.inspection.sources.libraries import libraries, mapped, version, with_machine
from everstep_common.hangs.judging.known_software import TABLE
from everstep_common.hangs.reports.rank_report import Library


def site(folder: Path, *packages: str) -> Path:
    """Make a folder of installed packages."""
    place = folder / "site-packages"
    for name in packages:
        (place / f"{name}.dist-info").mkdir(parents=True)
    (place / "torch" / "lib").mkdir(parents=True)
    return place


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "550.54.15"),
        ("/opt/nccl/lib/libnccl.so.2.27.3", "2.27.3"),
        ("/opt/x/site-packages/torch/lib/libcudart-d0da41ae.so.12", ""),
        ("/usr/lib/libcudart.so", ""),
    ],
)
def test_a_file_s_name_tells_its_version(path: str, found: str) -> None:
    assert version(path) == found


def test_a_wheel_s_library_has_the_version_of_its_package(tmp_path: Path) -> None:
    place = site(tmp_path, "nvidia_nccl_cu12-2.27.5", "nvidia_nvshmem_cu12-3.3.9", "deep_ep-1.2.1")
    assert version(str(place / "nvidia/nccl/lib/libnccl.so.2")) == "2.27.5"
    assert version(str(place / "nvidia/nvshmem/lib/libnvshmem_host.so.3")) == "3.3.9"
    assert version(str(place / "deep_ep_cpp.cpython-311-x86_64-linux-gnu.so")) == "1.2.1"


def test_torch_says_its_version_itself(tmp_path: Path) -> None:
    place = site(tmp_path)
    library = str(place / "torch/lib/libtorch_cpu.so")
    assert version(library) == ""
    (place / "torch/version.py").write_text("__version__ = '2.13.0+cpu'\ndebug = False\n")
    assert version(library) == "2.13.0+cpu"


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    place = site(tmp_path)
    os.mkfifo(place / "torch/version.py")
    assert version(str(place / "torch/lib/libtorch_cpu.so")) == ""


def test_each_library_is_told_once_and_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "77").mkdir()
    line = "7f00-7f01 r-xp 00000000 fe:00 12 "
    paths = ("/lib/libc.so.6", "/a/libnccl.so.2.27.3", "/b b/libcuda.so.550.54.15", "[heap]")
    lines = [f"{line}                {path}" for path in (*paths, *paths)]
    (tmp_path / "77" / "maps").write_text("\n".join([*lines, "7f00-7f01 rw-p 0 00:00 0", ""]))
    assert libraries(mapped(77, tmp_path)) == (
        Library("cuda_driver", "550.54.15"),
        Library("nccl", "2.27.3"),
    )


def test_whatever_the_table_of_known_faults_asks_for_is_told() -> None:
    for fault in TABLE:
        told = with_machine(libraries([f"/x/lib{fault.library}.so.2.1.1"]))
        assert {fault.library, *(name for name, _ in fault.needs)} <= {one.name for one in told}


def test_of_its_node_it_tells_processor_and_kernel_but_not_without_libraries() -> None:
    told = {one.name: one.version for one in with_machine((Library("nccl", "2.27.3"),))}
    assert (told["machine"], told["kernel"]) == (os.uname().machine, os.uname().release[:40])
    assert with_machine(()) == ()
