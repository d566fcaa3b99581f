"""Admission: who may join or attach to a job on this node, and whether its snapshots will fit."""

import hmac

from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.job_table import goes_on
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.state.facts import NOBODY, JobFacts
from everstep_agent.quotas.user_quotas import Quota
from everstep_agent.vault.memory.allocator import Requester
from everstep_agent.vault.memory.capacity import PER_USER_BYTES, PER_USER_RATIO, MemoryForecast
from everstep_common.job_ids import number_of_job, token_hash
from everstep_common.launcher_messages import Join
from everstep_common.rank_messages import Attach
from everstep_common.version import TRAINER_PROTOCOL, TRAINER_PROTOCOL_LEAST

_OTHER_USER = "job {} on this node belongs to another user; choose another name with --job"


def join_refusal(facts: JobFacts | None, request: Join, uid: int) -> str | None:
    """Return why a launcher may not join, or None; without facts the job is not known here."""
    problem = protocol_problem(request.protocol, request.version)
    if problem:
        return problem
    if not request.token:
        return "a job needs a name and a token; see everstep run --help"
    return _owner_refusal(facts, request, uid) if facts else None


def _owner_refusal(facts: JobFacts, request: Join, uid: int) -> str | None:
    place, owner = facts.place, facts.place.uid
    if facts.ended:
        # A name is free again then; who says the id of the job has to be its user.
        theirs = request.job_id == facts.job_id != "" and facts.owner.uid not in (NOBODY, uid)
        return _OTHER_USER.format(request.job) if theirs else None
    if owner == NOBODY and not facts.idle:
        # The job has no launcher here any more, but its user's snapshots are still kept.
        owner = facts.owner.uid
    if owner not in (NOBODY, uid):
        return _OTHER_USER.format(request.job)
    if place.uid == NOBODY or hmac.compare_digest(place.token_sha256, token_hash(request.token)):
        return None
    return (
        f"job {request.job} on this node was begun with another token; give every launcher "
        "of the job the same token, or choose another name with --job"
    )


def attach_refusal(facts: JobFacts | None, request: Attach, uid: int) -> str | None:
    """Return why a process may not attach, or None."""
    problem = protocol_problem(request.protocol, request.version)
    if problem:
        return problem
    if facts is None or facts.ended or not facts.place.token_sha256:
        return f"job {request.job} is not known on this node; start it with everstep run"
    token = hmac.compare_digest(facts.place.token_sha256, token_hash(request.token))
    if facts.place.uid != uid or not token:
        return (
            f"this process does not belong to job {request.job}: user or token differ; "
            "start it with everstep run"
        )
    return _plan_refusal(facts, request)


def _plan_refusal(facts: JobFacts, request: Attach) -> str | None:
    plan = facts.plan
    if request.generation != plan.generation or not facts.active:
        return (
            f"generation {request.generation} of job {request.job} is over here (newest: "
            f"{max(plan.generation, facts.stops.completed)}); this process should exit"
        )
    if request.rank not in plan.ranks:
        return (
            f"rank {request.rank} is not planned on this node in generation {plan.generation}; "
            "take RANK from the environment that everstep run sets"
        )
    return None


def protocol_problem(protocol: object, version: object) -> str | None:
    """Return why a process of another version cannot be served; None for one that can."""
    if isinstance(protocol, int) and TRAINER_PROTOCOL_LEAST <= protocol <= TRAINER_PROTOCOL:
        return None
    return (
        f"everstep {version!s:.40} speaks protocol {protocol!s:.20}, this agent "
        f"{TRAINER_PROTOCOL}; install a matching everstep in the job's environment"
    )


def has_memory(known: NodeJob | None, join: Join, uid: int) -> bool:
    """Return whether a launcher's job has its memory here already, or gets on without.

    What is kept of the job that a new one goes on from must not be freed to make room for that one.
    """
    if join.running_generation:
        return True
    return known is not None and (not known.facts.idle or goes_on(known.facts, join, uid))


def forecast_of(context: JobContext, join: Join) -> MemoryForecast | None:
    """Return what a job will need on this node, if it said how large its state is."""
    if join.snapshot_bytes <= 0:
        return None
    return MemoryForecast(
        processes=join.processes_per_node,
        snapshot_bytes=join.snapshot_bytes,
        slots=context.vault_context.slots_per_rank + int(join.storage is not None),
        replicas=join.nodes_max > 1,
    )


async def memory_refusal(
    context: JobContext, known: NodeJob | None, join: Join, uid: int
) -> str | None:
    """Return why the snapshots would not fit beside what others were promised, and what would.

    A launcher that comes back has that word already.
    """
    forecast = forecast_of(context, join)
    if forecast is None or (known is not None and known.facts.promised == forecast):
        return None
    asker = Requester(uid, join.job, after_promises=True)
    return await context.vault_context.allocator.forecast_refusal(asker, forecast)


def count_memory_refusal(context: JobContext, uid: int, reason: str) -> None:
    """Count a refusal of memory, if it was for what its user has, and not for what there is."""
    if PER_USER_RATIO in reason or PER_USER_BYTES in reason:
        context.refusals.count(Quota.MEMORY, uid)


def late_refusal(facts: JobFacts, request: Join) -> str | None:
    """Return why a launcher comes too late to a node where one of the next job of its name is."""
    known = number_of_job(facts.job_id, facts.job)
    number = number_of_job(request.job_id, facts.job)
    if known is None or number is None or number >= known:
        return None
    return (
        "its job ended while this launcher was away, and another job has the name "
        f"{facts.job} since; see 'everstep job {facts.job}'"
    )
