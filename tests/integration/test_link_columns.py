"""Errors of links, from the kernel's counters of four nodes over their streams to a finding."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.links.infiniband import InfinibandProbe
from everstep_agent.sampling import pack
from everstep_common.clock import Stamp
from everstep_common.judging.condition import MINUTE_NS
from everstep_common.reports import LinkColumns
from everstep_controller.judging.link_peers import LinkPeersJudge
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from fakes.agent_stream import WAIT_S, agent_stream
from fakes.sysfs import FakeNode
from fakes.waits import eventually
from integration.test_controller_judging import findings, judging_controller

_MINUTES = 6


def _columns(root: Path, retrains_in: tuple[int, ...]) -> LinkColumns:
    """Return what an agent tells of a node of which one port retrains in these minutes."""
    node = FakeNode(root, hcas=2, gpus=0)
    probe = InfinibandProbe(str(node.root), str(node.dev))
    detector = InfinibandDetector(Counters(), LinkHistory())
    now = Stamp("boot", 0, 0)
    for minute in range(_MINUTES):
        if minute in retrains_in:
            node.set_counter("mlx5_1", "link_error_recovery", 1 + minute)
        now = Stamp("boot", (60 + minute) * MINUTE_NS, (60 + minute) * MINUTE_NS)
        probe.read()
        list(detector.judge(probe.read_counters(), now))
    told = detector.minutes.columns(now)
    assert told is not None
    return told


def test_a_port_that_retrains_alone_is_found_and_named(tmp_path: Path) -> None:
    told = {f"n{number}": _columns(tmp_path / f"s{number}", ()) for number in range(1, 5)}
    told["n0"] = _columns(tmp_path / "s0", (1, 2, 4))

    async def scenario() -> str:
        async with AsyncExitStack() as stack:
            running = await stack.enter_async_context(
                judging_controller(tmp_path, (LinkPeersJudge(),))
            )
            for name, columns in told.items():
                stream = await stack.enter_async_context(agent_stream(running.port, name))
                await stream.hello()
                batch = pack((), Stamp("boot", 1, 1), 1, links=columns)
                await stream.send(samples=to_wire(batch, fleet_pb2.SampleBatch))
            (line,) = await eventually(lambda: findings(running.port), WAIT_S)
            assert (line.node, line.condition) == ("n0", "IbErrorsUnlikePeers")
            return line.evidence

    evidence = asyncio.run(scenario())
    assert evidence == (
        "mlx5_1/1 has retrained in 3 minutes of 24 h (link_error_recovery), beside 0 on 4 nodes "
        "like it"
    )
