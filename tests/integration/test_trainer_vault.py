"""The launcher, the library and the example on three real agents' vaults; one node dies."""

import asyncio
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.orders import JobOrder, VaultDirective
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from fakes.waits import eventually
from integration.trainer_job import EXAMPLE, STEPS, environment, read_losses, train
from integration.vault_world import job_order

KEY = secrets.token_bytes(32)


def _order(**body: object) -> JobOrder:
    return job_order(fleet_pb2.Order(order_id="o", reason="a test", **body))  # type: ignore[arg-type]


@dataclass(slots=True)
class Node:
    """One node's jobs and launcher; also the Outlet of its agent."""

    name: str
    jobs: NodeJobs | None = None
    task: "asyncio.Task[None] | None" = None
    launcher: Process | None = None
    records: list[str] = field(default_factory=list)
    copies: list[fleet_pb2.VaultCopy] = field(default_factory=list)
    settled: int = 0
    port: int = 0
    on_report: Callable[[], None] = lambda: None

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet."""
        body = record.WhichOneof("body") or ""
        self.records.append(body)
        if body == "launcher_joined":
            self.port = record.launcher_joined.free_port
        elif body == "generation_stopped":
            self.port = record.generation_stopped.free_port

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self.copies = list(report.copies)
        self.settled = report.settled_generation
        self.on_report()


class Cluster:
    """Nodes in this process, and the little of a controller that the test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = [Node(f"node-{number}") for number in (1, 2, 3)]
        self.generation = 0
        self.recoverable = -1

    async def begin(self, command: Sequence[str]) -> None:
        """Start every node's jobs and launcher."""
        for node in self.nodes:
            node.on_report = self._direct
            runtime = self.folder / node.name
            # A launcher that is slow on a busy machine is not to be overruled.
            chosen = JobsSettings(runtime_folder=runtime, bulk_port=0, stop_patience_s=30.0)
            node.jobs = NodeJobs(chosen, node, node.name)
            node.task = asyncio.create_task(node.jobs.run())
            await asyncio.wait_for(node.jobs.ready.wait(), 30)
            options = ["--job", "test", "--nnodes", "2:3", "--socket", str(runtime / "agent.sock")]
            node.launcher = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "everstep.entry", "run", *options, "--", *command),
                env=environment(EVERSTEP_JOB_TOKEN="secret"),
                stdout=PIPE,
                stderr=PIPE,
            )
        await eventually(lambda: all("launcher_joined" in node.records for node in self.nodes))

    def start(self) -> None:
        """Start a generation on the nodes that are left, from the newest common step."""
        self.generation += 1
        step = self._common(copies_min=1)
        for index, node in enumerate(self.nodes):
            start = fleet_pb2.StartGeneration(
                job="test",
                generation=self.generation,
                node_rank=index,
                node_count=len(self.nodes),
                first_rank=index,
                processes=1,
                world_size=len(self.nodes),
                master_address="127.0.0.1",
                master_port=self.nodes[0].port,
                restore_step=step if step >= 0 else None,
                sources=self._sources(step),
                transfer_key=KEY,
            )
            assert node.jobs
            node.jobs.on_order(_order(start_generation=start))
        self.recoverable = -1
        self._direct(first=True)

    async def stop(self) -> None:
        """Stop the generation and wait until every node's commits have settled."""
        stop = fleet_pb2.StopGeneration(job="test", generation=self.generation)
        for node in self.nodes:
            assert node.jobs
            node.jobs.on_order(_order(stop_generation=stop))
        await eventually(lambda: all(node.settled >= self.generation for node in self.nodes))
        await eventually(lambda: all("generation_stopped" in node.records for node in self.nodes))

    async def lose(self, node: Node) -> None:
        """Kill a node: its launcher, its ranks with it, its agent and its memory."""
        assert node.launcher
        assert node.task
        node.launcher.send_signal(signal.SIGKILL)
        await node.launcher.communicate()
        node.task.cancel()
        await asyncio.wait([node.task], timeout=10)
        self.nodes.remove(node)

    async def end(self) -> list[int]:
        """End the job; return the launchers' exit codes."""
        order = _order(end_job=fleet_pb2.EndJob(job="test", succeeded=True))
        for node in self.nodes:
            assert node.jobs
            node.jobs.on_order(order)
        codes = []
        for node in self.nodes:
            assert node.launcher
            await asyncio.wait_for(node.launcher.communicate(), 20)
            codes.append(node.launcher.returncode or 0)
        return codes

    async def close(self) -> None:
        """Leave nothing behind."""
        for node in list(self.nodes):
            if node.launcher and node.launcher.returncode is None:
                node.launcher.kill()
                await node.launcher.communicate()
            if node.task:
                node.task.cancel()
                await asyncio.wait([node.task], timeout=10)

    def _common(self, copies_min: int, since: int = 0) -> int:
        """Return the newest step of which each rank's copy is on so many nodes; -1 for none.

        Only steps of the generation ``since`` and newer ones count.
        """
        holders: dict[tuple[int, int], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for node in self.nodes:
            for copy in node.copies:
                holders[copy.generation, copy.step][copy.rank].add(node.name)
        world = {1: 3, 2: 2}
        return max(
            (
                step
                for (generation, step), ranks in holders.items()
                if generation >= since
                and len(ranks) == world[generation]
                and all(len(nodes) >= copies_min for nodes in ranks.values())
            ),
            default=-1,
        )

    def _sources(self, step: int) -> list[fleet_pb2.ShardSource]:
        return [
            fleet_pb2.ShardSource(
                node=node.name,
                bulk_address=node.jobs.bulk_address if node.jobs else "",
                generation=copy.generation,
                rank=copy.rank,
                step=copy.step,
                root_hash=copy.root_hash,
                size_bytes=copy.size_bytes,
            )
            for node in self.nodes
            for copy in node.copies
            if copy.step == step
        ]

    def _direct(self, *, first: bool = False) -> None:
        step = self._common(copies_min=2, since=self.generation)
        if not self.generation or (step <= self.recoverable and not first):
            return
        self.recoverable = max(step, self.recoverable)
        for node, target in zip(self.nodes, [*self.nodes[1:], self.nodes[0]], strict=True):
            assert node.jobs
            assert target.jobs
            directive = fleet_pb2.VaultDirective(
                job="test",
                generation=self.generation,
                recoverable_step=self.recoverable if self.recoverable >= 0 else None,
                replica_target=target.name,
                replica_bulk_address=target.jobs.bulk_address,
                transfer_key=KEY,
            )
            node.jobs.on_directive(from_wire(VaultDirective, directive))


async def lose_a_node(folder: Path, command: Sequence[str]) -> list[int]:
    """Train on three nodes, kill one of them, train to the end on the others."""
    cluster = Cluster(folder)
    try:
        await cluster.begin(command)
        cluster.start()
        await eventually(lambda: cluster.recoverable >= 10)
        await cluster.lose(cluster.nodes[2])
        await cluster.stop()
        cluster.start()
        await eventually(
            lambda: all("generation_finished" in node.records for node in cluster.nodes)
        )
        return await cluster.end()
    finally:
        await cluster.close()


def test_a_dead_nodes_shards_come_from_the_replica_on_its_peer(tmp_path: Path) -> None:
    losses = tmp_path / "losses"
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--losses", str(losses)]
    codes = asyncio.run(lose_a_node(tmp_path, [*command, "--step-seconds-min", "0.03"]))

    assert codes == [0, 0]
    assert read_losses(losses) == train(tmp_path, 1)
