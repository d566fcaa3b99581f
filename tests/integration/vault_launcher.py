"""A launcher for tests: starts one sleeping rank, and stops it when it is told to.

Arguments: socket. Prints the process id of the rank.
"""

import subprocess
import sys

from everstep_common.clock import boot_ns
from everstep_common.frames import Channel, FrameError
from everstep_common.launcher_messages import (
    TO_LAUNCHER,
    Identified,
    Joined,
    RankProcess,
    Settled,
    Start,
    Started,
    Stop,
)
from everstep_common.reports import GenerationStopped
from integration.vault_world import TIMEOUT_S, join_message


def main(path: str) -> None:
    channel = Channel.connect(path, TO_LAUNCHER, TIMEOUT_S)
    channel.send(join_message())
    assert isinstance(channel.receive(TIMEOUT_S)[0], Joined)
    while not isinstance(start := channel.receive(TIMEOUT_S)[0], Start):
        assert isinstance(start, Identified)
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        channel.send(Started(start.generation, (RankProcess(0, rank.pid),), boot_ns()))
        print(rank.pid, flush=True)
        while not isinstance(stop := channel.receive(600.0)[0], Stop):
            assert isinstance(stop, Settled | Identified)  # told whenever it is known
        rank.kill()
        rank.wait()
        channel.send(GenerationStopped(stop.generation, 29501, boot_ns()))
        channel.receive(600.0)
    except (OSError, FrameError):
        print("hung up", flush=True)
    finally:
        rank.kill()
        rank.wait()


if __name__ == "__main__":
    main(sys.argv[1])
