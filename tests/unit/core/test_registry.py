"""Every event and every kind of timer is taken by exactly one package, or the core cannot start."""

import gc

import pytest

from everstep_common import reports
from everstep_controller.core import (
    events,
    fleet,
    hangs,
    jobs,
    nodes,
    planned,
    recovery,
    registry,
)
from everstep_controller.core.dispatch import controller
from everstep_controller.core.fleet import enrolment
from everstep_controller.core.nodes import health
from everstep_controller.core.registry import RegistrationError
from everstep_controller.core.turn import TimerKind

PACKAGES = (controller, nodes, jobs, recovery, hangs, planned, fleet)


def test_each_event_and_each_timer_is_taken_once() -> None:
    taken = registry.merge_handlers(package.HANDLERS for package in PACKAGES)
    listed = events.event_kinds() - {events.TimerDue}
    assert listed <= set(taken)
    assert all(issubclass(one, events.OperatorOrder) for one in taken.keys() - listed)
    assert set(registry.merge_timers(package.TIMERS for package in PACKAGES)) == set(TimerKind)


def test_an_event_that_two_packages_take_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"taken twice: .*LauncherLeft"):
        registry.merge_handlers([jobs.HANDLERS, {reports.LauncherLeft: lambda turn, event: None}])


def test_an_event_that_no_package_takes_is_refused() -> None:
    others = [package.HANDLERS for package in PACKAGES if package is not fleet]
    others.append(enrolment.HANDLERS)
    with pytest.raises(RegistrationError, match=r"taken by no package: .*RecordRejected.*HANDLERS"):
        registry.merge_handlers(others)


def test_an_order_that_is_defined_beside_its_handler_and_not_listed_is_refused() -> None:
    order = type("Noted", (events.OperatorOrder,), {"__module__": health.__name__})
    with pytest.raises(RegistrationError, match=r"taken by no package: .*health\.Noted"):
        registry.merge_handlers(package.HANDLERS for package in PACKAGES)
    # A class goes with the next collection; others would find it among the orders.
    del order
    gc.collect()
    registry.merge_handlers(package.HANDLERS for package in PACKAGES)


def test_a_timer_that_nobody_takes_or_two_take_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"taken by no package: .*maintenance"):
        registry.merge_timers(package.TIMERS for package in PACKAGES if package is not planned)
    with pytest.raises(RegistrationError, match="taken twice: stalled"):
        registry.merge_timers([jobs.TIMERS, {TimerKind.STALLED: lambda turn, name: None}])


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"there is no such thing: .*int"):
        registry.merge_handlers(
            [*(package.HANDLERS for package in PACKAGES), {int: lambda turn, event: None}]
        )
