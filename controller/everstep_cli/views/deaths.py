"""View of an incident's dead ranks, in order, and of the processes that could not be ended."""

import signal
from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_common.failures.classification import FOLLOWING, Side, side
from everstep_proto.generated import admin_pb2

# A question about one job is about its newest trouble; the rest is in --json.
_INCIDENTS_MAX = 3


def death_lists(incidents: Iterable[admin_pb2.Incident]) -> Iterator[RenderableType]:
    """Yield, of the newest incidents that had any, the ranks that died first.

    Those that gave up waiting are apart, with whoever lost them by that: they are not who was
    waited for.
    """
    told = [one for one in incidents if one.deaths or one.left_behind]
    for incident in told[-_INCIDENTS_MAX:]:
        waited = _waited(incident.deaths)
        died = [one for one in incident.deaths if one not in waited]
        if died or not waited:
            yield tables.section(f"who died first in {incident.incident}")
        if died:
            yield from _told(died)
        if waited:
            yield tables.section(f"who gave up waiting in {incident.incident}")
            yield from _told(waited)
        for sentence in incident.left_behind:
            yield Text(sentence, style="yellow")


def _waited(deaths: Iterable[admin_pb2.RankDeath]) -> list[admin_pb2.RankDeath]:
    sides = {side(one.kind) for one in deaths}
    apart = FOLLOWING if Side.WAITED in sides else frozenset[Side]()
    return [one for one in deaths if side(one.kind) in apart]


def _told(deaths: Sequence[admin_pb2.RankDeath]) -> Iterator[RenderableType]:
    """Yield a line for each, and below them what they said: a terminal has no room beside them."""
    yield _table(deaths)
    said: dict[str, list[admin_pb2.RankDeath]] = {}
    for death in deaths:
        if (words_of := _said(death)).plain:
            said.setdefault(words_of.plain, []).append(death)
    yield tables.facts((_ranks(those), _said(those[0])) for those in said.values())


def _ranks(deaths: Iterable[admin_pb2.RankDeath]) -> str:
    ranks = ",".join(map(str, sorted({one.rank for one in deaths})))
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}"


def _table(deaths: Iterable[admin_pb2.RankDeath]) -> Table:
    made = tables.table(
        "time", "rank", "node", "generation", "step", "how", "kind",
        right=("rank", "generation", "step"),
    )  # fmt: skip
    for death in deaths:
        made.add_row(
            formatting.clock(death.at_ns),
            str(death.rank),
            death.node,
            str(death.generation),
            str(death.step) if death.HasField("step") else "-",
            _how(death),
            death.kind.replace("_", " ") or "-",
        )
    return made


def _how(death: admin_pb2.RankDeath) -> str:
    if not death.signal:
        return f"exit {death.exit_code}"
    try:
        return signal.Signals(death.signal).name
    except ValueError:  # a real-time signal
        return f"signal {death.signal}"


def _said(death: admin_pb2.RankDeath) -> Text:
    said = Text(death.said)
    if death.core_dumped:
        said.append("\n" if death.said else "")
        said.append(f"core dumped: {death.core_file or 'where, is not known'}", "dim")
    return said
