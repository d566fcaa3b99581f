"""Samples: one row of measurements a second, packed in the column order the controller expects."""

import asyncio
import itertools
import math
import struct
from collections.abc import Callable, Sequence

from everstep_agent.concurrency.common_tick import tick
from everstep_agent.detectors.gpus.limits import DEFAULTS
from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading
from everstep_agent.detectors.gpus.reading import ClockReason
from everstep_agent.detectors.host.usage import HostReading
from everstep_agent.inventory.node_view import NodeView
from everstep_common.clock import Stamp, StampClock
from everstep_common.reports import GpuColumns, LinkColumns, RankColumns, SampleBatch
from everstep_common.reports.gpu_columns import GpuRow, HeldBy, pack_gpus
from everstep_common.samples import COLUMNS, SCHEMA
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

SAMPLE_INTERVAL_S = 1.0
# Cost at the controller is per message, not per row.
ROWS_PER_BATCH = 5
# Errors of links within a day change slowly.
LINKS_EVERY_BATCHES = 12

Row = tuple[float, ...]
_ROW = struct.Struct(f"<{len(COLUMNS)}f")


class Sampler:
    """Sampler that turns counters into rates by the reading before; NaN where there is none."""

    def __init__(self) -> None:
        self._before: HostReading | None = None

    def row(self, host: HostReading | None, gpus: GpusReading | None, seconds: float) -> Row:
        """Return one row; ``seconds`` have passed since the last one."""
        values = dict.fromkeys(COLUMNS, math.nan)
        if host is not None:
            values |= _host_values(host)
            if self._before is not None and seconds > 0:
                values |= _rates(self._before, host, seconds)
        if gpus is not None:
            values |= _gpu_values([gpu for gpu in gpus.gpus if not gpu.error])
        self._before = host
        return tuple(values[column] for column in COLUMNS)


def _host_values(host: HostReading) -> dict[str, float]:
    return {
        "cpu_busy_ratio": host.cpu_busy_ratio,
        "load_1m": host.load_1m,
        "memory_available_bytes": float(host.memory_available_bytes),
        "agent_memory_bytes": float(host.agent_memory_bytes),
    }


def _rates(before: HostReading, now: HostReading, seconds: float) -> dict[str, float]:
    def rate(counter: Callable[[HostReading], float | None]) -> float:
        old, new = counter(before), counter(now)
        return math.nan if old is None or new is None else max(0.0, new - old) / seconds

    return {
        "disk_read_bytes_per_s": rate(lambda reading: reading.disk_read_bytes),
        "disk_write_bytes_per_s": rate(lambda reading: reading.disk_written_bytes),
        "network_received_bytes_per_s": rate(lambda reading: reading.network_received_bytes),
        "network_sent_bytes_per_s": rate(lambda reading: reading.network_sent_bytes),
        "network_errors_per_s": rate(lambda reading: reading.network_errors),
        "agent_cpu_ratio": rate(lambda reading: reading.agent_cpu_s),
    }


def _gpu_values(gpus: Sequence[GpuReading]) -> dict[str, float]:
    busy = [gpu.busy_ratio for gpu in gpus if gpu.busy_ratio is not None]
    power = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    temperatures = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    return {
        "gpu_count": float(len(gpus)),
        "gpu_busy_ratio_mean": sum(busy) / len(busy) if busy else math.nan,
        "gpu_temperature_c_max": max(temperatures, default=math.nan),
        "gpu_power_w_sum": sum(power) if power else math.nan,
    }


# What of a driver's reasons is which of ours; plain numbers, for speed.
_REASONS = (
    (int(ClockReason.POWER_BRAKE), int(HeldBy.POWER_BRAKE)),
    (int(ClockReason.HARDWARE_SLOWDOWN), int(HeldBy.HARDWARE)),
    (int(ClockReason.HARDWARE_THERMAL | ClockReason.SOFTWARE_THERMAL), int(HeldBy.HEAT)),
    (int(ClockReason.SOFTWARE_POWER_CAP), int(HeldBy.POWER_CAP)),
    (
        int(ClockReason.APPLICATION_SETTING | ClockReason.SYNC_BOOST | ClockReason.DISPLAY_SETTING),
        int(HeldBy.SETTING),
    ),
    (int(ClockReason.IDLE), int(HeldBy.IDLE)),
)


def held_by(reasons: int | None) -> int:
    """Return what holds a GPU's clocks down, by the reasons that its driver gives."""
    if reasons is None:
        return int(HeldBy.UNKNOWN)
    return sum(ours for theirs, ours in _REASONS if reasons & theirs) if reasons else 0


class GpuSeconds:
    """Seconds of the node's GPUs since the last message, of which those count that were busy."""

    def __init__(self, busy_ratio: float) -> None:
        self._busy_ratio = busy_ratio
        # A driver that hangs gives no new reading: the old one says nothing of another second.
        self._seen: GpusReading | None = None
        self._clocks: dict[str, list[int]] = {}
        self._held: dict[str, int] = {}

    def add(self, gpus: GpusReading | None) -> None:
        """Add what was read newest."""
        if gpus is None or gpus is self._seen:
            return
        self._seen = gpus
        for gpu in gpus.gpus:
            # A slice of a GPU has clocks of its own making; the whole's say nothing.
            busy = gpu.busy_ratio is not None and self._busy_ratio <= gpu.busy_ratio <= 1
            if busy and not gpu.error and not gpu.mig_enabled:
                self._clocks.setdefault(gpu.pci, []).append(gpu.sm_clock_mhz or 0)
                held = self._held.get(gpu.pci, 0)
                self._held[gpu.pci] = held | held_by(gpu.clock_reasons)

    def take_columns(self) -> GpuColumns | None:
        """Return them, and begin anew."""
        gpus = self._seen.gpus if self._seen is not None else ()
        rows = [self._row(gpu) for gpu in gpus]
        self._clocks.clear()
        self._held.clear()
        return pack_gpus(rows)

    def _row(self, gpu: GpuReading) -> GpuRow:
        clocks = sorted(self._clocks.get(gpu.pci, ()))
        if not clocks:
            return GpuRow(gpu.pci, gpu.name)
        return GpuRow(
            device=gpu.pci,
            model=gpu.name,
            busy=len(clocks),
            sm_clock_mhz=clocks[len(clocks) // 2],
            held=self._held[gpu.pci],
            pcie_width=gpu.pcie_width or 0,
            pcie_generation=gpu.pcie_generation or 0,
        )


def pack(
    rows: Sequence[Row],
    first: Stamp,
    interval_ns: int,
    ranks: tuple[RankColumns, ...] = (),
    gpus: GpuColumns | None = None,
    links: LinkColumns | None = None,
) -> SampleBatch:
    """Return rows as the controller takes them, with what ranks, GPUs and links did."""
    packed = b"".join(_ROW.pack(*row) for row in rows)
    return SampleBatch(SCHEMA, first, interval_ns, packed, ranks, gpus, links)


class SampleSender:
    """Sender of samples: takes a row every second and hands over a batch of them."""

    def __init__(
        self,
        view: NodeView,
        send: Callable[[fleet_pb2.SampleBatch], None],
        stamp: StampClock,
        phase_s: float,
        ranks: Callable[[], tuple[RankColumns, ...]] = tuple,
        *,
        busy_ratio: float = DEFAULTS.busy_ratio,
    ) -> None:
        """``ranks`` returns how far the ranks of the node's jobs are.

        From ``busy_ratio`` on a GPU counts as busy.
        """
        self._view = view
        self._send = send
        self._stamp = stamp
        self._phase_s = phase_s
        self._ranks = ranks
        self._busy_ratio = busy_ratio
        self._links: LinkColumns | None = None

    def _new_links(self) -> LinkColumns | None:
        """Return the errors of links, where they were read since this was asked before."""
        before, self._links = self._links, self._view.link_errors
        return self._links if self._links is not before else None

    async def run(self) -> None:
        """Sample until cancelled; begins after its phase, so that a fleet does not send in step."""
        sampler, gpus = Sampler(), GpuSeconds(self._busy_ratio)
        await asyncio.sleep(self._phase_s)
        for number in itertools.count():
            first, rows = self._stamp(), list[Row]()
            for _ in range(ROWS_PER_BATCH):
                rows.append(sampler.row(self._view.host, self._view.gpus, SAMPLE_INTERVAL_S))
                gpus.add(self._view.gpus)
                await tick(SAMPLE_INTERVAL_S)
            interval_ns = int(SAMPLE_INTERVAL_S * 1e9)
            links = self._new_links() if number % LINKS_EVERY_BATCHES == 0 else None
            batch = pack(rows, first, interval_ns, self._ranks(), gpus.take_columns(), links)
            self._send(to_wire(batch, fleet_pb2.SampleBatch))
