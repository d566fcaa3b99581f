"""A finding that is raised and cleared again and again on a real journal: few rows, all taken."""

import asyncio
from pathlib import Path

import pytest

from everstep_controller.core.model.node import OpenFinding
from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller

pytestmark = pytest.mark.timeout(60)

_TIMES = 300


async def _flap(agent: AgentStream, first: int) -> int:
    """Raise and clear a finding; return the number of the last record, after which it is open."""
    for sequence in range(first, first + 2 * _TIMES, 2):
        finding = fleet_pb2.Finding(
            component="gpu/0",
            condition="Odd",
            severity=fleet_pb2.SEVERITY_DEGRADED,
            message="it comes and goes",
        )
        await agent.record(sequence, finding_raised=fleet_pb2.FindingRaised(finding=finding))
        cleared = fleet_pb2.FindingCleared(component="gpu/0", condition="Odd", evidence="well")
        await agent.record(sequence + 1, finding_cleared=cleared)
    return first + 2 * _TIMES - 1


def test_hundreds_of_records_are_acknowledged_with_a_few_rows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.healthy()
            before = running.runtime.seq
            last = await _flap(agent, 2)
            await agent.acknowledged(last)
            assert running.runtime.seq - before < 20
            assert _open(running.runtime.state.nodes["node-1"].health.findings)
        # What the last record said was in memory alone, and is told by the agent when it connects.
        async with (
            controller(tmp_path) as again,
            agent_stream(again.port, "node-1") as agent,
        ):
            welcome = await agent.hello(term=1)
            assert welcome.acknowledged >= last
            assert not _open(again.runtime.state.nodes["node-1"].health.findings)

    asyncio.run(scenario())


def _open(findings: dict[str, OpenFinding]) -> list[str]:
    return [held.finding.condition for held in findings.values()]
