"""Usual stands of a job: how long it stands still at each place, and goes on by itself. Pure.

They are the one memory of evaluations, saves and slow data of which nobody has said anything. A
place is where a look has found those that hold the job back; what is usual there says nothing of
any other place, and is halved in a day.
"""

from collections.abc import Iterable

from everstep_controller.core.model.hang import PLACES_MAX, UsualStand
from everstep_controller.core.model.job import JobRecord

_DAY_NS = 86_400 * 10**9
# As much longer as the longest before is still the same evaluation.
_MARGIN = 1.5
# A stand that took longer and ended well was a debugger's, or waited for somebody.
_STOOD_MAX_NS = 3600 * 10**9
# What is usual for less is not kept: any stand is as long before it is seen.
_LEAST_NS = 10**9


def usual_ns(known: Iterable[UsualStand], place: str, now_ns: int) -> int:
    """Return for how long the job may stand still at a place; 0: it is not known there."""
    stood_ns = max((_lasting_ns(one, now_ns) for one in known if one.place == place), default=0)
    return int(_MARGIN * stood_ns)


def remembered(
    known: Iterable[UsualStand], places: Iterable[str], stood_ns: int, now_ns: int
) -> list[UsualStand]:
    """Return what is known when a job has gone on that stood still at some places; oldest first."""
    before = {one.place: one for one in known if _lasting_ns(one, now_ns) >= _LEAST_NS}
    for place in places:
        lasted_ns = min(stood_ns, _STOOD_MAX_NS)
        if (one := before.pop(place, None)) is not None:
            lasted_ns = max(lasted_ns, _lasting_ns(one, now_ns))
        before[place] = UsualStand(place, lasted_ns, now_ns)
    return list(before.values())[-PLACES_MAX:]


def remember(job: JobRecord, stood_ns: int, now_ns: int) -> None:
    """Remember for how long a job has stood that goes on by itself, at each place it was seen at.

    One that went on before anybody looked is remembered as of no place. A process that was stopped
    is somebody's hand, and says nothing of what is usual.
    """
    if job.hang.seen is not None and job.hang.seen.stuck:
        return
    known, places = job.recovery.usual_stands, job.hang.places or [""]
    job.recovery.usual_stands = remembered(known, places, stood_ns, now_ns)


def _lasting_ns(one: UsualStand, now_ns: int) -> int:
    return one.stood_ns >> max(0, now_ns - one.at_ns) // _DAY_NS
