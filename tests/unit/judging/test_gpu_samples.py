"""GPU samples at the controller: kept by slots, and what is lost or too short is not known."""

from dataclasses import replace

from everstep_common.reports import GpuColumns
from everstep_common.reports.gpu_columns import GpuRow, pack_gpus
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.gpu_view import SLOT_NS, SLOTS


def _row(clock: int, device: str = "0000:3b:00.0") -> GpuColumns:
    told = pack_gpus([GpuRow(device, "H100", 5, clock, 0, 16, 5)])
    assert told is not None
    return told


def test_samples_are_kept_by_slots_and_what_is_lost_is_not_known() -> None:
    samples = GpuSamples()
    for slot in (100, 101, 103):
        samples.add("a", _row(1000 + slot), slot * SLOT_NS + 7)
    view = samples.view(("b", "a"), 103 * SLOT_NS)
    assert view.sm_clock_mhz.shape == (SLOTS, 2, 1)
    assert list(view.sm_clock_mhz[-4:, 1, 0]) == [1100, 1101, 0, 1103]
    assert not view.sm_clock_mhz[:, 0].any()
    assert view.models == ((), ("H100",))
    assert view.begins_ns[-1] == 103 * SLOT_NS
    later = samples.view(("a",), (101 + SLOTS) * SLOT_NS)
    assert list(later.sm_clock_mhz[:3, 0, 0]) == [0, 1103, 0]


def test_other_devices_in_its_place_have_no_past() -> None:
    samples = GpuSamples()
    samples.add("a", _row(1000), 100 * SLOT_NS)
    samples.add("a", _row(1001, "0000:4c:00.0"), 101 * SLOT_NS)
    assert list(samples.view(("a",), 101 * SLOT_NS).sm_clock_mhz[-2:, 0, 0]) == [0, 1001]


def test_a_fleet_grows_and_short_columns_count_as_not_known() -> None:
    samples = GpuSamples()
    for number in range(40):
        samples.add(f"n{number}", _row(number + 1), 100 * SLOT_NS)
    short = replace(_row(9), devices=("a", "b", "c"), sm_clock_mhz=b"\1\2\3", busy=b"")
    samples.add("n3", short, 101 * SLOT_NS)
    names = tuple(f"n{number}" for number in range(40))
    before = samples.view(names, 100 * SLOT_NS)
    assert list(before.sm_clock_mhz[-1, :, 0]) == [1, 2, 3, 0, *range(5, 41)]
    assert list(samples.view(names, 101 * SLOT_NS).sm_clock_mhz[-1, 3]) == [0x201, 0, 0]
