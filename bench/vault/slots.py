"""Slots benchmark: what a snapshot of a small state costs, beside a futex ping-pong in one run.

The whole product, as shipped: a controller, an agent and `everstep run` with one rank whose copy
takes some microseconds. What is left of the stall is the exchange with the agent. After each
snapshot the rank and another process wake each other once: what the machine takes for that. A step
sleeps; apart, a step computes, after which the processor is awake. Until when a snapshot keeps its
slot is what the agent has measured, as 'everstep snapshots' shows it.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.daemons import agent_command, controller_command, secret_file
from harness.processes import BENCH, free_port, running, wait_for_port
from harness.session import Benchmark, Part
from harness.table import Row, row
from harness.waits import until_there
from vault.nodes import RANK_PATH

from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_proto.generated import admin_pb2

_JOB = "train"
_RANK = BENCH / "harness/training_rank.py"
_STATE_BYTES = 38_000
_STEP_S = 0.08
_P50_MAX_MS = 0.15
_PING_PONGS = 3.0
# Slots are made, and every part of the way has run once.
_WARMUP_STEPS = 20


@dataclass(frozen=True, slots=True)
class _Window:
    """One run: the rank's lines after its first steps, and what is known of its slots."""

    lines: list[list[float]]
    cadence: admin_pb2.Cadence


def measure(windows: int, seconds: float) -> Iterator[Row]:
    """Yield the rows: the stalls, the ping-pongs beside them, and steps that were not saved."""
    runs = [_train(seconds) for _ in range(windows)]
    awake = [_train(seconds, "--computes") for _ in range(windows)]
    stalls = [[line[2] for line in run.lines] for run in runs]
    played = [[line[4] for line in run.lines] for run in runs]
    unsaved = sum(run.lines[-1][3] - run.lines[0][3] for run in runs)
    yield row("load average", [os.getloadavg()[0]], "processes")
    beside = row("futex ping-pong, p99", _quantiles(played, 0.99), "ms")
    yield row("futex ping-pong, p50", _quantiles(played, 0.5), "ms")
    yield beside
    yield row("snapshot of 38 kB, p50", _quantiles(stalls, 0.5), "ms", target=_P50_MAX_MS)
    yield row(
        "... beside the ping-pong's p99",
        _quantiles(stalls, 0.5),
        "ms",
        beside,
        _PING_PONGS * beside.value,
    )
    yield row("snapshot of 38 kB, p99", _quantiles(stalls, 0.99), "ms", beside)
    computed = [[line[2] for line in run.lines] for run in awake]
    yield row("snapshot of 38 kB after a step that computes, p50", _quantiles(computed, 0.5), "ms")
    yield row("snapshot of 38 kB after a step that computes, p99", _quantiles(computed, 0.99), "ms")
    yield row("steps not saved", [unsaved], "steps", target=0.0)
    for name, taken_ns in (
        ("p50", [run.cadence.slot_taken_p50_ns for run in runs]),
        ("p99", [run.cadence.slot_taken_p99_ns for run in runs]),
    ):
        yield row(f"commit to free slot, {name}", [ns / 1e6 for ns in taken_ns], "ms")


def _quantiles(windows: Sequence[Sequence[float]], share: float) -> list[float]:
    return [sorted(one)[int(share * (len(one) - 1))] * 1e3 for one in windows]


def _train(seconds: float, *how: str) -> _Window:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        port, metrics, liveness, bulk = (free_port() for _ in range(4))
        controller = stack.enter_context(running(controller_command(folder, port)))
        wait_for_port(port, controller)
        command = agent_command(folder, port, metrics, ports=(liveness, bulk))
        stack.enter_context(running(command))
        socket, told = folder / "run/agent.sock", folder / "steps"
        until_there(socket)
        launcher = Path(sys.executable).with_name("everstep")
        rank: list[str | Path] = [sys.executable, _RANK, "--bytes", str(_STATE_BYTES)]
        rank += ["--step-seconds", str(_STEP_S), "--losses", told, "--ping-pong", *how]
        options = ("--job", _JOB, "--socket", socket, "--snapshot-every", "1")
        environment = os.environ | {"PYTHONPATH": RANK_PATH}
        stack.enter_context(running([launcher, "run", *options, "--", *rank], environment))
        until_there(told)
        time.sleep(_WARMUP_STEPS * _STEP_S + seconds)
        whole = told.read_text(encoding="ascii").rpartition("\n")[0]
        address, secret = f"127.0.0.1:{port}", secret_file(folder)
        with connect(Connection(address=address, secret_file=secret, timeout_s=5.0)) as admin:
            cadence = admin.call(
                lambda stub: stub.GetSnapshots, admin_pb2.GetSnapshotsRequest(job=_JOB)
            ).cadence
    lines = [json.loads(line) for line in whole.splitlines()][_WARMUP_STEPS:]
    if not lines:
        raise SystemExit("the rank made no step")
    return _Window(lines, cadence)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[Part("slots", 200.0, lambda given: measure(given.repeats, given.seconds))],
    repeats=5,
    seconds=10.0,
    quick={"repeats": 1, "seconds": 5.0},
)
