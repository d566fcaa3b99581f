"""A launcher that says again and again how things ended fills no outbox and no journal."""

from pathlib import Path

from everstep_common.launcher_messages import StepSeen
from everstep_common.reports import GenerationFinished, LauncherLeft, RankExited
from integration.vault_world import launcher, lived, plan, running, settings

_TIMES = 200


@lived
async def test_each_end_is_reported_once_and_none_of_a_generation_that_never_began(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as client:
        node.order(start_generation=plan())
        await client.hear()
        for number in range(_TIMES):
            await client.tell(
                RankExited(generation=2 + number, rank=0, exit_code=1, signal=0, last_line="")
            )
            await client.tell(GenerationFinished(1))
            await client.tell(LauncherLeft("by its user", by_user=True))
        await client.tell(StepSeen(1, 7, 1))
        await node.outlet.until(
            lambda: "steps_completed" in [one.WhichOneof("body") for one in node.outlet.records]
        )
        kinds = [record.WhichOneof("body") for record in node.outlet.records]
        assert "rank_exited" not in kinds
        assert kinds.count("generation_finished") == 1
        assert kinds.count("launcher_left") == 1
