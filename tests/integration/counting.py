"""A fleet that runs `counting_job.py`, and what its ranks said."""

import json
from pathlib import Path
from typing import TypedDict

import numpy as np

from integration.counting_job import word
from integration.real_fleet import RealFleet

_SCRIPT = Path(__file__).with_name("counting_job.py")
PATIENCE_S = 90.0


class Said(TypedDict):
    """What a rank of a generation has left."""

    restored: int | None
    unsaved: int
    whole: bool
    ended: bool


def launch(fleet: RealFleet, nodes: str = "", **options: object) -> None:
    """Start the job on all nodes."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    fleet.launch_script([str(_SCRIPT), *words], nodes=nodes)


def said(fleet: RealFleet) -> dict[tuple[int, int], Said]:
    """Return what each rank said, by generation and rank."""
    found: dict[tuple[int, int], Said] = {}
    for path in (fleet.folder / "losses").glob("said-*.json"):
        _, generation, rank = path.stem.split("-")
        text = path.read_text()
        if text:  # else it is being written
            found[int(generation), int(rank)] = json.loads(text)
    return found


def ended(fleet: RealFleet) -> bool:
    """Return whether every launcher has ended."""
    return all(child.exit_code is not None for child in fleet.launchers.values())


def latest_step(stored: Path) -> int:
    """Return the step to which ``latest`` points; -1 for none."""
    path = stored / "train/latest"
    target = json.loads(path.read_text())["target"] if path.exists() else None
    return int(target["step"]) if target else -1


def check_stored(stored: Path) -> int:
    """Raise AssertionError unless every byte of every whole step is right; return how many are."""
    steps = 0
    for manifest in (stored / "train").glob("gen-*/step-*/manifest.json"):
        step = int(manifest.parent.name.removeprefix("step-"))
        for file in json.loads(manifest.read_bytes())["files"]:
            data = (manifest.parent / f"rank-{file['rank']}.safetensors").read_bytes()
            head = 8 + int.from_bytes(data[:8], "little")
            words = np.frombuffer(data[head:], dtype=np.int64)
            assert (words == word(file["rank"], step)).all(), f"{manifest.parent} is torn"
        steps += 1
    return steps
