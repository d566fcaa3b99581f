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
# A connection to a listener of its own, which the kernel says is its own.
_ASKS_WHOSE_IT_IS = """
import os, socket
from everstep_agent.ipc.socket_owner import Origin, SocketOwners, origin_of
owners = SocketOwners()
listener, client = socket.create_server(("127.0.0.1", 0)), socket.socket()
assert owners.can_find(listener)
client.connect(listener.getsockname())
served, address = listener.accept()
owner = owners.find(address, served.getsockname())
assert owner is not None and owner.uid == os.getuid(), owner
assert origin_of(owner, os.getuid()) is Origin.AGENT
assert owners.find(("127.0.0.1", 1), served.getsockname()) is None
"""
# Connections that say nothing, let in as those of strangers are, until the controller names a peer.
_MAY_NOT_ASK = """
import asyncio, contextlib, logging, socket, sys
from pathlib import Path
from everstep_agent.vault.replication.connection_limits import UNPROVEN_OF_HOST_MAX as FEW
from integration.vault_world import TIMEOUT_S, running, settings
from real.unit_filter import refuse_family

async def life():
    async with running(settings(Path(sys.argv[1]))) as node, asyncio.timeout(TIMEOUT_S):
        await hold(node, 2 * FEW, unproven=FEW, evicted=FEW)
        node.direct(1, replica_sources=("127.0.0.1:7436",))
        await hold(node, 2 * FEW, unproven=2 * FEW, evicted=FEW)
        assert not node.jobs.metrics().bulk_connections_refused_total

async def hold(node, count, unproven, evicted):
    host, _, port = node.jobs.bulk_address.rpartition(":")
    with contextlib.ExitStack() as held:
        for _ in range(count):
            made = await asyncio.to_thread(socket.create_connection, (host, int(port)))
            held.enter_context(made)
        await until(node, unproven, evicted)
    await until(node, 0, evicted)

async def until(node, unproven, evicted):
    while True:
        seen = node.jobs.metrics()
        if (seen.bulk_connections_unproven, seen.bulk_connections_evicted_total) == (
            unproven, evicted
        ):
            return
        await asyncio.sleep(0.01)

logging.basicConfig()
refuse_family(socket.AF_NETLINK)
asyncio.run(life())
"""
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


def test_the_agent_itself_may_ask_whose_a_connection_to_its_bulk_port_is(tmp_path: Path) -> None:
    """Not a child: the kernel is asked by the agent's own process, in its own calls."""
    source = REPOSITORY / "agent/everstep_agent/main.py"
    refused = _refused(tmp_path, str(source), [sys.executable, "-c", _ASKS_WHOSE_IT_IS], {})
    assert not refused
    (families,) = re.findall(
        r"^RestrictAddressFamilies=(.*)$", _units(str(source))[0].read_text(), re.M
    )
    assert "AF_NETLINK" in families.split()


def test_an_agent_that_may_not_ask_the_kernel_serves_the_bulk_port_and_says_so_once(
    tmp_path: Path,
) -> None:
    told = subprocess.run(
        [sys.executable, "-P", "-c", _MAY_NOT_ASK, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr.count("other users of this node are not told apart from agents") == 1


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
