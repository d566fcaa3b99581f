"""Verdict on a node: alive, doubtful or lost, from what answers of it; and why.

By what answers there are three classes of silence:

(a) The kernel answers: its bulk port accepts or refuses, or the network says "unreachable". The
    node is doubtful, and never lost by silence alone.
(b) Nothing answers at UDP, TCP and stream for a while, and enough peers have tried: it is lost,
    where the controller hears enough of the fleet to trust them (`quorum.py`).
(c) The members of a synchronous job complete later steps together. So this member's ranks live,
    which outweighs (b): it is doubtful.
"""

from enum import Enum
from typing import NamedTuple

_S = 1_000_000_000
# A silent node is asked about again after so long, by the age of its silence.
_RETRIES = ((10 * _S, _S), (60 * _S, 5 * _S))
_RETRY_MAX_NS = 15 * _S


class Liveness(Enum):
    """What a node is taken for."""

    ALIVE = "alive"
    DOUBTFUL = "doubtful"
    LOST = "lost"


# These are named tuples, for some are made at each word about thousands of nodes that fall silent.
class Signs(NamedTuple):
    """All that is known of a node's silence."""

    connected: bool
    # When its silence began; 0 while it is heard.
    since_ns: int
    # Since when nobody has heard it who could have: all its watchers, or those who were asked.
    unheard_ns: int = 0
    # When its agent answered peers last, and its kernel, and what that said.
    heard_ns: int = 0
    kernel_ns: int = 0
    kernel_said: str = ""
    # It was not the kernel that answered last, but the network for it.
    network_said: bool = False
    # The first round of questions is over; who was asked and got nothing, of how many it takes.
    asked: bool = False
    denied: tuple[str, ...] = ()
    witnesses: int = 0
    leaving: str = ""
    expected_until_ns: int = 0
    # Until when the steps that it took part in prove that its ranks live.
    stepping_until_ns: int = 0
    # An agent that is not known as its own asks for its name: its machine may have been replaced.
    claimed: bool = False
    # Why the controller takes its own word for no loss, and when that held last.
    held: str = ""
    held_ns: int = 0


class Patience(NamedTuple):
    """How long silences are borne."""

    # Nothing answers for so long, as enough peers say: lost.
    silence_ns: int
    # Nothing answers for so long, as fewer peers say than there should be.
    few_witnesses_ns: int
    # Nothing answers for so long, of a node that the network has called unreachable: lost.
    network_ns: int


class LivenessVerdict(NamedTuple):
    """Verdict on a node, in a word and a sentence, and when it is to be judged again."""

    liveness: Liveness
    why: str
    again_ns: int


def judge(signs: Signs, patience: Patience, now_ns: int) -> LivenessVerdict:
    """Return what a node is taken for."""
    if not signs.since_ns:
        return LivenessVerdict(Liveness.ALIVE, "it is heard", now_ns + _RETRY_MAX_NS)
    lost_ns = _answered_ns(signs) + _borne_ns(signs, patience)
    again_ns = _again_ns(signs, lost_ns, now_ns)
    if signs.denied and now_ns >= lost_ns and not signs.claimed:
        if now_ns < signs.stepping_until_ns:
            why = "nothing of it answers, but the steps of its job are made with it"
            return LivenessVerdict(Liveness.DOUBTFUL, why, again_ns)
        who = " and ".join(signs.denied)
        return LivenessVerdict(
            Liveness.LOST, f"silent, and {who} could not reach it either", again_ns
        )
    if doubt := _doubt(signs, now_ns):
        return LivenessVerdict(Liveness.DOUBTFUL, doubt, again_ns)
    return LivenessVerdict(Liveness.ALIVE, "it is being asked", again_ns)


# -------------------------------------------------------------------------------------------------


def _answered_ns(signs: Signs) -> int:
    times_ns = (signs.since_ns, signs.unheard_ns, signs.heard_ns, signs.kernel_ns, signs.held_ns)
    return max(times_ns)


def _borne_ns(signs: Signs, patience: Patience) -> int:
    if signs.network_said:
        # Routers seldom say that something is unreachable: that they fall silent is no news yet.
        return patience.network_ns
    enough = len(signs.denied) >= signs.witnesses
    return patience.silence_ns if enough else patience.few_witnesses_ns


def _again_ns(signs: Signs, lost_ns: int, now_ns: int) -> int:
    age_ns = now_ns - signs.since_ns
    retry_ns = next((retry for until, retry in _RETRIES if age_ns < until), _RETRY_MAX_NS)
    again_ns = now_ns + retry_ns
    return min(again_ns, lost_ns) if lost_ns > now_ns else again_ns


def _doubt(signs: Signs, now_ns: int) -> str:
    """Return why a node that is not lost is doubtful; empty where it is not."""
    if signs.leaving:
        return f"its agent ended, as it said: {signs.leaving}"
    if signs.kernel_ns:
        return f"its agent does not answer, and {signs.kernel_said}"
    if signs.heard_ns:
        return "its agent answers peers, and not on its stream"
    if signs.claimed:
        return "another agent asks for its name, and gets it if its own does not come back"
    if signs.held or signs.denied:
        told = f"nothing of it answers, and {signs.held}"
        return told if signs.held else f"{' and '.join(signs.denied)} could not reach it"
    if now_ns < signs.expected_until_ns:
        return ""
    if signs.connected:
        return "its agent does not answer on its stream" if signs.asked else ""
    return "its stream has ended"
