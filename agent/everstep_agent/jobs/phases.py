"""Counts which phase all local ranks have reached. Pure."""

from dataclasses import dataclass, field

from everstep_common.reports import Phase


@dataclass(slots=True)
class PhaseCount:
    """The phases of one generation on this node; each is told once."""

    ranks: int
    told: set[Phase] = field(default_factory=set)
    _reached: dict[Phase, dict[int, int]] = field(default_factory=dict)

    def reach(self, phase: Phase, rank: int | None, at_boot_ns: int) -> int | None:
        """Note that a rank, or with None all of them, reached a phase.

        Returns when the last one did, the first time that all have.
        """
        if phase in self.told:
            return None
        ranks = self._reached.setdefault(phase, {})
        if rank is not None:
            ranks.setdefault(rank, at_boot_ns)
            if len(ranks) < self.ranks:
                return None
        self.told.add(phase)
        return max([at_boot_ns, *ranks.values()])
