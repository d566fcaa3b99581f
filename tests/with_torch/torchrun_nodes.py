"""torchrun as a user of Everstep's rendezvous starts it, for tests."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"
_GROUP = "torchrun.handlers"


def advertise(folder: Path) -> Path:
    """Return a folder for PYTHONPATH that announces the checkout's entry points for torchrun.

    The installed package may be older than the checkout.
    """
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    told = folder / "advertised"
    package = told / "everstep_checkout-0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: everstep-checkout\nVersion: 0\n"
    )
    lines = [f"{name} = {place}" for name, place in project["entry-points"][_GROUP].items()]
    (package / "entry_points.txt").write_text("\n".join([f"[{_GROUP}]", *lines, ""]))
    return told


def torchrun(socket: Path, nodes: str, *more: str, job: str) -> Sequence[str]:
    """Return torchrun's command line, up to the program that it starts."""
    line = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "everstep"]
    line += ["--rdzv-endpoint", str(socket), "--rdzv-id", job, "--nnodes", nodes]
    return [*line, *more, "--no-python"]
