"""Operations of the admin API: claims of operators on nodes, and automation paused and resumed."""

from everstep_controller.api.admin.errors import UnknownNameError, node_named
from everstep_controller.api.admin.queries import Queries
from everstep_controller.core.events import (
    AutomationPaused,
    AutomationResumed,
    Event,
    OperatorIsolated,
    OperatorReleased,
)
from everstep_controller.core.model.state import FLEET
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2


class Operations:
    """Operators' calls about nodes and automation; UnknownNameError and JournalFull."""

    def __init__(self, runtime: Runtime, queries: Queries) -> None:
        self._runtime = runtime
        self._queries = queries

    async def isolate(self, name: str, operator: str, reason: str) -> admin_pb2.NodeDetail:
        """Put an operator's claim on a node."""
        return await self._change_node(name, OperatorIsolated(name, operator, reason))

    async def release(self, name: str, operator: str, reason: str) -> admin_pb2.NodeDetail:
        """Remove an operator's claim."""
        return await self._change_node(name, OperatorReleased(name, operator, reason))

    async def pause(self, subject: str, operator: str, reason: str) -> admin_pb2.AutomationReply:
        """Stop automation for a node, a job, or everything."""
        subject = self._known_subject(subject)
        return await self._change_automation(AutomationPaused(subject, operator, reason))

    async def resume(self, subject: str, operator: str) -> admin_pb2.AutomationReply:
        """Let automation go on."""
        subject = self._known_subject(subject)
        return await self._change_automation(AutomationResumed(subject, operator))

    async def _change_node(self, name: str, event: Event) -> admin_pb2.NodeDetail:
        node_named(self._runtime.state, name)
        await self._runtime.submit(event)
        return self._queries.node(name)

    async def _change_automation(self, event: Event) -> admin_pb2.AutomationReply:
        await self._runtime.submit(event)
        return admin_pb2.AutomationReply(paused=sorted(self._runtime.state.paused))

    def _known_subject(self, subject: str) -> str:
        state = self._runtime.state
        if not subject or subject == FLEET:
            return FLEET
        if subject not in state.nodes and subject not in state.jobs and subject not in state.paused:
            raise UnknownNameError(f"no node or job named {subject!r}")
        return subject
