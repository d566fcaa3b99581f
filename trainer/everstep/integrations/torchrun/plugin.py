"""Entry point for torchrun's rendezvous: it imports nothing until torchrun asks for it.

torch loads every such entry point while its own packages are half imported, in every process that
uses its elastic parts, and most of those run no Everstep job.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def handler() -> "Callable[[RendezvousParameters], RendezvousHandler]":
    """Return what makes a rendezvous; the entry point ``everstep`` of ``torchrun.handlers``."""
    return create


def create(given: "RendezvousParameters") -> "RendezvousHandler":
    """Return the rendezvous of this torchrun, joined. Raises ValueError, RendezvousClosedError."""
    from everstep.integrations.torchrun.handler import joined

    return joined(given)
