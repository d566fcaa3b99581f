"""What ranks of a job load is passed on by agents: up from the first node, down to a spare."""

from pathlib import Path

from everstep_common.launcher_messages import End, Notice, Start, Stop
from everstep_common.orders import SparePreload
from everstep_common.preload import Preload
from everstep_common.reports import Standbys
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from integration.vault_world import Node, launcher, lived, plan, running, settings

_PRELOAD = Preload(("torch", "torch.nn.parallel"), {"OMP_NUM_THREADS": "1"})
_WIRE = fleet_pb2.Preload(modules=_PRELOAD.modules, variables=_PRELOAD.variables)


def _told(node: Node) -> list[str] | None:
    report = node.outlet.reports.get("demo")
    if report is None or not report.HasField("preload"):
        return None
    return list(report.preload.modules)


@lived
async def test_the_first_node_of_a_generation_tells_what_its_ranks_load(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        node.order(start_generation=plan())
        assert isinstance(await one.hear(), Start)
        await one.tell(_PRELOAD)
        await node.outlet.until(lambda: _told(node) == list(_PRELOAD.modules))
        # What is no preload is passed over, and the connection stays.
        await one.tell(Preload(("os; rm",)))
        await one.tell(Preload(("a",), {"LD_PRELOAD": "x.so"}))
        await one.tell(Preload(("jax",)))
        await node.outlet.until(lambda: _told(node) == ["jax"])


@lived
async def test_other_nodes_of_a_generation_do_not_tell(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        second = plan()
        second.node_rank, second.node_count = 1, 2
        node.order(start_generation=second)
        assert isinstance(await one.hear(), Start)
        await one.tell(_PRELOAD)
        # Told after it: when this has come, it would have come too.
        await one.tell(Standbys(ready=7))
        await node.outlet.until(lambda: node.outlet.reports["demo"].standbys.ready == 7)
        assert _told(node) is None


def _send(node: Node, wire: fleet_pb2.Preload = _WIRE, job: str = "demo") -> None:
    preload = from_wire(Preload, wire)
    known = {"job": job, "job_id": f"{job}-1", "lineage_id": f"{job}-1"}
    node.jobs.on_spare_preload(SparePreload(**known, term=1, preload=preload))


@lived
async def test_a_launcher_that_waits_is_told_and_told_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path, reconnect_grace_s=60.0)) as node:
        async with launcher(node) as one:
            _send(node)
            assert await one.hear() == _PRELOAD
        async with launcher(node) as again:
            assert await again.hear() == _PRELOAD


@lived
async def test_what_is_no_preload_and_of_no_job_here_is_not_passed_on(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        _send(node, fleet_pb2.Preload(modules=["os; rm"]))
        _send(node, fleet_pb2.Preload(modules=["a"], variables={"LD_PRELOAD": "x.so"}))
        _send(node, _WIRE, "other")
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
        assert isinstance(await one.hear(), Notice)


@lived
async def test_a_launcher_is_told_before_it_starts_that_nothing_made_ahead_is_used(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        wanted = plan()
        wanted.renew = True
        node.order(start_generation=wanted)
        start = await one.hear()
        assert isinstance(start, Start)
        assert start.renew
        # A node that runs ranks is no spare: it has its own.
        _send(node)
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        assert isinstance(await one.hear(), Stop)


@lived
async def test_the_next_job_of_the_name_is_not_told_what_the_one_before_loaded(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as one:
            _send(node)
            assert await one.hear() == _PRELOAD
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
            assert isinstance(await one.hear(), End)
        async with launcher(node) as another:
            node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
            assert isinstance(await another.hear(), Notice)
