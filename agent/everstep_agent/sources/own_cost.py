"""Agent cost source: what the agent costs its node; it is reported and not judged."""

from collections.abc import Sequence

from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.own_cost import AgentCost, OwnCost
from everstep_agent.sources.source import Source
from everstep_agent.sources.threaded import threaded
from everstep_common.judging.judgement import Judgement

# To find its children psutil reads every process of the node: milliseconds.
INTERVAL_S = 60.0


def own_cost_source(view: NodeView, deadline_s: float) -> Source:
    """Return the source that tells what the agent costs; nothing is judged of it."""

    def take(cost: AgentCost) -> Sequence[Judgement]:
        view.own_cost = cost
        return ()

    look = threaded("own_cost", deadline_s, OwnCost().read, take)
    return Source(name="own_cost", group="host", interval_s=INTERVAL_S, look=look)
