"""Parts of the GPU session that run ``everstep run --standalone``, and that of device memory."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hang_gpu_job import PartError, gpu_job, until
from hang_gpu_parts import Cell, Session

_EVERSTEP = [sys.executable, "-P", "-m", "everstep.entry"]
_JOB = "gpu-session"
_MIB = 1 << 20
_LEAST_BYTES = 1 << 30
_SCRIPT = Path(__file__).with_name("hang_gpu_training.py")


def whole(
    session: Session, how: str, ranks: int, timeout_s: float, within_s: float
) -> Iterator[Cell]:
    """Run a job under the real launcher that hangs once; tell what people are told of it."""
    part = f"everstep run, {how}"
    kept = session.kept / f"run-{how}"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="es", dir="/tmp") as name:
        folder = Path(name)
        launcher = _launched(session, how, ranks, timeout_s, folder, kept)
        try:
            until("the fault", 120.0, (folder / "began").exists)
            yield Cell(part, "trains until the fault", "yes")
            began_s = time.monotonic()
            seconds = until("steps again", within_s, (folder / "generation-2").exists)
            yield Cell(part, "fault to the next generation's step", "", seconds)
            yield from _asked(part, folder)
            until("its end", 60.0, lambda: launcher.poll() is not None)
            yield Cell(
                part, "launcher ends", f"code {launcher.returncode}", time.monotonic() - began_s
            )
        finally:
            with contextlib.suppress(OSError):
                launcher.terminate()
                launcher.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(20.0)
            launcher.kill()
            yield from _said(part, kept / "said")


def _launched(
    session: Session, how: str, ranks: int, timeout_s: float, folder: Path, kept: Path
) -> "subprocess.Popen[bytes]":
    line = [*_EVERSTEP, "run", "--standalone", "--job", f"{_JOB}-{how}"]
    line += ["--nproc-per-node", str(ranks), str(_SCRIPT), session.backend, how, str(folder)]
    # Without the GPUs in sight, the launcher allows more ranks than there are.
    environ = {**os.environ, "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_NVLS_ENABLE": "0"}
    with (kept / "said").open("wb") as said:
        return subprocess.Popen(
            [*line, str(timeout_s)],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _asked(part: str, folder: Path) -> Iterator[Cell]:
    """Ask the launcher's own controller why."""
    sockets = sorted(folder.glob("everstep-*/controller/controller.sock"))
    if not sockets:
        yield Cell(part, "why", "no controller is found")
        return
    environ = {**os.environ, "EVERSTEP_CONTROLLER": f"unix:{sockets[0]}"}
    job = f"{_JOB}-{part.rpartition(' ')[2]}"
    for command in (["why", job], ["job", job]):
        done = subprocess.run(
            [*_EVERSTEP, *command],
            env=environ,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        told = " / ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
        yield Cell(part, command[0], told[:1500] or done.stderr.strip()[-300:])


def _said(part: str, path: Path) -> Iterator[Cell]:
    lines = path.read_text(errors="replace").splitlines()
    telling = [
        one
        for one in lines
        if one.startswith("everstep") or re.search(r"holds the job|gave up", one)
    ]
    for number, line in enumerate(telling[:40]):
        yield Cell(part, f"said {number}", line[:400])


def memory(session: Session) -> Iterator[Cell]:
    """A rank with 20 GiB is killed: how long the driver shows its memory, as agents see it."""
    part = "memory"
    with gpu_job(session.backend, 1, session.kept / "memory", how="hold") as job:
        process = job.processes[0]
        seconds = until(f"memory ({job.said()})", 90.0, lambda: job.step() > 0 or process.poll())
        yield Cell(part, "20 GiB taken", str(job.step()), seconds)
        yield from asyncio.run(_released(part, process))


async def _released(part: str, process: "subprocess.Popen[bytes]") -> Sequence[Cell]:
    from everstep_agent.detectors.gpus.release import left_memory, memory_in_use, used_by
    from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe

    probe, cells = NvmlProbe(NvmlDeadlines()), []
    try:
        reading = await probe.read_aside()
        used = memory_in_use(reading)
        listed = ", ".join(used_by(reading, [process.pid])) or "none"
        cells.append(Cell(part, "GPUs on which NVML lists the rank", listed))
        cells.append(Cell(part, "in use", _mib(used)))
        process.send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        await asyncio.to_thread(process.wait, 30.0)
        cells.append(Cell(part, "killed to gone", "", time.monotonic() - killed_s))
        gone_s, looks, left = time.monotonic(), 0, True
        while left and time.monotonic() - gone_s < 30.0:
            reading = await probe.read_aside()
            looks += 1
            before = {one: bytes_ - (20 << 30) for one, bytes_ in used.items()}
            left = bool(left_memory(reading, [process.pid], before, _LEAST_BYTES))
        told = (
            f"{'still in use' if left else 'free'} at look {looks}: {_mib(memory_in_use(reading))}"
        )
        cells.append(Cell(part, "gone to free", told, time.monotonic() - gone_s))
    finally:
        probe.close()
    return cells


def _mib(used: object) -> str:
    assert isinstance(used, dict)
    return ", ".join(f"{name} {bytes_ // _MIB} MiB" for name, bytes_ in used.items())


def duplicate(session: Session) -> Iterator[Cell]:
    """Two ranks on one GPU without the names of other nodes: refused by NCCL, and how that ends."""
    part = "two ranks, one GPU"
    with gpu_job(session.backend, 2, session.kept / "duplicate", shared=False) as job:
        try:
            job.moving(within_s=45.0)
            yield Cell(part, "trains", "yes")
        except PartError as error:
            yield Cell(part, "refused", str(error)[-400:])
