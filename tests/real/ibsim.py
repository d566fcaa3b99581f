"""A simulated InfiniBand fabric: ibsim with a real subnet manager, and what its tools answer."""

import ctypes.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.waits import wait_until

_PRELOAD = Path("/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so")
_TOPOLOGY = """\
Switch 8 "leaf"
[1] "node-0 mlx5_0"[1] # "node-0 mlx5_0" lid 0 4xHDR
[2] "node-1 mlx5_0"[1] # "node-1 mlx5_0" lid 0 4xHDR

Ca 1 "node-0 mlx5_0"
[1] "leaf"[1] # "leaf" lid 0 4xHDR

Ca 1 "node-1 mlx5_0"
[1] "leaf"[2] # "leaf" lid 0 4xHDR
"""
# Opens the port, which makes the simulator write a sysfs of it, and holds that until it is told.
_HOLD = """\
import ctypes, sys
umad = ctypes.CDLL("libibumad.so.3")
umad.umad_init()
print(umad.umad_open_port(None, 0), flush=True)
sys.stdin.readline()
"""


def missing() -> str:
    """Return what is not installed; empty when the fabric can be simulated."""
    programs = [name for name in ("ibsim", "opensm", "perfquery") if shutil.which(name) is None]
    if not _PRELOAD.exists() or ctypes.util.find_library("ibumad") is None:
        programs.append("umad2sim")
    return ", ".join(programs)


class Fabric:
    """Two nodes on one switch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The simulator's socket has a name in the namespace of the network.
        self._name = f"everstep-{os.getpid()}"
        os.mkfifo(folder / "console")
        self._console = os.open(folder / "console", os.O_RDWR)
        (folder / "net").write_text(_TOPOLOGY)
        (folder / "opensm.conf").write_text("force_log_flush TRUE\n")
        self._log = folder / "opensm.log"

    @contextmanager
    def running(self) -> Iterator["Fabric"]:
        """Run the simulator and a subnet manager, until the subnet is up."""
        environ = {**os.environ, "IBSIM_SOCKNAME": self._name}
        with (self._folder / "ibsim.out").open("wb") as out:
            simulator = subprocess.Popen(
                ["ibsim", "-s", "net"], cwd=self._folder, env=environ, stdin=self._console,
                stdout=out, stderr=out,
            )  # fmt: skip
            try:
                wait_until(lambda: b"sim>" in (self._folder / "ibsim.out").read_bytes())
                manager = subprocess.Popen(
                    ["opensm", "-F", "opensm.conf", "-f", str(self._log), "-s", "1"],
                    cwd=self._folder, env=self._environ("node-0"), stdout=out, stderr=out,
                )  # fmt: skip
                try:
                    wait_until(lambda: "SUBNET UP" in self._log.read_text())
                    yield self
                finally:
                    _stop(manager)
            finally:
                _stop(simulator)
                os.close(self._console)

    def command(self, line: str) -> None:
        """Type a command into the simulator's console."""
        os.write(self._console, f"{line}\n".encode())

    @contextmanager
    def sysfs(self, node: str) -> Iterator[Path]:
        """Let a node open its port, and yield the root of its sysfs as it is now."""
        held = subprocess.Popen(
            [sys.executable, "-c", _HOLD], cwd=self._folder, env=self._environ(node),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert held.stdout is not None
            held.stdout.readline()
            yield self._folder / f"sys-{held.pid}/sys"
        finally:
            held.communicate(b"\n", timeout=30)

    def perfquery(self, node: str) -> dict[str, int]:
        """Return the PortCounters of a node's port as infiniband-diags reads them."""
        done = subprocess.run(
            ["perfquery"], cwd=self._folder, env=self._environ(node), capture_output=True,
            text=True, check=True, timeout=60,
        )  # fmt: skip
        pairs = (
            line.split(":", 1) for line in done.stdout.splitlines() if not line.startswith("#")
        )
        return {name: int(value.strip("."), 0) for name, value in pairs}

    def _environ(self, node: str) -> dict[str, str]:
        return {
            **os.environ,
            "IBSIM_SOCKNAME": self._name,
            "SIM_HOST": f"{node} mlx5_0",
            "LD_PRELOAD": str(_PRELOAD),
            "OSM_TMP_DIR": str(self._folder),
            "OSM_CACHE_DIR": str(self._folder),
        }


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
