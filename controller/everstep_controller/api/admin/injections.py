"""Injection operations: operators order, end and list faults that are made on purpose."""

import asyncio

from everstep_common.reports import InjectionState
from everstep_controller.api.admin.errors import OrderRefusedError, UnknownNameError, node_named
from everstep_controller.core.actions import Inject
from everstep_controller.core.events import InjectionCleared, InjectionOrdered
from everstep_controller.core.model.injection import Injection
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

# An agent answers at once; whoever waits longer is told where to look.
_ANSWER_S = 5.0
_POLL_S = 0.02
_SECOND_NS = 1_000_000_000
DURATION_NS_MAX = 3600 * _SECOND_NS
_SPEC_MAX = 500


class InjectionOperations:
    """Operators' calls about injections; UnknownNameError, and JournalFull on change."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def list(self, name: str) -> admin_pb2.InjectionsReply:
        """Return what is and lately was injected into a node."""
        injections = self._node(name).injections.by_id.values()
        return admin_pb2.InjectionsReply(injections=[_line(one) for one in injections])

    async def inject(self, request: admin_pb2.InjectRequest) -> admin_pb2.InjectionLine:
        """Order a fault and return the agent's answer. Raises OrderRefusedError."""
        node = self._node(request.node)
        if problem := _problem(node, request):
            raise OrderRefusedError(problem)
        taken = await self._runtime.submit(
            InjectionOrdered(
                node=node.name,
                spec=request.spec,
                duration_ns=request.duration_ns,
                operator=request.operator,
                reason=request.reason,
            )
        )
        ordered = next((one for one in taken.actions if isinstance(one, Inject)), None)
        if ordered is None:
            why = self._runtime.state.halted or taken.rejected
            raise OrderRefusedError(f"the controller did not take the order: {why}")
        return _line(await self._settled(node.name, ordered.id, over=False))

    async def clear(self, name: str, injection: str, operator: str) -> admin_pb2.InjectionsReply:
        """Order the end of an injection, of all for an empty id."""
        node = self._node(name)
        if injection and injection not in node.injections.by_id:
            raise UnknownNameError(f"no injection {injection!r} on {name}")
        await self._runtime.submit(InjectionCleared(name, injection, operator))
        node = self._node(name)
        if node.liveness.connected:
            # All at once: each waits for the same agent.
            waits = [self._settled(name, one.id, over=True) for one in _clearing(node)]
            await asyncio.gather(*waits)
        return self.list(name)

    async def _settled(self, node: str, injection: str, *, over: bool) -> Injection:
        """Return an injection once its agent has answered, or as it is after a while.

        Looked up each time: an event that is rejected gives the core a new state.
        """
        due = asyncio.get_running_loop().time() + _ANSWER_S
        while True:
            found = self._node(node).injections.by_id.get(injection)
            if found is None:
                raise UnknownNameError(f"no injection {injection!r} on {node} any more")
            waiting = not found.over if over else found.state is InjectionState.ORDERED
            if not waiting or asyncio.get_running_loop().time() > due:
                return found
            await asyncio.sleep(_POLL_S)

    def _node(self, name: str) -> NodeRecord:
        return node_named(self._runtime.state, name)


def _problem(node: NodeRecord, request: admin_pb2.InjectRequest) -> str:
    """Return why this cannot be ordered; empty when it can."""
    if not node.liveness.connected:
        return f"{node.name} is not connected; 'everstep why {node.name}' tells since when"
    if not 0 < request.duration_ns <= DURATION_NS_MAX:
        return "an injection lasts for more than nothing and at most an hour; give --for 60s"
    if not request.spec or len(request.spec) > _SPEC_MAX:
        return "say what to inject; 'everstep inject --help' lists what there is"
    return ""


def _clearing(node: NodeRecord) -> list[Injection]:
    return [one for one in node.injections.by_id.values() if one.clearing]


def _line(injection: Injection) -> admin_pb2.InjectionLine:
    return answer(admin_pb2.InjectionLine, injection, injection=injection.id)
