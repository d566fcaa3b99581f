"""Fleet at a scheduler: isolations through a real slurmctld of 2,000 nodes, and readings of it.

The controller is the product's with its journal in SQLite; its nodes are events, without agents. By
hand is what one scontrol takes for the same commands, on its standard input. The part of events
needs long: each is awaited at Slurm and in the controller. ``--slurm`` takes another version, from
a root that is made with mmdebstrap, or found in EVERSTEP_TEST_ROOTS; it needs root.
"""

import argparse
import asyncio
import os
import random
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from fleet.site import CALL_TIMEOUT_S, SlurmSite, running_fleet, running_slurm
from fleet.steady import steady
from harness.session import Benchmark, Part
from harness.table import Row, Series, Target

from everstep_common.judging.findings import Mode
from everstep_controller.core.events import DriverReported
from everstep_controller.core.model.isolation import DriverRecord, NodeIsolation, WantedIsolation
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.budgets import held_back_count, isolation_limit, level_limit
from everstep_controller.drivers.port import DriverContext
from everstep_controller.drivers.slurm.changes import Change, update_line, update_words
from everstep_controller.drivers.slurm.names import NoteField
from everstep_controller.drivers.slurm.reasons import allowed_text, drain_reason
from everstep_controller.drivers.worker import CoreLink, DriverTiming, DriverWorker
from everstep_controller.main import collect_garbage_seldom
from real.slurm_drains import running_drains
from real.slurm_versions import SUITES
from real.slurm_world import running_world

_NODES, _LARGE = 2_000, 12_500
_ALL_S, _FIRST_S, _LATE_S = Target(2.5), Target(0.15), Target(0.02)
_NONE = Target(0.0)
_UNBOUNDED = Settings(
    mode=Mode.ENFORCE,
    isolation_budget_ratio=1.0,
    isolations_per_hour_ratio=1.0,
    domain_isolation_budget_ratio=1.0,
    domain_isolations_per_hour_ratio=1.0,
)
_PIECES = [
    *"\n\r\t\x00\"'\\`$();|&!<>*?[]{}=#%~^é\u2028 ",
    "update nodename=ALL state=down reason=x",
]
_PIECES += ["\nshutdown\n", "n1", "XidFatal", "/mnt/$(reboot)", "job `id`", "everstep: "]


def isolations(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what so many isolations take, each with a reason of its own, and by hand."""
    whole, first, hand, spent, theirs = [], [], [], [], []
    with running_slurm(_NODES, options.slurm) as site:
        for number in range(options.repeats):
            named = site.nodes[: options.isolations]
            before_s = site.slurmctld_s()
            took = asyncio.run(_isolated(site, named, f"round {number}"))
            theirs.append(site.slurmctld_s() - before_s)
            first.append(took[0])
            whole.append(took[1])
            spent.append(took[2])
            _free(site)
            hand.append(_by_hand(site, named, number))
            _free(site)
    count = options.isolations
    yield Series("the first of them is drained at Slurm", first).figure(_FIRST_S)
    by_hand = Series(f"{count} updates by hand, one scontrol", hand)
    yield by_hand.figure()
    all_of_them = Series(f"{count} isolations of as many reasons, read back", whole)
    yield all_of_them.figure(_ALL_S)
    yield all_of_them.against(by_hand)
    yield Series(f"{count} isolations: CPU of the controller and its programs", spent).figure()
    yield Series(f"{count} isolations: slurmctld's CPU", theirs).figure()


async def _isolated(site: SlurmSite, nodes: Sequence[str], text: str) -> tuple[float, float, float]:
    """Return the seconds to the first drain at Slurm, until the last one is read back, and of CPU.

    The last are the controller's own and its programs'.
    """
    log = site.log
    async with running_fleet(site, _UNBOUNDED) as fleet:
        loop = asyncio.get_running_loop()
        messages = [f"GPU {number} fell off the bus, {text}" for number in range(len(nodes))]
        with log.open("rb") as told:
            told.seek(0, os.SEEK_END)
            began_s, before_s = loop.time(), time.process_time() + _children_s()
            finding = asyncio.create_task(fleet.find(nodes, messages))
            while b"reason set to: everstep: " not in told.read():  # noqa: ASYNC110
                await asyncio.sleep(0.002)  # nobody tells of a line in a file
            first_s = loop.time() - began_s
        last_s = await fleet.until(len(nodes)) - began_s
        await finding
        spent_s = time.process_time() + _children_s() - before_s
        drained = site.drained()
        assert len(drained) == len(set(drained.values())) == len(nodes), len(drained)
        return first_s, last_s, spent_s


def _by_hand(site: SlurmSite, nodes: Sequence[str], number: int) -> float:
    groups = {
        Change("drain", f"everstep: XidFatal by hand {number} {name}"): [name] for name in nodes
    }
    lines = "".join(map(update_line, update_words(groups, NoteField.NONE)))
    began_s = time.perf_counter()
    site.run("scontrol", lines=lines)
    return time.perf_counter() - began_s


def _free(site: SlurmSite) -> None:
    """Have all nodes drained no more."""
    if drained := ",".join(site.drained()):
        site.run("scontrol", lines=f"update nodename={drained} state=undrain\n")


def budget(options: argparse.Namespace) -> Iterator[Row]:
    """Yield how many of as many findings drain a node with the shipped budgets."""
    with running_slurm(_NODES, options.slurm) as site:
        drained, limit, held = asyncio.run(_budgeted(site, site.nodes[: options.isolations]))
    yield Row(
        name=f"nodes drained of {options.isolations} with fatal findings, shipped budgets",
        value=drained,
        unit="nodes",
        target=f"= {limit}",
        met=drained == limit,
    )
    others = options.isolations - limit
    yield Row(
        name="nodes that are told as held back",
        value=held,
        unit="nodes",
        target=f"= {others}",
        met=held == others,
    )


async def _budgeted(site: SlurmSite, nodes: Sequence[str]) -> tuple[int, int, int]:
    async with running_fleet(site, Settings(mode=Mode.ENFORCE)) as fleet:
        state = fleet.controller.runtime.state
        limit = min(level_limit(state), isolation_limit(state))
        await fleet.find(nodes, [f"GPU of {name} fell off" for name in nodes])
        await fleet.until(limit)
        # Whatever is asked for too much comes with the next call.
        await asyncio.sleep(5.0)
        held = held_back_count(fleet.controller.runtime.state)
        return len(site.drained()), limit, held


def readings(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what a reading of the whole cluster takes, and how late it makes the loop."""
    for count in (_NODES, _LARGE):
        with running_slurm(count, options.slurm) as site:
            took = asyncio.run(_read(site, options.repeats))
        yield Series(f"reading of {count} nodes", [one[0] for one in took]).figure()
        yield Series(f"reading of {count} nodes: programs' CPU", [one[1] for one in took]).figure()
        late = Series(f"reading of {count} nodes: the loop is late", [one[2] for one in took])
        yield late.figure(_LATE_S)
        yield Series("the loop is late while nothing is read", [one[3] for one in took]).figure()
        held = Series(f"reading of {count} nodes: it holds the loop, CPU", [one[4] for one in took])
        yield held.figure(_LATE_S)


async def _read(site: SlurmSite, times: int) -> list[tuple[float, float, float, float, float]]:
    """Return seconds for each reading: its own, its programs' CPU, and delays of the loop.

    Delays are the loop's while it is read, in as long a time in which nothing is, and what the loop
    computes between two turns, which other work on the machine does not change.
    """
    collect_garbage_seldom()  # as the controller does
    driver = site.drivers.slurm.driver(DriverContext(CALL_TIMEOUT_S, cluster_id=lambda: "c"))
    assert driver is not None
    record = DriverRecord("slurm")
    reports: list[DriverReported] = []

    async def report(told: DriverReported) -> None:
        reports.append(told)
        record.read = True
        record.down = dict(told.down)
        record.labels.update({name: dict(labels) for name, labels in told.labels.items()})
        for seen in told.seen:
            record.nodes[seen.node] = NodeIsolation(hold=seen.hold)

    link = CoreLink(lambda _: record, report, lambda: ("partition", "feature"))
    worker = DriverWorker("slurm", driver, link, DriverTiming(CALL_TIMEOUT_S, 3600.0))
    running = asyncio.create_task(worker.run())

    async def read() -> None:
        before = worker.reading
        worker.read()
        while worker.reading is before:  # noqa: ASYNC110  the worker calls nobody back
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)  # what it does with it

    await read()  # with the question for rights
    assert len(reports) == 1, reports
    found = []
    for _ in range(times):
        before_s = _children_s()
        took_s, late_s, held_s = await _watched(read)
        assert len(worker.reading.nodes if worker.reading else ()) == len(site.nodes)
        spent_s = _children_s() - before_s
        _, idle_s, _ = await _watched(partial(asyncio.sleep, took_s))
        found.append((took_s, spent_s, late_s, idle_s, held_s))
    assert len(reports) == 1, reports
    running.cancel()
    return found


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


async def _watched(call: Callable[[], Awaitable[None]]) -> tuple[float, float, float]:
    """Return the seconds of a call, by how much it made the loop late, and what that computed."""
    loop = asyncio.get_running_loop()
    worst_s, held_s, nap_s = 0.0, 0.0, 0.002

    async def watch() -> None:
        nonlocal worst_s, held_s
        while True:
            began_s, computed_s = loop.time(), time.thread_time()
            await asyncio.sleep(nap_s)
            worst_s = max(worst_s, loop.time() - began_s - nap_s)
            held_s = max(held_s, time.thread_time() - computed_s)

    watching = asyncio.create_task(watch())
    began_s = loop.time()
    await call()
    took_s = loop.time() - began_s
    watching.cancel()
    return took_s, worst_s, held_s


def hostile(options: argparse.Namespace) -> Iterator[Row]:
    """Yield how many of many hostile reasons Slurm shows otherwise than as the allowed text."""
    rng = random.Random(7)
    wrong = changed = done = 0
    with running_slurm(_NODES, options.slurm) as site:
        driver = site.drivers.slurm.driver(DriverContext(CALL_TIMEOUT_S, cluster_id=lambda: "c"))
        assert driver is not None
        while done < options.reasons:
            names = site.nodes[: min(1000, options.reasons - done)]
            wanted = [
                WantedIsolation(name, ("automation",), _text(rng), _text(rng)) for name in names
            ]
            asyncio.run(driver.apply(wanted))
            shown = site.drained()
            for one in wanted:
                text = drain_reason(one, "c")
                plain = text.rpartition(" #")[0]
                wrong += shown.get(one.node) != text or allowed_text(plain) != plain
            changed += len(set(shown) - set(names))
            done += len(names)
        log = site.log.read_text(errors="replace")
        changed += log.count("state set to DOWN") + log.count("Terminate signal")
    yield Row(
        name=f"of {done} hostile reasons, shown otherwise than as the allowed text",
        value=wrong,
        unit="reasons",
        target=str(_NONE),
        met=_NONE.met(wrong),
    )
    yield Row(
        name="nodes or daemons that they changed besides",
        value=changed,
        unit="changes",
        target=str(_NONE),
        met=_NONE.met(changed),
    )


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(_PIECES, k=rng.randrange(25)))


def random_events(options: argparse.Namespace) -> Iterator[Row]:
    """Yield how many random events of us, people and restarts leave each hold to its owner."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        changes = asyncio.run(_play(Path(folder), options.events, options.seed))
    yield Row(
        name=f"{options.events} random events: changes by us beyond one for each change of claims",
        value=changes,
        unit="changes",
        target=str(_NONE),
        met=_NONE.met(changes),
    )


async def _play(folder: Path, events: int, seed: int) -> int:
    """Return how often we drained beyond what had to be; a hold that is changed ends it."""
    with running_drains([f"node{number}" for number in range(1, 7)]) as drains:
        async with running_world(drains, folder, seed) as world:
            await world.play(events)
            return max(0, drains.said("reason set to: everstep: ") - world.changes)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isolations", type=int, default=1000, help="nodes that are isolated")
    parser.add_argument("--reasons", type=int, default=10_000, help="hostile reasons")
    parser.add_argument("--slurm", choices=("", *SUITES), default="", help="another version of it")
    parser.add_argument("--seed", type=int, default=7, help="of the random events")
    parser.add_argument("--agents", type=int, default=2000, help="agents of the steady state")
    parser.add_argument("--events", type=int, default=2000, help="random events")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("isolations", 60.0, isolations),
        Part("budget", 20.0, budget),
        Part("readings", 40.0, readings),
        Part("hostile", 60.0, hostile),
        Part("events", 3600.0, random_events),
        Part("steady", 900.0, steady),
    ],
    repeats=5,
    seconds=60.0,
    add_options=_add_options,
    quick={"repeats": 1, "reasons": 1000, "events": 20, "agents": 64},
)
