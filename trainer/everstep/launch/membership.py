"""Membership in a job: a launcher's request to take part, and its leave."""

import signal
from collections.abc import Callable

from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.generation import LocalGeneration
from everstep.launch.link import LaunchLink
from everstep_common.trainer_messages import Join, LauncherLeft
from everstep_common.version import TRAINER_PROTOCOL, VERSION

# A little more than the agent itself takes at most (jobs.storage_drain_timeout_s); a second signal
# ends it.
_STORAGE_WAIT_S = 330.0


class Departure:
    """End of a launcher: tells the agent, and waits for the newest step to be in storage."""

    def __init__(
        self,
        options: LaunchOptions,
        link: LaunchLink,
        say: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._link = link
        self._say = say
        self._monotonic = monotonic
        # Until then a launcher that leaves waits for the agent to say that all is stored.
        self._stored_by = 0.0

    def only_here(self, number: signal.Signals) -> bool:
        """Return whether the job goes on without this node after such a signal."""
        return number in self._options.leaves_on

    def by(self, number: signal.Signals) -> str:
        """Leave on a signal; return the last words."""
        if self.only_here(number):
            # Nothing is told: the agent sees this process end, and the job goes on without it.
            self._link.drop()
            return f"this node left job {self._options.job} on {number.name}"
        self._link.send(LauncherLeft(f"interrupted by its user ({number.name})", by_user=True))
        if self._options.keep.storage:
            self._stored_by = self._monotonic() + _STORAGE_WAIT_S
            self._say("waiting for the newest step to be stored; Ctrl-C: do not wait")
        return f"job {self._options.job}: left on {number.name}"

    def for_ranks(self, number: signal.Signals) -> signal.Signals:
        """Return the signal that the ranks get first."""
        return number if number in self._options.ends_on else signal.SIGTERM

    def wait_no_longer(self) -> None:
        """All is stored, or the user has had enough."""
        self._stored_by = 0.0

    def left_s(self) -> float:
        """Return how long there is to wait yet."""
        return max(0.0, self._stored_by - self._monotonic())


def join_message(
    options: LaunchOptions, token: str, generation: LocalGeneration, job_id: str
) -> Join:
    """Return the message, with what runs here now."""
    return Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=options.job,
        token=token,
        nodes_min=options.nodes_min,
        nodes_max=options.nodes_max,
        processes_per_node=options.processes_per_node,
        reform=options.reform,
        restarts_max=options.restarts_max,
        free_port=generation.free_port,
        running_generation=0 if generation.stopped else generation.number,
        storage=options.keep.storage,
        environment=options.keep.environment,
        snapshot_bytes=options.keep.memory_bytes,
        snapshot_every_min=options.keep.every_min,
        snapshot_every_max=options.keep.every_max,
        # Said once: what has begun here is not left again because the agent was away.
        fresh=options.keep.fresh and not generation.number,
        job_id=job_id,
        replica_nodes=options.replica_nodes,
        program=options.program,
    )
