"""How old the step is that a job would be restored to. Pure."""

from everstep_agent.vault.snapshots.copies import Recoverable


class Freshness:
    """The recoverable step of one job against its newest one; ``now_ns`` is any steady clock."""

    def __init__(self) -> None:
        self._recoverable = Recoverable()
        self._since_ns = 0
        self._newest = -1

    def told(self, recoverable: Recoverable, now_ns: int) -> None:
        """The controller said what is recoverable."""
        before = self._recoverable
        if (recoverable.generation, recoverable.step) != (before.generation, before.step):
            self._recoverable, self._since_ns = recoverable, now_ns
        if recoverable.generation > before.generation:
            self._newest = -1

    def reached(self, step: int) -> None:
        """A rank completed a step."""
        self._newest = max(self._newest, step)

    def age_s(self, now_ns: int) -> float:
        """Return for how long the step has been the newest that is recoverable; 0 without one."""
        if self._recoverable.step is None:
            return 0.0
        return max(0, now_ns - self._since_ns) / 1e9

    def steps_behind(self) -> int:
        """Return how many completed steps a restore would repeat; all while there is none."""
        step = self._recoverable.step
        return max(0, self._newest - (-1 if step is None else step))
