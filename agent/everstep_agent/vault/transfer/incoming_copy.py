"""Incoming copy: which stripes of it have come, and what they hash to."""

from collections.abc import Callable
from threading import Lock

from everstep_agent.vault.memory.pages import HugePages
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyRef
from everstep_agent.vault.snapshots.hashing import root_of
from everstep_agent.vault.transfer.connection import BulkError
from everstep_agent.vault.transfer.min_rate import RateWatch
from everstep_agent.vault.transfer.stripes import Stripe, cut_stripes, stripe_bitmap


class IncomingCopy:
    """Copy that arrives in stripes, in any order, over several connections.

    Threads fill it; each works on a stripe that it has claimed.
    """

    def __init__(self, copy: CopyRef, region: Region) -> None:
        self.copy = copy
        self.region = region
        # Takes the copy's pages from the kernel as bytes arrive; None: they are there already.
        self.pages: HugePages | None = None
        # Ends a transfer that is too slow; None: there is no other source to turn to.
        self.watch: RateWatch | None = None
        # Takes the memory for reuse when nobody uses it any more; returns whether it did.
        self.recycle: Callable[[Region], bool] | None = None
        self._stripes = cut_stripes(copy.size_bytes)
        self._digests: dict[int, bytes] = {}
        self._claimed: set[int] = set()
        self._lock = Lock()

    def received_bitmap(self) -> bytes:
        """Return which stripes need not be sent any more, as a bitmap."""
        with self._lock:
            return stripe_bitmap(self._digests, len(self._stripes))

    @property
    def received_bytes(self) -> int:
        """Return how much has come."""
        with self._lock:
            return sum(self._stripes[index].size_bytes for index in self._digests)

    def claim_stripe(self, index: int) -> Stripe:
        """Return the stripe that the other end announces. Raises BulkError for one not awaited."""
        with self._lock:
            known = index < len(self._stripes)
            if not known or index in self._claimed or index in self._digests:
                raise BulkError(f"stripe {index} is not awaited")
            self._claimed.add(index)
        return self._stripes[index]

    def settle_stripe(self, stripe: Stripe, digest: bytes | None) -> None:
        """A claimed stripe is here and has this hash, or (None) did not come."""
        with self._lock:
            self._claimed.discard(stripe.index)
            if digest is not None:
                self._digests[stripe.index] = digest

    def is_complete(self) -> bool:
        """Return whether every stripe is here."""
        with self._lock:
            return len(self._digests) == len(self._stripes)

    def received_root_hash(self) -> bytes:
        """Return the root hash of the complete copy."""
        with self._lock:
            digests = [self._digests[stripe.index] for stripe in self._stripes]
        return root_of(digests, self.copy.size_bytes)
