"""Controllers of one cluster: their addresses as people write them, and what a standby says.

One of them is active. A standby ends every stream of an agent, also one that ends before its Hello,
and every call that would change something, with the status UNAVAILABLE, a sentence, and the keys
below in its trailing metadata. A controller that hands over, or has lost its lease, ends the
streams of its agents likewise. Answers of a standby to questions carry the keys as well: by them a
client knows that it is none of the active one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_common.addresses import is_loopback
from everstep_proto.local.address import address_problem, socket_path

# The address of the active controller, host:port; "" where that is not known.
ACTIVE_ADDRESS_KEY = "everstep-active"
# Optional: after how many seconds, on average, to ask a standby again. It knows how many agents
# there are, and an agent does not.
RETRY_AFTER_KEY = "everstep-retry-after-s"

# A second of a standby's processor has to be enough for those who ask in it, each anew.
_ASKS_PER_S = 1_000
RETRY_AFTER_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class StandbyAnswer:
    """What a controller that is not active says of the active one."""

    # "" where it does not know.
    active: str
    retry_after_s: float = 0.0


def retry_after_s(agents: int) -> float:
    """Return after how many seconds each of so many agents should ask a standby again."""
    return min(RETRY_AFTER_MAX_S, max(1.0, agents / _ASKS_PER_S))


def standby_answer(
    trailing_metadata: "Iterable[tuple[str, str | bytes]] | None",
) -> StandbyAnswer | None:
    """Return what the trailing metadata of a call says of the active controller.

    None where it says nothing: then the status has another cause.
    """
    told = {key: value for key, value in trailing_metadata or () if isinstance(value, str)}
    if ACTIVE_ADDRESS_KEY not in told:
        return None
    active = told[ACTIVE_ADDRESS_KEY]
    if address_problem("active", active):
        active = ""
    return StandbyAnswer(active, _seconds(told.get(RETRY_AFTER_KEY, "")))


def _seconds(text: str) -> float:
    try:
        told = float(text)
    except ValueError:
        return 0.0
    return min(told, RETRY_AFTER_MAX_S) if told > 0 else 0.0


def split_addresses(written: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses in a list, or in a text with commas between them.

    >>> split_addresses("ctl-a:7433, ctl-b:7433")
    ('ctl-a:7433', 'ctl-b:7433')
    """
    texts = [written] if isinstance(written, str) else written
    return tuple(part.strip() for text in texts for part in text.split(","))


def addresses_problem(key: str, addresses: Sequence[str]) -> str:
    """Say what is wrong with the addresses of a cluster's controllers; empty when nothing is."""
    if not addresses:
        return f"{key}: expected an address at least, got none"
    for address in addresses:
        if problem := address_problem(key, address):
            return problem
    if twice := [one for one in addresses if addresses.count(one) > 1]:
        return f"{key}: {twice[0]!r} is there twice"
    if len({socket_path(address) is None for address in addresses}) > 1:
        return (
            f"{key}: expected addresses of one kind, all host:port or all unix:/path, got "
            f"{', '.join(addresses)}"
        )
    return ""


def only_here(addresses: Iterable[str]) -> bool:
    """Return whether all these controllers are reached from this machine only."""
    return all(map(is_loopback, addresses))
