"""Paddle's random numbers, on the CPU and on every device of the process."""

import importlib
from array import array
from typing import Protocol, cast

# Device, seed, place in the sequence, and the numbers of the engine as text.
_Words = tuple[int, int, int, list[int]]


class _State(Protocol):
    def __getstate__(self) -> _Words: ...

    def __setstate__(self, words: _Words) -> None: ...


class _Generator(Protocol):
    def get_state(self) -> _State: ...

    def set_state(self, state: _State) -> object: ...


class _Core(Protocol):
    """paddle.base.core."""

    GeneratorState: type[_State]

    def default_cpu_generator(self) -> _Generator: ...

    def default_cuda_generator(self, device: int) -> _Generator: ...

    def get_cuda_device_count(self) -> int: ...

    def is_compiled_with_cuda(self) -> bool: ...


def paddle_state() -> list[dict[str, object]]:
    """Return the state of the default generators."""
    return [_saved(generator.get_state()) for generator in _generators(_core())]


def load_paddle_state(saved: list[dict[str, object]]) -> None:
    """Set the default generators; devices that are not here any more are left out."""
    core = _core()
    for generator, one in zip(_generators(core), saved, strict=False):
        state = core.GeneratorState.__new__(core.GeneratorState)
        state.__setstate__(_words(one))
        generator.set_state(state)


def _core() -> _Core:
    return cast(_Core, importlib.import_module("paddle.base.core"))


def _generators(core: _Core) -> list[_Generator]:
    devices = core.get_cuda_device_count() if core.is_compiled_with_cuda() else 0
    return [core.default_cpu_generator(), *map(core.default_cuda_generator, range(devices))]


def _saved(state: _State) -> dict[str, object]:
    device, seed, place, text = state.__getstate__()
    # As numbers of 64 bits it is always of one size.
    engine = array("Q", map(int, bytes(text).split())).tobytes()
    return {"device": device, "seed": seed, "place": place, "engine": engine}


def _words(saved: dict[str, object]) -> _Words:
    device, seed, place, engine = (saved[key] for key in ("device", "seed", "place", "engine"))
    text = " ".join(map(str, array("Q", cast(bytes, engine)))).encode()
    return cast(int, device), cast(int, seed), cast(int, place), list(text)
