"""The fake NVIDIA driver library: compiles nvml_stub.c and writes its state."""

import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_agent.probes import nvml_child

_SOURCE = Path(__file__).with_name("nvml_stub.c")
_HEADER = struct.Struct("<II")
_NUMBERS = ("temperature", "power_mw", "busy", "lost", "remap_pending", "remap_failed", "recovery")
_GPU = struct.Struct("<8I4Q")
_FILE_BYTES = 1 << 16
_MEMORY = 80 << 30


class FakeDriver:
    """A driver with some H100s whose answers the test sets."""

    def __init__(self, folder: Path, gpus: int) -> None:
        compiler = shutil.which("gcc")
        if compiler is None:
            pytest.skip("the fake NVIDIA library needs gcc")
        self._library = folder / "libnvidia-ml.so.1"
        flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
        subprocess.run([compiler, *flags, "-o", self._library, _SOURCE], check=True)
        self._path = folder / "state"
        self._path.write_bytes(bytes(_FILE_BYTES))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FILE_BYTES)
        _HEADER.pack_into(self._memory, 0, gpus, 0)
        for index in range(gpus):
            numbers = (40 + index, 300_000, 97, 0, 0, 0, 0, 0)
            offset = _HEADER.size + index * _GPU.size
            _GPU.pack_into(self._memory, offset, *numbers, _MEMORY, _MEMORY // 2, 3, 0)

    def set(self, gpu: int, **values: int) -> None:
        """Change what a GPU answers."""
        for name, value in values.items():
            offset = _HEADER.size + gpu * _GPU.size + 4 * _NUMBERS.index(name)
            struct.pack_into("<I", self._memory, offset, value)

    def hang(self, hung: bool) -> None:
        """Let no call return, or let all return again."""
        struct.pack_into("<I", self._memory, 4, int(hung))

    @property
    def command(self) -> tuple[str, ...]:
        """Return how to start the probe's process on this driver."""
        variables = (f"LD_LIBRARY_PATH={self._library.parent}", f"EVERSTEP_FAKE_NVML={self._path}")
        return ("env", *variables, sys.executable, "-P", nvml_child.__file__)

    def close(self) -> None:
        """Let go of the state."""
        self._memory.close()
