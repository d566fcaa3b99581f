"""Command ``everstep hang --job NAME``: what each rank of a job on this node is doing now.

It needs neither agent nor controller. It asks the job's launcher, and where that does not answer it
reads the ranks itself, as their user.
"""

import argparse
import contextlib
import json
import os
import pwd
import selectors
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from everstep.launch.inspection.look_service import SOCKET
from everstep.launch.inspection.question import LINE_MAX, Answer, Question, RankAsked
from everstep.launch.inspection.rank_files import ListedRank, listed_ranks
from everstep.launch.inspection.reading import AGAIN, PATIENT_S, Reading, User, py_spy
from everstep.launch.inspection.sources.process_look import GoneError, owner
from everstep.launch.inspection.sources.worker_server import NoAnswerError, connect
from everstep.launch.processes.sweeper import identify
from everstep.launch.selector_loop import call_ready
from everstep.rank.interpreter.everstep_rank_opening import FILES
from everstep_common.codec import from_json, json_text
from everstep_common.hangs.command import USAGE_LINES, exit_code, parser_of_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.looks import moving_job, of_moving_job
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict
from everstep_common.printable import printable

_RANKS_MAX = 256
# A node runs few jobs; a shared one may run many small ones.
_JOBS_NAMED = 8


@dataclass(frozen=True, slots=True)
class LocalRank:
    """A rank's process on this node, as its environment tells."""

    rank: int
    pid: int
    job: str
    world_size: int
    folder: str
    uid: int
    gid: int


def main(arguments: Sequence[str]) -> int:
    """Look once; return the exit code: 0 the cause is named, 1 it is not, 2 no rank is here."""
    if any(word in ("-h", "--help") for word in arguments):
        parser_of_folder().print_help()
        return 0
    parser = _parser()
    values, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(
            f"not understood: {' '.join(unknown)}; with --job no folder is read, 'everstep hang"
            " FOLDER' judges dumps"
        )
    wanted = values.pids
    here = local_ranks()
    ranks = [
        one for one in here if (one.pid in wanted if wanted is not None else one.job == values.job)
    ]
    if not ranks:
        pids = ",".join(map(str, sorted(wanted or ())))
        what = f"no rank in process {pids}" if wanted else f"no rank of job {values.job!r}"
        print(f"{what} runs on this node, or none that you may see{_others(here)}", file=sys.stderr)
        return 2
    reports = _look_at_all(ranks, by_launcher=wanted is None)
    if values.out is not None:
        return _write(reports, values.out)
    if wanted is not None and values.json:
        print("\n".join(map(json_text, reports)))
        return 0
    verdict = _verdict(ranks, reports, by_launcher=wanted is None)
    if values.json:
        print(json_text(verdict))
    else:
        print("\n".join([*map(in_words, reports), f"{verdict.sentence}."]))
    return exit_code(verdict)


def _write(reports: Sequence[RankHangReport], folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for report in reports:
            path = folder / f"rank-{report.rank}.json"
            path.write_text(json_text(report) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"everstep hang: cannot write into {folder}: {error.strerror}", file=sys.stderr)
        return 2
    print(
        f"{len(reports)} reports are in {folder}; those of all nodes in one folder are judged by:"
        f" everstep hang {folder}"
    )
    return 0


def _pids(text: str) -> set[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(
            f"expected numbers of processes, as 4711,4712, got {text!r}"
        )
    return {int(word) for word in words}


def _others(here: Sequence[LocalRank]) -> str:
    jobs = sorted({printable(one.job) for one in here if one.job})
    if not jobs:
        return "; 'everstep jobs' lists the jobs of all nodes"
    more = f" and {len(jobs) - _JOBS_NAMED} more" if len(jobs) > _JOBS_NAMED else ""
    return f"; here are ranks of {', '.join(jobs[:_JOBS_NAMED])}{more}"


def _look_at_all(ranks: Sequence[LocalRank], *, by_launcher: bool) -> list[RankHangReport]:
    return [
        report
        for _, some in groupby(ranks[:_RANKS_MAX], key=_launcher)
        for report in look(list(some), by_launcher=by_launcher)
    ]


def _verdict(
    ranks: Sequence[LocalRank], reports: Sequence[RankHangReport], *, by_launcher: bool
) -> HangVerdict:
    """Return who holds the job back; where somebody seems to, only if a second look says so too."""
    verdict = judge(reports, max(one.world_size for one in ranks))
    if verdict.kind is HangClass.NO_WAIT:
        return verdict
    goes_on = moving_job(reports, _look_at_all(ranks, by_launcher=by_launcher), verdict)
    return of_moving_job(verdict, goes_on) if goes_on else verdict


def look(ranks: Sequence[LocalRank], *, by_launcher: bool) -> list[RankHangReport]:
    """Return a report of each rank of one launcher."""
    reports = _launcher_s(ranks[0]) if by_launcher and ranks[0].folder else None
    if not reports and reports is not None:
        # They have ended, or it looks for too many others at this moment.
        ranks = [one for one in ranks if _runs(one.pid)]
    return reports or (_own(ranks) if ranks else [])


def _runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended shows no environment."""
    try:
        return bool(Path(f"/proc/{pid}/environ").read_bytes())
    except OSError:
        return False


def local_ranks(proc: Path = Path("/proc")) -> list[LocalRank]:
    """Return the processes that launchers have started as ranks, of those that we may see."""
    lists: dict[str, dict[int, ListedRank]] = {}
    found = []
    for path in proc.glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError, GoneError):
            words = path.read_bytes().decode(errors="surrogateescape").split("\0")
            environ = dict(word.split("=", 1) for word in words if "=" in word)
            pid, folder = int(path.parent.name), environ.get(FILES, "")
            if folder and folder not in lists:
                lists[folder] = listed_ranks(Path(folder))
            listed = lists.get(folder, {}).get(pid) or _by_variables(pid, environ, proc)
            if listed is not None:
                uid, gid = owner(pid, proc), path.parent.stat().st_gid
                found.append(
                    LocalRank(listed.rank, pid, listed.job, listed.world_size, folder, uid, gid)
                )
    return sorted(found, key=lambda one: (_launcher(one), one.rank))


def _by_variables(pid: int, environ: Mapping[str, str], proc: Path) -> ListedRank | None:
    """Return what a rank's own variables tell, as under torchrun."""
    if "EVERSTEP_GENERATION" not in environ or "RANK" not in environ or not _leads(pid, proc):
        return None
    job, world_size = environ.get("EVERSTEP_JOB", ""), int(environ.get("WORLD_SIZE", "0"))
    return ListedRank(int(environ["RANK"]), job, world_size)


def _launcher(rank: LocalRank) -> tuple[int, str]:
    """Return what is equal in the ranks of one launcher: two users may have jobs of one name."""
    return rank.uid, rank.folder


def in_words(report: RankHangReport) -> str:
    """Return a report in a line or two."""
    process = report.process
    parts = [f"rank {report.rank} (process {report.pid}): {process.state.value}"]
    if process.wchan:
        parts.append(f"in {process.wchan}")
    if process.gil_held:
        parts.append("and holds the GIL")
    if process.answers_ping is False:
        parts.append("and does not answer")
    told = [" ".join(parts)]
    for group in report.groups:
        for operation in group.pending[:1]:
            told.append(f"waits in {operation.name} {operation.sequence} of {group.description}")
    if process.python_stack:
        told.append(f"at {' < '.join(process.python_stack[:3])}")
    told += [f"unknown: {blind.source.value}: {blind.reason}" for blind in report.blind]
    return "\n  ".join(told)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="everstep hang", usage=USAGE_LINES, add_help=False)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--job", metavar="NAME")
    # For tools: ranks by their processes, whose reports --json prints.
    which.add_argument("--pids", type=_pids, metavar="PID,PID")
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    return parser


def _leads(pid: int, proc: Path) -> bool:
    """Return whether a process leads its group, as a rank does and its data loaders do not."""
    found = identify(pid, str(proc))
    return found is not None and found.group == pid


def _launcher_s(rank: LocalRank) -> list[RankHangReport] | None:
    """Return what the launcher reads, of ranks that have ended nothing; None: it does not answer.

    A launcher that is about to end closes the connection without a word.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENT_S + 1.0)
            connect(client, Path(rank.folder) / SOCKET, rank.uid)
            content = _all(client)
        return [from_json(RankHangReport, json.loads(line)) for line in content.splitlines()]
    except (OSError, ValueError, RecursionError, NoAnswerError):
        return None


def _all(client: socket.socket) -> bytes:
    content = bytearray()
    while len(content) < _RANKS_MAX * LINE_MAX and (data := client.recv(LINE_MAX)):
        content += data
    return bytes(content)


def _own(ranks: Sequence[LocalRank]) -> list[RankHangReport]:
    selector = selectors.DefaultSelector()
    found: list[Answer] = []
    reading = Reading(selector, found.extend)
    question = Question(
        folder=ranks[0].folder,
        node=os.uname().nodename,
        world_size=ranks[0].world_size,
        py_spy=py_spy(),
    )
    asked = [RankAsked(one.rank, one.pid) for one in ranks]
    user = _user(ranks[0].uid, ranks[0].gid)
    reading.begin(question, asked, user, within_s=PATIENT_S, again=AGAIN)
    while reading.under_way:
        call_ready(selector, reading.due_in_s())
        reading.advance()
    selector.close()
    return [answer.report for answer in found]


def _user(uid: int, gid: int) -> User | None:
    """Return whom a reader has to become; None: it is the same user, or there is no way."""
    if uid == os.geteuid() or os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwuid(uid)
        groups = tuple(os.getgrouplist(account.pw_name, account.pw_gid))
        return User(uid, account.pw_gid, groups)
    except KeyError:  # a container's user, as the host sees it
        return User(uid, gid, ())
