"""Fleet view: the samples of all nodes that are heard now, as arrays for the judges."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from everstep_controller.judging.gpu_view import GpuView, Work
from everstep_controller.judging.link_errors import PortErrors

Values = NDArray[np.float64]
Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]


class SampleWindows(Protocol):
    """Source of the newest samples of every node."""

    def windows(self, nodes: tuple[str, ...], column: str) -> Rows:
        """Return a row per node: the kept values of one metric, oldest first; NaN where none is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """View of all nodes that may be judged; value i is of ``nodes[i]``, NaN when unknown.

    A node that is away, in maintenance or doubted is not in it: what is known of it is held.
    """

    now_ns: int
    nodes: tuple[str, ...]
    # How far the node's clocks, and so all times that it says, may be off on our timeline; seconds.
    clock_uncertainty_s: Values
    # The node's wall clock minus the controller's.
    wall_offset_s: Values
    # How long the node's stream has been open, and how old the newest sample is that came on it.
    stream_age_s: Values
    sample_age_s: Values
    samples: SampleWindows = field(repr=False)
    # What the GPUs did; the failure domain of each node, "" for none; and the one job that has
    # ranks on it and steps, None where there is none, or several.
    gpus: GpuView = field(default_factory=GpuView, repr=False)
    domains: tuple[str, ...] = ()
    works: tuple[Work | None, ...] = ()
    # Errors of its ports for RDMA within a day; None where nothing is known.
    links: tuple[PortErrors | None, ...] = ()

    def metric(self, column: str) -> Rows:
        """Return a row per node: the newest values of a sampled metric, oldest first."""
        return self.samples.windows(self.nodes, column)

    def metric_mean(self, column: str) -> Values:
        """Return the mean of the newest values of a sampled metric; NaN where none is known."""
        rows = self.metric(column).astype(np.float64)
        known = np.isfinite(rows)
        counts = known.sum(axis=1)
        sums = np.where(known, rows, 0.0).sum(axis=1)
        means: Values = np.full(len(rows), np.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means
