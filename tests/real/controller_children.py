"""Each program that the controller starts as a process of its own, started once as it does.

``python controller_children.py NAME FOLDER``; what it makes is below the folder.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import cast

import grpc

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_controller.api.fleet.servicer import StreamHandler
from everstep_controller.doors import door
from everstep_controller.doors.doors import Doors, services_socket
from everstep_controller.doors.messages import DoorSettings
from everstep_controller.inspection import judge
from everstep_controller.inspection.collective_judgement import LookedAt, judge_collectives
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.hang_judgement import judge_hang
from everstep_controller.slow.live import LivePlaces
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub


async def _judge(folder: Path) -> None:
    """Have a look at one rank judged, which is stopped, as each kind of judgement does."""
    stopped = RankHangReport(rank=0, world_size=1, process=ProcessFacts(state=ProcessState.STOPPED))
    file = HangEvidence(folder).write([NodeTold("n0", 0, 1, (json_text(stopped),))])
    assert (await judge_hang(file, 1)).stuck == (0,)
    await judge_collectives(file, LookedAt(LivePlaces(("n0",), ("",), 1), (0,), (1000,)))


async def _door(folder: Path) -> None:
    """Have a process accept a connection, and take its word on a call that nobody forwards."""
    del folder  # everybody may write there, and a secret is kept nowhere such
    services = services_socket()
    secret = services.parent / "secret"
    settings = DoorSettings(listen="127.0.0.1:0", services=str(services), secret_file=str(secret))
    doors = Doors(1, settings, cast("StreamHandler", None))
    port = doors.reserve()
    await doors.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            asked = AdminStub(channel).ListNodes(admin_pb2.ListNodesRequest())
            assert await asked.code() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await doors.stop()


# By the file that runs as a process.
CHILDREN: Mapping[str, Callable[[Path], Coroutine[None, None, None]]] = {
    judge.__file__: _judge,
    door.__file__: _door,
}

if __name__ == "__main__":
    asyncio.run(CHILDREN[sys.argv[1]](Path(sys.argv[2])))
