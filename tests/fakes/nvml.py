"""The fake NVIDIA driver library: compiles nvml_stub.c and writes its state."""

import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from everstep_agent.probes.gpus import nvml_child

_SOURCE = Path(__file__).with_name("nvml_stub.c")
_UNKNOWN = -(2**63)
# struct state of nvml_stub.c: gpus, hang, slow_us, init_error, hung_call.
_HEADER = struct.Struct("<4I64s")
_START = {
    match[1]: _UNKNOWN if match[2] == "UNKNOWN" else int(match[2], 0)
    for match in re.finditer(
        r"^VALUE\((\w+), (\w+)\)", _SOURCE.with_name("nvml_stub_values.h").read_text(), re.M
    )
}
NAMES = tuple(_START)
_LINKS, _PROCESSES = 18, 16
COUNTERS = ("recovery_events", "retry_blocks", "receive_errors", "replays", "recoveries", "crc")
_COUNTERS_AT = 8 * len(NAMES)
_PROCESSES_AT = _COUNTERS_AT + 8 * _LINKS * len(COUNTERS)
_GPU_BYTES = _PROCESSES_AT + 16 * _PROCESSES
_FILE_BYTES = _HEADER.size + 16 * _GPU_BYTES
_LOST = 15
_KINDS = {"ecc_single": 0x1, "ecc_double": 0x2, "xid": 0x8}


class FakeDriver:
    """A driver with some H100s whose answers the test sets, also while they are being read."""

    def __init__(self, folder: Path, gpus: int, old: bool = False) -> None:
        self._library = folder / "libnvidia-ml.so.1"
        self._library.write_bytes(_compiled(old))
        self._path = folder / "state"
        self._path.write_bytes(bytes(_FILE_BYTES))
        self._events = _pipe(folder / "state.events")
        self._corrected = _pipe(folder / "state.corrected")
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _FILE_BYTES)
        _HEADER.pack_into(self._memory, 0, gpus, 0, 0, 0, b"")
        for index in range(gpus):
            self.reset(index)

    def reset(self, gpu: int) -> None:
        """Let a GPU answer as it did at the start."""
        self.set(gpu, **(_START | {"temperature": 40 + gpu}))

    def set(self, gpu: int, **values: int | None) -> None:
        """Change what a GPU answers; None: that it does not know. nvml_stub_values.h has all."""
        if "lost" in values:
            values["error"] = _LOST if values.pop("lost") else 0
        for name, value in values.items():
            offset = _offset(gpu) + 8 * NAMES.index(name)
            struct.pack_into("<q", self._memory, offset, _UNKNOWN if value is None else value)

    def get(self, gpu: int, name: str) -> int:
        """Return what a GPU answers."""
        (value,) = struct.unpack_from("<q", self._memory, _offset(gpu) + 8 * NAMES.index(name))
        return int(value)

    def set_link(self, gpu: int, link: int, **counters: int) -> None:
        """Set error counters of one NVLink."""
        for name, value in counters.items():
            place = link * len(COUNTERS) + COUNTERS.index(name)
            struct.pack_into("<q", self._memory, _offset(gpu) + _COUNTERS_AT + 8 * place, value)

    def set_processes(self, gpu: int, processes: Sequence[tuple[int, int]]) -> None:
        """Let processes (pid and bytes) hold memory of a GPU."""
        for place, process in enumerate(processes):
            offset = _offset(gpu) + _PROCESSES_AT + 16 * place
            struct.pack_into("<2Q", self._memory, offset, *process)
        self.set(gpu, processes=len(processes))

    def event(self, gpu: int, kind: str, data: int = 0) -> None:
        """Let the driver tell of an Xid ("xid") or an ECC error ("ecc_single", "ecc_double")."""
        pipe = self._corrected if kind == "ecc_single" else self._events
        os.write(pipe, struct.pack("<3Q", gpu, _KINDS[kind], data))

    def hang(self, hung: bool) -> None:
        """Let no call return, or let all return again."""
        struct.pack_into("<I", self._memory, 4, int(hung))

    def hang_call(self, function: str) -> None:
        """Let one function not return; empty: let it return again."""
        struct.pack_into("64s", self._memory, 16, function.encode())

    def slow(self, microseconds: int) -> None:
        """Let every call take so long."""
        struct.pack_into("<I", self._memory, 8, microseconds)

    def fail_to_start(self, code: int) -> None:
        """Let nvmlInit answer with an error."""
        struct.pack_into("<I", self._memory, 12, code)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which any program finds this driver."""
        return {
            "LD_LIBRARY_PATH": str(self._library.parent),
            "EVERSTEP_FAKE_NVML": str(self._path),
        }

    @property
    def command(self) -> tuple[str, ...]:
        """Return how to start the probe's process on this driver."""
        variables = (f"{name}={value}" for name, value in self.environment.items())
        return ("env", *variables, sys.executable, "-P", nvml_child.__file__)

    def close(self) -> None:
        """Let go of the state."""
        self._memory.close()
        os.close(self._events)
        os.close(self._corrected)


def _pipe(path: Path) -> int:
    os.mkfifo(path)
    return os.open(path, os.O_RDWR)


def _offset(gpu: int) -> int:
    return _HEADER.size + gpu * _GPU_BYTES


@cache
def _compiled(old: bool) -> bytes:
    """Return the library; it is compiled once for all tests."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake NVIDIA library needs gcc")
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    if old:
        flags.append("-DOLD_DRIVER")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library")
        subprocess.run([compiler, *flags, "-o", library, _SOURCE], check=True)
        return library.read_bytes()
