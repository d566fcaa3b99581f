"""Injector wiring: builds the injector of a node from the parts of its agent."""

from collections.abc import Callable, Iterable

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.injections.injector import Injector, Reach
from everstep_agent.injections.memory import InjectionMemory
from everstep_agent.monitoring.node_watch import Memory, NodeWatch
from everstep_proto.generated import fleet_pb2


def make_injector(
    config: AgentConfig,
    node: NodeWatch,
    memory: Memory,
    training_pids: Callable[[], Iterable[int]],
    record: Callable[[fleet_pb2.Record], None],
) -> Injector:
    """Return the injector of a node; it refuses everything unless the operator allows it."""
    reach = Reach(
        view=node.view,
        kernel_log=node.injected_log,
        counters=node.counters,
        boot_ns=node.boot_ns,
        driver_pids=lambda: [pid] if (pid := node.nvml.pid) else [],
        training_pids=training_pids,
        look_soon=node.look_soon,
    )
    kept = InjectionMemory(
        memory.notes.get("injections", "{}"), lambda text: memory.keep("injections", text)
    )
    return Injector(node.injections, reach, kept, record, allowed=config.fault_injection)
