"""Random state of a process: the generators of python, numpy, torch and Paddle, on all devices."""

import array
import importlib
import random
import sys
from collections.abc import Sequence
from typing import Protocol, cast


class _BitGenerator(Protocol):
    state: object


class Generator(Protocol):
    """A numpy.random.Generator."""

    @property
    def bit_generator(self) -> object:
        """Return what has the ``state``."""
        ...


class RandomState:
    """Random generators of the process as a Stateful; libraries that are not loaded have none."""

    # Two ranks that draw the same numbers would train on the same noise.
    own_only = True

    def __init__(self, generators: Sequence[Generator] = ()) -> None:
        """Also keep these numpy generators, which the training script made itself."""
        self._bits = [cast(_BitGenerator, generator.bit_generator) for generator in generators]

    def state_dict(self) -> dict[str, object]:
        """Return what every generator would need to draw the same numbers again."""
        version, words, gauss = random.getstate()
        state: dict[str, object] = {
            "python": (version, array.array("I", words).tobytes(), gauss),
            "generators": [bits.state for bits in self._bits],
        }
        if "numpy.random" in sys.modules:
            state["numpy"] = importlib.import_module("numpy.random").get_state()
        if "torch" in sys.modules:
            state["torch"] = _torch_state()
        if "paddle.base.core" in sys.modules:
            from everstep.state.objects.paddle_random import paddle_state

            state["paddle"] = paddle_state()
        return state

    def load_state_dict(self, state_dict: object) -> None:
        """Let every generator draw the same numbers again."""
        state = cast(dict[str, object], state_dict)
        version, words, gauss = cast(tuple[int, bytes, float | None], state["python"])
        random.setstate((version, tuple(array.array("I", words)), gauss))
        saved = cast(list[object], state["generators"])
        for bits, one in zip(self._bits, saved, strict=True):
            bits.state = one
        if "numpy" in state:
            importlib.import_module("numpy.random").set_state(state["numpy"])
        if "torch" in state:
            _load_torch_state(cast(dict[str, object], state["torch"]))
        if "paddle" in state:
            from everstep.state.objects.paddle_random import load_paddle_state

            load_paddle_state(cast(list[dict[str, object]], state["paddle"]))


def _torch_state() -> dict[str, object]:
    """Return the state of torch's default generators, on the CPU and on every CUDA device."""
    import torch  # the process has it already

    state: dict[str, object] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = [generator.get_state() for generator in torch.cuda.default_generators]
    return state


def _load_torch_state(saved_state: dict[str, object]) -> None:
    """Set torch's default generators; devices that are not here any more are left out."""
    import torch  # the process has it already

    torch.set_rng_state(cast(torch.Tensor, saved_state["cpu"]))
    saved = cast(list[torch.Tensor], saved_state.get("cuda", []))
    if saved and torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]
        for generator, one in zip(torch.cuda.default_generators, saved, strict=False):
            generator.set_state(one)
