"""Link reading: the state, speed and identity of one interface or port of any kind."""

from dataclasses import dataclass

# A port that carries RDMA traffic is one rail of the job: training stops without it.
RDMA_KINDS = ("infiniband", "roce")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """One interface or port. ``up`` is None when its state could not be read.

    ``family`` is equal for ports of the same build, which can be compared with each other; empty
    when there is nothing to compare with.
    """

    name: str
    kind: str
    up: bool | None
    speed_bits_per_s: int = 0
    address: str = ""
    detail: str = ""
    duplex: str = ""
    family: str = ""
    pci: str = ""
    numa_node: int | None = None
    firmware: str = ""

    @property
    def watched(self) -> bool:
        """Return whether this is hardware; bridges and containers come and go at will."""
        return self.kind in ("ethernet", "bond", *RDMA_KINDS)
