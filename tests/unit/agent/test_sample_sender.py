"""What a node's agent tells of links with its samples, in virtual time."""

import asyncio
import contextlib

from everstep_agent.inventory.node_view import NodeView
from everstep_agent.sampling import SampleSender
from everstep_common.clock import Stamp
from everstep_common.reports.link_columns import LinkRow, pack_links
from everstep_proto.generated import fleet_pb2
from fakes.jumping_loop import simulate


def test_errors_of_links_are_told_once_a_minute_and_only_where_they_were_read_anew() -> None:
    view, sent = NodeView(), list[fleet_pb2.SampleBatch]()
    sender = SampleSender(view, sent.append, lambda: Stamp("boot", 0, 0), 0.0)

    async def read() -> None:
        """Read the ports every five seconds for three minutes; then the driver hangs."""
        for number in range(36):
            rows = [LinkRow(f"mlx5_{port}/1", (number, 0, 0)) for port in range(8)]
            view.link_errors = pack_links(rows, number)
            await asyncio.sleep(5)

    async def both() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(601), asyncio.TaskGroup() as tasks:
                tasks.create_task(read())
                tasks.create_task(sender.run())

    simulate(both())
    with_links = [place for place, batch in enumerate(sent) if batch.HasField("links")]
    assert with_links == [0, 12, 24, 36]
    assert len(sent) > 100
    assert sent[36].links.ports[7] == "mlx5_7/1"
    # What it costs: a minute of a node, at eight ports.
    assert len(sent[36].links.SerializeToString()) < 300
