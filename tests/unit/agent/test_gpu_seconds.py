"""What a node's GPUs did in five seconds: only what was read anew, and while they were busy."""

import struct
from dataclasses import replace

import pytest

from everstep_agent.detectors.gpus.reading import ClockReason, GpuReading, GpusReading
from everstep_agent.sampling import GpuSeconds, held_by
from everstep_common.reports import GpuColumns, SampleBatch
from everstep_common.reports.gpu_columns import GpuRow, HeldBy, pack_gpus
from everstep_common.stamp import Stamp
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire

_GPU = GpuReading(
    index=0,
    uuid="GPU-0",
    name="H100",
    pci="0000:3b:00.0",
    busy_ratio=1.0,
    sm_clock_mhz=1980,
    clock_reasons=0,
    pcie_width=16,
    pcie_generation=5,
)


def _read(*readings: GpuReading) -> GpuColumns | None:
    seconds = GpuSeconds(busy_ratio=0.9)
    for reading in readings:
        seconds.add(GpusReading(gpus=(reading,)))
    return seconds.take_columns()


def _clock(columns: GpuColumns | None) -> int:
    assert columns is not None
    (clock,) = struct.unpack("<H", columns.sm_clock_mhz)
    return int(clock)


def test_the_median_of_busy_seconds_and_all_reasons_in_them_are_told() -> None:
    brake = replace(_GPU, sm_clock_mhz=900, clock_reasons=int(ClockReason.POWER_BRAKE))
    idle = replace(_GPU, busy_ratio=0.1, sm_clock_mhz=210, clock_reasons=int(ClockReason.IDLE))
    told = _read(_GPU, idle, brake, _GPU, idle)
    assert told is not None
    assert (_clock(told), told.busy, told.held) == (1980, b"\3", bytes([HeldBy.POWER_BRAKE]))
    assert (told.devices, told.models) == (("0000:3b:00.0",), ("H100",))
    assert (told.pcie_width, told.pcie_generation) == (b"\x10", b"\5")


def test_an_old_reading_says_nothing_of_another_second() -> None:
    seconds, stale = GpuSeconds(0.9), GpusReading(gpus=(_GPU,))
    for _ in range(5):
        seconds.add(stale)
    told = seconds.take_columns()
    assert told is not None
    assert told.busy == b"\1"
    seconds.add(stale)
    later = seconds.take_columns()
    assert later is not None
    assert later.busy == b"\0"


@pytest.mark.parametrize(
    "reading",
    [
        replace(_GPU, busy_ratio=None),
        replace(_GPU, busy_ratio=42.0),
        replace(_GPU, error="GPU is lost"),
        replace(_GPU, mig_enabled=True),
    ],
)
def test_of_a_gpu_that_is_not_known_to_be_busy_nothing_is_told(reading: GpuReading) -> None:
    told = _read(*[reading] * 5)
    assert told is not None
    assert (told.busy, _clock(told)) == (b"\0", 0)


@pytest.mark.parametrize("clock", [None, 0, 2**32 - 1])
def test_a_wrong_clock_is_not_known(clock: int | None) -> None:
    assert _clock(_read(*[replace(_GPU, sm_clock_mhz=clock)] * 5)) == 0


def test_each_reason_of_the_driver_is_one_of_ours() -> None:
    assert held_by(None) == HeldBy.UNKNOWN
    assert held_by(0) == 0
    assert held_by(int(ClockReason.SOFTWARE_POWER_CAP)) == HeldBy.POWER_CAP
    assert held_by(int(ClockReason.SOFTWARE_THERMAL | ClockReason.HARDWARE_THERMAL)) == HeldBy.HEAT
    assert held_by(int(ClockReason.SYNC_BOOST)) == HeldBy.SETTING
    both = ClockReason.POWER_BRAKE | ClockReason.HARDWARE_SLOWDOWN
    assert held_by(int(both)) == HeldBy.POWER_BRAKE | HeldBy.HARDWARE


def test_a_node_without_gpus_tells_of_none_and_more_than_fit_are_left_out() -> None:
    assert GpuSeconds(0.9).take_columns() is None
    many = pack_gpus([GpuRow(f"{number}", "H100") for number in range(40)])
    assert many is not None
    assert len(many.devices) == len(many.busy) == 32


def test_it_goes_over_the_wire_and_an_older_agent_sends_none() -> None:
    told = _read(_GPU)
    batch = SampleBatch(1, Stamp("boot", 1, 1), 1, b"", (), told)
    assert from_wire(SampleBatch, to_wire(batch, fleet_pb2.SampleBatch)).gpus == told
    older = to_wire(replace(batch, gpus=None), fleet_pb2.SampleBatch)
    assert from_wire(SampleBatch, older).gpus is None
