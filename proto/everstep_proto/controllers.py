"""Controllers of one cluster: their addresses as people write them, and what a standby says.

One of them is active. A standby ends every stream of an agent, also one that ends before its Hello,
and every call that would change something, with the status UNAVAILABLE, a sentence, and the key
below in its trailing metadata. A controller that hands over, or has lost its lease, ends the
streams of its agents likewise. Answers of a standby to questions carry the key as well: by it a
client knows that they are none of the active one.
"""

from collections.abc import Iterable, Sequence

from everstep_common.addresses import is_loopback
from everstep_proto.local.address import address_problem, socket_path

# The address of the active controller, host:port; "" where that is not known.
ACTIVE_ADDRESS_KEY = "everstep-active"
# Of an answer that a standby gives from the journal: for how many seconds its state has not been
# that of the journal.
BEHIND_KEY = "everstep-behind-s"


def named_active(trailing_metadata: "Iterable[tuple[str, str | bytes]] | None") -> str | None:
    """Return the address that a standby names in a call's trailing metadata; "" for one unknown.

    None where it says nothing: then it is none, and the status of the call has another cause.
    """
    told = dict(trailing_metadata or ()).get(ACTIVE_ADDRESS_KEY)
    if not isinstance(told, str):
        return None
    return "" if address_problem("active", told) else told


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
