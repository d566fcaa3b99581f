"""Vault news: decisions about snapshots that the core and people have not been told of yet."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from everstep_controller.core.events import (
    BreakpointReached,
    CadenceChosen,
    Event,
    KeeperChosen,
    LayoutLearned,
)
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.vault.directives import Decision, JobSnapshots
from everstep_controller.core.vault.persistence import PersistenceInput


class Message(NamedTuple):
    """Message for people about a job's snapshots."""

    reason: str
    sentence: str


@dataclass(slots=True)
class VaultNews:
    """News of one job that were told already, so that each is told once."""

    # The parts of which generation's state.
    layouts: tuple[int, tuple[str, ...]] = (-1, ())
    # Of which generation people know that ranks save different bytes under one name.
    differing: int = -1
    # The last sentence about storage.
    not_stored: str = ""

    def since(
        self, decision: Decision, snapshots: JobSnapshots, job: JobRecord
    ) -> Iterator[Event | Message]:
        """Yield what a decision made new: events for the core, messages for people."""
        before, orders = decision.before, snapshots.orders
        keeper = orders.replication.keeper
        if keeper not in ("", before.replication.keeper):
            yield KeeperChosen(job.name, keeper)
        if orders.recoverable.step != before.recoverable.step or not snapshots.generation.parts:
            yield from self._tell_parts(snapshots)
            yield from self._tell_differing(snapshots)
        if orders.cadence is not before.cadence:
            yield CadenceChosen(job.name, orders.cadence)
            yield Message("SnapshotCadence", f"{job.name}: {orders.cadence.reason}")
        yield from self._tell_storage(snapshots, job, decision.inputs)

    def _tell_parts(self, snapshots: JobSnapshots) -> Iterator[Event]:
        directed = snapshots.generation
        layouts = snapshots.holdings.catalogue.layouts(directed.number, directed.world_size)
        news = directed.parts != frozenset(layouts) and self.layouts != (directed.number, layouts)
        if layouts and news:
            self.layouts = (directed.number, layouts)
            yield LayoutLearned(snapshots.job, directed.number, layouts=layouts)

    def _tell_differing(self, snapshots: JobSnapshots) -> Iterator[Message]:
        """Tell it once a generation: the loss of a node could cost a rank what only it had."""
        step, number = snapshots.orders.recoverable.step, snapshots.generation.number
        if step is None or self.differing == number:
            return
        ranks = snapshots.holdings.catalogue.differing(number, step)
        if ranks is not None:
            self.differing = number
            yield Message("SnapshotsDiffer", _differing(snapshots.job, step, *ranks))

    def _tell_storage(
        self, snapshots: JobSnapshots, job: JobRecord, inputs: PersistenceInput
    ) -> Iterator[Event | Message]:
        persistence = snapshots.persistence
        newest = max(persistence.failures, default=None)
        sentence = "" if newest is None else persistence.failures[newest]
        if newest is not None and sentence and sentence != self.not_stored:
            yield Message("NotStored", f"step {newest[1]}: {sentence}")
        self.not_stored = sentence
        if job.state is JobState.CLOSING and (over := persistence.last_step_settled(inputs)):
            yield BreakpointReached(
                job.name, job.generation.number, over, persistence.last_step_missed(inputs)
            )


def _differing(job: str, step: int, one: int, other: int) -> str:
    return (
        f"{job}: ranks {one} and {other} saved different bytes of step {step} under the same "
        "names. Each gets its own back while a copy of it is left, and any of them after that or "
        "in another number of ranks: put the rank in the name of what is a rank's own"
    )
