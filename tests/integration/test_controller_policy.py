"""Policy through the admin API: what enforcing would have done, of what a controller was told."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import start_controller
from fakes.local_secret import admin_channel

_HOUR_NS = 3_600_000_000_000
_TABLES = """
[core]
mode = "advise"
observe = ["LinkDown"]
isolation_budget_nodes = 2
isolation_budget_ratio = 0.0
[groups.row]
domains = ["row-1"]
nodes = ["node-[1-4]"]
enforce_shares = {XidFatal = 0.5}
"""


async def _what_if(admin: "admin_pb2_grpc.AdminAsyncStub", subject: str) -> admin_pb2.PolicyReply:
    request = admin_pb2.GetPolicyRequest(subject=subject, what_if_ns=_HOUR_NS)
    return await admin.GetPolicy(request)


async def _clear(agent: AgentStream, sequence: int, condition: str) -> None:
    cleared = fleet_pb2.FindingCleared(component="disk/2", condition=condition, evidence="well")
    await agent.record(sequence, finding_cleared=cleared)
    await agent.acknowledged(sequence)


async def _find(agent: AgentStream, sequence: int, condition: str) -> None:
    await agent.finding(sequence, condition, fleet_pb2.SEVERITY_FATAL)
    await agent.acknowledged(sequence)


def test_what_enforcing_would_have_done_is_counted_through_budgets_and_over_a_kill(
    tmp_path: Path,
) -> None:
    """Five nodes: three with an Xid, one of them well again; two with a link that is down."""

    async def play(port: int) -> None:
        async with AsyncExitStack() as stack:
            agents = {}
            for number in range(1, 6):
                name = f"node-{number}"
                agents[name] = await stack.enter_async_context(agent_stream(port, name))
                await agents[name].healthy()
            for name in ("node-1", "node-2", "node-3"):
                await _find(agents[name], 2, "XidFatal")
            await _clear(agents["node-1"], 3, "XidFatal")
            for name in ("node-3", "node-4"):
                await _find(agents[name], 3, "LinkDown")

    async def ask(port: int) -> None:
        async with admin_channel(port) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            (xid,) = (await _what_if(admin, "XidFatal")).what_if
            assert (xid.condition, xid.found, xid.done, xid.by_itself) == ("XidFatal", 3, 0, 1)
            # The one that was well again made room.
            assert (list(xid.isolated), list(xid.held_back)) == (["node-1", "node-2", "node-3"], [])
            # What is only observed is counted as well.
            (link,) = (await _what_if(admin, "LinkDown")).what_if
            assert (link.found, list(link.isolated)) == (2, ["node-3", "node-4"])

            lines = (await _what_if(admin, "")).what_if
            assert [line.condition for line in lines] == ["LinkDown", "XidFatal", ""]
            whole = lines[-1]
            assert whole.found == 4
            assert sorted(whole.isolated) == ["node-1", "node-2", "node-3"]
            assert list(whole.held_back) == ["node-4"]
            assert whole.why == "the budget of 2 isolated nodes"

            # Of a node, the conditions that were found there.
            of_node = await _what_if(admin, "node-4")
            assert [line.condition for line in of_node.what_if] == ["LinkDown"]
            assert [group.group for group in of_node.groups] == ["row"]
            assert not (await _what_if(admin, "node-5")).what_if
            assert not (await _what_if(admin, "CheckFailed")).what_if[0].found
            plain = await admin.GetPolicy(admin_pb2.GetPolicyRequest(subject="XidFatal"))
            assert not plain.what_if
            assert sum(line.nodes for line in plain.lines) == 5

            grouped = await admin.ListNodes(admin_pb2.ListNodesRequest(groups=["row"]))
            assert [node.node for node in grouped.nodes] == [f"node-{n}" for n in range(1, 5)]

    with start_controller(tmp_path, tables=_TABLES) as running:
        asyncio.run(play(running.port))
        asyncio.run(ask(running.port))
    with start_controller(tmp_path, tables=_TABLES) as running:
        asyncio.run(ask(running.port))
        assert running.terminate() == 0
