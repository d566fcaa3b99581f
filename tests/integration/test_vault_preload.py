"""What ranks of a job load is passed on by agents: up from the first node, down to a spare."""

from pathlib import Path

from everstep_common.orders import SpareLesson
from everstep_common.trainer_messages import End, Lesson, Notice, Standbys, Start, Stop
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from integration.vault_world import Node, launcher, lived, plan, running, settings

_LESSON = Lesson(("torch", "torch.nn.parallel"), {"OMP_NUM_THREADS": "1"})
_WIRE = fleet_pb2.Lesson(modules=_LESSON.modules, variables=_LESSON.variables)


def _told(node: Node) -> list[str] | None:
    report = node.outlet.reports.get("demo")
    if report is None or not report.HasField("lesson"):
        return None
    return list(report.lesson.modules)


@lived
async def test_the_first_node_of_a_generation_tells_what_its_ranks_load(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        node.order(start_generation=plan())
        assert isinstance(await one.hear(), Start)
        await one.tell(_LESSON)
        await node.outlet.until(lambda: _told(node) == list(_LESSON.modules))
        # What is no lesson is passed over, and the connection stays.
        await one.tell(Lesson(("os; rm",)))
        await one.tell(Lesson(("a",), {"LD_PRELOAD": "x.so"}))
        await one.tell(Lesson(("jax",)))
        await node.outlet.until(lambda: _told(node) == ["jax"])


@lived
async def test_other_nodes_of_a_generation_do_not_tell(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        second = plan()
        second.node_rank, second.node_count = 1, 2
        node.order(start_generation=second)
        assert isinstance(await one.hear(), Start)
        await one.tell(_LESSON)
        # Told after it: when this has come, it would have come too.
        await one.tell(Standbys(ready=7))
        await node.outlet.until(lambda: node.outlet.reports["demo"].standbys.ready == 7)
        assert _told(node) is None


def _teach(node: Node, wire: fleet_pb2.Lesson = _WIRE, job: str = "demo") -> None:
    lesson = from_wire(Lesson, wire)
    known = {"job": job, "job_id": f"{job}-1", "lineage_id": f"{job}-1"}
    node.jobs.on_spare_lesson(SpareLesson(**known, term=1, lesson=lesson))


@lived
async def test_a_launcher_that_waits_is_told_and_told_again_when_it_comes_back(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path, reconnect_grace_s=60.0)) as node:
        async with launcher(node) as one:
            _teach(node)
            assert await one.hear() == _LESSON
        async with launcher(node) as again:
            assert await again.hear() == _LESSON


@lived
async def test_what_is_no_lesson_and_of_no_job_here_is_not_passed_on(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as one:
        _teach(node, fleet_pb2.Lesson(modules=["os; rm"]))
        _teach(node, fleet_pb2.Lesson(modules=["a"], variables={"LD_PRELOAD": "x.so"}))
        _teach(node, _WIRE, "other")
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
        _teach(node)
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        assert isinstance(await one.hear(), Stop)


@lived
async def test_the_next_job_of_the_name_is_not_told_what_the_one_before_loaded(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as one:
            _teach(node)
            assert await one.hear() == _LESSON
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
            assert isinstance(await one.hear(), End)
        async with launcher(node) as another:
            node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
            assert isinstance(await another.hear(), Notice)
