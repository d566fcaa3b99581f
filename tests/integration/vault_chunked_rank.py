"""A training process for tests: copies a state in chunks, and may be killed before any of them.

Arguments: socket, generation, step, chunk before which it is killed (-1: never), and the agent that
is killed with it (0: none). A state that is whole is committed; then it ends.
"""

import mmap
import os
import signal
import sys

from everstep_common.frames import Channel
from everstep_common.rank_messages import (
    CARRIERS_TO_TRAINER,
    TO_TRAINER,
    Attached,
    Begin,
    Commit,
    Committed,
    Entry,
    Reserve,
    Reserved,
    Slot,
)
from integration.vault_clients import TIMEOUT_S, attach_message, receive_answer
from integration.vault_states import CHUNKS, STATE_BYTES, chunk_of


def main(path: str, generation: int, step: int, killed_at: int, agent: int) -> None:
    channel = Channel.connect(path, TO_TRAINER, TIMEOUT_S, CARRIERS_TO_TRAINER)

    def ask(message: object) -> tuple[object, list[int]]:
        channel.send(message)
        return receive_answer(channel)

    assert isinstance(ask(attach_message(generation=generation))[0], Attached)
    reserved, fds = ask(Reserve(STATE_BYTES))
    assert isinstance(reserved, Reserved)
    slot, _ = ask(Begin(step))
    assert isinstance(slot, Slot), slot
    memory = mmap.mmap(fds[slot.slot], reserved.slot_bytes)
    for index in range(CHUNKS + 1):
        if index == killed_at:
            for pid in (agent, os.getpid()):
                if pid:
                    os.kill(pid, signal.SIGKILL)
        if index < CHUNKS:
            memory.write(chunk_of(step, index))
    done, _ = ask(Commit(step, slot.slot, slot.epoch, (Entry("w", 0, STATE_BYTES),)))
    assert done == Committed(step)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
