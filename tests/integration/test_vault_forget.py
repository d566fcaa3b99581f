"""An operator's word to forget a job: an agent drops what it keeps of it, if it has ended."""

from pathlib import Path

from everstep_common.launcher_messages import End, Start
from everstep_proto.generated import fleet_pb2
from integration.vault_world import Client, Node, launcher, lived, plan, running, settings, trainer

_FORGET = fleet_pb2.ForgetJob(job="demo")


async def _saved(node: Node, control: Client) -> None:
    """Run a rank that leaves one verified snapshot in memory."""
    node.order(start_generation=plan(1))
    assert isinstance(await control.hear(), Start)
    async with trainer(node) as rank:
        await rank.save(3, b"state after 3")
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 3, False)})


@lived
async def test_what_is_kept_of_a_job_that_failed_is_dropped_at_once(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await _saved(node, control)
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        assert await control.hear() == End(succeeded=False, reason="test")
        assert node.outlet.copies() == {(1, 0, 3, False)}
        node.order(forget_job=_FORGET)
        await node.outlet.until(lambda: not node.outlet.copies())
        node.order(forget_job=_FORGET)
        assert not node.outlet.copies()


@lived
async def test_a_job_that_has_not_ended_here_keeps_its_memory(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await _saved(node, control)
        node.order(forget_job=_FORGET)
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        assert await control.hear() == End(succeeded=False, reason="test")
        assert node.outlet.copies() == {(1, 0, 3, False)}


@lived
async def test_a_job_that_is_not_known_here_is_forgotten_already(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.order(forget_job=_FORGET)
        assert node.jobs.jobs() == []
