"""Age of evidence: what was seen too long ago starts no action of automation, and says so.

An agent tells what it finds at once, and all that is open when it connects. What comes late is of a
time when the controller was away, or the agent: it may be over by now. Such a finding is shown, and
counts from when it is seen again. What automation has begun is not ended by age. Whether a finding
is late is decided when it comes, so that nothing here changes by the passing of time.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from everstep_controller.core.model.node import FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.settings import Settings

_S = 1_000_000_000
# Conditions that change faster than `core.evidence_max_age_s` allows for. A port that comes back
# does so within seconds: two minutes is what subnet managers and switches take to restart.
# Deaths of ranks (RanksDie) have a window of their own, core.strike_window_s.
OWN_LIMITS_NS: Mapping[str, int] = MappingProxyType({"LinkDown": 120 * _S})


def limit_ns(settings: Settings, condition: str) -> int:
    """Return how old evidence of a condition may be that starts an action; 0: as old as it is."""
    general_ns = settings.evidence_max_age_ns
    return min(general_ns, OWN_LIMITS_NS.get(condition, general_ns))


def is_too_old(settings: Settings, condition: str, seen_ns: int, now_ns: int) -> bool:
    """Return whether what was seen then starts nothing any more."""
    most_ns = limit_ns(settings, condition)
    return 0 < most_ns < now_ns - seen_ns


def objection(node: NodeRecord, held: OpenFinding, now_ns: int) -> str:
    """Return why a finding starts no action now, as the end of a sentence; empty where it may.

    The controller sees what it finds itself all the time, and a connected agent tells when
    something is over. What only the state of before a start says is not known to hold.
    """
    if held.owner is not FindingOwner.AGENT:
        return ""
    if held.late:
        age = age_text(now_ns - held.seen_ns)
        return f"its evidence is {age} old: no action; it is acted on when it is seen again"
    if node.liveness.unheard:
        return "its agent has not said since the controller began that it is open still: no action"
    return ""


def objections(node: NodeRecord, now_ns: int) -> Iterator[str]:
    """Yield why its findings start no action, a sentence each."""
    for held in node.health.findings.values():
        if why := objection(node, held, now_ns):
            yield f"{held.finding.condition} of {held.finding.component}: {why}"


def age_text(age_ns: int) -> str:
    """Return an age in the largest unit of which there are at least two.

    >>> [age_text(seconds * 10**9) for seconds in (90, 900, 3 * 3600, 5 * 86400)]
    ['90 s', '15 min', '3 h', '5 d']
    """
    seconds = age_ns // _S
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
