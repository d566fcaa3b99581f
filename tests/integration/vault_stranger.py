"""A process of another user for tests: talks to the agent with the right token, prints the answer.

Arguments: folder of the socket, user id, ``join`` or ``attach``. Starts as root.
"""

import os
import sys

from everstep_common.frames import Channel
from everstep_common.launcher_messages import TO_LAUNCHER
from everstep_common.rank_messages import TO_TRAINER
from integration.vault_world import TIMEOUT_S, attach_message, join_message


def main(folder: str, uid: int, what: str) -> None:
    # The folders above may be closed to this user: the socket is opened from inside.
    os.chdir(folder)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    joins = what == "join"
    channel = Channel.connect("agent.sock", TO_LAUNCHER if joins else TO_TRAINER, TIMEOUT_S)
    channel.send(join_message() if joins else attach_message())
    answer, _ = channel.receive(TIMEOUT_S)
    print(f"{type(answer).__name__}: {getattr(answer, 'reason', '')}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
