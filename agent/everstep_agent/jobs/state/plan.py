"""Plan of a generation, as one node has it: who runs where, and what is restored. Pure.

A plan is what the controller orders; the agent makes the next one itself where it may.
"""

from typing import TypeAlias

from everstep_agent.storage.formats.records import BRANCH_MAX, Beginning, StepKey
from everstep_agent.vault.snapshots.restore_plan import RestorePlan
from everstep_common.orders import StartGeneration

Plan: TypeAlias = StartGeneration
# Of a job that no generation was ordered of.
NO_PLAN = Plan(
    id="",
    node="",
    reason="",
    job="",
    generation=0,
    node_rank=0,
    node_count=0,
    first_rank=0,
    processes=0,
    world_size=0,
    master_address="",
    master_port=0,
    restore_step=None,
)


def restore_plan_of(plan: Plan) -> RestorePlan:
    """Return what the ranks of this node are to get back."""
    return RestorePlan(
        generation=plan.generation,
        ranks=plan.ranks,
        restores=plan.restores,
        sources=plan.sources,
        stored=plan.stored,
    )


def beginning_of(plan: Plan, cluster: str, uid: int) -> Beginning:
    """Return how a generation begins, as it is kept beside the steps that it stores."""
    lineage = [StepKey(one.generation, one.step) for one in plan.branch]
    if not plan.restores:
        lineage = []
    elif not lineage and plan.restored_generation:  # a controller of a version before told no more
        lineage = [StepKey(plan.restored_generation, plan.restore_step or 0)]
    return Beginning(
        job=plan.job,
        job_id=plan.job_id,
        cluster=cluster,
        generation=plan.generation,
        parent=lineage[-1] if lineage else None,
        branch=tuple(lineage[:-1][-(BRANCH_MAX - 1) :]),
        uid=uid,
    )
