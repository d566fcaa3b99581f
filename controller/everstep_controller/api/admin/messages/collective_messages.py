"""Collective answers: what a look at a job's collectives told, as it is sent to who asks."""

from collections.abc import Sequence

from everstep_common.printable import printable
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.slow.collective_arrival.collective_finding import (
    CollectiveFinding,
    LateRank,
    SeenLook,
)
from everstep_controller.slow.live import LiveFinding
from everstep_proto.generated import admin_pb2


def look_message(
    seen: SeenLook, now_ns: int, parts: Sequence[SlowPart], told: LiveFinding
) -> admin_pb2.CollectiveLook:
    """Return a look, with what it says beside the parts that are slow by what ranks tell."""
    found = seen.finding
    return admin_pb2.CollectiveLook(
        sentence=printable(found.sentence),
        late=[_late_line(one) for one in found.late],
        common=[printable(one) for one in found.common],
        blind=[printable(one) for one in found.blind],
        collectives=found.collectives,
        ranks=found.ranks,
        roles=printable(found.roles_sentence),
        age_ns=max(0, now_ns - seen.at_ns),
        beside=_beside(found, parts, told),
    )


def _late_line(one: LateRank) -> admin_pb2.LateLine:
    return admin_pb2.LateLine(
        rank=one.rank,
        node=one.node,
        group=printable(one.group),
        came_last=one.times,
        of=one.of,
        wait_ms=one.wait_ms,
        every_ms=one.every_ms,
        factor=one.factor,
        nominated=one.nominated,
        sentence=printable(one.whole_sentence),
    )


def _beside(found: CollectiveFinding, parts: Sequence[SlowPart], told: LiveFinding) -> str:
    """Return whether the look and what ranks tell of their own work agree."""
    if not told.telling or not found.collectives:
        return ""
    late = {one.rank for one in found.late if one.nominated}
    slow = {int(one.name) for one in parts if one.kind == "rank" and one.name.isdecimal()}
    if late & slow:
        return f"rank {min(late & slow)} is slow by what ranks tell, and comes last: both agree"
    if late and told.is_sure and not parts:
        return (
            f"rank {min(late)} comes last, and is as fast as its peers by what ranks tell: what "
            "keeps it may be within everstep.waiting(), or between steps"
        )
    if slow and not late:
        return (
            f"rank {min(slow)} is slow by what ranks tell, and does not come last to these "
            "collectives: others wait for somebody else, or this look was too short"
        )
    return ""
