"""Recorders of a rank's collectives, over its worker server: of NCCL, and of all other backends.

A torch that is built for NCCL has both, and which of them a job fills depends on its backend; one
for CPUs has the second alone, and a torch before 2.10 the first alone.
"""

import time
from collections.abc import Mapping

from everstep.launch.inspection.sources.worker_server import (
    NoAnswerError,
    NoHandlerError,
    SilentError,
    WorkerServer,
)
from everstep_common.hangs.dumps.dump_values import DumpError, read_dump
from everstep_common.hangs.dumps.noted_calls import NotedCalls
from everstep_common.hangs.dumps.two_recorders import (
    knows_groups,
    recent_of_both,
    report_of_both,
)
from everstep_common.hangs.reports.rank_report import RankHangReport

# Of all other backends, and of NCCL.
_HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
# The newest 2,000 operations take 1 MB; a user may have asked for more.
_BYTES = 16 * 1024 * 1024
_OF_NCCL_ONLY = "this torch tells the operations of NCCL only, and this rank has none"


def read_recorders(
    server: WorkerServer,
    within_s: float,
    rank: int,
    world_size: int,
    noted: NotedCalls | None,
) -> tuple[RankHangReport | None, str]:
    """Return what the recorders of a rank tell, and why one of them does not.

    ``noted`` has what the rank has noted itself. Without it they tell when it enqueued its newest
    collectives, and no more.
    """
    told, missing = _dumps(server, time.monotonic() + within_s)
    if not told:
        return None, missing or "this torch has no recorder that could be asked"
    others, nccl = (told.get(handler, {}) for handler in _HANDLERS)
    if not others and not missing and not knows_groups(nccl):
        return None, _OF_NCCL_ONLY
    try:
        if noted is None:
            return recent_of_both(others, nccl, rank, world_size=world_size), missing
        return report_of_both(others, nccl, rank, world_size=world_size, noted=noted), missing
    except DumpError as error:
        return None, str(error)


def _dumps(server: WorkerServer, until_s: float) -> tuple[dict[str, Mapping[str, object]], str]:
    """Return the dumps by their handlers, and why one that there should be is missing."""
    told: dict[str, Mapping[str, object]] = {}
    missing = ""
    for handler in _HANDLERS:
        try:
            told[handler] = read_dump(server.ask(handler, until_s - time.monotonic(), _BYTES))
        except NoHandlerError:
            continue
        except (NoAnswerError, DumpError) as error:
            missing = missing or str(error)
            if isinstance(error, SilentError):
                break
    return told, missing
