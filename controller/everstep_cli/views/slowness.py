"""Slowness of a job on the terminal: who makes the others wait, and what looks as if they did."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_common.printable import printable
from everstep_proto.generated import admin_pb2


def slowness_sheet(told: admin_pb2.Slowness) -> Iterator[RenderableType]:
    """Yield who is slow, or that nobody is, with what was seen."""
    yield Text(printable(told.sentence), style="bold")
    compared = f"{formatting.count(told.comparisons, 'time')}, {told.telling} of {told.ranks} ranks"
    lost = f"{told.lost_ratio:.1%} to the slowest rank of each step"
    yield tables.facts(
        [
            # Of what was never compared nothing is known, also not that nothing is lost.
            *((("compared", compared), ("lost", lost)) if told.comparisons else ()),
            *(("uneven", printable(one.sentence)) for one in told.imbalances),
            *(("pauses", printable(one)) for one in told.pauses),
            *(("watched", printable(one)) for one in told.watched[:_WATCHED_MAX]),
            *(("not seen", printable(one)) for one in told.blind),
        ]
    )
    if told.slow:
        yield from slow_table(told.slow, told.plan)
    if told.HasField("collectives"):
        yield from _collectives(told)


def _collectives(told: admin_pb2.Slowness) -> Iterator[RenderableType]:
    """Yield what the newest look at the collectives of all ranks told."""
    look = told.collectives
    yield tables.section("collectives")
    if look.sentence != told.sentence:
        yield Text(printable(look.sentence))
    said = (look.sentence.lower(), told.sentence.lower())
    late = [one for one in look.late if not any(s.startswith(one.sentence.lower()) for s in said)]
    yield tables.facts(
        [
            ("compared", f"{look.collectives} collectives, {look.ranks} ranks{_age(look)}"),
            *((("roles", printable(look.roles)),) if look.roles else ()),
            *((("beside", printable(look.beside)),) if look.beside else ()),
            *(("late", printable(one.sentence)) for one in late),
            *(("common", printable(one)) for one in look.common),
            *(("not seen", printable(one)) for one in look.blind),
            *((("to do", _to_do(look)),) if not told.slow and _nominated(look) else ()),
        ]
    )


def _age(look: admin_pb2.CollectiveLook) -> str:
    """Return how old a look is that is not of now: a newer one took too long, or was not due."""
    return f", {formatting.duration(look.age_ns)} ago" if look.age_ns >= _OLD_NS else ""


def _nominated(look: admin_pb2.CollectiveLook) -> list[admin_pb2.LateLine]:
    return [one for one in look.late if one.nominated]


def _to_do(look: admin_pb2.CollectiveLook) -> str:
    """Return what to do about who comes last, by one look."""
    first = _nominated(look)[0]
    return (
        f"one look is not enough: ask again in some minutes; where rank {first.rank} is named each "
        f"time: everstep node {printable(first.node)}, and to swap it: everstep drain "
        f"{printable(first.node)} --reason TEXT"
    )


_WATCHED_MAX = 8
# The answer is the same for ten seconds.
_OLD_NS = 30 * 10**9


def slow_table(slow: Sequence[admin_pb2.SlowLine], plan: str) -> Iterator[RenderableType]:
    """Yield who makes the others of a job wait, and what is done about it."""
    yield tables.section("slow")
    made = tables.table(
        "slow", "node", "factor", "since step", "explains", "what its node has found",
        right=("factor", "since step", "explains"), wrap=("what its node has found",),
    )  # fmt: skip
    for one in slow:
        made.add_row(
            f"{one.kind} {printable(one.name)}",
            printable(one.node),
            f"{one.factor:.2f}",
            str(one.first_step),
            f"{one.share:.0%}",
            printable(one.evidence) or "nothing that makes it slow",
        )
    yield made
    yield Text(printable(plan))
