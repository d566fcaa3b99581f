"""Spare duty: what a node does for a job whose launcher waits for a place there."""

import logging
from collections.abc import Callable

from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.peers import Launcher
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.restore.restorer import Restorer
from everstep_agent.vault.restore.spare_memory import prepare_spare
from everstep_common.lessons import Lesson, is_sound
from everstep_common.trainer_messages import Join
from everstep_proto.generated import fleet_pb2


class SpareDuty:
    """What was ordered last, as long as it counts."""

    def __init__(
        self,
        facts: JobFacts,
        vault: JobVault,
        restorer: Restorer,
        has_launcher: Callable[[], bool],
    ) -> None:
        self._facts = facts
        self._vault = vault
        self._restorer = restorer
        self._has_launcher = has_launcher
        self._wanted: fleet_pb2.SpareMemory | None = None

    def wait(self, wanted: fleet_pb2.SpareMemory) -> None:
        """Have memory ready for the place of a member that fails; none where one is held here."""
        if not wanted.ahead:
            self.heard_again()
        elif wanted.transfer_key:
            self._facts.transfer_key = self._vault.transfer_key = wanted.transfer_key
        # It may be said before the launcher is back at an agent that has started again.
        self._wanted = wanted
        self.go_on()

    def go_on(self) -> None:
        """Begin with what is wanted, if there is a launcher to wait."""
        holds_a_place = self._facts.plan.generation > self._facts.stopped
        if self._wanted is None or holds_a_place or self._facts.ended:
            return
        if self._has_launcher():
            prepare_spare(self._vault, self._restorer, self._wanted)

    def heard_again(self) -> None:
        """The member is there whose copies were fetched: they go when they are not needed."""
        if self._wanted is not None and self._wanted.ahead:
            self._vault.context.counters.early_discarded += 1
            self._vault.tasks.cancel_ahead(self._vault.fence)
            del self._wanted.ahead[:]

    def over(self) -> None:
        """It has its place, or has gone."""
        self._wanted = None


logger = logging.getLogger(__name__)


class LessonRelay:
    """Of one job on this node: told by its launcher when it runs, to its launcher when it waits."""

    def __init__(self, facts: JobFacts, soon: Callable[[], None]) -> None:
        """``soon`` has what is new told to the controller."""
        self._facts = facts
        self._soon = soon
        self._here: fleet_pb2.Lesson | None = None
        self._elsewhere: Lesson | None = None

    def told(self, lesson: Lesson) -> None:
        """The launcher says what its ranks have loaded; it may say anything."""
        if not is_sound(lesson):
            logger.warning("job %s: ignored: a lesson that is none", self._facts.job)
            return
        self._here = fleet_pb2.Lesson(modules=lesson.modules, variables=lesson.variables)
        self._soon()

    def to_tell(self) -> fleet_pb2.Lesson | None:
        """Return what the controller is told; one node of a job is enough."""
        plan = self._facts.plan
        tells = plan.generation and plan.node_rank == 0 and not self._facts.ended
        return self._here if tells else None

    def heard(
        self, wire: fleet_pb2.Lesson, launcher: Launcher | None, request: Join | None
    ) -> None:
        """The controller says what ranks on other nodes have loaded."""
        lesson = Lesson(tuple(wire.modules), dict(wire.variables))
        if is_sound(lesson):
            self._elsewhere = lesson
            self.tell(launcher, request)

    def tell(self, launcher: Launcher | None, request: Join | None) -> None:
        """Tell a launcher that waits, and understands it."""
        runs = self._facts.plan.generation > self._facts.stopped
        if launcher is None or request is None or not request.learns or runs:
            return
        if self._elsewhere is not None:
            launcher.tell(self._elsewhere)

    def forget(self) -> None:
        """Whoever comes next may be another job of the name, and of another user."""
        self._here = self._elsewhere = None
