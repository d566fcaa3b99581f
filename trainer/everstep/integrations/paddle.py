"""Paddle environment: a rank's place in the job, in the variables of Paddle's own launcher.

parallel_environment()
paddle.distributed.init_parallel_env()
"""

import os
from collections.abc import MutableMapping

from everstep.rank.environment import rank, world_size


def parallel_environment(
    environ: MutableMapping[str, str] = os.environ, *, backend: str | None = None
) -> None:
    """Set what paddle.distributed asks for; ``backend="gloo"`` where there is no device.

    Variables that are set already stay; a process on its own gets none.
    """
    ranks = world_size(environ)
    if ranks < 2:
        return
    here = f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    told = {
        "PADDLE_TRAINER_ID": str(rank(environ)),
        "PADDLE_TRAINERS_NUM": str(ranks),
        # It only asks whether there is one: ranks meet at the master's.
        "PADDLE_CURRENT_ENDPOINT": here,
        "PADDLE_TRAINER_ENDPOINTS": here,
        **({"PADDLE_DISTRI_BACKEND": backend} if backend else {}),
    }
    for name, value in told.items():
        environ.setdefault(name, value)
