"""Pair test operations: operators have a node tested beside another one, and read the result."""

from everstep_controller.api.admin.errors import node_named
from everstep_controller.core.events import PairTestOrdered
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.recovery import pair_tests
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2


class PairTestOperations:
    """Operators' calls about pair tests; UnknownNameError, and JournalFull on change."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def newest(self, name: str) -> admin_pb2.PairTestReply:
        """Return what the newest test of a node has shown."""
        return _reply(node_named(self._runtime.state, name))

    async def test(self, name: str, partner: str, operator: str) -> admin_pb2.PairTestReply:
        """Order a test, and return that it runs, or why it cannot be made now."""
        state = self._runtime.state
        node_named(state, name)
        if partner:
            node_named(state, partner)
        why = state.halted or pair_tests.problem(state, name, partner)
        if why:
            return admin_pb2.PairTestReply(outcome="refused", sentence=why)
        await self._runtime.submit(PairTestOrdered(name, partner, operator))
        return _reply(node_named(self._runtime.state, name))


def _reply(node: NodeRecord) -> admin_pb2.PairTestReply:
    running = node.pair.running
    if running is not None:
        beside = f"{node.name} does fixed work beside {' and '.join(running.partners)}"
        return admin_pb2.PairTestReply(test=running.id, outcome="running", sentence=beside)
    if node.pair.result is None:
        never = (
            f"{node.name} was never tested beside another node; where no ranks run: 'everstep "
            f"check {node.name} --pair'"
        )
        return admin_pb2.PairTestReply(outcome="never", sentence=never)
    rows = [answer(admin_pb2.PairTestRow, row) for row in node.pair.result.rows]
    return answer(admin_pb2.PairTestReply, node.pair.result, node.pair, rows=rows)
