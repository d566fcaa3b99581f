"""Polling of the demo's cluster: waits until a condition holds, and shows every state meanwhile."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_cli.client.admin import Admin, AdminError
from everstep_cli.demo.cluster_view import ClusterView, observe
from everstep_cli.demo.display import Display
from everstep_cli.demo.processes import Child, OwnedProcesses
from everstep_proto.generated import admin_pb2

_LOOK_EVERY_S = 0.1
# The step rate is that of the last seconds.
_RATE_OVER_S = 2.0


class DemoError(Exception):
    """The demo cannot go on; one sentence on what did not happen."""


@dataclass(slots=True)
class ClusterWatch:
    """Polls the cluster, and shows what it sees. Use only from the main thread."""

    owned: OwnedProcesses
    admin: Admin
    display: Display
    job: str
    view: ClusterView = field(default_factory=ClusterView)
    # Children whose end is a failure of the demo.
    needed: list[Child] = field(default_factory=list)
    _steps: deque[tuple[float, int]] = field(default_factory=deque)

    def until(self, what: str, patience_s: float, so: Callable[[ClusterView], bool]) -> ClusterView:
        """Watch until ``so``; return that view. Raises DemoError when it never comes."""
        deadline = time.monotonic() + patience_s
        while True:
            self.poll()
            if so(self.view):
                return self.view
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not seen within {patience_s:g} s ({self._sight()})")
            time.sleep(_LOOK_EVERY_S)

    def poll(self) -> None:
        """Look once: at the processes, then at what the controller says, and show it."""
        self.owned.record_descendants()
        for child in self.needed:
            if child.exit_code is not None:
                raise DemoError(f"{child.name} ended ({child.exit_code}): {child.last_lines()}")
        try:
            self.view = observe(self.admin, self.job)
        except AdminError:
            return  # not up yet; whoever waits for it has a deadline
        self.display.show(self.view, self._rate())

    def ledger(self) -> admin_pb2.Ledger:
        """Return where the time of the job went. Raises AdminError."""
        request = admin_pb2.GetLedgerRequest(job=self.job)
        return self.admin.call(lambda stub: stub.GetLedger, request, self.job)

    def _rate(self) -> float:
        now = time.monotonic()
        self._steps.append((now, self.view.step))
        while now - self._steps[0][0] > _RATE_OVER_S:
            self._steps.popleft()
        (then, first), (_, last) = self._steps[0], self._steps[-1]
        return max(0, last - first) / (now - then) if now > then else 0.0

    def _sight(self) -> str:
        states = ", ".join(f"{node.node} {node.state}" for node in self.view.nodes)
        return f"job {self.view.state} at step {self.view.step}; {states or 'no nodes'}"
