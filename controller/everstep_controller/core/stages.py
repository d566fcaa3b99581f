"""When the ranks of a generation were where in their start, in whatever order nodes tell it."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from statistics import median_low
from types import MappingProxyType

from everstep_controller.core.facts import Phase
from everstep_controller.core.ledger import Ledger
from everstep_controller.core.state import JobRecord
from everstep_controller.core.timeline import Segment

ORDER: Mapping[Phase, int] = MappingProxyType(
    {Phase.STARTED: 0, Phase.ATTACHED: 1, Phase.RESTORED: 2}
)
# What time was taken for while a phase was not known, and what it was.
_LATE: Mapping[Phase, Mapping[str, str]] = MappingProxyType(
    {
        Phase.STARTED: {"inc.env": "inc.init", "init.env": "init.proc"},
        Phase.ATTACHED: {
            "inc.env": "inc.restore",
            "inc.init": "inc.restore",
            "init.env": "init.restore",
            "init.proc": "init.restore",
        },
        Phase.RESTORED: {},
    }
)


def note(job: JobRecord, phase: Phase, at_ns: int) -> None:
    """Remember when the last node yet has told to have reached a phase."""
    if not job.phases:
        job.reached_ns = {}
    job.reached_ns[phase] = max(job.reached_ns.get(phase, 0), at_ns)


def overtaken(job: JobRecord, phase: Phase) -> None:
    """Take the word of a node of a phase that its word of a later one has overtaken."""
    all_are_there = len(job.phases) == len(job.members)
    if all_are_there and all(ORDER[other] >= ORDER[phase] for other in job.phases.values()):
        restate(job.ledger, phase, job.reached_ns[phase])


def steps_begun_ns(job: JobRecord, end_ns: Sequence[int]) -> int:
    """Return when the first steps began that came before the word that all ranks have their state.

    A job that never gives that word is taken to have needed as long for the first as for the next.
    """
    earliest_ns = job.ledger.segments[-1].start_ns
    told_ns = job.reached_ns.get(Phase.RESTORED) if job.phases else None
    if not end_ns:
        return earliest_ns
    if told_ns is None:
        usual_ns = _usual_ns(job.ledger, end_ns)
        told_ns = earliest_ns if usual_ns is None else end_ns[0] - usual_ns
    return max(earliest_ns, min(told_ns, end_ns[0]))


def _usual_ns(ledger: Ledger, end_ns: Sequence[int]) -> int | None:
    if len(end_ns) > 1:
        return end_ns[1] - end_ns[0]
    return median_low(ledger.reference_ns) if ledger.reference_ns else None


def restate(ledger: Ledger, phase: Phase, at_ns: int) -> None:
    """Give a phase its time although steps were counted before its word came."""
    names = _LATE[phase]
    starts = [segment.start_ns for segment in ledger.segments[1:]]
    told: list[Segment] = []
    for segment, until_ns in zip_longest(ledger.segments, starts):
        late = segment.category in names and (until_ns is None or at_ns < until_ns)
        if not late or segment.start_ns < at_ns:
            told.append(segment)
        if late:
            start_ns = max(at_ns, segment.start_ns)
            told.append(Segment(start_ns, names[segment.category], segment.incident))
    ledger.segments = told
