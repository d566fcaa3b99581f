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
from everstep.launch.hangs.rank_reader import NO_SERVER, recorder_content
from everstep.launch.hangs.sources import process_look
from everstep.launch.hangs.sources.process_look import GoneError
from everstep.launch.hangs.sources.worker_server import NoAnswerError, StrangerError, WorkerServer
from everstep_common.hangs.flight_recorder import DumpError, read_dump, recent_of_dump
from everstep_common.hangs.rank_report import Blind, EvidenceSource, RankHangReport

# On a node without a free processor an answer takes longer than the 40 ms of others.
_RECORDER_S = 1.2


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
        content = _content(folder, pid, ends_s)
        report = recent_of_dump(read_dump(content), asked.rank, world_size=question.world_size)
    except GoneError as error:
        report = _blind(report, EvidenceSource.PROCESS_STATE, str(error))
    except StrangerError as error:
        report = _blind(report, EvidenceSource.IDENTITY, str(error))
    except (NoAnswerError, DumpError) as error:
        report = _blind(report, EvidenceSource.FLIGHT_RECORDER, str(error))
    report = replace(report, node=question.node, pid=pid, taken_ns=time.time_ns())
    return Answer(report, asked.pid, None)


def _content(folder: Path | None, pid: int, ends_s: float) -> bytes:
    """Return what the recorder has. Raises NoAnswerError."""
    if folder is None or not (path := folder / f"{pid}.sock").exists():
        raise NoAnswerError((marker(folder, pid).why if folder else "") or NO_SERVER)
    within_s = min(_RECORDER_S, ends_s - time.monotonic())
    return recorder_content(WorkerServer(path, pid), lambda: within_s)


def _blind(report: RankHangReport, source: EvidenceSource, why: str) -> RankHangReport:
    return replace(report, blind=(Blind(source, why[:500]),))
