"""A site for the fleet benchmark: a real slurmctld that knows many nodes, and a controller."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_cli.demo.processes import OwnedProcesses
from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.isolation import NodeIsolation
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.settings import Settings
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.drivers.slurm.config import SlurmDriverConfig
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.service import Controller, Options
from fakes.controllers import config
from real.slurm_cluster import running_cluster
from real.slurm_versions import NODES, running_version

WITH_SLURMD = 16
_PATIENCE_S = 600.0
CALL_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """A Slurm cluster, and the names of its nodes; the first have a slurmd.

    ``bin_folder``: its programs, where they are not this machine's.
    """

    environ: Mapping[str, str]
    config: SlurmDriverConfig
    log: Path
    nodes: Sequence[str]
    bin_folder: Path = Path()

    @property
    def drivers(self) -> DriversConfig:
        """Return the configuration of drivers that drain there."""
        return DriversConfig(slurm=self.config, call_timeout_s=CALL_TIMEOUT_S)

    def run(self, program: str, *words: str, lines: str = "") -> str:
        """Return what one of Slurm's programs prints, for lines that it reads."""
        command = [str(self.bin_folder / program), *words]
        return subprocess.run(
            command,
            input=lines,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT_S,
            check=False,
        ).stdout

    def slurmctld_s(self) -> float:
        """Return the processor time of slurmctld so far, in seconds."""
        pid = (self.log.parent / "slurmctld.pid").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def drained(self) -> dict[str, str]:
        """Return the nodes that Slurm has drained, with their reasons."""
        words = ("-h", "-N", "-p", "all", "-t", "drain", "-o", "%N@@%E")
        lines = self.run("sinfo", *words).splitlines()
        return dict(line.split("@@", 1) for line in lines if "@@" in line)


@contextmanager
def running_slurm(count: int, version: str = "", names: Sequence[str] = ()) -> Iterator[SlurmSite]:
    """Yield a cluster of so many nodes, of which some have a slurmd; ``names``: other names."""
    nodes = [*names] or [f"n{number}" for number in range(1, count + 1)]
    if version:
        with running_version(version, count - len(NODES)) as slurm:
            log = slurm.root / "s/slurmctld.log"
            yield SlurmSite(os.environ, slurm.drivers, log, nodes, slurm.bin_folder)
        return
    folder = Path(tempfile.mkdtemp(prefix="es"))
    owned = OwnedProcesses(folder, keep=False)
    rest = ",".join(nodes[WITH_SLURMD:])
    lines = (
        f"NodeName={rest} NodeHostname=localhost NodeAddr=127.0.0.1 Port=1 CPUs=4 Feature=h100,ib",
        f"PartitionName=all Nodes={','.join(nodes)} Default=YES State=UP",
        # Those without a slurmd never answer.
        "SlurmdTimeout=65533",
    )
    first = nodes[:WITH_SLURMD]
    try:
        with running_cluster(owned, folder / "slurm", first, "#!/bin/sh\n", lines) as cluster:
            config = SlurmDriverConfig(enabled=True, conf_file=cluster.folder / "slurm.conf")
            yield SlurmSite(cluster.environ, config, cluster.folder / "slurmctld.log", nodes)
    finally:
        owned.close()


@dataclass(slots=True)
class Fleet:
    """A controller in this process whose nodes are events, without agents behind them."""

    controller: Controller
    sequence: int = 0

    async def connect(self, nodes: Sequence[str]) -> None:
        """Let all nodes connect and pass their check."""
        for at in range(0, len(nodes), 500):
            part = nodes[at : at + 500]
            await asyncio.gather(*(self._submit(_hello(name)) for name in part))
            state = self.controller.runtime.state
            orders = {name: f"{name}/check/{state.nodes[name].health.checks}" for name in part}
            passed = (
                self._report(name, reports.CheckFinished(orders[name], True, "fine"))
                for name in part
            )
            await asyncio.gather(*passed)

    async def find(self, nodes: Sequence[str], messages: Sequence[str]) -> None:
        """Let each node have a fatal finding, each with its own message."""
        told = (
            self._report(name, reports.FindingRaised(_fatal(message)))
            for name, message in zip(nodes, messages, strict=True)
        )
        await asyncio.gather(*told)

    def withheld(self) -> list[str]:
        """Return the nodes that were read back at Slurm as withheld for us."""
        known = self.controller.runtime.state.drivers["slurm"].nodes
        return [name for name, one in known.items() if _is_ours(one)]

    async def until(self, count: int) -> float:
        """Return when so many nodes are withheld, by the loop's clock."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_PATIENCE_S):
            while len(self.withheld()) < count:  # noqa: ASYNC110  the core calls nobody back
                await asyncio.sleep(0.02)  # each look takes a millisecond
        return loop.time()

    async def _report(
        self, node: str, report: reports.CheckFinished | reports.FindingRaised
    ) -> None:
        self.sequence += 1
        origin = Origin(node, f"outbox-{node}", self.sequence)
        await self._submit(events.Reported(origin, self.controller.runtime.now_ns(), report))

    async def _submit(self, event: events.Event) -> None:
        await self.controller.runtime.submit(event)


@asynccontextmanager
async def running_fleet(site: SlurmSite, settings: Settings) -> AsyncIterator[Fleet]:
    """Yield a controller that has read the site's Slurm and knows its nodes."""
    collect_garbage_seldom()  # as the controller does
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        chosen = replace(config(Path(folder)), core=settings, drivers=site.drivers)
        running = Controller.open(chosen, Options(Core, ""))
        await running.start()
        try:
            fleet = Fleet(running)
            async with asyncio.timeout(_PATIENCE_S):
                while not running.runtime.state.drivers["slurm"].read:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await fleet.connect(site.nodes)
            yield fleet
        finally:
            await running.stop()


def _hello(name: str) -> events.NodeConnected:
    return events.NodeConnected(
        node=name,
        boot_id="boot",
        agent_version="1",
        outbox=f"outbox-{name}",
        highest_term=0,
        host="127.0.0.1",
        domain=f"rack-{int(name[1:]) // 32}",
        bulk_address="127.0.0.1:7436",
        liveness_address="127.0.0.1:7437",
    )


def _fatal(message: str) -> Finding:
    return Finding(
        component="gpu/GPU-1",
        condition="XidFatal",
        mode=Mode.ENFORCE,
        severity=Severity.FATAL,
        message=message,
        evidence="NVRM: Xid 79",
        suggested_action=SuggestedAction.REPAIR_HARDWARE,
        rule="the Xid table",
    )


def _is_ours(one: NodeIsolation) -> bool:
    return one.hold is not None and one.hold.ours and one.asked is None
