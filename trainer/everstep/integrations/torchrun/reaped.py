"""Exit code of a worker that torchrun has reaped before Everstep could see its end."""

import gc

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler


def exit_code(pid: int) -> int | None:
    """Return it as Popen has it; None where torchrun has none.

    torchrun keeps it in an object that a rendezvous is not given; it stays until the next start.
    """
    for one in gc.get_objects():
        if type(one) is SubprocessHandler and one.proc.pid == pid:
            return one.proc.returncode
    return None
