"""Lost jobs: jobs that another journal has begun, or may have, and this one does not know.

A journal that was restored, or rebuilt from nothing, does not know on which nodes such a job runs,
nor which numbers its generations had. So its next generation waits, as long as agents may need to
come back, for nodes that may run it; and has a number that no lost journal has given.
"""

from everstep_controller.core.jobs import orders
from everstep_controller.core.model.agents import RefusalKind, RefusedAgent
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State, jobs_of_name
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import TimerKind

# Generations that a journal may plan of a job in one term of the controller, before numbers of a
# journal that is lost after it could be given again: terms are never given twice.
_NUMBERS_OF_TERM = 1000


def first_number(state: State) -> int:
    """Return the number from which on generations of a lost job are counted here."""
    return state.term * _NUMBERS_OF_TERM


def newest_number(state: State, job: JobRecord) -> int:
    """Return the highest number that another journal may have given under the name of a job.

    One of which a refused agent tells is the number of other ranks, whose copies may come to light;
    but no stranger has numbers grow, and nobody without bound.
    """
    known_nodes = [one for one in _refused(state, job) if one.node in state.nodes]
    told = [one.generations[job.name].number for one in known_nodes]
    known = job.generation.number + _NUMBERS_OF_TERM
    newest = max(one.first_number for one in jobs_of_name(state, job.name)) - 1
    return max(newest, *(number for number in told if number <= known), -1)


def begin_anew(state: State) -> None:
    """Count the generations of all jobs anew: what is known of them was told by agents."""
    for job in state.jobs.values():
        job.first_number = first_number(state)
        named = state.named_ranks.get(job.name)
        known = named is not None and named.generation <= job.generation.number
        if known and state.is_current(job):
            del state.named_ranks[job.name]  # the journal has it, and knows its members


def is_gone_on_with(job: JobRecord) -> bool:
    """Return whether a generation of a job was planned since the journal was rebuilt, or ever."""
    return not job.first_number or job.generation.number >= job.first_number


def is_unbegun(job: JobRecord) -> bool:
    """Return whether a job that was lost has begun nothing here: its nodes are not known."""
    return bool(job.first_number) and not job.lineage.started


def stop_what_runs(state: State, job: JobRecord) -> None:
    """Have launchers take no ranks before those of a generation are gone that was lost."""
    named, number = state.named_ranks.get(job.name), job.generation.number
    for name in named.nodes if named is not None and named.generation == number else ():
        launcher = job.launchers.get(name)
        if launcher is not None and name not in job.generation.members:
            launcher.stale_generation = max(launcher.stale_generation, number)


def why_held(state: State, job: JobRecord, now_ns: int) -> str:
    """Return why the next generation of a job is not planned yet; empty: nothing holds it."""
    if now_ns >= state.returns_until_ns:
        return ""
    named = state.named_ranks.get(job.name)
    if named is not None:
        left = [name for name in named.nodes if not _is_accounted(state, job, name)]
        what = f"to say what became of generation {named.generation} there"
        return f"{orders.who_have(left)} {what}: the journal has lost it" if left else ""
    if job.lineage.started:
        return ""
    refused = sorted(one.node for one in _refused(state, job))
    if refused:
        return f"{orders.who_have(refused)} begun it, which this journal does not know: see nodes"
    if job.first_number:
        return "it has its id from another journal, and nodes that run it may still come"
    return ""


def _is_accounted(state: State, job: JobRecord, name: str) -> bool:
    """Return whether nothing of a generation runs on a node any more, or nobody waits for it."""
    node, launcher = state.nodes.get(name), job.launchers.get(name)
    if node is None or node.gone:
        return node is not None
    heard = node.liveness.connected and node.identity.welcomed_term == state.term
    return heard and launcher is not None and not launcher.stale_generation


def _refused(state: State, job: JobRecord) -> list[RefusedAgent]:
    """Return the refused agents that tell of generations under the name of a job."""
    return [one for one in state.refused_agents.values() if _tells_of(one, job)]


def _tells_of(refused: RefusedAgent, job: JobRecord) -> bool:
    seen = refused.generations.get(job.name)
    return refused.kind is RefusalKind.NEWER and seen is not None and seen.number > 0


TIMERS: Timers = job_timers(TimerKind.RETURNS)
