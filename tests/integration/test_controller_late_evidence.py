"""Late evidence at a real controller: a stream on which it comes is ended, and a Hello decides."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from everstep_common.judging.findings import Mode
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.settings import Settings
from everstep_controller.service import Controller, Options
from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream, stamp
from fakes.controllers import config
from fakes.waits import eventually

_MS = 1_000_000
_SEEN_NS, _SENT_S = 100 * _MS, 0.25
_XID = fleet_pb2.Finding(
    component="gpu/0",
    condition="XidFatal",
    severity=fleet_pb2.SEVERITY_FATAL,
    suggested_action=fleet_pb2.SUGGESTED_ACTION_NONE,
    message="Xid 79",
)


async def _tell_late(agent: AgentStream) -> None:
    """Send what was seen a tenth of a second after Hello, more than another tenth later."""
    await asyncio.sleep(_SENT_S)  # its age is what this is about
    seen = stamp(_SEEN_NS)
    raised = fleet_pb2.FindingRaised(finding=_XID, since=seen)
    await agent.send(record=fleet_pb2.Record(sequence=2, stamp=seen, finding_raised=raised))


@pytest.mark.parametrize("is_open", [False, True])
def test_a_finding_that_comes_late_is_acted_on_where_a_new_hello_says_it(
    tmp_path: Path, *, is_open: bool
) -> None:
    async def scenario() -> None:
        limits = Settings(mode=Mode.ENFORCE, evidence_max_age_ns=50 * _MS)
        running = Controller.open(replace(config(tmp_path), core=limits), Options(Core, ""))
        await running.start()
        node = running.runtime.state.nodes
        async with agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await _tell_late(agent)
            code, sentence = await agent.end()
            assert code is grpc.StatusCode.ABORTED
            assert sentence == "XidFatal came 0 s late: say in a new Hello what is open now"
            assert node["node-1"].liveness.connected, "that is no silence of its node"
            assert not node["node-1"].isolation.claims
        async with agent_stream(running.port, "node-1") as again:
            await again.hello(boot_ns=5000 * _MS, findings=(_XID,) if is_open else ())
            await eventually(lambda: not node["node-1"].liveness.renewing)
            assert [claim.owner for claim in node["node-1"].isolation.claims] == (
                ["automation"] if is_open else []
            )
            assert bool(node["node-1"].health.findings) == is_open
        await running.stop()

    asyncio.run(scenario())
