"""Maintenance operations: windows are planned, shown with what they do to jobs, and cancelled."""

from everstep_controller.api.admin.errors import OrderRefusedError, UnknownNameError, node_named
from everstep_controller.core.events import MaintenanceCancelled, MaintenanceOrdered
from everstep_controller.core.model.state import current_name
from everstep_controller.core.model.windows import Span, Window
from everstep_controller.core.planned import forecast, maintenance
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2


class MaintenanceOperations:
    """Operators' calls about windows; UnknownNameError, OrderRefusedError and JournalFull."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def add(
        self, request: admin_pb2.AddMaintenanceRequest, operator: str
    ) -> admin_pb2.MaintenanceWindow:
        """Plan a window, and return it with what it will do to jobs."""
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        names = {node_named(state, current_name(state, name)).name for name in request.nodes}
        begin_ns = request.begin_ns if request.HasField("begin_ns") else now_ns + request.in_ns
        span = Span(tuple(sorted(names)), begin_ns, begin_ns + request.duration_ns)
        if problem := maintenance.problem_with(state, span, now_ns):
            raise OrderRefusedError(problem)
        order = MaintenanceOrdered(
            nodes=span.nodes,
            begin_ns=span.begin_ns,
            end_ns=span.end_ns,
            operator=operator,
            reason=request.reason,
        )
        await self._runtime.submit(order)
        return self._line(self._newest(span))

    def list(self, request: admin_pb2.ListMaintenanceRequest) -> admin_pb2.ListMaintenanceReply:
        """Return the windows that are open, or all that are known."""
        windows = self._runtime.state.windows.values()
        wanted = [one for one in windows if request.all or one.open]
        wanted.sort(key=lambda window: (window.span.begin_ns, window.ordered_ns))
        return admin_pb2.ListMaintenanceReply(windows=map(self._line, wanted))

    async def cancel(self, name: str, operator: str) -> admin_pb2.MaintenanceWindow:
        """Give a window up, and return it."""
        window = self._named(name)
        if not window.open:
            how = window.state.value
            raise OrderRefusedError(f"{name} is {how}; 'everstep maintenance list' has open ones")
        await self._runtime.submit(MaintenanceCancelled(name, operator))
        return self._line(self._named(name))

    def _newest(self, span: Span) -> Window:
        """Return the window that was made of an order. Raises OrderRefusedError when none was."""
        state = self._runtime.state
        for window in reversed(list(state.windows.values())):
            if window.open and window.span == span:
                return window
        now_ns = self._runtime.now_ns()
        why = state.halted or maintenance.problem_with(state, span, now_ns) or "see its log"
        raise OrderRefusedError(f"the controller did not take the order: {why}")

    def _named(self, name: str) -> Window:
        window = self._runtime.state.windows.get(name)
        if window is None:
            raise UnknownNameError(f"no maintenance window named {name!r}")
        return window

    def _line(self, window: Window) -> admin_pb2.MaintenanceWindow:
        told = list(forecast.window_forecasts(self._runtime.state, window))
        return answer(
            admin_pb2.MaintenanceWindow,
            window,
            window.span,
            window=window.id,
            drain_ns=window.span.begin_ns - window.lead_ns,
            moves=[job for job, interruption in told if not interruption],
            interrupts=[interruption for _, interruption in told if interruption],
        )
