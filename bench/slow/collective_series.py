"""Collectives of made jobs for bench slow and tests: what ranks would tell that work so long.

A job is a mesh of ranks: each step a rank works, in as many parts as its inner groups have
collectives, and waits after each for the others of that group; then for its outer group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from everstep_common.hangs.reports.members import members_text
from everstep_common.hangs.reports.rank_report import GroupReport, RankHangReport
from everstep_common.hangs.reports.recent_collectives import Sample, recent_of
from everstep_controller.slow.collective_arrival.arrivals import NodeClock
from everstep_controller.slow.live import LivePlaces

# How long a collective itself takes, and when the job began by the wall clock.
_TAKES_S, _BEGAN_NS = 0.002, 1_790_000_000 * 10**9
_S = 1e9

Floats = npt.NDArray[np.float64]
Groups = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class MadeJob:
    """A job whose ranks work as long as ``own_s`` says: a row for each step."""

    own_s: Floats
    # Groups that wait for one another at the end of each step, and within it.
    outer: Groups
    outer_name: str = "default_pg"
    inner: Groups = ()
    inner_name: str = "mesh_tp"
    inner_per_step: int = 4
    # Groups of which nothing is recorded but who is in them.
    silent: Groups = ()
    silent_name: str = "mesh_pp"
    ranks_per_node: int = 1
    domains: tuple[str, ...] = ()
    # By node, how far its clock is ahead of what the controller takes it for.
    clock_s: dict[int, float] = field(default_factory=dict)
    uncertainty_s: float = 0.0005
    # As NCCL with TORCH_NCCL_ENABLE_TIMING=1: enqueued at once, durations recorded.
    timed: bool = False
    backend: str = "gloo"

    @property
    def ranks(self) -> int:
        """Return how many ranks there are."""
        return int(self.own_s.shape[1])

    @property
    def places(self) -> LivePlaces:
        """Return where they run."""
        nodes = tuple(f"n{one}" for one in range(self.ranks // self.ranks_per_node))
        return LivePlaces(nodes, self.domains or ("",) * len(nodes), self.ranks_per_node)

    @property
    def clocks(self) -> dict[str, NodeClock]:
        """Return what the controller knows of their nodes' clocks."""
        off_ns = int(self.uncertainty_s * _S)
        return {node: NodeClock(0, off_ns) for node in self.places.nodes}

    def reports(self) -> list[RankHangReport]:
        """Return what all ranks tell after the last step."""
        samples = self._samples()
        return [self._report(rank, samples) for rank in range(self.ranks)]

    def _samples(self) -> dict[tuple[int, str], list[Sample]]:
        now = np.zeros(self.ranks)
        found: dict[tuple[int, str], list[Sample]] = {}
        for row in self.own_s:
            parts = self.inner_per_step if self.inner else 1
            for _ in range(parts):
                now = now + row / parts
                if self.inner:
                    now = self._collective(found, now, self.inner, self.inner_name)
            now = self._collective(found, now, self.outer, self.outer_name)
        return found

    def _collective(
        self, found: dict[tuple[int, str], list[Sample]], now: Floats, groups: Groups, name: str
    ) -> Floats:
        after = now.copy()
        for ranks in groups:
            members = list(ranks)
            after[members] = now[members].max() + _TAKES_S
            for rank in members:
                told = found.setdefault((rank, name), [])
                ahead_s = self.clock_s.get(rank // self.ranks_per_node, 0.0)
                at_ns = _BEGAN_NS + int((now[rank] + ahead_s) * _S)
                took_us = int((after[rank] - now[rank]) * 1e6) if self.timed else None
                told.append(Sample(len(told) + 1, at_ns, f"all_reduce {name}", took_us))
        return after

    def _report(self, rank: int, samples: dict[tuple[int, str], list[Sample]]) -> RankHangReport:
        kinds = ((self.outer, self.outer_name), (self.inner, self.inner_name))
        own = {name: samples[rank, name] for _, name in kinds if (rank, name) in samples}
        recent = recent_of(own)
        groups = [
            GroupReport(name, members_text(ranks), len(ranks), 1, 1, recent=recent.get(name))
            for some, name in (*kinds, (self.silent, self.silent_name))
            for ranks in some
            if rank in ranks
        ]
        return RankHangReport(
            rank=rank,
            world_size=self.ranks,
            node=f"n{rank // self.ranks_per_node}",
            backend=self.backend,
            groups=tuple(groups),
        )


def noise(seed: int, steps: int, ranks: int, scale: float = 0.01) -> Floats:
    """Return what equal ranks take, relative to one: heavy tails (Student-t, 3)."""
    return np.asarray(np.exp(scale * np.random.default_rng(seed).standard_t(3, (steps, ranks))))
