"""Lost ends: what agents say of how jobs ended that this journal does not know.

A journal that was restored from before a job does not know it, and nobody else knows its end but
the agents that were told. A launcher that did not hear of the end says which job it is of.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from everstep_common.job_ids import number_of_job
from everstep_common.reports import EndedJob, JobOnNode
from everstep_controller.core.events import NodeConnected
from everstep_controller.core.model.agents import LostEnd, RefusalKind
from everstep_controller.core.model.state import State

# So many jobs are kept, some more than begin in a day under each of 300 names in turn; of those
# that were heard of longest ago nothing is known any more. A full list is 0.6 MB of a snapshot.
_KEPT_MAX = 2000
# As long as agents remember ends.
_KEPT_NS = 24 * 3600 * 1_000_000_000


class Word(NamedTuple):
    """Word of agents on how a job ended: theirs, and the newest term that one had seen."""

    told: EndedJob | None
    node: str
    seen_term: int


def word_of(event: NodeConnected, told: EndedJob) -> Word:
    """Return an agent's word as it gives it in its Hello."""
    return Word(told, event.node, event.highest_term)


def is_news(state: State, event: NodeConnected, told: EndedJob) -> bool:
    """Return whether an agent says more of the end of a job that is not known here than others."""
    if not _is_lost(state, told.job, told.job_id):
        return False
    known = _known(state.lost_ends.get(told.job_id))
    return put_together(state, known, word_of(event, told)) != known


def put_together(state: State, known: Word, new: Word) -> Word:
    """Return what two words of agents say together; the end after a newer generation is the newer.

    An agent that was told late that a job is over may have been told that nobody knows how: then
    another one's word is that it succeeded. What an agent says again to a controller that acts has
    the weight of when it said so first: it has been welcomed since.
    """
    if known.told is None or new.told is None:
        return new
    rank = [(one.generation, one.succeeded, one.term) for one in (known.told, new.told)]
    first = known if rank[0] >= rank[1] else new
    again = new.node == known.node and rank[0] == rank[1]
    seen_term = known.seen_term
    if state.halted or (not again and new.seen_term < state.term):
        seen_term = max(seen_term, new.seen_term)
    assert first.told is not None
    last = replace(first.told, term=max(known.told.term, new.told.term))
    return Word(last, first.node, seen_term)


def note_ends(state: State, event: NodeConnected, now_ns: int) -> None:
    """Keep how jobs have ended that are not known here, by the word of a node's agent."""
    for told in event.ended_jobs:
        if is_news(state, event, told):
            kept = _keep(state, told.job_id, now_ns)
            word = put_together(state, _known(kept), word_of(event, told))
            kept.told, kept.told_by, kept.seen_term = word
            kept.rebuilt = kept.rebuilt or bool(state.halted)
    if not state.halted:
        believe(state, (one.job_id for one in event.ended_jobs))


def believe(state: State, job_ids: Iterable[str]) -> None:
    """Believe for good, from now on, what was told by agents that had seen the newest term.

    Whoever went on with such a job after that would have done so by this journal.
    """
    for job_id in job_ids:
        kept = state.lost_ends.get(job_id)
        if kept is not None and kept.told is not None and _is_believed(state, kept):
            kept.seen_term = max(kept.seen_term, state.term)


def _known(kept: LostEnd | None) -> Word:
    return Word(None, "", 0) if kept is None else Word(kept.told, kept.told_by, kept.seen_term)


def _is_believed(state: State, kept: LostEnd) -> bool:
    """Return whether an agent has told it that was not away in the newest term that was seen."""
    return kept.seen_term >= state.highest_term_seen


def note_generations(state: State, seen: Iterable[JobOnNode], now_ns: int) -> None:
    """Keep the newest generations that agents have seen of jobs that are not known here."""
    for one in seen:
        if one.generation and _is_lost(state, one.job, one.job_id):
            kept = _keep(state, one.job_id, now_ns)
            kept.newest_seen = max(kept.newest_seen, one.generation)


def end_of(state: State, name: str, job_id: str) -> LostEnd | None:
    """Return how a job ended that is not known here; None where it goes on, or nobody has said.

    It goes on where an agent has seen a newer generation than those that were told of the end, and
    may where these were away in a newer term.
    """
    kept = state.lost_ends.get(job_id)
    if kept is None or kept.told is None or job_id in state.jobs or kept.told.job != name:
        return None
    goes_on = kept.newest_seen > kept.told.generation or not _is_believed(state, kept)
    return None if goes_on or is_newer_elsewhere(state, kept.told) else kept


def is_newer_elsewhere(state: State, told: EndedJob) -> bool:
    """Return whether an agent that is refused has seen a newer generation of the job's name."""
    return any(
        one.kind is RefusalKind.NEWER
        and (seen := one.generations.get(told.job)) is not None
        and seen.number > told.generation
        for one in state.refused_agents.values()
    )


def newest_of_name(state: State, name: str) -> tuple[int, int]:
    """Return the highest number in ids of lost jobs of a name that ended, and newest generation."""
    number, generation = -1, 0
    for job_id, kept in state.lost_ends.items():
        if kept.told is not None and kept.told.job == name:
            number = max(number, number_of_job(job_id, name) or 0)
            generation = max(generation, kept.newest_seen, kept.told.generation)
    return number, generation


def _is_lost(state: State, name: str, job_id: str) -> bool:
    """Return whether an id is of a job that this journal neither has nor has forgotten."""
    number = number_of_job(job_id, name)
    known = number is None or job_id in state.jobs or number <= state.forgotten_through
    return not known


def _keep(state: State, job_id: str, now_ns: int) -> LostEnd:
    """Return what is kept of a job, as the one that was heard of last."""
    ends = state.lost_ends
    kept = ends.pop(job_id, None) or LostEnd(now_ns)
    kept.heard_ns = now_ns
    ends[job_id] = kept
    while len(ends) > _KEPT_MAX or now_ns - next(iter(ends.values())).heard_ns > _KEPT_NS:
        del ends[next(iter(ends))]
    return kept
