"""Services: what each state of a unit means, and how often one may be restarted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.host.service_limits import FABRIC_MANAGER, ServiceLimits
from everstep_agent.detectors.host.services import (
    ServiceDetector,
    ServicesReading,
    UnitReading,
    judge_unwatched,
)
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Judgement
from fakes.settings_files import mistakes_in
from unit.agent.open_book import OpenBook

_SLURMD = UnitReading(name="slurmd.service", restarts=0)
_DEAD = replace(_SLURMD, active="inactive", sub="dead")


class Node:
    """A node with services, looked at every ten seconds."""

    def __init__(
        self, limits: ServiceLimits | None = None, counters: Counters | None = None
    ) -> None:
        self.book = OpenBook()
        self._detector = ServiceDetector(limits or ServiceLimits(), counters or Counters())

    def look(self, *units: UnitReading, times: int = 1, **more: object) -> set[str]:
        """Look so often, and return what is open."""
        reading = replace(ServicesReading(units=units), **more)  # type: ignore[arg-type]
        self.book.look(self._judge(reading), times)
        return self.book.open

    def _judge(self, reading: ServicesReading) -> Callable[[Stamp], Sequence[Judgement]]:
        return lambda now: self._detector.judge(reading, now)


@pytest.mark.parametrize(
    "broken",
    [
        replace(_SLURMD, active="failed", sub="failed"),
        replace(_SLURMD, active="activating", sub="auto-restart"),
        replace(_SLURMD, active="activating", sub="auto-restart-queued"),
        replace(_DEAD, file_state="enabled"),
        replace(_DEAD, file_state="enabled-runtime"),
    ],
)
def test_a_service_that_does_not_run_is_found_and_cleared_when_it_runs(broken: UnitReading) -> None:
    node, rule = Node(), CONDITIONS["ServiceDown"]
    assert node.look(broken, times=rule.raise_after - 1) == set()
    assert node.look(broken) == {"ServiceDown"}
    assert node.book.finding("ServiceDown").component == "service/slurmd"
    assert node.look(_SLURMD, times=rule.clear_after - 1) == {"ServiceDown"}
    assert node.look(_SLURMD) == set()


@pytest.mark.parametrize(
    "fine",
    [
        _SLURMD,
        replace(_SLURMD, active="reloading", sub="reload"),
        replace(_SLURMD, active="activating", sub="start"),
        replace(_SLURMD, active="deactivating", sub="stop-sigterm"),
        replace(_DEAD, file_state="disabled"),
        replace(_DEAD, file_state="enabled", oneshot=True),
        replace(_DEAD, file_state="enabled", skipped=True),
        replace(_DEAD, file_state="static"),
        replace(_DEAD, load="masked", file_state="masked"),
        replace(_DEAD, load="not-found"),
    ],
)
def test_a_service_that_runs_or_is_not_meant_to_is_no_fault(fine: UnitReading) -> None:
    assert Node().look(fine, times=10) == set()


def test_of_the_daemons_that_keep_the_clock_one_is_enough() -> None:
    idle = replace(_DEAD, name="systemd-timesyncd.service", file_state="enabled")
    assert Node().look(idle, UnitReading(name="chronyd.service"), times=5) == set()
    assert Node().look(idle, times=5) == {"ServiceDown"}


def test_a_service_that_is_starting_holds_what_is_known() -> None:
    node = Node()
    node.look(replace(_SLURMD, active="failed", sub="failed"), times=2)
    starting = replace(_SLURMD, active="activating", sub="start")
    assert node.look(starting, times=10) == {"ServiceDown"}


def test_a_service_that_only_others_start_is_a_fault_when_it_ran_before() -> None:
    node = Node()
    static = replace(_DEAD, file_state="static")
    assert node.look(static, times=5) == set()
    node.look(_SLURMD)
    assert node.look(static, times=2) == {"ServiceDown"}


@pytest.mark.parametrize("load", ["loaded", "not-found"])
def test_a_service_that_the_operator_names_must_run(load: str) -> None:
    node = Node(ServiceLimits(units=("slurmd.service",)))
    stopped = replace(_DEAD, load=load, file_state="disabled")
    assert node.look(stopped, times=2) == {"ServiceDown"}
    assert node.book.finding("ServiceDown").rule == "signals.services.units names it"


@pytest.mark.parametrize(("nvswitches", "severity"), [(4, Severity.FATAL), (0, Severity.DEGRADED)])
def test_the_fabric_manager_is_fatal_where_there_are_switches(
    nvswitches: int, severity: Severity
) -> None:
    node = Node()
    manager = UnitReading(name=FABRIC_MANAGER, active="failed", sub="failed")
    node.look(manager, times=2, nvswitches=nvswitches)
    assert node.book.finding("ServiceDown").severity is severity


def test_three_restarts_in_ten_minutes_are_a_flap_and_ten_quiet_minutes_end_it() -> None:
    node = Node()
    assert node.look(replace(_SLURMD, restarts=40)) == set(), "restarts before the agent came"
    assert node.look(replace(_SLURMD, restarts=42)) == set()
    assert node.look(replace(_SLURMD, restarts=43)) == {"ServiceFlapping"}
    assert node.look(replace(_SLURMD, restarts=43), times=58) == {"ServiceFlapping"}
    assert node.look(replace(_SLURMD, restarts=43), times=2) == set()


def test_a_restart_now_and_then_is_no_flap() -> None:
    node = Node()
    for restarts in range(20):
        assert node.look(replace(_SLURMD, restarts=restarts), times=31) == set()


def test_a_counter_that_the_operator_reset_is_no_flap() -> None:
    node = Node()
    node.look(replace(_SLURMD, restarts=500))
    assert node.look(replace(_SLURMD, restarts=0), times=5) == set()


def test_restarts_while_no_agent_ran_are_not_counted_as_recent() -> None:
    counters = Counters()
    Node(counters=counters).look(replace(_SLURMD, restarts=1))
    node = Node(counters=counters)
    node.book.at_s += 86_400
    assert node.look(replace(_SLURMD, restarts=90)) == set()


def test_peer_memory_that_was_loaded_must_stay_and_other_modules_only_when_named() -> None:
    node = Node()
    assert node.look(modules=frozenset({"nvidia"}), times=5) == set()
    node.look(modules=frozenset({"nvidia", "nvidia_peermem"}))
    assert node.look(modules=frozenset({"nvidia"}), times=2) == {"KernelModuleMissing"}
    assert node.look(modules=frozenset({"nvidia_peermem"})) == set()
    named = Node(ServiceLimits(modules=("gdrdrv",)))
    assert named.look(times=2) == {"KernelModuleMissing"}


def test_what_is_watched_no_more_is_cleared_and_what_is_watched_is_not() -> None:
    node = Node(ServiceLimits(units=("slurmd.service",), modules=("gdrdrv",)))
    node.look(replace(_DEAD), times=2)
    book = node.book
    assert node.book.open == {"ServiceDown", "KernelModuleMissing"}
    book.look(lambda _: judge_unwatched(book.book.open_keys, ["slurmd.service"], ["gdrdrv"]), 5)
    assert node.book.open == {"ServiceDown", "KernelModuleMissing"}
    book.look(lambda _: judge_unwatched(book.book.open_keys, [], []), 2)
    assert node.book.open == set()


def test_every_wrong_setting_is_told_with_its_key(tmp_path: Path) -> None:
    wrong = '[signals.services]\nunits = ["slurmd"]\nrestarts_max = 0\nrestart_window_s = -1\n'
    assert sorted(problem.split(":")[0] for problem in mistakes_in(tmp_path, wrong)) == [
        "signals.services.restart_window_s",
        "signals.services.restarts_max",
        "signals.services.units",
    ]
