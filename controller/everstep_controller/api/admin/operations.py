"""Operations of the admin API: claims on nodes, drains, restarts of jobs, paused automation."""

from collections.abc import Callable
from typing import TypeVar

from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    job_named,
    node_named,
)
from everstep_controller.api.admin.queries import Queries
from everstep_controller.core.events import (
    AutomationPaused,
    AutomationResumed,
    NodeDeclaredLost,
    NodeRemoved,
    OperatorDrained,
    OperatorIsolated,
    OperatorOrder,
    OperatorReleased,
    RestartCancelled,
    RestartOrdered,
    StopOrdered,
)
from everstep_controller.core.jobs.lifecycle import ACTIVE, OVER
from everstep_controller.core.model.job import JobRecord, JobState, PlannedKind
from everstep_controller.core.model.state import FLEET, State, current_name
from everstep_controller.core.nodes.claims import release_problem
from everstep_controller.core.nodes.driver_pause import DriversPaused, DriversResumed
from everstep_controller.core.nodes.isolation_view import waiting_nodes
from everstep_controller.core.nodes.quorum import loss_problem
from everstep_controller.core.nodes.removal import removal_problem
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2

Reply = TypeVar("Reply")


class NodeOperations:
    """Operators' calls about nodes and automation; they raise UnknownNameError and JournalFull."""

    def __init__(self, runtime: Runtime, queries: Queries) -> None:
        self._runtime = runtime
        self._queries = queries

    async def isolate(self, name: str, operator: str, reason: str) -> admin_pb2.NodeDetail:
        """Put an operator's claim on a node."""
        name = current_name(self._runtime.state, name)
        isolated = OperatorIsolated(name, operator, reason)
        return await self.order(isolated, lambda: self._queries.node(name))

    async def release(
        self, request: admin_pb2.ReleaseRequest, operator: str, reason: str
    ) -> admin_pb2.NodeDetail:
        """Remove an operator's claim. Raises OrderRefusedError for fatal findings not accepted."""
        name, accepted = current_name(self._runtime.state, request.node), tuple(request.accepted)
        if problem := release_problem(node_named(self._runtime.state, name), accepted):
            raise OrderRefusedError(problem)
        released = OperatorReleased(name, operator, reason, accepted)
        return await self.order(released, lambda: self._queries.node(name))

    async def remove(self, name: str, operator: str, reason: str) -> admin_pb2.RemoveNodeReply:
        """Forget a node that is gone for good. Raises OrderRefusedError."""
        state = self._runtime.state
        if problem := removal_problem(state, node_named(state, name)):
            raise OrderRefusedError(problem)
        await self._runtime.submit(NodeRemoved(name, operator, reason))
        left = self._runtime.state.nodes.get(name)
        if left is not None:  # its agent has connected while this was on its way
            raise OrderRefusedError(removal_problem(self._runtime.state, left))
        return admin_pb2.RemoveNodeReply(node=name)

    async def declare_lost(
        self, name: str, operator: str, reason: str
    ) -> admin_pb2.DeclareLostReply:
        """Take a silent node for lost. Raises OrderRefusedError."""
        state = self._runtime.state
        if problem := loss_problem(state, node_named(state, name)):
            raise OrderRefusedError(problem)
        await self._runtime.submit(NodeDeclaredLost(name, operator, reason))
        node = node_named(self._runtime.state, name)
        if problem := loss_problem(self._runtime.state, node):  # it came back meanwhile
            raise OrderRefusedError(problem)
        return admin_pb2.DeclareLostReply(node=name, state=node.state.value)

    async def pause(self, subject: str, operator: str, reason: str) -> admin_pb2.AutomationReply:
        """Stop automation for a node, a job, or everything."""
        subject = self._known_subject(subject)
        return await self.order(AutomationPaused(subject, operator, reason), self._automation)

    async def resume(self, subject: str, operator: str) -> admin_pb2.AutomationReply:
        """Let automation go on."""
        subject = self._known_subject(subject)
        return await self.order(AutomationResumed(subject, operator), self._automation)

    async def pause_drivers(self, operator: str, reason: str) -> admin_pb2.AutomationReply:
        """Have no scheduler told anything. Raises OrderRefusedError."""
        self._refuse_halted()
        return await self.order(DriversPaused(operator, reason), self._automation)

    async def resume_drivers(self, operator: str) -> admin_pb2.AutomationReply:
        """Have schedulers told again. Raises OrderRefusedError."""
        self._refuse_halted()
        return await self.order(DriversResumed(operator), self._automation)

    def _refuse_halted(self) -> None:
        if halted := self._runtime.state.halted:
            raise OrderRefusedError(f"the controller acts on nothing now: {halted}")

    async def order(self, order: OperatorOrder, answer: Callable[[], Reply]) -> Reply:
        """Journal an order, and return what is so then; an answer that raises does so before."""
        answer()
        await self._runtime.submit(order)
        return answer()

    def _automation(self) -> admin_pb2.AutomationReply:
        state = self._runtime.state
        return admin_pb2.AutomationReply(
            paused=sorted(state.paused),
            drivers_paused=state.drivers_paused,
            waiting_nodes=len(waiting_nodes(state)),
        )

    def _known_subject(self, subject: str) -> str:
        state = self._runtime.state
        if not subject or subject == FLEET:
            return FLEET
        if subject in state.nodes or subject in state.paused:
            return subject
        job = state.job(subject)
        if job is None:
            raise UnknownNameError(f"no node or job named {subject!r}")
        return job.name


class PlannedWorkOperations:
    """Operators' calls about planned work; they raise UnknownNameError and JournalFull."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def drain(self, name: str, operator: str, reason: str) -> admin_pb2.DrainReply:
        """Keep new ranks from a node, and return what becomes of the jobs that have some there."""
        name = current_name(self._runtime.state, name)
        node = node_named(self._runtime.state, name)
        await self._runtime.submit(OperatorDrained(name, operator, reason))
        if not node.draining:
            return admin_pb2.DrainReply(node=name, plans=[f"{name} is isolated already"])
        state = self._runtime.state
        plans = [
            forecast.forecast(state, job, name)
            for job in state.jobs.values()
            if job.state is not JobState.ENDED and name in job.generation.members
        ]
        return admin_pb2.DrainReply(node=name, plans=plans)

    async def restart(
        self, request: admin_pb2.RestartJobRequest, operator: str, reason: str
    ) -> admin_pb2.RestartJobReply:
        """Restart a job, and return what will happen. Raises OrderRefusedError."""
        job = job_named(self._runtime.state, request.job)
        step = request.at_step if request.HasField("at_step") else None
        if problem := _problem(self._runtime.state, job, step):
            raise OrderRefusedError(problem)
        await self._runtime.submit(RestartOrdered(job.id, operator, reason, step))
        wish = job.planned
        plan = forecast.describe(job, wish) if wish is not None else f"it is {job.state.value}"
        paused = self._runtime.state.paused
        if why := paused.get(job.name) or paused.get(FLEET):
            plan += f"; it waits, for automation is paused: {why}"
        return admin_pb2.RestartJobReply(job=job.name, plan=plan)

    async def stop(
        self, request: admin_pb2.StopJobRequest, operator: str, reason: str
    ) -> admin_pb2.StopJobReply:
        """End a job, and return what will happen. Raises OrderRefusedError."""
        state = self._runtime.state
        job = job_named(state, request.job)
        step = request.at_step if request.HasField("at_step") else None
        if state.halted:
            raise OrderRefusedError(f"the controller acts on nothing now: {state.halted}")
        if problem := _stop_problem(job, step):
            raise OrderRefusedError(problem)
        await self._runtime.submit(StopOrdered(job.id, operator, reason, step))
        wish = job.planned
        plan = f"it is {job.state.value}: {job.reason}"
        if wish is not None:
            undo = forecast.undo(self._runtime.state, job, wish)
            plan = f"{forecast.describe(job, wish)}; to take it back: {undo}"
        return admin_pb2.StopJobReply(job=job.name, plan=plan)

    async def cancel(
        self, request: admin_pb2.CancelRestartRequest, operator: str
    ) -> admin_pb2.CancelRestartReply:
        """Take a planned restart back; return what is still planned. Raises OrderRefusedError."""
        state = self._runtime.state
        job = job_named(state, request.job)
        if problem := restarts.cancel_problem(state, job):
            raise OrderRefusedError(problem)
        await self._runtime.submit(RestartCancelled(job.id, operator, request.reason))
        left = forecast.pending(state, job)
        if left is not None and left.kind in (
            "restart",
            "stop",
        ):  # it has begun while this was on its way
            raise OrderRefusedError(restarts.cancel_problem(state, job) or state.halted)
        plan = f"{job.name} goes on as it is"
        if left is not None:
            plan = (
                f"{forecast.describe(job, left)}; to undo that: {forecast.undo(state, job, left)}"
            )
        return admin_pb2.CancelRestartReply(job=job.name, plan=plan)


def _stop_problem(job: JobRecord, step: int | None) -> str:
    if job.state in OVER:
        return f"{job.name} is {job.state.value}: {job.reason}"
    if job.after:
        return (
            f"{job.id} has not begun: it {job.reason}; end its launchers, or stop the one before: "
            f"everstep job {job.after} stop --reason TEXT"
        )
    if step is not None and job.state not in ACTIVE:
        return f"{job.name} is {job.state.value} and makes no steps; ask without --at-step"
    return _past_problem(job, step)


def _problem(state: State, job: JobRecord, step: int | None) -> str:
    if job.state in OVER:
        return f"{job.name} has ended; start it again with 'everstep run'"
    if job.planned is not None and job.planned.kind is PlannedKind.STOP:
        undo = forecast.undo(state, job, job.planned)
        return f"{job.name} is to end: {job.planned.reason}; to take that back: {undo}"
    if step is not None and job.state not in ACTIVE:
        return f"{job.name} is {job.state.value} and starts anew as it is; ask without --at-step"
    return _past_problem(job, step)


def _past_problem(job: JobRecord, step: int | None) -> str:
    if step is not None and job.lineage.last_step is not None and step <= job.lineage.last_step:
        return (
            f"{job.name} is past step {step}, at {job.lineage.last_step}; "
            f"name a later one, or ask without --at-step"
        )
    return ""
