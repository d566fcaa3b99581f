"""What a whole training state is, in one word: the same however many ranks hold it."""

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict


def state_digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return the hash of all weights and of all that the optimizer keeps. All ranks call it."""
    whole = StateDictOptions(full_state_dict=True)
    weights, kept = get_state_dict(model, optimizer, options=whole)
    found = hashlib.sha256()
    for path, value in _leaves({"model": weights, "optimizer": kept}):
        found.update(f"{path}={_described(value)}\n".encode())
    return found.hexdigest()


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}/{number}")
    else:
        yield path, value


def _described(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    held = value.detach().cpu().contiguous().numpy().tobytes()
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(held).hexdigest()}"
