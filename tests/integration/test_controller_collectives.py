"""Who asks who is slow has the ranks' collectives looked at: once for all who ask at that time."""

import asyncio
from pathlib import Path

import pytest
from collective_series import MadeJob, noise

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_controller.inspection.collective_judgement import LookedAt, judge_collectives
from everstep_controller.inspection.evidence import HangEvidence
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel
from integration.test_controller_streams import run_to_step

pytestmark = pytest.mark.timeout(120)


def _told(job: MadeJob) -> list[NodeTold]:
    each = job.ranks_per_node
    reports = [json_text(one) for one in job.reports()]
    return [
        NodeTold(node, place * each, each, tuple(reports[place * each : (place + 1) * each]))
        for place, node in enumerate(job.places.nodes)
    ]


def test_the_judge_in_its_own_process_names_who_comes_last(tmp_path: Path) -> None:
    job = MadeJob(0.2 * noise(1, 60, 8), [range(8)], ranks_per_node=2)
    job.own_s[:, 5] *= 1.3
    looked_at = LookedAt(job.places, (0,) * 4, (500_000, -1) * 2)
    file = HangEvidence(tmp_path).write(_told(job))
    blind = asyncio.run(judge_collectives(file, looked_at))
    assert any("the clock of one of its nodes is not known" in one for one in blind.blind)
    looked_at = LookedAt(job.places, (0,) * 4, (500_000,) * 4)
    found = asyncio.run(judge_collectives(file, looked_at))
    assert [(one.rank, one.node, one.nominated) for one in found.late] == [(5, "n2", True)]
    assert found.roles == (0,) * 8


async def _answer(agent: AgentStream) -> None:
    asked = (await agent.wait_for("inspect")).inspect
    assert asked.recent
    job = MadeJob(0.2 * noise(2, 60, 1), [])
    reports = [json_text(one) for one in job.reports()]
    told = fleet_pb2.RanksInspected(inspection_id=asked.inspection_id, reports=reports)
    await agent.send(inspected=told)


def test_two_who_ask_share_a_look_and_who_asks_again_soon_is_told_the_same(tmp_path: Path) -> None:
    async def scenario() -> list[admin_pb2.Slowness]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            async with admin_channel(running.port) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                asked = admin_pb2.GetSlownessRequest(job="train")
                both = [asyncio.ensure_future(admin.GetSlowness(asked)) for _ in range(2)]
                await _answer(agent)
                told = [await one for one in both]
                return [*told, await admin.GetSlowness(asked)]

    first, second, again = asyncio.run(scenario())
    assert first.collectives.sentence == "Who comes last to collectives cannot be told"
    assert first.collectives.sentence == second.collectives.sentence
    assert again.collectives.age_ns >= first.collectives.age_ns
    assert first.sentence.startswith("Nobody can be judged")
    assert list(tmp_path.glob("journal.hangs/*")) == [], "a look leaves no file"
