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
            from everstep.state.torch_random import torch_state

            state["torch"] = torch_state()
        if "paddle.base.core" in sys.modules:
            from everstep.state.paddle_random import paddle_state

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
            from everstep.state.torch_random import load_torch_state

            load_torch_state(cast(dict[str, object], state["torch"]))
        if "paddle" in state:
            from everstep.state.paddle_random import load_paddle_state

            load_paddle_state(cast(list[dict[str, object]], state["paddle"]))
