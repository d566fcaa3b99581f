"""Each program that a daemon starts as a process, once in the whole sandbox of its unit."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fakes.cuda import FakeCuda
from fakes.nvml import FakeDriver
from real import agent_children, controller_children
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_daemons
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_CHILDREN: list[tuple[str, ModuleType, str]] = [
    (daemon, module, file)
    for daemon, module in (("agent", agent_children), ("controller", controller_children))
    for file in module.CHILDREN
]
# A storage process that is late to end, on a busy machine: the agent may not signal that user, and
# the kernel ends it when the agent closes its lifeline.
_OF_ANOTHER_USER = re.compile(r" kill\(\d+, SIGKILL\) ")
_FOLDER, _USER = "srv/child", 54330
# The tracer is within the unit: it asks for calls that the unit forbids.
_TRACED = """\
[Service]
Type=oneshot
Restart=no
WatchdogSec=0
SystemCallFilter=ptrace process_vm_readv setreuid setregid
ReadWritePaths=/{folder} /opt/fake
{environment}
ExecStart=
ExecStart=/usr/bin/strace -f --status=failed -o /{folder}/trace {python} {program} {file} /{folder}
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("children"), "everstep-children") as started:
        storage = REPOSITORY / "systemd/everstep-agent.service.d/storage.conf"
        install_daemons(started, ("agent", "controller"), [storage.read_text()])
        yield started


@pytest.fixture
def drivers(box: Box) -> Iterator[dict[str, str]]:
    """Drivers of two idle GPUs, which everybody may use; the variables by which they are found."""
    folder = box.root / "opt/fake"
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    nvml, cuda = FakeDriver(folder, gpus=2), FakeCuda(folder, "gpus 2")
    for gpu in range(2):
        nvml.set(gpu, memory_used=4 << 20, processes=0)
    for file in (folder, *folder.iterdir()):
        file.chmod(0o777)
    named = nvml.environment | cuda.environment | {"EVERSTEP_FAKE_CUDA_LEAK": str(folder / "leak")}
    yield {name: value.replace(str(box.root), "") for name, value in named.items()}
    nvml.close()


@pytest.mark.parametrize(
    ("daemon", "module", "file"), _CHILDREN, ids=[Path(one[2]).stem for one in _CHILDREN]
)
def test_a_program_is_refused_nothing_in_its_sandbox(
    box: Box, drivers: dict[str, str], daemon: str, module: ModuleType, file: str
) -> None:
    unit = f"everstep-{daemon}.service"
    _make_folder(box)
    text = _TRACED.format(
        folder=_FOLDER,
        python=PYTHON,
        environment="\n".join(f"Environment={name}={value}" for name, value in drivers.items()),
        program=_inside(str(module.__file__)),
        file=_inside(file),
    )
    drop_ins = box.root / "etc/systemd/system" / f"{unit}.d"
    drop_ins.mkdir(exist_ok=True)
    (drop_ins / "zz-traced.conf").write_text(text)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", unit, check=False)
    said = box.run("journalctl", "--no-pager", "--lines=30", f"--unit={unit}", check=False)
    assert box.show(unit, "Result") == "success", said
    trace = (box.root / _FOLDER / "trace").read_text(errors="replace")
    refused = [line for line in trace.splitlines() if " = -1 EPERM" in line]
    assert [line for line in refused if not _OF_ANOTHER_USER.search(line)] == []


def _make_folder(box: Box) -> None:
    """Make a folder for everybody, and in it one of a user's for steps."""
    box.run("rm", "-rf", f"/{_FOLDER}")
    folder = box.root / _FOLDER
    (folder / "steps").mkdir(parents=True)
    folder.chmod(0o777)
    os.chown(folder / "steps", _USER, _USER)
    (folder / "steps").chmod(0o700)


def _inside(path: str) -> str:
    return path.replace(str(REPOSITORY), "/opt/source")
