"""Devices of every vendor, counted by the files of their drivers."""

import os
from pathlib import Path

import pytest

from everstep.launch.command_line.devices import most_devices, ranks_per_node
from everstep.launch.command_line.option_parser import UsageError


def machine(root: Path, *, files: int = 0, listed: int = 0) -> Path:
    """A root folder with so many GPUs."""
    (root / "dev").mkdir()
    for name in [str(i) for i in range(files)] + ["ctl", "-uvm"]:
        (root / "dev" / f"nvidia{name}").write_text("")
    for i in range(listed):
        (root / "proc/driver/nvidia/gpus" / f"0000:0{i}:00.0").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 8),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, 1),
        ({"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(16)))}, 8),
        ({"CUDA_VISIBLE_DEVICES": ",".join(f"MIG-{i}" for i in range(14))}, 14),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, 8),
    ],
)
def test_gpus_are_counted_as_cuda_sees_them(
    tmp_path: Path, environ: dict[str, str], count: int
) -> None:
    assert most_devices(environ, machine(tmp_path, files=8, listed=8))[0] == count


def test_gpus_whose_files_are_not_made_yet_are_counted_in_the_drivers_list(tmp_path: Path) -> None:
    root = machine(tmp_path, listed=4)
    assert most_devices({}, root)[0] == 4
    assert most_devices({"NVIDIA_VISIBLE_DEVICES": "0,2"}, root)[0] == 2
    assert most_devices({"NVIDIA_VISIBLE_DEVICES": "all"}, root)[0] == 4


def test_words_for_the_number_of_ranks(tmp_path: Path) -> None:
    root = machine(tmp_path, files=2)
    processors = len(os.sched_getaffinity(0))
    assert [ranks_per_node(word, {}, root) for word in ("auto", "gpu", "cpu", "1")] == [
        2,
        2,
        processors,
        1,
    ]
    assert ranks_per_node("auto", {"CUDA_VISIBLE_DEVICES": ""}, root) == processors


def test_more_ranks_than_devices_are_refused_with_a_way_out(tmp_path: Path) -> None:
    root = machine(tmp_path, files=2)
    with pytest.raises(
        UsageError, match="has 2 GPUs; give at most 2, or set CUDA_VISIBLE_DEVICES="
    ):
        ranks_per_node("3", {}, root)
    assert ranks_per_node("3", {"CUDA_VISIBLE_DEVICES": ""}, root) == 3
    with pytest.raises(UsageError, match="no GPU is seen here"):
        ranks_per_node("gpu", {"CUDA_VISIBLE_DEVICES": ""}, root)


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def amd_machine(root: Path, *, gpus: int, given: int) -> Path:
    """A root folder of a container that is given some of a machine's AMD GPUs."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0" / "gpu_id", "0\n")
    write(nodes / "0" / "properties", "cpu_cores_count 96\nsimd_count 0\ndrm_render_minor 0\n")
    for i in range(1, gpus + 1):
        write(nodes / str(i) / "gpu_id", f"{5000 + i}\n")
        write(nodes / str(i) / "properties", f"simd_count 304\ndrm_render_minor {127 + i}\n")
    for i in range(given):
        write(root / f"dev/dri/renderD{128 + i}")
    write(root / "dev/kfd")
    return root


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 4),
        ({"ROCR_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a,GPU-b", "HIP_VISIBLE_DEVICES": "0"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"HIP_VISIBLE_DEVICES": "-1"}, 0),
    ],
)
def test_gpus_of_amd_are_those_that_the_container_has(
    tmp_path: Path, environ: dict[str, str], count: int
) -> None:
    root = amd_machine(tmp_path, gpus=8, given=4)
    assert most_devices(environ, root)[0] == count


def test_gpus_of_amd_that_nobody_may_compute_with_do_not_count(tmp_path: Path) -> None:
    root = amd_machine(tmp_path, gpus=1, given=1)
    (root / "dev/kfd").unlink()
    assert most_devices({}, root)[0] == 0


def test_more_ranks_than_devices_of_other_vendors_are_refused_too(tmp_path: Path) -> None:
    root = amd_machine(tmp_path, gpus=8, given=8)
    with pytest.raises(
        UsageError, match="has 8 AMD GPUs; give at most 8, or set HIP_VISIBLE_DEVICES= for"
    ):
        ranks_per_node("9", {}, root)
    assert ranks_per_node("9", {"HIP_VISIBLE_DEVICES": ""}, root) == 9
    assert ranks_per_node("gpu", {}, root) == 8
    with pytest.raises(UsageError, match="--nproc-per-node npu: no NPU is seen here"):
        ranks_per_node("npu", {}, root)


def test_npus_of_ascend_are_counted(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1", "davinci11", "davinci_manager"):
        write(tmp_path / "dev" / name)
    for word in ("npu", "gpu", "auto"):
        assert ranks_per_node(word, {}, tmp_path) == 3
    assert ranks_per_node("npu", {"ASCEND_RT_VISIBLE_DEVICES": "0,11"}, tmp_path) == 2
    with pytest.raises(UsageError, match=r"has 3 Ascend NPUs; .* set ASCEND_RT_VISIBLE_DEVICES="):
        ranks_per_node("4", {}, tmp_path)


def intel_gpu(root: Path, minor: int, address: str, *, vendor: str = "0x8086") -> Path:
    """Add a GPU, and return its folder."""
    device = root / "sys/devices" / address
    write(device / "vendor", f"{vendor}\n")
    render = root / f"sys/class/drm/renderD{minor}"
    render.mkdir(parents=True)
    (render / "device").symlink_to(device)
    write(root / f"dev/dri/renderD{minor}")
    return device


def test_gpus_of_intel_are_counted_by_their_tiles_and_the_integrated_one_is_not(
    tmp_path: Path,
) -> None:
    intel_gpu(tmp_path, 128, "0000:00:02.0")
    intel_gpu(tmp_path, 129, "0000:03:00.0", vendor="0x1a03")
    assert most_devices({}, tmp_path)[0] == 0
    old, new = (intel_gpu(tmp_path, 130 + i, f"0000:5{i}:00.0") for i in range(2))
    for tile in range(2):
        write(old / f"drm/card1/gt/gt{tile}/id", str(tile))
        write(new / f"tile{tile}/vram", "")
    assert ranks_per_node("xpu", {}, tmp_path) == 4
    assert ranks_per_node("xpu", {"ZE_AFFINITY_MASK": "0,2"}, tmp_path) == 2
    assert ranks_per_node("xpu", {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, tmp_path) == 2
