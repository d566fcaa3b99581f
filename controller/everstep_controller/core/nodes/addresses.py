"""Addresses of nodes: those that other machines cannot reach, while there are other machines."""

from collections.abc import Iterator, Sequence

from everstep_common.addresses import is_loopback
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.state import State

# So many nodes, or jobs, are named in a sentence.
_NAMED_MAX = 4

ADDRESS_UNREACHABLE = Condition(
    name="AddressUnreachable",
    component="controller/addresses",
    meaning="agents tell other nodes an address for copies that only their own machine reaches "
    "(127.0.0.0/8, ::1), or none, and the fleet has several machines: nobody can fetch copies from "
    "these nodes, or send them any, so that a lost node takes the last steps of its jobs along",
    source="the addresses and machines in the Hellos of agents that are connected",
    clears_when="their agents tell addresses of the network ('jobs.bulk_host' in agent.toml), or "
    "all nodes are on one machine",
    mode=Mode.ADVISE,
)


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield the finding that nodes cannot be reached at the addresses that they tell."""
    there = [node for node in state.nodes.values() if node.liveness.connected]
    found = [node for node in there if _is_unreachable(node)]
    if found and len({_machine(node) for node in there}) > 1:
        since_ns = min(node.since_ns for node in found)
        yield OpenFinding(_finding(state, found, len(there)), since_ns)


def _is_unreachable(node: NodeRecord) -> bool:
    return not node.spec.bulk_address or is_loopback(node.spec.bulk_address)


def _machine(node: NodeRecord) -> str:
    """Return what tells machines apart: one boots once at a time, and ids may be copied."""
    return node.spec.boot_id or node.spec.machine or node.name


def _finding(state: State, found: Sequence[NodeRecord], total: int) -> Finding:
    names = [node.name for node in found]
    told = dict.fromkeys(node.spec.bulk_address or "no address" for node in found)
    jobs = _jobs_on(state, found)
    hit = f"; {_named(jobs)} {'has' if len(jobs) == 1 else 'have'} ranks there" if jobs else ""
    them = "it" if len(names) == 1 else "them"
    return Finding(
        component=ADDRESS_UNREACHABLE.component,
        condition=ADDRESS_UNREACHABLE.name,
        mode=ADDRESS_UNREACHABLE.mode,
        severity=Severity.DEGRADED,
        message=f"nodes on other machines cannot reach the copies on {_named(names)} "
        f"({len(names)} of {total} nodes), nor send {them} any{hit}",
        evidence=f"told to others: {_named(list(told))}",
        suggested_action=SuggestedAction.WATCH,
        rule=f"in agent.toml of {names[0]} set 'jobs.bulk_host' (or 'jobs.bulk_advertise_host') to "
        "the node's address in the network of the copies, and where 'controller' is on loopback "
        "'host' as well; then 'systemctl restart everstep-agent', which costs no job a step; "
        "cleared by its next Hello",
    )


def _jobs_on(state: State, found: Sequence[NodeRecord]) -> list[str]:
    """Return the jobs with ranks on some of these nodes and on others."""
    names = {node.name for node in found}
    jobs = (state.jobs[one] for node in found for one in node.jobs.ids if one in state.jobs)
    return sorted(
        {
            job.name
            for job in jobs
            if job.state is not JobState.ENDED
            and len(job.generation.members) > 1
            and not names.isdisjoint(job.generation.members)
        }
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"
