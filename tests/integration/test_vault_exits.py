"""What an agent makes of how ranks die, and of ranks that call a step bad."""

from pathlib import Path

import pytest

from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import AskSkipped, DataRange, Progress, RollbackAsked, Skipped
from everstep_common.reports import RankExited
from integration.vault_world import launcher, lived, plan, running, settings, trainer

_EXITED = RankExited(
    generation=1,
    rank=0,
    exit_code=1,
    signal=0,
    at_boot_ns=40,
    last_line="",
    kind="exception",
    exception="ValueError: bad batch 17",
    core_dumped=True,
)


@lived
async def test_a_death_is_told_with_its_kind_its_exception_and_the_ranks_last_step(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            await rank.tell(Progress(16, 10, 0))
        await control.tell(_EXITED)
        await node.outlet.until(lambda: node.outlet.bodies("rank_exited"))
        told = node.outlet.bodies("rank_exited")[0].rank_exited
        assert (told.kind, told.exception) == ("exception", "ValueError: bad batch 17")
        assert told.core_dumped
        assert told.step == 16


@lived
async def test_a_rank_that_told_of_no_step_has_none_in_its_death(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        await control.tell(_EXITED)
        await node.outlet.until(lambda: node.outlet.bodies("rank_exited"))
        assert not node.outlet.bodies("rank_exited")[0].rank_exited.HasField("step")


@lived
async def test_a_bad_step_is_told_after_the_steps_before_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            for step in range(5):
                await rank.tell(Progress(step, 10 + step, 0))
            bad = RollbackAsked(
                generation=1,
                rank=0,
                step=5,
                reason="the loss is nan",
                at_boot_ns=99,
                skip=DataRange(4, 5),
            )
            await rank.tell(bad)
            await node.outlet.until(lambda: node.outlet.bodies("rollback_asked"))
        kinds = [record.WhichOneof("body") for record in node.outlet.records]
        asked = node.outlet.bodies("rollback_asked")[0].rollback_asked
        assert (asked.rank, asked.step, asked.reason) == (0, 5, "the loss is nan")
        assert (asked.skip.first, asked.skip.last) == (4, 5)
        steps = [record.steps_completed for record in node.outlet.bodies("steps_completed")]
        assert sum(len(one.end_boot_ns) for one in steps) == 5
        assert "steps_completed" not in kinds[kinds.index("rollback_asked") :]


@lived
async def test_ranks_hear_which_data_their_generation_leaves_out(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        ordered = plan(1)
        ordered.skipped.add(first=3, last=4)
        ordered.skipped.add(first=9, last=9)
        node.order(start_generation=ordered)
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            told = await rank.ask(AskSkipped())
        assert told == Skipped((DataRange(3, 4), DataRange(9, 9)))


@pytest.mark.parametrize("wild", [DataRange(-1, 10**18), DataRange(5, 4)])
@lived
async def test_data_that_nobody_can_count_ends_the_connection_and_is_not_told(
    tmp_path: Path, wild: DataRange
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            await rank.tell(
                RollbackAsked(generation=1, rank=0, step=5, reason="x", at_boot_ns=1, skip=wild)
            )
            try:
                await rank.hear()
                hung_up = False
            except OSError:
                hung_up = True
        assert hung_up
        assert node.outlet.bodies("rollback_asked") == []
