"""torch's DistributedDataParallel: equal losses on three ranks or more after a restart.

DDP sums gradients in buckets. It makes them when it wraps a model, in reverse order of the
parameters, and once more before the second forward pass of the process, in the order in which the
gradients of the first backward pass came. Where a gradient lies in its bucket decides in which
order three ranks or more add it up, so the first step of a process differs in its last bits from
the same step of a process that runs on (torch/csrc/distributed/c10d/reducer.cpp, rebuild_buckets).
With a static graph the first backward pass only learns the graph: the second one tells the order.
"""

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from everstep.integrations.restored_random import RestoredRandomState


def rebuild_buckets(model: DistributedDataParallel, backward: Callable[[], object]) -> None:
    """Have DDP make its buckets for good, by passes whose gradients are thrown away.

    Call it on every rank when DDP is made, before the state is restored. ``backward`` is a forward
    and backward pass through ``model``, the same one in every process of the job: on the samples of
    the first step, say, and not inside `no_sync()`. With ``static_graph`` it is called twice.
    Random state and buffers are afterwards what they were. With ``find_unused_parameters`` torch
    never rebuilds buckets, and nothing is done.
    """
    if model.find_unused_parameters and not model.static_graph:
        return
    random = RestoredRandomState()
    random.hold()
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    for _ in range(2 if model.static_graph else 1):
        backward()
        model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    random.give_back()
