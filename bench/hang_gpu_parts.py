"""Parts of the GPU session that read ranks directly: what each source tells of one that hangs."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hang_gpu_job import GpuJob, PartError, gpu_job, until

from everstep.launch.inspection.frontier_judge import FrontierJudge
from everstep.launch.inspection.sources.ras_client import RasSettings, RasUse, ask_ras
from everstep_common.clock import boot_ns
from everstep_common.codec import json_text
from everstep_common.failures.classification import classify
from everstep_common.hangs.dumps.folder import read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.ras_answer import RasError
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import HangVerdict

_HANG_S = 600.0
# How long the faults take that a job survives.
_FAULT_S = 12.0
_TIMEOUT_S = 10.0
_GRAPH_S = 9.0
_RAS_BYTES = 16 * 1024 * 1024
_TAIL = 300
# So often is a look repeated that the machine was too busy for, which a report says so.
_LOOKS_MAX = 5
_LATE = "too long"


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that was tried: of which part, what it was, and what came of it."""

    part: str
    what: str
    found: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Where the session keeps what it sees, and of which backend it is."""

    backend: str
    kept: Path
    look_s: float

    @property
    def has_gpu(self) -> bool:
        """Whether ranks compute on a GPU."""
        return self.backend == "nccl"


def one_rank(session: Session) -> Iterator[Cell]:
    """One rank whose stream never ends: all sources, a dump by the pipe, the watchdog's timeout."""
    part, kept = "one rank", session.kept / "one"
    environ = _own_dumps(kept, "one")
    with gpu_job(
        session.backend, 1, kept, timeout_s=25.0, environ=environ, look_s=session.look_s
    ) as job:
        yield Cell(part, "first steps", "trains", job.moving(within_s=90.0))
        yield from _info(part, job)
        yield Cell(part, "frontier while it trains", _frontiers(job))
        job.inject("gpu" if session.has_gpu else "sleep", 0, 200.0)
        injected_s = time.monotonic()
        job.stands_still()
        yield from _looked(part, "hung", job, kept)
        yield from _piped(part, job, kept)
        if session.has_gpu:
            yield from _timed_out(part, job, kept, injected_s)


def two_ranks(session: Session) -> Iterator[Cell]:
    """Two ranks, of which one holds the other back in each way that a job survives; then not."""
    part, kept = "two ranks", session.kept / "two"
    with gpu_job(session.backend, 2, kept, look_s=session.look_s) as job:
        yield Cell(part, "first steps", "trains", job.moving(within_s=90.0))
        yield from _info(part, job)
        kinds = ("gpu", "sleep", "gil") if session.has_gpu else ("sleep", "gil")
        for kind in kinds:
            yield from _faulted(part, kind, job, kept)
        yield from _stopped(part, job, kept)
        job.inject("skip", 1, 0.0)
        job.stands_still()
        yield from _looked(part, "skip", job, kept)
        yield from _ras(part, session, job, kept)


def missing_send(session: Session) -> Iterator[Cell]:
    """Two ranks, of which one waits for data that the other never sends."""
    part, kept = "recv", session.kept / "recv"
    with gpu_job(session.backend, 2, kept, look_s=session.look_s) as job:
        yield Cell(part, "first steps", "trains", job.moving(within_s=90.0))
        job.inject("recv", 1, 0.0)
        job.stands_still()
        yield from _looked(part, "recv", job, kept)


def timed_out(session: Session) -> Iterator[Cell]:
    """Two ranks, of which one does not come; the other gives up after ten seconds."""
    part, kept = "timeout", session.kept / "timeout"
    environ = _own_dumps(kept, "timeout")
    with gpu_job(
        session.backend, 2, kept, timeout_s=_TIMEOUT_S, environ=environ, look_s=session.look_s
    ) as job:
        yield Cell(part, "first steps", "trains", job.moving(within_s=90.0))
        job.inject("sleep", 1, _HANG_S)
        yield from _timed_out(part, job, kept, time.monotonic())


def graph(session: Session) -> Iterator[Cell]:
    """One rank whose collectives are in a CUDA graph: whether it is told that nobody sees them."""
    part, kept = "CUDA graph", session.kept / "graph"
    with gpu_job(session.backend, 1, kept, how="graph", look_s=session.look_s) as job:
        until(f"the graph ({job.said()})", 90.0, (job.folder / "graph-0").exists)
        job.moving()
        before, ends_s = _moves(job), time.monotonic() + _GRAPH_S
        judge_of_frontiers, told = FrontierJudge(), ""
        first_step = job.step()
        while time.monotonic() < ends_s:
            standing = judge_of_frontiers.judge(job.facts(), job.step(), boot_ns())
            told = standing.blind or ("stands still" if standing.still else "nothing")
            time.sleep(1.0)
        moved = _moves(job) - before
        yield Cell(part, "frontier moves while steps go on", f"{moved} in {_GRAPH_S:g} s")
        yield Cell(part, "steps meanwhile", str(job.step() - first_step))
        yield Cell(part, "what the judge of frontiers says", told)
        yield from _looked(part, "graph", job, kept)


# What is asked of a job.


def _info(part: str, job: GpuJob) -> Iterator[Cell]:
    for name, value in json.loads((job.folder / "info-0.json").read_text()).items():
        yield Cell(part, name, ", ".join(value) if isinstance(value, list) else str(value))


def _faulted(part: str, kind: str, job: GpuJob, kept: Path) -> Iterator[Cell]:
    job.inject(kind, 1, _FAULT_S)
    try:
        job.stands_still()
        yield from _looked(part, kind, job, kept)
        yield Cell(part, f"{kind}: goes on", "yes", job.moving(within_s=4 * _FAULT_S))
    except PartError as error:
        yield Cell(part, kind, f"failed: {error}")
        job.moving(within_s=2 * _FAULT_S)


def _stopped(part: str, job: GpuJob, kept: Path) -> Iterator[Cell]:
    job.processes[1].send_signal(signal.SIGSTOP)
    job.stands_still()
    yield from _looked(part, "stop", job, kept, raw=False)
    job.processes[1].send_signal(signal.SIGCONT)
    yield Cell(part, "stop: goes on", "yes", job.moving(within_s=30.0))


def _looked(part: str, name: str, job: GpuJob, kept: Path, *, raw: bool = True) -> Iterator[Cell]:
    """Look twice, as the watch of hangs does, and tell what each source gave."""
    began_s = time.monotonic()
    job.look()
    first_s = time.monotonic() - began_s
    reports = job.look()
    looks = 2
    while looks < _LOOKS_MAX and any(_LATE in told.reason for r in reports for told in r.blind):
        reports, looks = job.look(), looks + 1
    place = kept / name
    place.mkdir(parents=True, exist_ok=True)
    for report in reports:
        (place / f"report_{report.rank}.json").write_text(json_text(report) + "\n")
    yield Cell(part, f"{name}: verdict", in_words(judge(reports, job.ranks)), first_s)
    for report in reports:
        yield from _sources(part, f"{name}, rank {report.rank}", report)
    yield Cell(part, f"{name}: frontier", _frontiers(job))
    if raw:
        for what, told in job.keep_raw(place).items():
            yield Cell(part, f"{name}: {what}", told)


def in_words(verdict: HangVerdict) -> str:
    """Return a verdict in a line."""
    culprits = ",".join(str(one.rank) for one in verdict.culprits) or "none"
    return f"{verdict.kind.value}, culprits {culprits}: {verdict.sentence}"


def _sources(part: str, name: str, report: RankHangReport) -> Iterator[Cell]:
    process = report.process
    told = {
        "ping": process.answers_ping,
        "GIL held": process.gil_held,
        "Python stack": " < ".join(process.python_stack[:3]),
        "native stack": f"{', '.join(process.native_stack)} ({process.native_stack_unchanged})",
        "state": f"{process.state.value} in {process.wchan}, {process.cpu_percent} % of a core",
        "libraries": ", ".join(f"{one.name} {one.version}" for one in report.libraries),
        "recorder": f"schema {report.schema}, {report.backend}: {_groups(report)}",
        "blind": "; ".join(f"{one.source.value}: {one.reason}" for one in report.blind),
    }
    for source, value in told.items():
        yield Cell(part, f"{name}: {source}", str(value))


def _groups(report: RankHangReport) -> str:
    return "; ".join(
        f"{one.description} {one.members} enqueued {one.enqueued} completed {one.completed}"
        f" waits in {', '.join(operation.name for operation in one.pending)}"
        for one in report.groups
    )


def _frontiers(job: GpuJob) -> str:
    found = {rank: one.frontier for rank, one in job.facts().items()}
    return "; ".join(
        f"rank {rank}: " + (f"{one.moves} moves, gap {one.gap_ns / 1e6:.0f} ms" if one else "blind")
        for rank, one in found.items()
    )


def _moves(job: GpuJob) -> int:
    frontier = job.facts()[0].frontier
    return frontier.moves if frontier else 0


# What torch and NCCL leave.


def _own_dumps(kept: Path, name: str) -> dict[str, str]:
    """Return where a job's dumps go, so that they outlive it."""
    folder = kept / f"{name}-dumps"
    folder.mkdir(parents=True, exist_ok=True)
    return {"TORCH_FR_DUMP_TEMP_FILE": str(folder / "dump_")}


def _dumps(kept: Path) -> list[Path]:
    return sorted(path for path in kept.glob("*-dumps/*") if path.stat().st_size)


def _piped(part: str, job: GpuJob, kept: Path) -> Iterator[Cell]:
    """Ask for a dump by the pipe of NCCL's process group."""
    pipes = sorted(job.files.folder.glob("pipe-*"))
    yield Cell(part, "pipes", ", ".join(path.name for path in pipes) or "none")
    if not pipes:
        return
    with pipes[0].open("wb", buffering=0) as pipe:
        pipe.write(b"1")
    try:
        seconds = until("a dump by the pipe", 8.0, lambda: _dumps(kept))
    except PartError as error:
        yield Cell(part, "dump by the pipe", f"none: {error}")
        return
    time.sleep(0.5)
    yield Cell(part, "dump by the pipe", _sizes(kept), seconds)
    for path in _dumps(kept):
        path.rename(path.with_name(f"piped_{path.name}"))


def _sizes(kept: Path) -> str:
    return ", ".join(f"{path.name} {path.stat().st_size} bytes" for path in _dumps(kept))


def _timed_out(part: str, job: GpuJob, kept: Path, began_s: float) -> Iterator[Cell]:
    """Wait for the first rank to give up; tell how it ended, and what the dumps say."""
    process = job.processes[0]
    until("rank 0 gives up", 90.0, lambda: process.poll() is not None)
    yield Cell(part, "rank 0 gives up", f"code {process.returncode}", time.monotonic() - began_s)
    lines = (job.folder / "said-0").read_text(errors="replace").splitlines()[-400:]
    code = process.returncode
    told = classify(max(code, 0), max(-code, 0), tuple(lines))
    yield Cell(part, "its end is classified as", f"{told.kind}: {told.exception[:_TAIL]}")
    with contextlib.suppress(PartError):
        until("dumps of all ranks", 5.0, lambda: len(_dumps(kept)) >= job.ranks)
    yield Cell(part, "dump files", _sizes(kept) or "none")
    left = sorted(job.files.folder.glob("exit-*"))
    yield Cell(part, "dumps at exit", ", ".join(path.name for path in left) or "none")
    for path in left:
        (kept / f"{path.name}.json").write_bytes(path.read_bytes())
    if any(path.name.startswith("dump_") for path in _dumps(kept)):
        folder = read_folder(_dumps(kept)[0].parent, "dump_", job.ranks)
        yield Cell(part, "hang FOLDER", in_words(judge(folder.reports.values(), job.ranks)))
    alive = [rank for rank, one in job.processes.items() if one.poll() is None]
    yield Cell(part, "ranks that still run", ",".join(map(str, alive)) or "none")


# NCCL RAS.


def _ras(part: str, session: Session, job: GpuJob, kept: Path) -> Iterator[Cell]:
    """Ask NCCL RAS though its version may not be asked by the product, as the job is over."""
    if not session.has_gpu:
        return
    address = f"localhost:{job.ras_port}"
    reports = job.look()
    may = RasSettings(RasUse.AUTO, address).may_ask(reports)
    yield Cell(part, "RAS: would be asked by itself", "yes" if may else "no")
    for name, commands in (("json", ["SET FORMAT json"]), ("text", [])):
        began_s = time.monotonic()
        content = _ras_raw(job.ras_port, ["TIMEOUT 1", *commands])
        (kept / f"ras_{name}").write_bytes(content)
        seconds = time.monotonic() - began_s
        yield Cell(part, f"RAS: raw {name}", f"{len(content)} bytes", seconds)
    yield Cell(part, "RAS: client", _ras_told(address, [one.pid for one in reports]))
    job.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    yield Cell(part, "RAS: client, rank 1 frozen", _ras_told(address, [one.pid for one in reports]))
    (kept / "ras_frozen").write_bytes(_ras_raw(job.ras_port, ["TIMEOUT 1", "SET FORMAT json"]))
    job.processes[1].send_signal(signal.SIGCONT)
    alive = [rank for rank, one in job.processes.items() if one.poll() is None]
    yield Cell(part, "RAS: ranks that live after it", ",".join(map(str, alive)) or "none")


def _ras_told(address: str, pids: list[int]) -> str:
    try:
        return " / ".join(ask_ras(address, pids))
    except RasError as error:
        return f"error: {error}"


def _ras_raw(port: int, commands: list[str]) -> bytes:
    """Return all that RAS answers, greeting included; what came until it was silent."""
    received = bytearray()
    try:
        with socket.create_connection(("localhost", port), 2.0) as stream:
            stream.settimeout(3.0)
            for line in ["CLIENT PROTOCOL 2", *commands, "VERBOSE STATUS"]:
                stream.sendall(line.encode() + b"\n")
                if line != "VERBOSE STATUS":
                    received += stream.recv(4096)
            while len(received) < _RAS_BYTES and (data := stream.recv(1 << 16)):
                received += data
    except OSError as error:
        received += f"\n[{error}]".encode()
    return bytes(received)


DIRECT: dict[str, Callable[[Session], Iterator[Cell]]] = {
    "one": one_rank,
    "two": two_ranks,
    "recv": missing_send,
    "timeout": timed_out,
}
