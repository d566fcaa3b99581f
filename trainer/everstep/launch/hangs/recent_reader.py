"""Recent reader: asks a rank of a job that steps when it enqueued its newest collectives.

Only torch's recorder is asked, over the worker server, which takes a C++ thread of the rank 5 to
40 ms and never the GIL. Nothing else of the rank is looked at.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

from everstep.launch.hangs.question import Answer, Question, RankAsked
from everstep.launch.hangs.rank_files import marker, rank_process
from everstep.launch.hangs.rank_reader import NO_SERVER
from everstep.launch.hangs.sources import process_look
from everstep.launch.hangs.sources.process_look import GoneError
from everstep.launch.hangs.sources.recorders import read_recorders
from everstep.launch.hangs.sources.worker_server import NoAnswerError, StrangerError, WorkerServer
from everstep_common.hangs.reports.rank_report import Blind, EvidenceSource, RankHangReport

# On a node without a free processor an answer takes longer than the 40 ms of others.
_PING_S, _RECORDER_S = 0.5, 1.2


def read_recent(
    asked: RankAsked, question: Question, ends_s: float, proc: Path = Path("/proc")
) -> Answer:
    """Return what the recorder tells; ``ends_s`` is when it has to, on the monotonic clock."""
    folder = Path(question.folder) if question.folder else None
    pid = rank_process(asked.pid, folder, proc)
    report = RankHangReport(rank=asked.rank, world_size=question.world_size)
    try:
        if process_look.owner(pid, proc) != os.geteuid():
            raise StrangerError("the process belongs to another user")
        server = _server(folder, pid)
        server.ask("ping", _left(ends_s, _PING_S), 1024)
        found, missing = read_recorders(
            server, _left(ends_s, _RECORDER_S), asked.rank, question.world_size, noted=None
        )
        report = found or report
        if missing and found is None:
            report = _blind(report, EvidenceSource.FLIGHT_RECORDER, missing)
    except GoneError as error:
        report = _blind(report, EvidenceSource.PROCESS_STATE, str(error))
    except StrangerError as error:
        report = _blind(report, EvidenceSource.IDENTITY, str(error))
    except NoAnswerError as error:
        report = _blind(report, EvidenceSource.WORKER_SERVER, str(error))
    report = replace(report, node=question.node, pid=pid, taken_ns=time.time_ns())
    return Answer(report, asked.pid, None)


def _server(folder: Path | None, pid: int) -> WorkerServer:
    """Return the rank's worker server. Raises NoAnswerError where it has none."""
    if folder is None or not (path := folder / f"{pid}.sock").exists():
        raise NoAnswerError((marker(folder, pid).why if folder else "") or NO_SERVER)
    return WorkerServer(path, pid)


def _left(ends_s: float, most_s: float) -> float:
    return min(most_s, ends_s - time.monotonic())


def _blind(report: RankHangReport, source: EvidenceSource, why: str) -> RankHangReport:
    return replace(report, blind=(Blind(source, why[:500]),))
