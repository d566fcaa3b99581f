"""Isolation drivers in the admin API: how old what they know is, and what waits to be told."""

from collections.abc import Callable, Iterator, Mapping

from everstep_controller.core.model.isolation import DriverRecord, NodeIsolation
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import isolation_differences, isolation_view
from everstep_controller.drivers.worker import SchedulerReading
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2

# So many nodes that wait are named of each driver.
_NAMED_MAX = 1000

Readings = Callable[[], Mapping[str, SchedulerReading]]


class DriverQueries:
    """Questions about isolation drivers, and about nodes at their schedulers."""

    def __init__(
        self, runtime: Runtime, readings: Readings, failed_calls: Callable[[], Mapping[str, int]]
    ) -> None:
        self._runtime = runtime
        self._readings = readings
        self._failed_calls = failed_calls

    def all(self) -> admin_pb2.ListDriversReply:
        """Return all drivers that are configured."""
        state, readings, failed = self._runtime.state, self._readings(), self._failed_calls()
        return admin_pb2.ListDriversReply(
            drivers=[
                _driver_line(state, record, readings.get(name), failed.get(name, 0))
                for name, record in sorted(state.drivers.items())
                if name != isolation_differences.BUILT_IN
            ],
            paused=state.drivers_paused,
            paused_ns=state.drivers_paused_ns,
        )

    def views_of(self, node: str) -> list[admin_pb2.SchedulerView]:
        """Return a node as each scheduler has it."""
        return list(_views(self._runtime.state, self._readings(), node))


def _driver_line(
    state: State, record: DriverRecord, reading: SchedulerReading | None, failed_calls: int
) -> admin_pb2.DriverLine:
    own = [name for name in state.nodes if isolation_differences.is_own(state, record.name, name)]
    known = (record.nodes[name] for name in own if name in record.nodes)
    holds = [one.hold for one in known if one.hold is not None]
    line = admin_pb2.DriverLine(
        driver=record.name,
        nodes=len(own),
        held_ours=sum(hold.ours for hold in holds),
        held_by_others=sum(not hold.ours for hold in holds),
        waiting=isolation_view.waiting_of(state, record)[:_NAMED_MAX],
        waiting_since_ns=isolation_view.waiting_since_ns(state, record),
        failures=record.failures,
        failure=record.failure,
        failed_calls=failed_calls,
    )
    if reading is not None:
        line.age_s = reading.age_s
    return line


def _views(
    state: State, readings: Mapping[str, SchedulerReading], node: str
) -> Iterator[admin_pb2.SchedulerView]:
    for name, record in sorted(state.drivers.items()):
        reading, known = readings.get(name), record.nodes.get(node) or NodeIsolation()
        told = reading.nodes.get(node) if reading is not None else None
        elsewhere = not isolation_differences.is_own(state, name, node)
        if name == isolation_differences.BUILT_IN or (
            elsewhere and told is None and known.hold is None
        ):
            continue
        view = admin_pb2.SchedulerView(
            driver=name,
            state=told.state if told is not None else record.down.get(node, ""),
            work=told.work if told is not None else (),
            held=known.hold.reason or "no reason given" if known.hold is not None else "",
            ours=known.hold is not None and known.hold.ours,
            elsewhere=elsewhere,
            waiting_since_ns=known.differs_since_ns,
        )
        if reading is not None:
            view.age_s = reading.age_s
        yield view
