"""Polling of the demo's cluster: waits until a condition holds, and shows every state meanwhile."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_cli.admin import AdminError, Reader
from everstep_cli.demo.audience import Audience
from everstep_cli.demo.processes import Child, Household
from everstep_cli.demo.scene import Scene, observe

_LOOK_EVERY_S = 0.1
# The step rate is that of the last seconds.
_RATE_OVER_S = 2.0


class DemoError(Exception):
    """The demo cannot go on; one sentence on what did not happen."""


@dataclass(slots=True)
class Stage:
    """Polls the cluster, and shows what it sees. Use only from the main thread."""

    household: Household
    admin: Reader
    audience: Audience
    job: str
    scene: Scene = field(default_factory=Scene)
    # Children whose end is a failure of the demo.
    needed: list[Child] = field(default_factory=list)
    _steps: deque[tuple[float, int]] = field(default_factory=deque)

    def until(self, what: str, patience_s: float, so: Callable[[Scene], bool]) -> Scene:
        """Watch until ``so``; return that scene. Raises DemoError when it never comes."""
        deadline = time.monotonic() + patience_s
        while True:
            self.look()
            if so(self.scene):
                return self.scene
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not seen within {patience_s:g} s ({self._sight()})")
            time.sleep(_LOOK_EVERY_S)

    def look(self) -> None:
        """Look once: at the processes, then at what the controller says, and show it."""
        self.household.look_around()
        for child in self.needed:
            if child.exit_code is not None:
                raise DemoError(f"{child.name} ended ({child.exit_code}): {child.last_lines()}")
        try:
            self.scene = observe(self.admin, self.job)
        except AdminError:
            return  # not up yet; whoever waits for it has a deadline
        self.audience.show(self.scene, self._rate())

    def _rate(self) -> float:
        now = time.monotonic()
        self._steps.append((now, self.scene.step))
        while now - self._steps[0][0] > _RATE_OVER_S:
            self._steps.popleft()
        (then, first), (_, last) = self._steps[0], self._steps[-1]
        return max(0, last - first) / (now - then) if now > then else 0.0

    def _sight(self) -> str:
        states = ", ".join(f"{node.node} {node.state}" for node in self.scene.nodes)
        return f"job {self.scene.state} at step {self.scene.step}; {states or 'no nodes'}"
