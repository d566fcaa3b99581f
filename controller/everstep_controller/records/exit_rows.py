"""Exit rows: the ends of ranks after the first of their generation, as one journaled row a node."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from everstep_common.reports import RankExited
from everstep_controller.core.events import EqualExits, Event, RanksExited, Reported
from everstep_controller.core.model.node import Origin

# Of so many jobs it is known that a rank of their generation has ended; more are begun anew, which
# costs a row.
_JOBS_MAX = 10_000


# All that the end of a rank says, but for which rank it was, and when.
_said = attrgetter(*({one.name for one in fields(RankExited)} - {"rank", "at_boot_ns"}))


@dataclass(frozen=True, slots=True)
class ExitRow:
    """A row to journal, and the records that are acknowledged with it."""

    event: Event
    origins: Sequence[Origin]


class ExitRows:
    """Collector of ranks' ends; the first of a generation, which stops the job, never waits."""

    def __init__(self) -> None:
        # Newest generation of each job of which a rank has ended.
        self._ended: dict[str, int] = {}
        self._held: dict[str, list[Reported[RankExited]]] = {}

    def hold(self, event: Reported[RankExited]) -> bool:
        """Hold the end of a rank; return False for the first of its generation."""
        generation = event.report.generation
        if generation > self._ended.get(event.job, -1):
            if len(self._ended) >= _JOBS_MAX:
                self._ended.clear()
            self._ended[event.job] = generation
            return False
        self._held.setdefault(event.origin.node, []).append(event)
        return True

    def take_node(self, node: str) -> list[ExitRow]:
        """Return, once, the rows of a node: one for each of its jobs."""
        by_job: dict[str, list[Reported[RankExited]]] = {}
        for event in self._held.pop(node, ()):
            by_job.setdefault(event.job, []).append(event)
        return [_row(ended) for ended in by_job.values()]

    def nodes(self) -> list[str]:
        """Return the nodes of which something is held."""
        return list(self._held)


def _row(ended: Sequence[Reported[RankExited]]) -> ExitRow:
    origins = [event.origin for event in ended]
    row = RanksExited(
        origin=origins[-1],
        first_sequence=origins[0].sequence,
        job=ended[0].job,
        exits=tuple(group_exits(ended)),
    )
    return ExitRow(row, origins)


def group_exits(ended: Iterable[Reported[RankExited]]) -> Iterator[EqualExits]:
    """Yield the ends of ranks of one node, those together that say the same; the earliest whole."""
    alike: dict[object, list[Reported[RankExited]]] = {}
    for event in ended:
        alike.setdefault(_said(event.report), []).append(event)
    for group in alike.values():
        first = min(group, key=lambda event: event.at_ns)
        ranks = tuple(event.report.rank for event in group)
        yield EqualExits(first.report, ranks, tuple(event.at_ns for event in group))
