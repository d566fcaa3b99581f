"""Reports that a rank sends itself: one that breaks its bounds does no harm."""

import asyncio
from pathlib import Path

import everstep
from everstep_common.launcher_messages import Start
from everstep_common.reports import RollbackAsked
from everstep_proto.reports import report_of
from integration.trainer_rank import environ
from integration.vault_world import launcher, lived, plan, running, settings


def report_twice(environment: dict[str, str]) -> list[bool]:
    """Send a report of a step that cannot be, and then one that can."""
    run = everstep.init(environment)
    run.step(0)
    return [run.send_report(RollbackAsked(step=step, reason="bad")) for step in (-1, 0)]


@lived
async def test_a_report_that_breaks_its_bounds_is_not_sent_and_ends_no_connection(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1, processes=2))
        assert isinstance(await control.hear(), Start)
        sent = await asyncio.to_thread(report_twice, environ(node, 1, 1, 2))
        assert sent == [False, True]
        await node.outlet.until(lambda: node.outlet.bodies("rollback_asked"))
        (told,) = map(report_of, node.outlet.bodies("rollback_asked"))
        assert isinstance(told, RollbackAsked)
        assert (told.rank, told.step) == (1, 0)
