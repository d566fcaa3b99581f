"""GPU table: the GPUs of jobs that step, each beside its peers: same job, same model.

Peers do the same work at the same time, so what they all do is nobody's fault. All arrays are of
slots (oldest first) and GPUs; a *unit* is the GPUs of one model on one node.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from everstep_controller.judging.gpu_view import SLOTS, Bytes, Clocks, Slots
from everstep_controller.judging.view import FleetView, Mask

Floats = NDArray[np.float32]
Numbers = NDArray[np.intp]
_Packed = TypeVar("_Packed", np.uint8, np.uint16)

# Of the five seconds of a slot, in so many a GPU was busy, or nothing is known of it.
_BUSY_MIN = 3
# With fewer nodes nobody can say which of them is the odd one; as for all comparisons of nodes.
UNITS_MIN = 4
# A median and a spread of fewer values say little.
_GPUS_MIN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTable:
    """GPUs that are compared, in the order of their groups and units."""

    # Of each GPU: its node in the view, its place there, and its unit.
    node: Numbers
    place: Numbers
    unit: Numbers
    # First GPU of each unit, its node, its group, and its domain (-1 for none).
    unit_begins: Numbers
    unit_node: Numbers
    unit_group: Numbers
    unit_domain: Numbers
    # First GPU of each group, and behind the last.
    group_bounds: Numbers
    domains: tuple[str, ...]
    begins_ns: Slots
    # Whether it was busy enough in a slot, in the job that it is in now.
    busy: Mask
    clock_mhz: Clocks
    held: Bytes
    pcie_width: Bytes
    pcie_generation: Bytes

    def any_of_unit(self, mask: Mask) -> Mask:
        """Return for slots and units whether it is so of any GPU."""
        return np.logical_or.reduceat(mask, self.unit_begins, axis=1)

    def all_of_unit(self, of_gpus: Mask) -> Mask:
        """Return for units whether it is so of all GPUs."""
        return np.logical_and.reduceat(of_gpus, self.unit_begins)

    def of_gpus(self, of_units: NDArray[np.bool_]) -> Mask:
        """Return what is known of units for each of their GPUs."""
        return of_units[..., self.unit]


def table_of(view: FleetView) -> GpuTable | None:
    """Return the GPUs that can be compared; None for none."""
    gpus = view.gpus
    nodes = [i for i, work in enumerate(view.works) if work is not None and gpus.models[i]]
    if not nodes:
        return None
    codes, since_ns = _codes(view, nodes)
    kept = np.flatnonzero(codes.ravel() >= 0)
    order = kept[np.argsort(codes.ravel()[kept], kind="stable")]
    width = codes.shape[1]
    node = order // width
    as_it_is = len(order) == codes.size and bool((order[1:] > order[:-1]).all())
    group = np.cumsum(np.diff(codes.ravel()[order], prepend=codes.ravel()[order[:1]]) != 0)
    begins = np.flatnonzero(np.diff(group * len(view.nodes) + node, prepend=-1))
    domains = tuple(sorted({one for one in view.domains if one}))
    number = {name: place for place, name in enumerate(domains)}

    def column(values: NDArray[_Packed]) -> NDArray[_Packed]:
        of_all = values.reshape(SLOTS, -1)
        return of_all if as_it_is else of_all[:, order]

    current = gpus.begins_ns[:, None] >= since_ns[node]
    return GpuTable(
        node=node,
        place=order % width,
        unit=np.cumsum(np.bincount(begins, minlength=len(node))) - 1,
        unit_begins=begins,
        unit_node=node[begins],
        unit_group=group[begins],
        unit_domain=np.array([number.get(view.domains[i], -1) for i in node[begins]], np.intp),
        group_bounds=np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(group)),
        domains=domains,
        begins_ns=gpus.begins_ns,
        busy=(column(gpus.busy) >= _BUSY_MIN) & current,
        clock_mhz=column(gpus.sm_clock_mhz),
        held=column(gpus.held),
        pcie_width=column(gpus.pcie_width),
        pcie_generation=column(gpus.pcie_generation),
    )


def _codes(view: FleetView, nodes: Sequence[int]) -> tuple[Slots, Slots]:
    """Return a number for the job and model of each GPU of all nodes, -1 where none is compared.

    And since when each of the nodes is in its job. ``nodes`` are those of which one is.
    """
    width = view.gpus.busy.shape[2]
    since_ns = np.zeros(len(view.nodes), dtype=np.int64)
    of_work = np.zeros(len(view.nodes), dtype=np.int64)
    works: dict[str, int] = {}
    models: dict[str, int] = {}
    # Of most nodes the GPUs have the same models; the first pattern is of none.
    patterns: dict[tuple[str, ...], int] = {(): 0}
    of_node = np.zeros(len(view.nodes), dtype=np.intp)
    for i in nodes:
        work = view.works[i]
        assert work is not None
        since_ns[i] = work.since_ns
        of_work[i] = works.setdefault(work.name, len(works))
        of_node[i] = patterns.setdefault(view.gpus.models[i], len(patterns))
    numbers = np.full((len(patterns), width), -1, dtype=np.int64)
    for names, row in patterns.items():
        each = [models.setdefault(one, len(models)) if one else -1 for one in names]
        numbers[row, : len(each)] = each
    codes = numbers[of_node]
    return np.where(codes < 0, -1, codes + (of_work << 32)[:, None]), since_ns


# --- what peers do -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peers:
    """What the GPUs of a group do in each slot; all 0 where too few of them are known."""

    median: Floats
    # 1.4826 median absolute deviations.
    sigma: Floats
    count: Numbers


def peers_known(known: Mask, unit_begins: Numbers) -> Numbers:
    """Return how many GPUs of a group are known in each slot; 0 where they are too few to compare.

    ``unit_begins`` is within the group.
    """
    units = np.logical_or.reduceat(known, unit_begins, axis=1).sum(axis=1)
    count = np.where(units >= UNITS_MIN, np.count_nonzero(known, axis=1), 0)
    count[count < _GPUS_MIN] = 0
    return count


def peers_of(values: NDArray[np.uint16], known: Mask, unit_begins: Numbers) -> Peers:
    """Return the medians of a group's known values, which are above 0.

    They are of all, each GPU itself included: one that is low makes it the harder to be called so.
    """
    count = peers_known(known, unit_begins)
    told = np.where(known, values, np.uint16(0))
    median = _middle(told, count)
    # Distances, one more than they are: 0 is not known.
    distance = np.maximum(told, median[:, None]) - np.minimum(told, median[:, None]) + 1
    spread = _middle(np.where(known, distance, np.uint16(0)), count).astype(np.float32)
    sigma = np.float32(1.4826) * np.maximum(spread - 1, 0)
    return Peers(median.astype(np.float32), sigma, count)


def usual_of(values: NDArray[np.uint8], known: Mask, unit_begins: Numbers) -> NDArray[np.uint8]:
    """Return the median of a group's known values in each slot; 0 where they are too few."""
    count = peers_known(known, unit_begins)
    told = np.where(known, values, np.uint8(0))
    found = np.where(count > 0, told.max(axis=1), np.uint8(0))
    # Most often they are all the same.
    differ = np.flatnonzero((count > 0) & ((told == found[:, None]).sum(axis=1) < count))
    if len(differ):
        found[differ] = _middle(told[differ], count[differ])
    return found


def _middle(values: NDArray[_Packed], count: Numbers) -> NDArray[_Packed]:
    """Return the lower median of each row's ``count`` values above 0, and 0 for none of them."""
    # Of numbers of 16 bits and fewer, this is a radix sort.
    ordered = np.sort(values, axis=1, kind="stable")
    unknown = values.shape[1] - count
    found: NDArray[_Packed] = ordered[
        np.arange(len(values)), np.minimum(unknown + (count - 1) // 2, len(ordered.T) - 1)
    ]
    found[count == 0] = 0
    return found
