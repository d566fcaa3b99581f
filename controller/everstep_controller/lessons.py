"""Imports of a job's ranks: told by the nodes that run them, passed on to the nodes that wait.

It is kept in memory only: after a restart the agents tell it again.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from everstep_common.lessons import Lesson


@dataclass(slots=True)
class _Known:
    lesson: Lesson
    # Nodes that have been told these imports.
    told: set[str] = field(default_factory=set)


class Lessons:
    """Imports of all jobs' ranks; each spare is told once, and again when they change."""

    def __init__(self, send: Callable[[str, str, Lesson], bool]) -> None:
        """``send`` is called with node, job and lesson, and returns whether the node is there."""
        self._send = send
        self._known: dict[str, _Known] = {}

    def heard(self, job: str, lesson: Lesson | None) -> None:
        """A node tells what its ranks have loaded; None: nothing new."""
        known = self._known.get(job)
        if lesson is not None and (known is None or known.lesson != lesson):
            self._known[job] = _Known(lesson)

    def tell(self, job: str, spares: Collection[str]) -> None:
        """Have these nodes know it."""
        known = self._known.get(job)
        if known is None:
            return
        known.told.intersection_update(spares)  # who comes back may have a new launcher
        for node in spares:
            if node not in known.told and self._send(node, job, known.lesson):
                known.told.add(node)

    def connected(self, node: str) -> None:
        """A stream opened: its agent may know nothing."""
        for known in self._known.values():
            known.told.discard(node)

    def forget(self, job: str) -> None:
        """The job is over."""
        self._known.pop(job, None)
