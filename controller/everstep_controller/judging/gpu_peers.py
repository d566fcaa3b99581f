"""Judge of GPUs beside their peers: clocks, power brake and PCIe, by what agents read of hardware.

Compared are GPUs of one model in one job: they do the same work at the same time. Only what work
cannot cause counts against a GPU: clocks that are low because it draws all the power that it may,
because an operator has set them, or because it idles say nothing, so a job cannot have a node of
its own found slow by what it computes; and of nodes that it does not step on alone nothing is said.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Measurement
from everstep_common.reports.gpu_columns import HeldBy
from everstep_controller.core.model.windows import shown
from everstep_controller.judging.gpu_conditions import (
    BRAKE,
    CLOCKS,
    DOMAIN_BRAKE,
    DOMAIN_CLOCKS,
    FAULTS,
    PCIE,
    SET_LOW,
)
from everstep_controller.judging.gpu_table import (
    GpuTable,
    Numbers,
    peers_known,
    peers_of,
    table_of,
    usual_of,
)
from everstep_controller.judging.gpu_view import SLOT_NS, SLOTS
from everstep_controller.judging.judge import DomainRuling, NodeEvidence, Ruling
from everstep_controller.judging.view import FleetView, Mask

# N of M: two of the last three minutes; well is who was low in no more than 15 s of them.
_LOW_SLOTS, _WELL_SLOTS, _WELL_MAX = 24, 24, 3
# Of the slots in which it can be judged; and of the newest half minute: what is over is not raised.
_LOW_SHARE, _NEWEST = 0.8, 6
# A place is slow, and not its nodes, where so many of them are low at once: as for slow ranks.
_OF_DOMAIN, _DOMAIN_MIN = 0.6, 3
# Where more of a job's nodes stand out than this, it is no fault of single nodes.
_CROWD = 0.1
# Clocks: below the median by so much, and by so many robust standard deviations.
_CLOCK_RATIO, _CLOCK_SIGMAS = 0.08, 6.0
# A wrong reading, not a clock.
_CLOCK_MAX_MHZ = 10_000
_BY_WORK = int(HeldBy.POWER_CAP | HeldBy.SETTING | HeldBy.IDLE | HeldBy.UNKNOWN)
_BRAKES = int(HeldBy.POWER_BRAKE | HeldBy.HARDWARE)
_REASONS = (
    (HeldBy.POWER_BRAKE, "the power brake"),
    (HeldBy.HARDWARE, "a hardware slowdown"),
    (HeldBy.HEAT, "heat"),
)


@dataclass(frozen=True, slots=True)
class _Compared:
    """One aspect of all GPUs in all slots: who is low, who could be judged, and who is well."""

    low: Mask
    judged: Mask
    well: Mask
    # Sentence on a GPU in one slot: what it does, beside its peers.
    told: Callable[[int, int], str]
    numbers: Callable[[int, int], tuple[Measurement, ...]]


@dataclass(frozen=True, slots=True)
class GpuPeersJudge:
    """Compares the GPUs of each job with each other, and looks where the low ones are."""

    conditions: ClassVar[tuple[Condition, ...]] = (
        *(CLOCKS, SET_LOW, BRAKE, PCIE),
        *(DOMAIN_CLOCKS, DOMAIN_BRAKE),
    )

    def judge(self, view: FleetView) -> Iterator[Ruling | DomainRuling]:
        """See Judge."""
        table = table_of(view)
        if table is None:
            return
        low, set_low = _clocks(table)
        for compared, condition, of_domain in (
            (low, CLOCKS, DOMAIN_CLOCKS),
            (set_low, SET_LOW, None),
            (_brakes(table), BRAKE, DOMAIN_BRAKE),
            (_pcie(table), PCIE, None),
        ):
            shares = _DomainShares.of(table, compared)
            if of_domain is not None and table.domains:
                yield _domain_ruling(table, shares, of_domain)
            yield _node_ruling(view, table, _outside_domains(table, compared, shares), condition)


# --- what is compared ----------------------------------------------------------------------------


def _clocks(table: GpuTable) -> tuple[_Compared, _Compared]:
    """Return who is low without an explanation by its work or a setting, and who is set so."""
    clock = table.clock_mhz
    known = table.busy & (clock > 0) & (clock <= _CLOCK_MAX_MHZ)
    shape = (SLOTS, len(table.group_bounds) - 1)
    median, sigma = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    count = np.zeros(shape, dtype=np.intp)
    low, well = np.zeros_like(known), np.zeros_like(known)
    for group, columns, units in _groups(table):
        peers = peers_of(clock[:, columns], known[:, columns], units)
        median[:, group], sigma[:, group], count[:, group] = peers.median, peers.sigma, peers.count
        limit = np.maximum(_CLOCK_RATIO * peers.median, _CLOCK_SIGMAS * peers.sigma)
        # Of too few peers the median is 0, and nobody is below.
        least = np.maximum(peers.median - limit, 0).astype(np.uint16)
        enough = np.where(peers.count > 0, peers.median - limit / 2, _CLOCK_MAX_MHZ + 1)
        low[:, columns] = clock[:, columns] < least[:, None]
        well[:, columns] = clock[:, columns] >= enough.astype(np.uint16)[:, None]
        known[:, columns] &= (peers.count > 0)[:, None]
    judged = known & ((table.held & _BY_WORK) == 0)
    is_set = known & ((table.held & int(HeldBy.SETTING)) > 0)
    group_of = table.unit_group[table.unit]

    def told(slot: int, gpu: int) -> str:
        of = int(group_of[gpu])
        why = [word for bit, word in _REASONS if int(table.held[slot, gpu]) & bit]
        cause = f", held down by {' and '.join(why)}" if why else ""
        return (
            f"SM clock {clock[slot, gpu]:,} MHz beside {median[slot, of]:,.0f} MHz of "
            f"{count[slot, of] - 1} peers{cause}"
        )

    def numbers(slot: int, gpu: int) -> tuple[Measurement, ...]:
        of = int(group_of[gpu])
        return (
            Measurement("clock_mhz", float(clock[slot, gpu])),
            Measurement("peers_median_mhz", float(median[slot, of])),
            Measurement("peers_sigma_mhz", float(sigma[slot, of])),
            Measurement("peers", float(count[slot, of] - 1)),
        )

    well &= known
    return (
        _Compared(low & judged, judged, well, told, numbers),
        _Compared(low & is_set, is_set, well, told, numbers),
    )


def _brakes(table: GpuTable) -> _Compared:
    known = table.busy & ((table.held & int(HeldBy.UNKNOWN)) == 0)
    braked = known & ((table.held & _BRAKES) > 0)
    alone = np.zeros_like(known)
    enough = np.zeros_like(known)
    for _, columns, units in _groups(table):
        count = peers_known(known[:, columns], units)
        share = braked[:, columns].sum(axis=1) / np.maximum(count, 1)
        enough[:, columns] = (count > 0)[:, None]
        alone[:, columns] = ((count > 0) & (share < 0.5))[:, None]

    def told(slot: int, gpu: int) -> str:
        why = [word for bit, word in _REASONS if int(table.held[slot, gpu]) & bit]
        return f"held down by {' and '.join(why)} at {table.clock_mhz[slot, gpu]:,} MHz"

    def numbers(slot: int, gpu: int) -> tuple[Measurement, ...]:
        return (Measurement("clock_mhz", float(table.clock_mhz[slot, gpu])),)

    return _Compared(braked & alone, known & alone, known & enough & ~braked, told, numbers)


def _pcie(table: GpuTable) -> _Compared:
    lanes, speed = table.pcie_width, table.pcie_generation
    known = table.busy & (lanes > 0) & (speed > 0)
    shape = (SLOTS, len(table.group_bounds) - 1)
    usual_lanes, usual_speed = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    low, judged = np.zeros_like(known), np.zeros_like(known)
    for group, columns, units in _groups(table):
        here = known[:, columns]
        usual_lanes[:, group] = usual_of(lanes[:, columns], here, units)
        usual_speed[:, group] = usual_of(speed[:, columns], here, units)
        # Of too few peers what is usual is 0, and nobody is below.
        narrow = lanes[:, columns] < usual_lanes[:, group, None]
        low[:, columns] = here & (narrow | (speed[:, columns] < usual_speed[:, group, None]))
        judged[:, columns] = here & (usual_lanes[:, group, None] > 0)
    group_of = table.unit_group[table.unit]

    def told(slot: int, gpu: int) -> str:
        of = int(group_of[gpu])
        return (
            f"PCIe {speed[slot, gpu]} x{lanes[slot, gpu]} beside PCIe {usual_speed[slot, of]} "
            f"x{usual_lanes[slot, of]} of its peers"
        )

    def numbers(slot: int, gpu: int) -> tuple[Measurement, ...]:
        of = int(group_of[gpu])
        return (
            Measurement("lanes", float(lanes[slot, gpu])),
            Measurement("peers_lanes", float(usual_lanes[slot, of])),
            Measurement("generation", float(speed[slot, gpu])),
            Measurement("peers_generation", float(usual_speed[slot, of])),
        )

    return _Compared(low, judged, judged & ~low, told, numbers)


def _groups(table: GpuTable) -> Iterator[tuple[int, slice, Numbers]]:
    """Yield each group: its number, its GPUs, and the first GPU of each of its units in it."""
    bounds = table.group_bounds
    for group in range(len(bounds) - 1):
        first, end = int(bounds[group]), int(bounds[group + 1])
        begins = table.unit_begins
        inside = begins[np.searchsorted(begins, first) : np.searchsorted(begins, end)]
        yield group, slice(first, end), inside - first


# --- places --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DomainShares:
    """Of slots and domains: how many nodes could be judged, and are low; if it is slow, or well."""

    judged: Numbers
    low: Numbers
    slow: Mask
    well: Mask

    @classmethod
    def of(cls, table: GpuTable, compared: _Compared) -> "_DomainShares":
        """Count them."""
        judged = _by_domain(table, table.any_of_unit(compared.judged))
        low = _by_domain(table, table.any_of_unit(compared.low))
        slow = (judged >= _DOMAIN_MIN) & (low >= _OF_DOMAIN * judged)
        well = _by_domain(table, table.any_of_unit(compared.well))
        return cls(judged, low, slow, (well >= _DOMAIN_MIN) & ~slow)


def _by_domain(table: GpuTable, of_units: Mask) -> Numbers:
    counts = np.zeros((SLOTS, len(table.domains)), dtype=np.intp)
    some = np.flatnonzero(table.unit_domain >= 0)
    for slot in range(SLOTS):
        there = table.unit_domain[some[of_units[slot, some]]]
        counts[slot] = np.bincount(there, minlength=len(table.domains))
    return counts


def _outside_domains(table: GpuTable, compared: _Compared, shares: _DomainShares) -> _Compared:
    """Leave out what a slow domain explains: in that time nothing is known of its nodes."""
    if not shares.slow.any():
        return compared
    of_units = np.zeros((SLOTS, len(table.unit_domain)), dtype=np.bool_)
    some = table.unit_domain >= 0
    of_units[:, some] = shares.slow[:, table.unit_domain[some]]
    free = ~table.of_gpus(of_units)
    low, judged = compared.low & free, compared.judged & free
    return _Compared(low, judged, compared.well & free, compared.told, compared.numbers)


def _domain_ruling(table: GpuTable, shares: _DomainShares, condition: Condition) -> DomainRuling:
    slow = shares.slow.sum(axis=0)
    well = shares.well.sum(axis=0)

    def explain(domain: int) -> NodeEvidence:
        newest = int(np.max(np.flatnonzero(shares.judged[:, domain]), initial=0))
        low, of = int(shares.low[newest, domain]), int(shares.judged[newest, domain])
        numbers = (Measurement("nodes_low", float(low)), Measurement("nodes", float(of)))
        return NodeEvidence(f"{low} of {of} nodes of {table.domains[domain]}", numbers)

    return DomainRuling(
        condition=condition,
        fault=FAULTS[condition.name],
        domains=table.domains,
        faulty=slow >= _LOW_SLOTS,
        healthy=(slow <= _WELL_MAX) & (well >= _WELL_SLOTS),
        explain=explain,
    )


# --- nodes ---------------------------------------------------------------------------------------


def _node_ruling(
    view: FleetView, table: GpuTable, compared: _Compared, condition: Condition
) -> Ruling:
    low, judged = compared.low.sum(axis=0), compared.judged.sum(axis=0)
    newest_low = compared.low[-_NEWEST:].sum(axis=0)
    now = (newest_low > 0) & (2 * newest_low >= compared.judged[-_NEWEST:].sum(axis=0))
    gpus = (low >= _LOW_SLOTS) & (low >= _LOW_SHARE * judged) & now
    well = (compared.well.sum(axis=0) >= _WELL_SLOTS) & (low <= _WELL_MAX)
    units = np.logical_or.reduceat(gpus, table.unit_begins)
    units &= ~_crowded(table, units)[table.unit_group]
    faulty, healthy = _no_nodes(view), _no_nodes(view)
    faulty[table.unit_node[units]] = True
    healthy[table.unit_node] = True
    healthy[table.unit_node[~table.all_of_unit(well)]] = False

    def explain(node: int) -> NodeEvidence:
        return _explain(
            table, compared, np.flatnonzero(table.node == node), view.gpus.devices[node]
        )

    return Ruling(
        condition=condition,
        fault=FAULTS[condition.name],
        faulty=faulty,
        healthy=healthy,
        explain=explain,
    )


def _no_nodes(view: FleetView) -> Mask:
    return np.zeros(len(view.nodes), dtype=np.bool_)


def _crowded(table: GpuTable, units: Mask) -> Mask:
    """Return the groups of which so many units stand out that it is not they."""
    groups = len(table.group_bounds) - 1
    outside = np.bincount(table.unit_group[units], minlength=groups)
    sizes = np.bincount(table.unit_group, minlength=groups)
    crowded: Mask = outside > np.maximum(1, _CROWD * sizes)
    return crowded


def _explain(
    table: GpuTable, compared: _Compared, gpus: Numbers, devices: tuple[str, ...]
) -> NodeEvidence:
    """Say of the GPU that is low most often how low it is, beside whom, and since when."""
    counts = compared.low[:, gpus].sum(axis=0)
    if not counts.any():
        return NodeEvidence("its GPUs are as those of its peers", ())
    worst = int(gpus[np.argmax(counts)])
    slots = np.flatnonzero(compared.low[:, worst])
    newest, low = int(slots[-1]), int(np.count_nonzero(counts >= _LOW_SLOTS))
    since = shown(int(table.begins_ns[slots[0]]))
    before = " or before" if slots[0] == 0 else ""
    more = f"; {low} of its {len(gpus)} GPUs" if low > 1 else ""
    name = devices[int(table.place[worst])]
    sentence = f"GPU {name}: {compared.told(newest, worst)} since {since}{before}{more}"
    numbers = (
        *compared.numbers(newest, worst),
        Measurement("gpus_low", float(low)),
        Measurement("samples_low", float(counts.max())),
        Measurement("seconds_low", float(counts.max() * SLOT_NS / 1e9)),
    )
    return NodeEvidence(sentence, numbers)
