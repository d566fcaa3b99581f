"""Vault part: steps skipped while 2 GiB are brought to disk, a snapshot at each; beside DLRover's.

The whole product: a controller, an agent and `everstep run --persist`, with their defaults.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from harness import peers as vault_peers
from harness.daemons import agent_command, controller_command
from harness.processes import free_port, running, wait_for_port
from harness.table import Row, Target
from vault.nodes import RANK_PATH, until_there

_RANK = Path(__file__).with_name("persist_rank.py")
_BYTES = 2 * 1024**3
_STEPS = 30
_EVERY = 8
_STEP_S = 1.0
_PATIENCE_S = 300.0


def everstep(folder: Path) -> tuple[Mapping[str, object], int]:
    """Return the rank's result, and how many steps were in storage at the end."""
    with ExitStack() as stack:
        port, metrics = free_port(), free_port()
        controller = stack.enter_context(running(controller_command(folder, port)))
        wait_for_port(port, controller)
        stack.enter_context(running(agent_command(folder, port, metrics)))
        socket = folder / "run/agent.sock"
        until_there(socket)
        stored = folder / "stored"
        subprocess.run(
            [
                *(Path(sys.executable).with_name("everstep"), "run", "--job", "bench"),
                *("--socket", socket, "--snapshot-every", "1"),
                *("--persist", stored, "--persist-every", str(_EVERY), "--persist-keep", "8"),
                *("--", vault_peers.python(), _RANK, "everstep"),
                *(str(_BYTES), str(_STEPS), str(_STEP_S), folder),
            ],
            check=True,
            stdout=sys.stderr,
            timeout=_PATIENCE_S,
            env=os.environ | {"PYTHONPATH": RANK_PATH},
        )
        whole = len(list(stored.glob("*/gen-*/step-*/manifest.json")))
    return json.loads((folder / "result.json").read_text()), whole


def dlrover(folder: Path) -> Mapping[str, object]:
    """Return the result of DLRover's rank."""
    words = ["dlrover", str(_BYTES), str(_STEPS), str(_STEP_S), str(folder)]
    subprocess.run(
        [vault_peers.python(), _RANK, *words],
        check=True,
        stdout=sys.stderr,
        stderr=subprocess.DEVNULL,
        timeout=_PATIENCE_S,
        env=os.environ | {"PYTHONPATH": RANK_PATH},
    )
    result: Mapping[str, object] = json.loads((folder / "result.json").read_text())
    return result


def measure(repeats: int) -> Iterator[Row]:
    """Run each once, whatever ``repeats`` says, and yield the figures."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        yield from _figures("DLRover, while its first persists", dlrover(Path(name)), None)
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        result, whole = everstep(Path(name))
    yield Row(name="Everstep: steps in storage at the end", value=whole, unit="steps")
    yield from _figures("Everstep", result, Target(0))


def _figures(who: str, result: Mapping[str, object], target: Target | None) -> Iterator[Row]:
    stalls, skipped = result["stalls_s"], result["skipped"]
    assert isinstance(stalls, list)
    assert isinstance(skipped, int)
    yield Row(
        name=f"{who}: steps skipped of {result['steps']}",
        value=skipped,
        unit="steps",
        target=str(target or ""),
        met=target.met(skipped) if target else None,
    )
    if stalls:
        yield Row(
            name=f"{who}: stall of a step",
            value=statistics.median(stalls),
            unit="s",
            spread=max(stalls) - min(stalls),
        )
