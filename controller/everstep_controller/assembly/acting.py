"""Assembly of what acts: the core's actions become orders to nodes, timers and driver calls."""

from dataclasses import dataclass

from everstep_controller.api.fleet.action_executor import (
    ActionExecutor,
    ActionTargets,
    RuntimeVaultPort,
)
from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.assembly.foundation import Foundation
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.events import ControllerStalled, DriverReported, TimerDue
from everstep_controller.core.model.isolation import DriverRecord, Hold
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes.isolation_differences import own_nodes
from everstep_controller.drivers.drivers import DriversConfig, configured_drivers
from everstep_controller.drivers.worker import CoreLink, DriverWorkers
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.timers import Timers
from everstep_controller.runtime.vault_service import VaultService


@dataclass(frozen=True, slots=True)
class Acting:
    """What carries out the core's actions."""

    targets: ActionTargets
    executor: ActionExecutor


def assemble_acting(config: ControllerConfig, base: Foundation) -> Acting:
    """Return it, with sessions of no agent yet."""
    runtime, sessions = base.runtime, Sessions()
    targets = ActionTargets(
        sessions=sessions,
        rolls=RollCalls(base.state, sessions, runtime.post),
        timers=Timers(
            base.timeline.clock.now_ns,
            due=lambda name: runtime.post(TimerDue(name)),
            stalled=lambda stall: runtime.post(ControllerStalled(stall.duration_ns)),
        ),
        drivers=_drivers(config.drivers, base),
        vault=VaultService(
            base.state, RuntimeVaultPort(base.state, base.secret, sessions, runtime)
        ),
    )
    return Acting(targets, ActionExecutor(base.state, base.secret, targets))


def _drivers(config: DriversConfig, base: Foundation) -> DriverWorkers:
    """Return the workers of the drivers that are configured, not started."""

    def record_of(driver: str) -> DriverRecord | None:
        # While the core acts on nothing, it takes no readings either.
        return None if base.state().halted else base.state().drivers.get(driver)

    def remembered_holds(driver: str) -> dict[str, Hold]:
        record = base.state().drivers.get(driver)
        known = record.nodes.items() if record is not None else ()
        return {node: one.hold for node, one in known if one.hold is not None}

    async def report(event: DriverReported) -> None:
        try:
            await base.runtime.submit(event)
        except JournalFull:
            base.runtime.post(event)  # it is kept until the journal can be written again

    drivers = configured_drivers(
        config,
        remembered_holds,
        lambda driver: own_nodes(base.state(), driver),
        lambda: base.state().cluster_id,
        lambda: _launching(base.state()),
    )
    link = CoreLink(
        record_of,
        report,
        label_keys=lambda: base.state().group_table.label_keys,
        paused=lambda: bool(base.state().drivers_paused),
        sure=base.journal.sure,
    )
    return DriverWorkers(drivers, link, config.timing())


def _launching(state: State) -> set[str]:
    """Return the nodes with launchers or ranks of jobs that are not over."""
    living = [job for job in state.jobs.values() if job.state is not JobState.ENDED]
    return {name for job in living for name in (*job.launchers, *job.generation.members)}
