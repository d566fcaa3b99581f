"""The controller's timeline over its restarts, boots and a wall clock that is set."""

from everstep_controller.runtime.clock import ControllerClock, TimelineAnchor

_S = 1_000_000_000


def _clock(
    wall_s: int, boot_s: int, floor_s: int = 0, offset_ns: int | None = None
) -> ControllerClock:
    return ControllerClock(floor_s * _S, offset_ns, lambda: wall_s * _S, lambda: boot_s * _S)


def test_the_first_start_begins_with_the_wall_clock() -> None:
    assert _clock(wall_s=5_000, boot_s=10).now_ns() == 5_000 * _S


def test_a_start_in_the_same_boot_goes_on_as_if_the_wall_clock_had_not_been_set() -> None:
    before = _clock(wall_s=5_000, boot_s=10)
    kept = TimelineAnchor.decode(before.anchor("boot").encode())
    assert kept == before.anchor("boot")
    for wall_s in (5_030, 5_030 + 86_400, 5_030 - 86_400):
        after = _clock(wall_s, boot_s=40, floor_s=5_020, offset_ns=kept.offset_ns)
        assert after.now_ns() == 5_030 * _S


def test_nothing_is_earlier_than_the_newest_event() -> None:
    assert _clock(wall_s=100, boot_s=10, floor_s=5_000).now_ns() == 5_000 * _S
    assert _clock(wall_s=100, boot_s=10, floor_s=5_000, offset_ns=0).now_ns() == 5_000 * _S


def test_it_runs_with_the_boot_clock() -> None:
    boot_s = [10]
    clock = ControllerClock(0, None, lambda: 5_000 * _S, lambda: boot_s[0] * _S)
    boot_s[0] = 70
    assert clock.now_ns() == 5_060 * _S
    assert clock.anchor("boot").offset_ns == 4_990 * _S
