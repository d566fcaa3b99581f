"""Cluster under test: an API server, a human there, and a driver as it is configured."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.driver import KubernetesDriver
from everstep_controller.drivers.port import DriverContext, DriverError, DriverView
from kubernetes_suite.human import Human

PATIENCE_S = 60


class Server(Protocol):
    """An API server, real or not."""

    def stop(self) -> None:
        """End it, as a crash does."""
        ...

    def start(self) -> None:
        """Start it again, with all that it has stored."""
        ...

    def compact(self) -> None:
        """Have it forget what happened before now."""
        ...

    def back_up(self) -> None:
        """Copy all that it has stored; it may end and start for that."""
        ...

    def restore(self) -> None:
        """Start it with that copy, as if nothing had happened since."""
        ...


@dataclass
class Cluster:
    """A cluster: its server, a human, and the files by which the driver gets in."""

    server: Server
    human: Human
    kubeconfig: Path
    prefix: str = "n"
    made: list[str] = field(default_factory=list)

    def make(self, count: int, **labels: str) -> list[str]:
        """Make nodes; return their names."""
        first = len(self.made)
        names = [f"{self.prefix}-{first + index}" for index in range(count)]
        for name in names:
            self.human.make(name, **labels)
        self.made += names
        return names

    def register(self, count: int, **labels: str) -> list[str]:
        """Make many nodes of which nothing is ever told; return their names."""
        names = [f"{self.prefix}-many-{index}" for index in range(count)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.human.register(name, **labels), names))
        return names

    def allow(self, config: KubernetesDriverConfig, without: str = "") -> None:
        """Give the driver what its configuration needs, as it is printed."""
        manifest = config.rbac("everstep")
        assert without in manifest
        self.human.apply(manifest.replace(without, "") if without else manifest)

    @asynccontextmanager
    async def driver(
        self,
        nodes: Iterable[str],
        cluster: str = "c1",
        call_timeout_s: float = 20.0,
        **settings: object,
    ) -> AsyncIterator[KubernetesDriver]:
        """Return a driver with its rights, and end it."""
        config = KubernetesDriverConfig(access=str(self.kubeconfig), **settings)  # type: ignore[arg-type]
        assert not config.problems()
        self.allow(config)
        own = list(nodes)
        driver = config.driver(DriverContext(call_timeout_s, lambda: own, lambda: cluster))
        assert isinstance(driver, KubernetesDriver)
        try:
            await _allowed(driver)
            yield driver
        finally:
            await driver.close()


async def _allowed(driver: KubernetesDriver) -> None:
    """Wait until the authorizer has learned of the driver's roles, which takes it a moment."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(DriverError):
                await driver._allowed()
                return
            await asyncio.sleep(0.05)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds at a server, which tells nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def reads(driver: KubernetesDriver, holds: Callable[[DriverView], bool]) -> DriverView:
    """Read until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(view := await driver.read()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    return view


def wanted(
    node: str, reason: str = "automation: Xid 79", condition: str = "XidFatal"
) -> WantedIsolation:
    """Return a wish to withhold a node."""
    owner = reason.partition(":")[0]
    return WantedIsolation(node, (owner,), reason, condition)


def free(node: str) -> WantedIsolation:
    """Return a wish to have a node free of our hold."""
    return WantedIsolation(node)


def ours(reason: str = "automation: Xid 79") -> Hold:
    """Return a hold of ours."""
    return Hold(reason, ours=True)
