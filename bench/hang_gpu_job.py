"""A job whose ranks get what the launcher gives them and are read as it reads them, on one GPU."""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from everstep.launch.inspection.question import Answer, Question, RankAsked, Seen
from everstep.launch.inspection.rank_files import RankFiles
from everstep.launch.inspection.rank_pages import RankFacts, RankPages
from everstep.launch.inspection.reading import DEADLINE_S, Reading
from everstep.launch.inspection.sources.worker_server import NoAnswerError, WorkerServer
from everstep.launch.selector_loop import call_ready
from everstep_common.clock import boot_ns
from everstep_common.hangs.reports.rank_report import RankHangReport

_RANK = Path(__file__).with_name("hang_gpu_rank.py")
_POLL_S = 0.02
_RAW_S, _RAW_BYTES = 3.0, 64 * 1024 * 1024
# What torch's worker server may be asked for that a fixture can be made of.
_RAW_HANDLERS = ("fr_trace_json", "dump_nccl_trace_json", "dump_nccl_trace_pickle")


class PartError(Exception):
    """A part of the session could not go on; one clause that says why."""


def until(what: str, within_s: float, true: Callable[[], object]) -> float:
    """Wait until it is true; return how long that took. Raises PartError."""
    began_s = time.monotonic()
    while not true():
        if time.monotonic() - began_s > within_s:
            raise PartError(f"not within {within_s:g} s: {what}")
        time.sleep(_POLL_S)
    return time.monotonic() - began_s


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def of_one_gpu(rank: int) -> dict[str, str]:
    """Return what lets NCCL put several ranks on one GPU: it takes them for ranks of nodes."""
    return {
        "NCCL_HOSTID": f"node-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket",
        "NCCL_NVLS_ENABLE": "0",
    }


@dataclass(slots=True)
class GpuJob:
    """One job; all that it leaves is in its folder."""

    backend: str
    ranks: int
    folder: Path
    files: RankFiles
    pages: RankPages
    ras_port: int
    processes: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    faults: int = 0
    # All of a look takes no longer.
    look_s: float = DEADLINE_S

    def step(self, rank: int = 0) -> int:
        """Return the newest step that a rank has begun; -1 before the first."""
        try:
            return int((self.folder / f"step-{rank}").read_text())
        except (OSError, ValueError):
            return -1

    def moving(self, least: int = 10, within_s: float = 60.0) -> float:
        """Wait for some more steps of all ranks; return how long they took. Raises PartError."""
        wanted = {rank: self.step(rank) + least for rank in self.processes}
        return until(
            f"{least} steps more ({self.said()})",
            within_s,
            lambda: self._lives() and all(self.step(one) >= wanted[one] for one in wanted),
        )

    def _lives(self) -> bool:
        for rank, process in self.processes.items():
            if process.poll() is not None:
                raise PartError(f"rank {rank} ended ({process.returncode}): {self.said()}")
        return True

    def said(self) -> str:
        """Return the last lines that ranks have written."""
        texts = [path.read_text(errors="replace") for path in self.folder.glob("said-*")]
        return " | ".join(text.strip()[-300:] for text in texts if text.strip())

    def inject(self, kind: str, rank: int, seconds: float) -> None:
        """Have a rank do it at its next step. Raises PartError."""
        number, self.faults = self.faults, self.faults + 1
        draft = self.folder / "fault.new"
        draft.write_text(f'{{"kind": "{kind}", "rank": {rank}, "seconds": {seconds}}}')
        draft.rename(self.folder / f"fault-{number}.json")
        until(f"{kind} begins", 20.0, (self.folder / f"began-{number}").exists)

    def stands_still(self, for_s: float = 1.0, within_s: float = 15.0) -> None:
        """Wait until no rank begins a step for so long. Raises PartError."""
        last, since_s = self._steps(), time.monotonic()

        def still() -> bool:
            nonlocal last, since_s
            if (now := self._steps()) != last:
                last, since_s = now, time.monotonic()
            return time.monotonic() - since_s >= for_s

        until("no rank moves", within_s, still)

    def _steps(self) -> list[int]:
        return [self.step(rank) for rank in self.processes]

    def facts(self) -> dict[int, RankFacts]:
        """Return what the pages of the ranks tell."""
        now_ns = boot_ns()
        return {rank: self.pages.read(rank, now_ns) for rank in self.processes}

    def look(self) -> list[RankHangReport]:
        """Return a report of each rank, read as the launcher reads it."""
        selector = selectors.DefaultSelector()
        found: list[Answer] = []
        reading = Reading(selector, found.extend, self.look_s)
        question = Question(
            ranks=(),
            folder=str(self.files.folder),
            within_s=0.0,
            node=os.uname().nodename,
            world_size=self.ranks,
        )
        pids = {rank: one.pid for rank, one in self.processes.items()}
        reading.begin(
            question, [RankAsked(rank, pid, self.seen.get(pid)) for rank, pid in pids.items()]
        )
        while reading.under_way:
            call_ready(selector, reading.due_in_s())
            reading.advance()
        selector.close()
        self.seen = {one.launched_pid: one.seen for one in found if one.seen}
        return [one.report for one in found]

    def keep_raw(self, place: Path) -> dict[str, str]:
        """Keep what the worker servers answer as it is; return which handlers did, and why not."""
        told = {}
        place.mkdir(parents=True, exist_ok=True)
        for rank, process in self.processes.items():
            server = WorkerServer(self.files.folder / f"{process.pid}.sock", process.pid)
            for handler in _RAW_HANDLERS:
                try:
                    content = server.ask(handler, _RAW_S, _RAW_BYTES)
                except (NoAnswerError, OSError) as error:
                    told[f"{handler} of rank {rank}"] = str(error)
                    continue
                told[f"{handler} of rank {rank}"] = f"{len(content)} bytes"
                (place / f"{handler}_{rank}").write_bytes(content)
        return told


@contextlib.contextmanager
def gpu_job(
    backend: str,
    ranks: int,
    kept: Path,
    how: str = "train",
    timeout_s: float = 600.0,
    environ: Mapping[str, str] | None = None,
    *,
    shared: bool = True,
    look_s: float = DEADLINE_S,
) -> Iterator[GpuJob]:
    """Run one; what its ranks have said is kept. Raises PartError.

    ``shared``: its ranks may have one GPU together.
    """
    folder = Path(tempfile.mkdtemp(prefix="es-gpu-"))
    job = GpuJob(backend, ranks, folder, RankFiles.make(), RankPages(range(ranks)), free_port())
    job.look_s = look_s
    added = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **(environ or {})}
    added |= {"NCCL_RAS_ADDR": f"localhost:{job.ras_port}", "NCCL_DEBUG": "WARN"}
    added |= job.files.environment({**os.environ, **added})
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            own |= {"LOCAL_WORLD_SIZE": str(ranks)} | (
                of_one_gpu(rank) if shared and ranks > 1 else {}
            )
            job.processes[rank] = _started(job, rank, how, timeout_s, {**added, **own})
        yield job
    finally:
        for process in job.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in job.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):  # the driver keeps it
                process.wait(20.0)
        kept.mkdir(parents=True, exist_ok=True)
        for path in [*folder.glob("said-*"), *folder.glob("info-*")]:
            shutil.copy(path, kept)
        job.pages.close()
        job.files.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _started(
    job: GpuJob, rank: int, how: str, timeout_s: float, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    arguments = [str(job.folder), job.backend, how, str(timeout_s)]
    with (job.folder / f"said-{rank}").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, str(_RANK), *arguments],
            env={**os.environ, **environ, **job.pages.environment(rank)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
