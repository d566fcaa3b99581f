"""The controller's timeline over its restarts, boots and a wall clock that is set."""

import pytest

from everstep_common.stamp import Stamp
from everstep_controller.runtime.clock import (
    ControllerClock,
    LastAlive,
    TimelineAnchor,
    Witness,
    resumed_clock,
)

_S = 1_000_000_000


def _clock(
    wall_s: int, boot_s: int, floor_s: int = 0, offset_ns: int | None = None
) -> ControllerClock:
    return ControllerClock(floor_s * _S, offset_ns, lambda: wall_s * _S, lambda: boot_s * _S)


def test_the_first_start_begins_with_the_wall_clock() -> None:
    assert _clock(wall_s=5_000, boot_s=10).now_ns() == 5_000 * _S


def test_a_start_in_the_same_boot_goes_on_as_if_the_wall_clock_had_not_been_set() -> None:
    before = _clock(wall_s=5_000, boot_s=10)
    kept = TimelineAnchor.decode(before.anchor("boot", {}).encode())
    assert kept == before.anchor("boot", {})
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
    assert clock.anchor("boot", {}).offset_ns == 4_990 * _S


# --- after a reboot of the controller's machine ---------------------------------------------------

# Alive at 5,000 s of the timeline; the node's clock stands 1,000 s behind it.
_WITNESS = {"n1": Witness("n1-boot", 1_000 * _S)}
_LAST = LastAlive(TimelineAnchor("first", 0, _WITNESS), 4_990 * _S, 5_000 * _S, job_runs=True)
# Down for 200 s, up for 30 s.
_TRUE_S = 5_230


def _rebooted(wall_s: int, last: LastAlive = _LAST, boot: str = "second") -> ControllerClock:
    return resumed_clock(last, boot, lambda: wall_s * _S, lambda: 30 * _S)


def _stamp(boot: str, boot_s: int, wall_s: int) -> Stamp:
    return Stamp(boot, boot_s * _S, wall_s * _S)


@pytest.mark.parametrize("ahead_s", [0, 86_400])
def test_a_node_that_was_up_meanwhile_tells_how_long_it_was(ahead_s: int) -> None:
    clock = _rebooted(_TRUE_S + ahead_s)
    assert clock.now_ns() == 5_000 * _S, "it goes on from the last sign of life"
    assert clock.hear("n1", _stamp("n1-boot", _TRUE_S - 1_000, _TRUE_S)) == 230 * _S
    assert clock.now_ns() == _TRUE_S * _S
    assert clock.hear("n1", _stamp("n1-boot", 9_999, _TRUE_S)) == 0, "it is known"


def test_wall_clocks_that_agree_are_believed_when_no_node_was_up_all_the_time() -> None:
    clock = _rebooted(_TRUE_S)
    assert clock.hear("n2", _stamp("n2-boot", 40, _TRUE_S + 2)) == 0, "n1 may know better"
    assert clock.hear("n1", _stamp("n1-second-boot", 40, _TRUE_S + 86_400)) == 0
    assert clock.hear("n2", _stamp("n2-boot", 40, _TRUE_S + 2)) == 230 * _S


def test_no_node_takes_the_timeline_further_than_the_wall_clock() -> None:
    clock = _rebooted(_TRUE_S)
    clock.hear("n1", _stamp("n1-boot", 10**9, _TRUE_S))
    assert clock.now_ns() == _TRUE_S * _S


def test_what_is_not_known_yet_is_kept_over_a_second_start() -> None:
    anchor = TimelineAnchor.decode(_rebooted(_TRUE_S).anchor("second", {}).encode())
    assert anchor.doubtful
    again = _rebooted(_TRUE_S + 86_400, LastAlive(anchor, 0, 0, job_runs=True))
    assert again.hear("n1", _stamp("n1-boot", _TRUE_S - 1_000, 0)) == 230 * _S


def test_a_machine_that_was_up_for_longer_than_the_controller_was_away_adds_nothing() -> None:
    up_s = 6_100
    moved = resumed_clock(_LAST, "elsewhere", lambda: _TRUE_S * _S, lambda: up_s * _S)
    assert moved.now_ns() == 5_000 * _S
    assert moved.hear("n1", _stamp("n1-boot", _TRUE_S - 1_000, _TRUE_S)) == 230 * _S
    assert moved.now_ns() == _TRUE_S * _S


def test_a_wall_clock_that_is_not_set_yet_leaves_the_time_open() -> None:
    clock = _rebooted(wall_s=1_000)
    assert clock.hear("n1", _stamp("n1-boot", _TRUE_S - 1_000, _TRUE_S)) == 0
    assert clock.doubtful
    clock.wall_ns = lambda: _TRUE_S * _S
    assert clock.hear("n1", _stamp("n1-boot", _TRUE_S - 1_000, _TRUE_S)) == 230 * _S
    assert not clock.doubtful


def test_while_no_job_runs_the_wall_clock_is_taken() -> None:
    idle = LastAlive(_LAST.anchor, 4_990 * _S, 5_000 * _S, job_runs=False)
    assert _rebooted(9_000, idle).now_ns() == 9_000 * _S
