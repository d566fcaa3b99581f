"""Each program that a daemon starts asks for no system call that the daemon's unit forbids.

Under the calls of the shipped unit alone, without systemd: what the kernel refuses is read from
outside, so a refusal that a program suppresses is seen as well.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.cuda import FakeCuda
from fakes.nvml import FakeDriver
from real import agent_children, controller_children, unit_filter
from real.booted_box import REPOSITORY
from real.unit_filter import allowed_calls, numbers_of

NEEDS = ("strace", "systemd-analyze")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not all(shutil.which(one) for one in NEEDS), reason=f"needs {', '.join(NEEDS)} (apt)"
    ),
]
_UNITS = {
    "everstep_controller": ("everstep-controller.service",),
    "everstep_agent/storage": ("everstep-agent.service", "everstep-agent.service.d/storage.conf"),
    "everstep_agent": ("everstep-agent.service",),
}
_CHILDREN = {
    file: module for module in (agent_children, controller_children) for file in module.CHILDREN
}
_PROGRAMS = ("agent/everstep_agent", "controller/everstep_controller")
# The daemons themselves: they are run in a booted container.
_DAEMONS = tuple(f"{folder}/main.py" for folder in _PROGRAMS)
_STRACE = ("strace", "-f", "--status=failed", "-o")


def _units(program: str) -> list[Path]:
    """Return the unit and drop-ins by which a program is held that a daemon starts."""
    names = next(units for folder, units in _UNITS.items() if f"/{folder}/" in program)
    return [REPOSITORY / "systemd" / name for name in names]


def _refused(folder: Path, program: str, command: list[str], environment: dict[str, str]) -> str:
    """Run a command as that program's unit does; return what the kernel refused, line by line."""
    numbers = ",".join(map(str, numbers_of(allowed_calls(_units(program)))))
    trace, python = folder / "trace", [sys.executable, "-P"]
    done = subprocess.run(
        [*_STRACE, str(trace), *python, unit_filter.__file__, numbers, *command],
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = trace.read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if " = -1 EPERM" in line)


@pytest.mark.parametrize("file", _CHILDREN, ids=lambda file: file.partition("everstep_")[2])
def test_a_program_of_a_daemon_is_refused_no_system_call(file: str, tmp_path: Path) -> None:
    nvml, cuda = FakeDriver(tmp_path, gpus=2), FakeCuda(tmp_path, "gpus 2")
    for gpu in range(2):
        nvml.set(gpu, memory_used=4 << 20, processes=0)
    leak = {"EVERSTEP_FAKE_CUDA_LEAK": str(tmp_path / "leak")}
    runner = _CHILDREN[file]
    try:
        refused = _refused(
            tmp_path,
            file,
            [sys.executable, str(runner.__file__), file, str(tmp_path)],
            {**nvml.environment, **cuda.environment, **leak},
        )
    finally:
        nvml.close()
    assert not refused


def test_what_a_unit_forbids_is_seen_here_however_quietly_it_is_refused(tmp_path: Path) -> None:
    quiet = "import contextlib, os\nwith contextlib.suppress(OSError): os.chroot('/')"
    command = [sys.executable, "-c", quiet]
    refused = _refused(tmp_path, next(iter(controller_children.CHILDREN)), command, {})
    assert re.search(r'chroot\("/"\) += -1 EPERM', refused)


def test_every_file_that_daemons_run_as_a_process_is_among_them() -> None:
    run = {
        str(file)
        for folder in _PROGRAMS
        for file in (REPOSITORY / folder).rglob("*.py")
        if '\nif __name__ == "__main__"' in file.read_text()
    }
    assert run - {str(REPOSITORY / one) for one in _DAEMONS} == {*_CHILDREN}
