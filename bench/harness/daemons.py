"""Daemons for benchmarks: controller and agents on loopback, with all state in one folder."""

import sys
from pathlib import Path

from everstep_proto.local.secret import read_secret


def secret_file(folder: Path) -> Path:
    """Return the secret of a controller whose state is in a folder."""
    return folder / "secret"


def shown(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return what calls to it carry."""
    return read_secret(secret_file(folder)).metadata()


def controller_command(folder: Path, port: int, tables: str = "") -> list[str | Path]:
    """Write a controller's configuration, with more tables if given, and return its command."""
    path = folder / "controller.toml"
    path.write_text(
        f'listen = "127.0.0.1:{port}"\n'
        'metrics = ""\n'
        f'journal = "{folder}/journal.sqlite"\n'
        f'secret_file = "{secret_file(folder)}"\n'
        'log_level = "warning"\n'
        f"{tables}"
    )
    return [sys.executable, "-m", "everstep_controller.main", "--config", path]


def agent_command(
    folder: Path,
    controller_port: int,
    metrics_port: int,
    more: str = "",
    node: str = "node-1",
    ports: tuple[int, int] = (0, 0),
    secret: Path | None = None,
) -> list[str | Path]:
    """Write an agent's configuration, with more keys if given, and return its command.

    ``ports``: those for liveness and for replicas; 0 picks one. ``secret``: the controller's, where
    that has its state in another folder.
    """
    path = folder / "agent.toml"
    path.write_text(
        f'node = "{node}"\n'
        f'controller = "127.0.0.1:{controller_port}"\n'
        f'secret_file = "{secret or secret_file(folder)}"\n'
        f'metrics_address = "127.0.0.1:{metrics_port}"\n'
        f'liveness_address = "127.0.0.1:{ports[0]}"\n'
        f'data_folder = "{folder}/agent"\n'
        'log_level = "warning"\n'
        f"{more}"
        f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = {ports[1]}\n'
    )
    return [sys.executable, "-m", "everstep_agent.main", "--config", path]
