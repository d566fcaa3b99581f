"""Isolation drivers of a controller: those that its configuration names, and the built-in one.

A new driver is a module of this folder with its part of the configuration, which makes it, and a
field of ``DriversConfig`` that is in ``parts``.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from everstep_common.config import setting
from everstep_controller.core.model.isolation import Hold
from everstep_controller.core.nodes.isolation_differences import BUILT_IN
from everstep_controller.drivers.built_in import BuiltInDriver
from everstep_controller.drivers.command import CommandDriverConfig
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.port import DriverContext, IsolationDriver
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from everstep_controller.drivers.worker import DriverTiming


class DriverConfig(Protocol):
    """One driver's part of the configuration."""

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        ...

    def driver(self, context: DriverContext) -> IsolationDriver | None:
        """Return the driver; None where it is not configured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversConfig:
    """Schedulers that place work on the nodes too, and are told which to leave alone."""

    call_timeout_s: float = setting(
        30.0,
        unit="s",
        help="Deadline of a driver's call; then it has failed and is tried again. A busy "
        "scheduler answers in seconds.",
    )
    read_interval_s: float = setting(
        60.0,
        unit="s",
        help="How often each scheduler is read for nodes that others withhold or free: a node "
        "that somebody drained there may get ranks here for as long.",
    )
    command: CommandDriverConfig = setting(
        factory=CommandDriverConfig, help="A program of the site."
    )
    slurm: SlurmDriverConfig = setting(factory=SlurmDriverConfig, help="A Slurm.")
    kubernetes: KubernetesDriverConfig = setting(
        factory=KubernetesDriverConfig, help="A Kubernetes cluster (docs/kubernetes-isolation.md)."
    )

    @property
    def parts(self) -> Mapping[str, DriverConfig]:
        """Return the part of each driver, by the name under which it is shown and journaled."""
        return {"command": self.command, "slurm": self.slurm, "kubernetes": self.kubernetes}

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = [
            f"{name}: must be above 0, got {getattr(self, name)}"
            for name in ("call_timeout_s", "read_interval_s")
            if getattr(self, name) <= 0
        ]
        for name, part in self.parts.items():
            found += [f"{name}.{problem}" for problem in part.problems()]
        return found

    def configured(self) -> set[str]:
        """Return the names of the drivers that are configured, without mistakes."""
        context = DriverContext(self.call_timeout_s)
        usable = {name: part for name, part in self.parts.items() if not part.problems()}
        return {name for name, part in usable.items() if part.driver(context) is not None}

    def timing(self) -> DriverTiming:
        """Return the durations that hold for every driver."""
        return DriverTiming(self.call_timeout_s, self.read_interval_s)


def configured_drivers(
    config: DriversConfig,
    remembered: Callable[[str], Mapping[str, Hold]],
    own_nodes: Callable[[str], Collection[str]] = lambda _: frozenset(),
    cluster_id: Callable[[], str] = str,
    launching: Callable[[], Collection[str]] = frozenset,
) -> dict[str, IsolationDriver]:
    """Return the drivers that are configured, by name; ``remembered``: their holds by the journal.

    ``own_nodes`` returns the nodes of a driver, by their groups; ``launching`` those with launchers
    of jobs. The built-in driver is always
    there, and has no scheduler that would know its holds.
    """
    made = {
        name: part.driver(
            DriverContext(
                config.call_timeout_s,
                partial(own_nodes, name),
                cluster_id,
                launching,
                partial(remembered, name),
            )
        )
        for name, part in config.parts.items()
    }
    configured = {name: driver for name, driver in made.items() if driver is not None}
    return {BUILT_IN: BuiltInDriver(remembered(BUILT_IN)), **configured}
