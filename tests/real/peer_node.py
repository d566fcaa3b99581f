"""The liveness part of an agent, for a network namespace: its UDP socket, and a bulk port.

Arguments: name and host. Every line of the standard input is a word, a peer and its host: "watch"
begins to probe it, and after "ask" a line of JSON says what of it answered.
"""

import asyncio
import json
import socket
import sys

from everstep_agent.liveness import Liveness
from everstep_common.orders import ConfirmPeer, PeerList, WatchedPeer
from everstep_common.reports import PeerEvidence
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire

UDP_PORT, BULK_PORT = 7437, 7438


def _say(message: fleet_pb2.AgentMessage) -> None:
    if message.HasField("evidence"):
        told = from_wire(PeerEvidence, message.evidence)
        print(json.dumps([told.udp, told.tcp.value]), flush=True)


async def serve(name: str, host: str) -> None:
    """Answer, and ask when told to, until the input ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((host, BULK_PORT))
        listener.listen(128)
        liveness = Liveness(name, _say)
        await liveness.open(host, UDP_PORT)
        running = asyncio.create_task(liveness.run())
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, peer, peer_host = line.split()
            watched = WatchedPeer(peer, f"{peer_host}:{UDP_PORT}")
            if word == "watch":
                liveness.watch(PeerList((watched,)))
                continue
            liveness.confirm(ConfirmPeer("c", watched, f"{peer_host}:{BULK_PORT}"))
        running.cancel()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
