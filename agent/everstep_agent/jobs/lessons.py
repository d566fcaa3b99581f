"""What ranks of a job have loaded, on its way from one launcher to those that wait elsewhere."""

import logging
from collections.abc import Callable

from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.peers import Launcher
from everstep_common.lessons import Lesson, is_sound
from everstep_common.trainer_messages import Join
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


class Lessons:
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
