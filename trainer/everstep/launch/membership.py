"""Leaving a job: the launcher tells the agent, and waits until the newest step is in storage."""

import signal
from collections.abc import Callable

from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.link import LaunchLink
from everstep_common.trainer_messages import LauncherLeft

# A little more than the agent itself takes at most (jobs.storage_drain_timeout_s); a second signal
# ends it.
_STORAGE_WAIT_S = 330.0


class Leaving:
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
