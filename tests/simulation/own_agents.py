"""Whose agents the controller of a simulated cluster takes for its nodes'."""

from everstep_sim.cluster import SimulatedCluster
from everstep_sim.timeline import SECOND

# One stranger, whatever it says: two that have seen more than the journal may halt it.
STRAY = "stray"


class OwnAgents:
    """Sees that no agent is taken but the nodes' own, while these answer."""

    def __init__(self) -> None:
        # Since when the stream of each node's own agent has flowed.
        self._flows_ns: dict[str, int] = {}
        self.refused = 0
        self.replaced = 0

    def forget(self) -> None:
        """Wait for each node's own agent anew: the controller takes nobody for now."""
        self._flows_ns.clear()

    def __call__(self, cluster: SimulatedCluster, *, rebuilt: bool = False) -> None:
        """Fail where a stranger was taken, or halts the fleet.

        One that was heard while the journal was rebuilt has seen nothing any more that is newer.
        """
        state, now_ns = cluster.controller.core.state, cluster.time.now_ns
        assert not state.halted, state.halted
        assert rebuilt or STRAY not in state.nodes
        assert rebuilt or not any(origin.startswith(STRAY) for origin in state.outboxes)
        self.refused += len(state.refused_agents)
        for node in cluster.fleet.nodes.values():
            if not cluster.fleet.flows(node):
                self._flows_ns.pop(node.name, None)
                continue
            since_ns = self._flows_ns.setdefault(node.name, now_ns)
            known = state.nodes.get(node.name)
            if known is not None and known.spec.outbox != node.outbox_id:
                self.replaced += 1
                told = f"{node.name} is {known.spec.outbox}, and its own agent answers"
                assert now_ns - since_ns < 2 * SECOND, told
