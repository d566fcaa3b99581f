"""A scheduler whose nodes others drain and free as well, around a core that may be restarted."""

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.isolation import (
    DriverRecord,
    Hold,
    IsolationResult,
    WantedIsolation,
)
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.isolation_differences import changed_holds
from unit.core.test_decisions import S, Story

DRIVER = "slurm"


class Scheduler:
    """Withholds nodes for Everstep and for others; never changes what others hold."""

    def __init__(self) -> None:
        self.holds: dict[str, Hold] = {}
        # Every call that would have changed something, or asked for what was so already.
        self.applied: list[WantedIsolation] = []
        # Nodes that it does not have.
        self.unmanaged: set[str] = set()
        self.refused: list[str] = []
        # Why it does nothing at present.
        self.broken = ""

    def drain(self, node: str, reason: str = "ann: cables") -> None:
        self.holds[node] = Hold(reason, ours=False)

    def resume(self, node: str) -> None:
        self.holds.pop(node, None)

    def apply(self, wanted: WantedIsolation) -> IsolationResult:
        if self.broken:
            return IsolationResult(wanted, failure=self.broken)
        if wanted.node in self.unmanaged:
            self.refused.append(wanted.node)
            return IsolationResult(wanted, unmanaged=True)
        self.applied.append(wanted)
        hold = self.holds.get(wanted.node)
        if hold is None or hold.ours:
            if wanted.withheld:
                self.holds[wanted.node] = Hold(wanted.reason, ours=True)
            else:
                self.holds.pop(wanted.node, None)
        return IsolationResult(wanted, self.holds.get(wanted.node))


class SchedulerStory(Story):
    """A core with one driver. Its calls wait in ``calls`` until they are answered."""

    def __init__(self, nodes: int = 3, settings: Settings | None = None) -> None:
        self.scheduler = Scheduler()
        self.calls: list[actions.ApplyIsolation | actions.ReadIsolation] = []
        self.readings = 0
        self.journal: list[tuple[events.Event, int]] = []
        super().__init__(nodes, settings, drivers=(DRIVER,))
        self.answer()

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        done = super().tell(event, after_s)
        self.journal.append((event, self.now_ns))
        self._note(done)
        return done

    @property
    def record(self) -> DriverRecord:
        return self.core.state.drivers[DRIVER]

    def node(self, name: str = "n0") -> NodeRecord:
        return self.core.state.nodes[name]

    def held(self) -> dict[str, bool]:
        """Return who is withheld, and whether by us."""
        return {name: hold.ours for name, hold in self.scheduler.holds.items()}

    def operator(self, name: str, word: str) -> list[actions.Action]:
        """Let an operator isolate, drain or release a node."""
        if word == "isolate":
            return self.tell(events.OperatorIsolated(name, "ops", "drill"))
        if word == "drain":
            return self.tell(events.OperatorDrained(name, "ops", "drill"))
        return self.tell(events.OperatorReleased(name, "ops", "drill"))

    def answer(self) -> None:
        """Carry out every call that waits, and what follows from them."""
        while self.calls:
            call = self.calls.pop(0)
            if isinstance(call, actions.ReadIsolation):
                self.look()
            else:
                results = tuple(self.scheduler.apply(one) for one in call.wanted)
                self.tell(events.DriverReported(driver=DRIVER, results=results))

    def look(self) -> None:
        """Read the scheduler, as the shell does now and then."""
        self.readings += 1
        if self.scheduler.broken:
            event = events.DriverReported(driver=DRIVER, failure=self.scheduler.broken)
        else:
            seen = changed_holds(self.record, self.scheduler.holds)
            event = events.DriverReported(driver=DRIVER, read=True, seen=seen)
        self.tell(event)

    def run_retries(self, for_s: float) -> None:
        """Let the driver's timer come due again and again, and answer what it leads to."""
        until_ns = self.now_ns + int(for_s * S)
        timer = f"isolation/{DRIVER}"
        while self.core.state.timers.get(timer, until_ns) < until_ns:
            self.now_ns = max(self.now_ns, self.core.state.timers[timer])
            self.tell(events.TimerDue(timer), after_s=0)
            self.answer()
        self.now_ns = max(self.now_ns, until_ns)

    def restart(self) -> None:
        """Begin again from the journal alone; calls under way are gone."""
        self.calls.clear()
        self.core = Core()
        for event, now_ns in self.journal:
            self.core.handle(event, now_ns)
        self.tell(events.ControllerStarted("0.1.0"))
        self._note(self.core.due(self.now_ns))

    def _note(self, done: list[actions.Action]) -> None:
        for action in done:
            if isinstance(action, actions.ApplyIsolation | actions.ReadIsolation):
                assert action.driver == DRIVER
                self.calls.append(action)
