"""Ranks of a job on the page: what they wrote and what they do, for its user and operators."""

import io
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rich.console import Console, RenderableType
from starlette.requests import Request
from starlette.responses import Response

from everstep_cli.client.admin import Admin, DeniedError
from everstep_cli.page.access import Person
from everstep_cli.page.guard import person_of, refusal
from everstep_cli.page.source import Source
from everstep_cli.report import svg
from everstep_cli.views.stacks import stacks_sheet
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_proto.generated import admin_pb2

# The newest lines of output that a page has; 'everstep logs' has all that is kept.
_LINES_MAX = 2000
_WIDTH = 160
_RANK_MAX = 2**31 - 1

# A template, and what it shows.
Shown = Callable[[str, Mapping[str, object]], Response]


class RankPages:
    """Pages of what is not everybody's; each look is asked for in the name of who looks."""

    def __init__(self, source: Source, shown: Shown) -> None:
        self._source, self._shown = source, shown

    async def output(self, request: Request) -> Response:
        """Show the newest lines that ranks wrote; of one rank with ?rank=N."""
        name, person = request.path_params["name"], person_of(request)
        told = request.query_params.get("rank", "")
        if told and not (told.isascii() and told.isdigit() and int(told[:11]) <= _RANK_MAX):
            return refusal(400, "Which rank?", "rank is a number: /output/JOB?rank=3")
        asked = admin_pb2.ReadLogsRequest(job=name, asked_for=_asked_for(person))
        if told:
            asked.rank = int(told)

        def read(admin: Admin) -> tuple[list[str], list[str]]:
            return _newest(admin.stream(lambda stub: stub.ReadLogs, asked, name))

        try:
            notes, lines = await self._source.read_for_one(read)
        except DeniedError as error:
            return _denied(error)
        values = {"what": "output", "job": name, "notes": notes, "text": _text(lines)}
        return self._shown("ranks.html.j2", values)

    async def stacks(self, request: Request) -> Response:
        """Show the merged stacks of the ranks at this moment."""
        name, person = request.path_params["name"], person_of(request)
        asked = admin_pb2.InspectJobRequest(job=name, asked_for=_asked_for(person))

        def read(admin: Admin) -> list[str]:
            seen = read_all(
                NodeTold(node.node, node.first_rank, node.ranks, tuple(node.reports), node.missing)
                for node in admin.stream(lambda stub: stub.InspectJob, asked, name)
            )
            return _drawn(stacks_sheet(seen, judge(seen.reports, seen.world_size)))

        try:
            lines = await self._source.read_for_one(read)
        except DeniedError as error:
            return _denied(error)
        values = {"what": "stacks", "job": name, "notes": (), "text": _text(lines)}
        return self._shown("ranks.html.j2", values)


def _asked_for(person: Person) -> admin_pb2.Person:
    return admin_pb2.Person(name=person.name, role=person.role.value)


def _denied(error: DeniedError) -> Response:
    return refusal(403, "Not yours", f"{error.said or error}.")


def _newest(told: Iterable[admin_pb2.LogLines]) -> tuple[list[str], list[str]]:
    """Return what is said of nodes, and the newest lines, each with its rank."""
    notes: list[str] = []
    lines: deque[str] = deque(maxlen=_LINES_MAX)
    for piece in told:
        notes += [piece.note] if piece.note else []
        lines += [f"[{piece.rank}] {line}" for line in piece.lines]
    if len(lines) == _LINES_MAX:
        notes.append(f"The newest {_LINES_MAX} lines; 'everstep logs' has all that are kept.")
    return notes, list(lines)


def _drawn(parts: Iterable[RenderableType]) -> list[str]:
    """Return the lines that the command line draws, without colours."""
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get().splitlines()


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line.translate(svg.CONTROLS) for line in lines)
