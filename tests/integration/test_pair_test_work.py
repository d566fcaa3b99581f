"""The process that does the fixed work of a pair test, on drivers that are not there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.pair_test.work import child
from everstep_agent.pair_test.work.figure import Figure
from fakes.cuda import FakeCuda
from fakes.nvml import FakeDriver

WORK = ("compute", "memory", "from host", "to host")


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two idle GPUs, as NVML sees them."""
    driver = FakeDriver(tmp_path, gpus=2)
    for gpu in range(2):
        driver.set(gpu, memory_used=4 << 20, processes=0)
    yield driver
    driver.close()


def measure(nvml: FakeDriver, folder: Path, *lines: str) -> tuple[dict[str, Figure], list[str]]:
    """Run the process on GPUs that behave as the lines say; return what it measured, and not."""
    cuda = FakeCuda(folder, "gpus 2", *lines)
    leak = {"EVERSTEP_FAKE_CUDA_LEAK": str(folder / "leak")}
    command = [sys.executable, "-P", child.__file__, json.dumps({"host": False})]
    done = subprocess.run(
        command,
        env={**os.environ, **nvml.environment, **cuda.environment, **leak},
        capture_output=True,
        check=True,
        timeout=60,
    )
    told = json.loads(done.stdout)
    figures = [Figure(**one) for one in told["figures"]]
    return {one.name: one for one in figures}, [one["why"] for one in told["untested"]]


def test_every_gpu_is_measured_by_each_piece_of_work(nvml: FakeDriver, tmp_path: Path) -> None:
    figures, untested = measure(nvml, tmp_path)

    assert set(figures) == {f"gpu{gpu} {what}" for gpu in range(2) for what in WORK}
    # 128 a clock and multiprocessor, 132 of them at 1.7 GHz; the stub's memory and PCIe.
    assert figures["gpu0 compute"].rate == pytest.approx(128 * 132 * 1.7, rel=1e-3)
    assert figures["gpu0 memory"].rate == pytest.approx(3000, rel=1e-3)
    assert figures["gpu1 to host"].rate == pytest.approx(50, rel=1e-3)
    assert untested == []


def test_a_gpu_that_takes_longer_shows_it_in_all_its_figures(
    nvml: FakeDriver, tmp_path: Path
) -> None:
    figures, _ = measure(nvml, tmp_path, "slow 1 20")

    for what in WORK:
        ratio = figures[f"gpu1 {what}"].median_s / figures[f"gpu0 {what}"].median_s
        assert ratio == pytest.approx(1.2, rel=1e-3)


def test_a_gpu_on_which_somebody_works_is_left_alone(nvml: FakeDriver, tmp_path: Path) -> None:
    nvml.set_processes(0, [(4711, 1 << 30)])

    figures, untested = measure(nvml, tmp_path)

    assert untested == ["GPU 0000:3b:00.0: in use by process 4711"]
    assert {name.split()[0] for name in figures} == {"gpu1"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"memory_used": 900 << 20}, "900 MiB of its memory are in use"),
        ({"mig": 1}, "it is partitioned (MIG)"),
        ({"lost": 1}, "NVML does not find it (error 15)"),
    ],
)
def test_a_gpu_that_cannot_be_tested_says_why(
    nvml: FakeDriver, tmp_path: Path, values: dict[str, int], why: str
) -> None:
    nvml.set(1, **values)

    figures, untested = measure(nvml, tmp_path)

    assert untested == [f"GPU 0000:3c:00.0: {why}"]
    assert {name.split()[0] for name in figures} == {"gpu0"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("free 100", "only 100 MiB of its memory are free, the test takes 640 MiB"),
        ("fail cuCtxCreate_v2 46", "held by another process (compute mode exclusive)"),
        ("fail cuMemAlloc_v2 2", "no memory left for the test"),
        ("fail cuModuleLoadData 221", "PTX compiler (libnvidia-ptxjitcompiler) is missing"),
        ("fail cuEventSynchronize 214", "an uncorrectable memory error (ECC)"),
        ("fail cuLaunchKernel 12345", "it failed (cuLaunchKernel: CUDA_ERROR_OF_THE_STUB 12345)"),
    ],
)
def test_a_driver_that_refuses_is_told_in_words(
    nvml: FakeDriver, tmp_path: Path, line: str, why: str
) -> None:
    _, untested = measure(nvml, tmp_path, line)

    assert len(untested) == 2
    assert why in untested[0]


def test_a_driver_that_does_not_start_is_told_once(nvml: FakeDriver, tmp_path: Path) -> None:
    figures, untested = measure(nvml, tmp_path, "fail cuInit 803")

    assert figures == {}
    assert untested == [
        "kernel module and CUDA library are of different versions "
        "(cuInit: CUDA_ERROR_OF_THE_STUB 803)"
    ]


def test_wrong_results_are_told(nvml: FakeDriver, tmp_path: Path) -> None:
    _, untested = measure(nvml, tmp_path, "wrong 0")

    assert untested == ["GPU 0000:3b:00.0: it computed different results of the same work"]


@pytest.mark.parametrize("line", ["", "fail cuMemcpyHtoDAsync_v2 700"])
def test_nothing_is_left_in_device_memory(nvml: FakeDriver, tmp_path: Path, line: str) -> None:
    measure(nvml, tmp_path, line)

    assert not (tmp_path / "leak").exists()


def test_the_process_has_no_capability(tmp_path: Path) -> None:
    script = tmp_path / "rights.py"
    script.write_text(
        "from pathlib import Path\n"
        "from everstep_agent.pair_test.work import child\n"
        "child.give_up_rights()\n"
        "print(*[line for line in open('/proc/self/status') if line[:5] in "
        "('CapPr', 'CapEf', 'CapAm')], Path('/proc/self/oom_score_adj').read_text())\n"
    )
    paths = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **paths}, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    *masks, score = done.stdout.split()
    assert masks[::2] == ["CapPrm:", "CapEff:", "CapAmb:"]
    assert {int(mask, 16) for mask in masks[1::2]} == {0}
    assert int(score) >= 0
