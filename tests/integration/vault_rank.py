"""A training process for tests: snapshots a step, then scribbles on its slots for ever.

Arguments: socket, generation, rank, step, and the size of its state. Prints a line once the step is
committed. Scribbles once for every line that it hears; after "go on" it does so without an end.
"""

import mmap
import sys

from everstep_common.frames import Channel
from everstep_common.rank_messages import (
    CARRIERS_TO_TRAINER,
    TO_TRAINER,
    Attach,
    Attached,
    Begin,
    Commit,
    Committed,
    Entry,
    Reserve,
    Reserved,
    Slot,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from integration.vault_clients import receive_answer

_TIMEOUT_S = 20.0


def main(path: str, generation: int, rank: int, step: int, size: int = 4096) -> None:
    channel = Channel.connect(path, TO_TRAINER, _TIMEOUT_S, CARRIERS_TO_TRAINER)

    def ask(message: object) -> tuple[object, list[int]]:
        channel.send(message)
        return receive_answer(channel)

    attach = Attach(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job="demo",
        token="secret",
        generation=generation,
        rank=rank,
    )
    assert isinstance(ask(attach)[0], Attached)
    reserved, fds = ask(Reserve(size))
    assert isinstance(reserved, Reserved)
    slots = [mmap.mmap(fd, reserved.slot_bytes) for fd in fds]
    slot, _ = ask(Begin(step))
    assert isinstance(slot, Slot)
    content = f"state after {step}".encode()
    if size > 4096:
        content = content.ljust(size, b".")
    slots[slot.slot][: len(content)] = content
    manifest = (Entry("w", 0, len(content)),)
    assert ask(Commit(step, slot.slot, slot.epoch, manifest))[0] == Committed(step)
    print("committed", flush=True)
    heard = sys.stdin.readline()
    while True:
        for memory in slots:
            memory[:] = b"!" * len(memory)
        print("scribbled", flush=True)
        if heard != "go on\n":
            heard = sys.stdin.readline()
        if not heard:
            return


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
