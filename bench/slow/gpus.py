"""GPUs beside their peers: what the judge costs, whom it finds in noise, and how soon what is low.

The noise is that of the unit tests (`unit.judging.virtual_gpus`): clocks that follow the work and
the silicon, pauses, wrong readings and lost messages. No clock of a real fleet was at hand.
"""

import time
from collections.abc import Iterator

import numpy as np

from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_agent.sampling import GpuSeconds
from everstep_common.reports.gpu_columns import GpuRow, pack_gpus
from everstep_controller.judging.gpu_peers import GpuPeersJudge
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.gpu_view import SLOT_NS, SLOTS
from unit.judging.virtual_gpus import VirtualGpus, low_clock

NODES, GPUS = 2048, 8
_DAY_S, _LOOKS = 86_400, 6
# One node in so many is given a low clock, for the second half of the time.
_PLANTED_EVERY = 256
# Far below what peers reach under their power cap, and just below it.
_PLANTED_MHZ = (1230, 1450)


def judge_ms(seed: int) -> list[float]:
    """Return the CPU milliseconds of looks at all GPUs, with low ones among them."""
    fleet = _fleet(seed)
    fleet.faults = [low_clock(node, 3) for node in range(0, NODES, _PLANTED_EVERY)]
    fleet.pass_slots(SLOTS)
    view, spent = fleet.view(), []
    for _ in range(_LOOKS):
        began_s = time.process_time()
        for ruling in GpuPeersJudge().judge(view):
            for place in np.flatnonzero(ruling.faulty):
                ruling.explain(int(place))
        spent.append(1e3 * (time.process_time() - began_s))
    return spent


def samples_cost(seed: int) -> tuple[float, float, float]:
    """Return CPU microseconds to take a node's message, ms to copy all, and ms to gather them."""
    random = np.random.default_rng(seed)
    samples, names = GpuSamples(), tuple(f"n{number}" for number in range(NODES))
    rows = [GpuRow(f"0000:{gpu:02x}:00.0", "H100", 5, 1980, 0, 16, 5) for gpu in range(GPUS)]
    columns = pack_gpus(rows)
    assert columns is not None
    order = random.permutation(NODES)
    for node in order:
        samples.add(names[node], columns, 0)
    began_s = time.process_time()
    for slot in range(1, 6):
        for node in order:
            samples.add(names[node], columns, slot * SLOT_NS)
    took_s = (time.process_time() - began_s) / (5 * NODES)
    began_s = time.process_time()
    for _ in range(_LOOKS):
        samples.copy()
    copy_s = (time.process_time() - began_s) / _LOOKS
    began_s = time.process_time()
    for _ in range(_LOOKS):
        samples.view(names, 5 * SLOT_NS)
    gather_s = (time.process_time() - began_s) / _LOOKS
    return 1e6 * took_s, 1e3 * copy_s, 1e3 * gather_s


def agent_us() -> float:
    """Return the CPU microseconds an agent of eight busy GPUs spends in a second on the columns."""
    gpus = tuple(
        GpuReading(
            index=place,
            uuid=f"GPU-{place}",
            name="NVIDIA H100 80GB HBM3",
            pci=f"0000:{place:02x}:00.0",
            busy_ratio=1.0,
            sm_clock_mhz=1980,
            clock_reasons=4,
            pcie_width=16,
            pcie_generation=5,
        )
        for place in range(GPUS)
    )
    readings = [GpusReading(gpus=gpus) for _ in range(5)]
    seconds, messages = GpuSeconds(0.9), 2000
    began_s = time.process_time()
    for _ in range(messages):
        for reading in readings:
            seconds.add(reading)
        seconds.take_columns()
    return 1e6 * (time.process_time() - began_s) / (5 * messages)


def fleet_days(seed: int, days: float) -> Iterator[tuple[str, float, str, str, str]]:
    """Yield how many of 16,384 healthy GPUs were found, and how many of the planted low ones."""
    fleet, planted = _fleet(seed), range(7, NODES, _PLANTED_EVERY)
    clocks = {node: _PLANTED_MHZ[place % 2] for place, node in enumerate(planted)}
    looks = max(4, int(days * _DAY_S * 1e9 / SLOT_NS / (SLOTS // 2)))
    for look in range(looks):
        if look == looks // 2:
            fleet.faults = [low_clock(node, node % GPUS, mhz) for node, mhz in clocks.items()]
        fleet.pass_slots(SLOTS // 2)
        fleet.judge()
    found = {one.node for one in fleet.told if one.finding is not None}
    names = {f"n{node}" for node in planted}
    node_days = NODES * looks * (SLOTS // 2) * SLOT_NS / 1e9 / _DAY_S
    yield "node-days of 16,384 GPUs", node_days, "", "", "looked at every 90 s"
    yield "healthy nodes found", len(found - names), "", "≤ 0", ""
    for mhz, target in zip(_PLANTED_MHZ, ("≥ 0.95", ""), strict=True):
        low = [f"n{node}" for node, clock in clocks.items() if clock == mhz]
        note = "peers at 1,600 MHz (all their power) or 1,980 MHz, in turns of 5 s"
        share = len(found.intersection(low)) / len(low)
        yield f"of {len(low)} GPUs that reach {mhz:,} MHz found", share, "", target, note


def rows(seed: int, days: float) -> Iterator[tuple[str, float, str, str, str]]:
    """Yield name, value, unit, target and note of each row."""
    spent = judge_ms(seed)
    message_us, copy_ms, gather_ms = samples_cost(seed)
    note = (
        f"{min(spent):.1f} to {max(spent):.1f}, and {gather_ms:.1f} to gather three minutes of "
        "samples; in a thread, every 5 s"
    )
    whole_ms = float(np.median(spent)) + gather_ms
    yield "GPU judge, 2,048 nodes of 8", whole_ms, "CPU ms", "≤ 50", note
    yield "a copy of their samples", copy_ms, "CPU ms", "", "on the event loop, every 5 s"
    yield "a node's message", message_us, "CPU µs", "", "every 5 s for each node"
    agent = agent_us()
    yield "an agent's second", agent / 1e4, "% of a core", "≤ 0.1", f"{agent:.0f} µs; no NVML call"
    yield from fleet_days(seed, days)


def _fleet(seed: int) -> VirtualGpus:
    return VirtualGpus(NODES, seed, domains=[f"r{node // 8}" for node in range(NODES)])
