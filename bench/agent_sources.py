"""Cost of each source of the agent on its node."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from daemons import agent_command
from machines import fake_machine
from table import Row, row

_UNIT = "µs of CPU"


def measure(blocks: int) -> Iterator[Row]:
    """Have every source looked at on a node of 8 GPUs and 8 HCAs, and yield the rows."""
    with (
        tempfile.TemporaryDirectory(prefix="everstep-bench-") as name,
        fake_machine(Path(name)) as fakes,
    ):
        agent_command(Path(name), 1, 0, fakes.machine.config)
        script = Path(__file__).with_name("look_cost.py")
        done = subprocess.run(
            [sys.executable, script, Path(name) / "agent.toml", str(blocks)],
            env=dict(fakes.machine.environment),
            check=True,
            stdout=subprocess.PIPE,
        )
    total = [0.0] * blocks
    for source in json.loads(done.stdout):
        interval_s, label = source["interval_s"], f"look at {source['name']}"
        yield row(f"{label}, every {interval_s:g} s", source["own_us"], _UNIT)
        if max(source["children_us"]) > 0:
            yield row(f"{label}: its processes", source["children_us"], _UNIT)
        for n in range(blocks):
            total[n] += (source["own_us"][n] + source["children_us"][n]) / interval_s / 1e4
    yield row("all looks in their rhythm", total, "% of a core")
