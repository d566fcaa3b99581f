"""The real daemons on loopback, as processes that end with the test."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path


def free_port() -> int:
    """Return a TCP port of loopback that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def fetch(url: str) -> bytes:
    """Return a page. Raises OSError."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())


@contextlib.contextmanager
def running(command: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in its own process group; on the way out, end the group and show its log."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=environment
        )
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                    break
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}")


@contextlib.contextmanager
def fleet(folder: Path) -> Iterator[dict[str, str]]:
    """Run a controller and one agent; yield the metrics address of each."""
    address, controller_metrics, agent_metrics = f"unix:{folder}/c/s", free_port(), free_port()
    controller = folder / "controller.toml"
    controller.write_text(
        f'listen = "{address}"\n'
        f'metrics = "127.0.0.1:{controller_metrics}"\n'
        f'journal = "{folder}/journal.sqlite"\n'
    )
    agent = folder / "agent.toml"
    agent.write_text(
        f'node = "node-1"\ncontroller = "{address}"\n'
        f'metrics_address = "127.0.0.1:{agent_metrics}"\n'
        f'liveness_address = "127.0.0.1:0"\ndata_folder = "{folder}/agent"\n'
        f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = 0\n'
    )
    with (
        running(_daemon("everstep_controller", controller), folder / "controller.log"),
        running(_daemon("everstep_agent", agent), folder / "agent.log"),
    ):
        yield {
            "controller": f"127.0.0.1:{controller_metrics}",
            "agent": f"127.0.0.1:{agent_metrics}",
        }


def _daemon(package: str, config: Path) -> list[str | Path]:
    return [sys.executable, "-m", f"{package}.main", "--config", config]
