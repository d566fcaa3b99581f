"""The fake CUDA driver library: compiles cuda_stub.c and writes its state."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("cuda_stub.c")


class FakeCuda:
    """A CUDA driver on which work takes what the test says; cuda_stub.c lists the lines."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.library = folder / "libcuda.so.1"
        self.library.write_bytes(_compiled())
        self._state = folder / "cuda-state"
        self.say(*lines)

    def say(self, *lines: str) -> None:
        """Set how it behaves for programs that start from now on."""
        self._state.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that the library reads."""
        return {"EVERSTEP_FAKE_CUDA": str(self._state)}


@cache
def _compiled() -> bytes:
    """Return the library; it is compiled once for all tests."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("the fake CUDA library needs gcc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "library")
        flags = ["-O1", "-Wall", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run([compiler, *flags, "-o", library, _SOURCE], check=True)
        return library.read_bytes()
