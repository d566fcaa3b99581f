"""Storing troubles: why steps do not get from this node to a job's storage. Pure.

On a disk that is full the small files of some ranks still find room: what one rank has stored says
nothing of another's. Replicas are other nodes' to store, too, and wanted of this one for a while.
"""


class StoringTroubles:
    """Last failure of each of the node's own ranks, and of replicas, until one is stored."""

    def __init__(self) -> None:
        self._of_ranks: dict[int, str] = {}
        self._of_replicas = ""

    @property
    def newest(self) -> str:
        """Return one of them; empty where there is none."""
        return next(reversed(self._of_ranks.values()), "") or self._of_replicas

    def failed(self, rank: int, why: str, *, replica: bool) -> None:
        """An attempt has failed."""
        if replica:
            self._of_replicas = why
        else:
            self._of_ranks.pop(rank, None)
            self._of_ranks[rank] = why

    def stored(self, rank: int) -> None:
        """A file of a rank is in storage."""
        self._of_ranks.pop(rank, None)
        self._of_replicas = ""

    def forget(self) -> None:
        """What has failed is nobody's trouble any more."""
        self._of_ranks.clear()
        self._of_replicas = ""
