"""Kubernetes benchmark: what the driver costs in a fleet, and how soon it isolates a part of it.

The API server is the fake of the tests in a process of its own, whose nodes have the size of real
ones (18 kB); with ``--real``, a kube-apiserver 1.20 with etcd, whose nodes are small. Processor
time is that of the controller's side alone.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.processes import module_command, running, with_paths
from harness.session import Benchmark, Part
from harness.table import Row, Series, Target

from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.driver import KubernetesDriver
from everstep_controller.drivers.port import DriverContext
from everstep_controller.main import collect_garbage_seldom

_TICK_S = 0.002
# A reading of 12,500 nodes must not keep the loop from its other work.
_LATE_MS_MAX = 20.0
_CALL_S = 300.0
_IMAGES = 50


def big_node(name: str) -> dict[str, object]:
    """Return a node as large as one of a fleet: images, labels and managed fields."""
    features = {f"feature.node.kubernetes.io/cpu-cpuid.F{k}": "true" for k in range(60)}
    fields: dict[str, object] = {f"f:feature.node.kubernetes.io/F{k}": {} for k in range(90)}
    images = [
        {"names": [f"registry.example/path-{k}@sha256:{'a' * 64}", f"registry.example/path-{k}:1"]}
        for k in range(_IMAGES)
    ]
    at = "2026-11-30T06:00:00Z"
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **features},
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:labels": fields}}
            ],
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{**ready, "lastHeartbeatTime": at, "lastTransitionTime": at}],
            "images": images,
        },
    }


def serve(folder: Path, count: int) -> None:
    """Serve so many nodes until standard input ends; a line has that many of them change."""
    from fakes.kubernetes.rules import Rules
    from fakes.kubernetes.server import DRIVER_USER
    from fakes.kubernetes.site import fake_cluster

    _, fake = fake_cluster(folder)
    fake.rules = Rules(fake.objects, frozenset({"admin", DRIVER_USER}))
    names = [f"gpu-{index:05d}" for index in range(count)]
    for name in names:
        fake.objects.seed("nodes", ("", name), big_node(name))
    print("ready", flush=True)
    for line in sys.stdin:
        for index in range(int(line)):
            key = ("", names[index % count])
            node = fake.objects.get("nodes", key)
            node["metadata"]["labels"]["round"] = f"{index}"
            fake.objects.replace("nodes", key, node)
        print("done", flush=True)


@dataclass
class Lateness:
    """How long the loop's own thread computes between two of its turns, in ms of processor time."""

    most_ms: float = 0.0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def watch(self) -> None:
        """Look until cancelled."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.thread_time()
            self.most_ms = max(self.most_ms, (now - before) * 1e3)
            before = now


@dataclass
class World:
    """A server with nodes, and the file by which the driver gets in."""

    kubeconfig: Path
    names: list[str]
    server: subprocess.Popen[str] | None = None

    def change(self, count: int) -> None:
        """Have so many nodes change."""
        assert self.server is not None
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(f"{count}\n")
        self.server.stdin.flush()
        self.server.stdout.readline()


@contextlib.contextmanager
def world(options: argparse.Namespace, count: int) -> Iterator[World]:
    """Yield a server with so many nodes."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder = Path(name)
        if options.real:
            yield from _real_world(folder, count)
            return
        command = module_command("fleet.kubernetes", folder, count)
        with running(command, with_paths()) as server:
            assert server.stdout is not None
            server.stdout.readline()
            names = [f"gpu-{index:05d}" for index in range(count)]
            yield World(folder / "kubeconfig", names, server)


def _real_world(folder: Path, count: int) -> Iterator[World]:
    from real.kubernetes.control_plane import running_control_plane

    with running_control_plane(folder) as plane:
        cluster = plane.cluster()
        names = cluster.register(count)
        cluster.allow(KubernetesDriverConfig(access=str(cluster.kubeconfig)))
        yield World(cluster.kubeconfig, names)


@asynccontextmanager
async def driver_of(place: World) -> AsyncIterator[tuple[KubernetesDriver, Lateness]]:
    """Return a driver as it ships, and what the loop's lateness was."""
    collect_garbage_seldom()  # as the controller does: a pass over all that lives takes 30 ms
    late = Lateness()
    config = KubernetesDriverConfig(access=str(place.kubeconfig))
    driver = config.driver(DriverContext(_CALL_S, lambda: place.names, lambda: "bench"))
    assert isinstance(driver, KubernetesDriver)
    late.tasks.append(asyncio.create_task(late.watch()))
    try:
        yield driver, late
    finally:
        for task in late.tasks:
            task.cancel()
        await asyncio.gather(*late.tasks, return_exceptions=True)
        await driver.close()


def _one(name: str, value: float, unit: str, target: Target | None = None) -> Row:
    return Series(name, [value], unit).figure(target)


async def _start(place: World) -> list[Row]:
    size = len(place.names)
    async with driver_of(place) as (driver, late):
        before = _memory_mib()
        spent, began = time.process_time(), time.perf_counter()
        view = await driver.read()
        assert len(view.nodes) == size
        rows = [
            _one(f"first reading, {size} nodes", time.perf_counter() - began, "s"),
            _one(f"its processor time, {size} nodes", time.process_time() - spent, "s"),
            _one(f"its memory, {size} nodes", _memory_mib() - before, "MiB"),
        ]
        spent = time.process_time()
        await driver.read()
        rows.append(_one(f"next reading, {size} nodes", time.process_time() - spent, "CPU s"))
        rows.append(_one(f"loop held, {size} nodes", late.most_ms, "CPU ms", Target(_LATE_MS_MAX)))
        return rows


async def _changes(place: World, count: int) -> list[Row]:
    async with driver_of(place) as (driver, late):
        await driver.read()
        for task in driver._tasks[1:]:  # what is written beside the watch is no cost of it
            task.cancel()
        late.most_ms = 0.0
        await _seen(driver, place, count)
        held_ms = late.most_ms
        late.tasks.pop().cancel()  # it costs more than the events do
        spent = time.process_time()
        await _seen(driver, place, count)
        each = (time.process_time() - spent) / count * 1e6
    return [
        _one("an event of the watch", each, "CPU µs"),
        _one("loop held by events", held_ms, "CPU ms", Target(_LATE_MS_MAX)),
    ]


async def _seen(driver: KubernetesDriver, place: World, count: int) -> None:
    """Have so many nodes change, and wait until the driver has seen it."""
    seen = driver._nodes.events
    await asyncio.to_thread(place.change, count)
    async with asyncio.timeout(_CALL_S):
        while driver._nodes.events - seen < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def _heartbeats(place: World) -> list[Row]:
    size = len(place.names)
    async with driver_of(place) as (driver, late):
        await driver.read()
        late.tasks.pop().cancel()
        spent, seen = time.process_time(), driver._nodes.events
        async with asyncio.timeout(_CALL_S):
            while driver._nodes.events - seen < size:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.5)
        each_ms = (time.process_time() - spent) / size * 1e3
        # Each is once in five minutes; a reading is once in half a minute, and small beside them.
        rows = [
            _one(f"all the time, {count} nodes", each_ms * count / 300 / 10, "% of a core")
            for count in (2_000, 12_500)
        ]
        return [_one("a heartbeat, with its event", each_ms, "CPU ms"), *rows]


async def _isolations(place: World, count: int) -> list[Row]:
    wishes = [
        WantedIsolation(name, ("automation",), "automation: Xid 79", "XidFatal")
        for name in place.names[:count]
    ]
    async with driver_of(place) as (driver, late):
        await driver.read()
        late.most_ms, asked = 0.0, driver._server.requests
        spent, began = time.process_time(), time.perf_counter()
        applied = await driver.apply(wishes)
        assert len(applied.now) == count, applied.failures
        took, cpu = time.perf_counter() - began, time.process_time() - spent
        requests = driver._server.requests - asked
        return [
            _one(f"{count} isolations", took, "s"),
            _one("their processor time", cpu, "s"),
            _one("their requests, heartbeats included", requests / count, "a node"),
            _one("loop held meanwhile", late.most_ms, "CPU ms", Target(_LATE_MS_MAX)),
        ]


def start(options: argparse.Namespace) -> Iterator[Row]:
    """Measure the first reading of a fleet, and the next."""
    for size in options.nodes:
        with world(options, size) as place:
            yield from asyncio.run(_start(place))


def changes(options: argparse.Namespace) -> Iterator[Row]:
    """Measure what an event of the watch costs."""
    if options.real:
        return
    with world(options, 500) as place:
        yield from asyncio.run(_changes(place, options.events))


def heartbeats(options: argparse.Namespace) -> Iterator[Row]:
    """Measure what a heartbeat costs, and with it the driver of a fleet."""
    with world(options, options.heartbeats) as place:
        yield from asyncio.run(_heartbeats(place))


def isolations(options: argparse.Namespace) -> Iterator[Row]:
    """Measure how soon a part of a fleet is isolated."""
    with world(options, options.isolations) as place:
        yield from asyncio.run(_isolations(place, options.isolations))


def _memory_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, nargs="+", default=[2_000, 12_500], help="sizes")
    parser.add_argument("--events", type=int, default=5_000, help="of the watch")
    parser.add_argument("--heartbeats", type=int, default=500, help="of so many nodes, one each")
    parser.add_argument("--isolations", type=int, default=1_000, help="in one call")
    parser.add_argument("--real", action="store_true", help="a kube-apiserver, built once")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("start", 60.0, start),
        Part("changes", 20.0, partial(changes)),
        Part("heartbeats", 20.0, heartbeats),
        Part("isolations", 30.0, partial(isolations)),
    ],
    add_options=_add_options,
    quick={"nodes": [100], "events": 100, "heartbeats": 20, "isolations": 20},
)

if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
