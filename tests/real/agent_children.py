"""Each program that the agent starts as a process of its own, started once as the agent does.

``python agent_children.py NAME FOLDER``; what it makes is below the folder.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from everstep_agent.commands import pod_enrolment
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment import enrol_pod, renew
from everstep_agent.enrolment.certificate_files import CertificateFiles
from everstep_agent.enrolment.renewer import Renewer
from everstep_agent.enrolment.settings import EnrolmentSettings
from everstep_agent.injections import guard
from everstep_agent.ipc.processes import identify
from everstep_agent.pair_test.runner import PairTester
from everstep_agent.pair_test.work import child as pair_child
from everstep_agent.pair_test.work.gpu_work import GpuOptions, measure_gpus
from everstep_agent.probes.accelerators import amd_smi_child
from everstep_agent.probes.accelerators.amd_smi import parse_answer
from everstep_agent.probes.accelerators.tool import Tool
from everstep_agent.probes.gpus import nvml_child
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.storage.worker import main as storage_worker
from everstep_agent.storage.worker.messages import CopyWritten
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser
from everstep_agent.vault.memory.region import allocate_region
from everstep_common.orders import RunPairTest
from everstep_common.reports import PairTested
from everstep_proto.enrolment.validity import validity
from everstep_proto.tls import TlsSettings
from fakes.waits import eventually
from integration.storage_files import content, order
from real.enrolment_port import NODE, enrolment_port

# Of the fake CUDA library.
_GPUS = ("0000:3b:00.0", "0000:3c:00.0")
_WAIT_S = 60.0


async def _storage_worker(folder: Path) -> None:
    place = folder / "steps"
    place.mkdir(mode=0o700, exist_ok=True)
    owner = place.stat()
    own_groups = tuple(os.getgroups()) if owner.st_uid == os.getuid() else ()
    user = JobUser(owner.st_uid, owner.st_gid, own_groups)
    workers = StorageWorkerPool(str(place), user, _WAIT_S, 1)
    region = allocate_region(len(content(3)), "everstep-test")
    with region.writable() as view:
        view[: len(content(3))] = content(3)
    await workers.ask(order(str(place), 1, 3), CopyWritten, [region.open_read_only()])
    assert workers.idle_pid is not None
    _, niceness = _of_process(workers.idle_pid)
    assert niceness == min(os.nice(0) + 10, 19), f"a storage worker has niceness {niceness}"
    await workers.close()


def _of_process(pid: int) -> tuple[str, int]:
    """Return state and niceness of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return fields[0], int(fields[16])


async def _pair_test(folder: Path) -> None:
    told: asyncio.Future[PairTested] = asyncio.get_running_loop().create_future()
    tester = PairTester(told.set_result, tuple, lambda: 1.0)
    wanted = RunPairTest(id="n/pair/1", node="n", reason="x", rounds=1, deadline_ns=30 * 10**9)
    tester.order(wanted)
    answer = await told
    assert answer.figures, answer
    assert not answer.refusal, answer
    # The same work at GPUs that are near to some of the processors, which the process cannot be
    # told from outside: as on a machine with two sockets.
    near = sorted(os.sched_getaffinity(0))[0]
    for pci in _GPUS:
        device = folder / "bus/pci/devices" / pci
        device.mkdir(parents=True)
        (device / "local_cpulist").write_text(f"{near}\n")
    results = await asyncio.to_thread(measure_gpus, GpuOptions(sys=folder))
    assert {one.name.split()[0] for one in results.figures} == {"gpu0", "gpu1"}, results


async def _nvml_child(_: Path) -> None:
    probe = NvmlProbe(NvmlDeadlines(first_s=_WAIT_S, next_s=_WAIT_S))
    reading = await probe.read()
    assert len(reading.gpus) == 2, reading
    probe.close()


async def _amd_child(_: Path) -> None:
    # Where the package is not installed, it says so.
    command = (sys.executable, "-P", amd_smi_child.__file__)
    parse_answer(await asyncio.to_thread(Tool("amd-smi").execute, command))


async def _guard(_: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stopped:  # noqa: ASYNC220 - at once
        os.kill(stopped.pid, signal.SIGSTOP)
        found = identify(stopped.pid)
        assert found is not None
        keeper = guard.Guard()
        keeper.note(found)
        await keeper.end()
        try:
            await eventually(lambda: _of_process(stopped.pid)[0] != "T", _WAIT_S)
        finally:
            stopped.kill()


def _in_twenty_days() -> float:
    """Return a time at which a certificate of today is to be renewed."""
    return time.time() + 20 * 86_400


async def _renew(folder: Path) -> None:
    held = folder / "tls"
    held.mkdir(mode=0o700)
    async with enrolment_port(held) as address:
        files = CertificateFiles(held)
        tls = TlsSettings(ca=files.authorities, certificate=files.own, key=files.own)
        renewer = Renewer(NODE, (address,), tls, Random(1), _in_twenty_days)
        await renewer.renew_if_due()
    assert (renewer.renewed, renewer.trouble) == (1, ""), renewer.trouble


async def _enrol_pod(folder: Path) -> None:
    known = folder / "known"
    known.mkdir()
    (folder / "token").write_text("of a service account")
    config = AgentConfig(
        node=NODE,
        data_folder=folder / "data",
        enrolment=EnrolmentSettings(authority=known / "ca.pem", kubernetes_token=folder / "token"),
    )
    async with enrolment_port(known) as address:
        changed = replace(config, enrolment=replace(config.enrolment, address=address))
        made = await asyncio.to_thread(pod_enrolment.enrolled, changed)
    assert made.tls.certificate is not None
    assert validity(made.tls.certificate.read_bytes()).ends_s > time.time()


# By the file that runs as a process.
CHILDREN: Mapping[str, Callable[[Path], Coroutine[None, None, None]]] = {
    storage_worker.__file__: _storage_worker,
    pair_child.__file__: _pair_test,
    nvml_child.__file__: _nvml_child,
    amd_smi_child.__file__: _amd_child,
    guard.__file__: _guard,
    renew.__file__: _renew,
    enrol_pod.__file__: _enrol_pod,
}

if __name__ == "__main__":
    asyncio.run(CHILDREN[sys.argv[1]](Path(sys.argv[2])))
