"""Table of the isolation drivers: each with its part of the configuration, and how it is made.

A new driver is its own file, with its configuration beside it, and one entry here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_common.config import setting
from everstep_controller.core.model.isolation import Hold
from everstep_controller.drivers.built_in import BuiltInDriver
from everstep_controller.drivers.command import CommandDriver, CommandDriverConfig
from everstep_controller.drivers.port import IsolationDriver
from everstep_controller.drivers.worker import DriverTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversConfig:
    """Schedulers that place work on the nodes too, and are told which to leave alone."""

    call_timeout_s: float = setting(
        30.0,
        unit="s",
        help="A call of a driver that takes longer has failed, and is tried again: a busy "
        "scheduler answers in seconds.",
    )
    read_interval_s: float = setting(
        60.0,
        unit="s",
        help="How often each scheduler is read for what others withhold or free: so long a node "
        "that somebody drained there may still get ranks here.",
    )
    command: CommandDriverConfig = setting(
        factory=CommandDriverConfig, help="A program of the site."
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = [
            f"{name}: must be above 0, got {getattr(self, name)}"
            for name in ("call_timeout_s", "read_interval_s")
            if getattr(self, name) <= 0
        ]
        return found + [f"command.{problem}" for problem in self.command.problems()]

    def timing(self) -> DriverTiming:
        """Return the durations that hold for every driver."""
        return DriverTiming(self.call_timeout_s, self.read_interval_s)


@dataclass(frozen=True, slots=True)
class DriverContext:
    """Inputs for making a driver: the configuration, and its holds when the journal ended."""

    config: DriversConfig
    remembered: Mapping[str, Hold]


def _command(context: DriverContext) -> IsolationDriver | None:
    argv = context.config.command.argv
    return CommandDriver(argv) if argv else None


# By the name under which each is shown and journaled; None where it is not configured.
DRIVERS: Mapping[str, Callable[[DriverContext], IsolationDriver | None]] = {
    "built-in": lambda context: BuiltInDriver(context.remembered),
    "command": _command,
}


def configured_drivers(
    config: DriversConfig, remembered: Callable[[str], Mapping[str, Hold]]
) -> dict[str, IsolationDriver]:
    """Return the drivers that are configured, by their names."""
    made = {name: make(DriverContext(config, remembered(name))) for name, make in DRIVERS.items()}
    return {name: driver for name, driver in made.items() if driver is not None}
