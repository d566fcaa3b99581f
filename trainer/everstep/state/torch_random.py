"""torch's random numbers, on the CPU and on every CUDA device of the process."""

from typing import cast

import torch


def torch_state() -> dict[str, object]:
    """Return the state of the default generators."""
    state: dict[str, object] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [generator.get_state() for generator in torch.cuda.default_generators]
    return state


def load_torch_state(state: dict[str, object]) -> None:
    """Set the default generators; devices that are not here any more are left out."""
    torch.set_rng_state(cast(torch.Tensor, state["cpu"]))
    saved = cast(list[torch.Tensor], state.get("cuda", []))
    if saved and torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        for generator, one in zip(torch.cuda.default_generators, saved, strict=False):
            generator.set_state(one)
