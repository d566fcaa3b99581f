"""Fleet at a scheduler: isolations through a real slurmctld of 2,000 nodes, and readings of it.

The controller is the product's with its journal in SQLite; its nodes are events, without agents. By
hand is what one scontrol takes for the same commands, on its standard input. The part of events
needs long: each is awaited at Slurm and in the controller.
"""

import argparse
import asyncio
import os
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from fleet.site import CALL_TIMEOUT_S, SlurmSite, running_fleet, running_slurm
from harness.session import Benchmark, Part
from harness.table import Row, Series, Target

from everstep_common.judging.findings import Mode
from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.budgets import held_back_count, isolation_limit, level_limit
from everstep_controller.drivers.port import DriverContext
from everstep_controller.drivers.slurm.changes import Change, update_line, update_words
from everstep_controller.drivers.slurm.names import NoteField
from everstep_controller.drivers.slurm.reasons import allowed_text, drain_reason
from real.slurm_drains import running_drains
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

T = TypeVar("T")


def isolations(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what so many isolations take, each with a reason of its own, and by hand."""
    whole, first, hand = [], [], []
    with running_slurm(_NODES) as site:
        for number in range(options.repeats):
            named = site.nodes[: options.isolations]
            took = asyncio.run(_isolated(site, named, f"round {number}"))
            first.append(took[0])
            whole.append(took[1])
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


async def _isolated(site: SlurmSite, nodes: Sequence[str], text: str) -> tuple[float, float]:
    """Return the seconds to the first drain at Slurm, and until the last one is read back."""
    log = site.slurm.folder / "slurmctld.log"
    async with running_fleet(site, _UNBOUNDED) as fleet:
        loop = asyncio.get_running_loop()
        messages = [f"GPU {number} fell off the bus, {text}" for number in range(len(nodes))]
        with log.open("rb") as told:
            told.seek(0, os.SEEK_END)
            began_s = loop.time()
            finding = asyncio.create_task(fleet.find(nodes, messages))
            while b"reason set to: everstep: " not in told.read():  # noqa: ASYNC110
                await asyncio.sleep(0.002)  # nobody tells of a line in a file
            first_s = loop.time() - began_s
        last_s = await fleet.until(len(nodes)) - began_s
        await finding
        drained = site.drained()
        assert len(drained) == len(set(drained.values())) == len(nodes), len(drained)
        return first_s, last_s


def _by_hand(site: SlurmSite, nodes: Sequence[str], number: int) -> float:
    groups = {
        Change("drain", f"everstep: XidFatal by hand {number} {name}"): [name] for name in nodes
    }
    lines = "".join(map(update_line, update_words(groups, NoteField.NONE)))
    began_s = time.perf_counter()
    _scontrol(site, lines)
    return time.perf_counter() - began_s


def _scontrol(site: SlurmSite, lines: str) -> None:
    """Have one scontrol do what stands in lines."""
    subprocess.run(
        ["scontrol"],
        input=lines,
        env=site.slurm.environ,
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
    )


def _free(site: SlurmSite) -> None:
    """Have all nodes drained no more."""
    if drained := ",".join(site.drained()):
        _scontrol(site, f"update nodename={drained} state=undrain\n")


def budget(options: argparse.Namespace) -> Iterator[Row]:
    """Yield how many of as many findings drain a node with the shipped budgets."""
    with running_slurm(_NODES) as site:
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
        with running_slurm(count) as site:
            took = [asyncio.run(_read(site)) for _ in range(options.repeats)]
        yield Series(f"reading of {count} nodes", [one[0] for one in took]).figure()
        yield Series(f"reading of {count} nodes: programs' CPU", [one[1] for one in took]).figure()
        late = Series(f"reading of {count} nodes: the loop is late", [one[2] for one in took])
        yield late.figure(_LATE_S)
        yield Series("the loop is late while nothing is read", [one[3] for one in took]).figure()


async def _read(site: SlurmSite) -> tuple[float, float, float, float]:
    """Return the seconds of a reading, of its programs' CPU, of the loop's delay, and of idleness.

    The last is the loop's delay in as long a time in which it does nothing.
    """
    driver = site.drivers.slurm.driver(DriverContext(CALL_TIMEOUT_S, cluster_id=lambda: "c"))
    assert driver is not None
    await driver.read()  # with the question for rights
    before_s = _children_s()
    view, took_s, late_s = await _watched(driver.read)
    assert len(view.nodes) == len(site.nodes)
    spent_s = _children_s() - before_s
    _, _, idle_s = await _watched(lambda: asyncio.sleep(took_s))
    return took_s, spent_s, late_s, idle_s


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


async def _watched(call: Callable[[], Awaitable[T]]) -> tuple[T, float, float]:
    """Return what a call returns, its seconds, and by how much it made the loop late at most."""
    loop = asyncio.get_running_loop()
    worst_s, nap_s = 0.0, 0.002

    async def watch() -> None:
        nonlocal worst_s
        while True:
            began_s = loop.time()
            await asyncio.sleep(nap_s)
            worst_s = max(worst_s, loop.time() - began_s - nap_s)

    watching = asyncio.create_task(watch())
    began_s = loop.time()
    answer = await call()
    took_s = loop.time() - began_s
    watching.cancel()
    return answer, took_s, worst_s


def hostile(options: argparse.Namespace) -> Iterator[Row]:
    """Yield how many of many hostile reasons Slurm shows otherwise than as the allowed text."""
    rng = random.Random(7)
    wrong = changed = done = 0
    with running_slurm(_NODES) as site:
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
        log = (site.slurm.folder / "slurmctld.log").read_text(errors="replace")
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
        changes = asyncio.run(_play(Path(folder), options.events))
    yield Row(
        name=f"{options.events} random events: changes by us beyond one for each change of claims",
        value=changes,
        unit="changes",
        target=str(_NONE),
        met=_NONE.met(changes),
    )


async def _play(folder: Path, events: int) -> int:
    """Return how often we drained beyond what had to be; a hold that is changed ends it."""
    with running_drains([f"node{number}" for number in range(1, 7)]) as drains:
        async with running_world(drains, folder, 7) as world:
            await world.play(events)
            return max(0, drains.said("reason set to: everstep: ") - world.changes)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isolations", type=int, default=1000, help="nodes that are isolated")
    parser.add_argument("--reasons", type=int, default=10_000, help="hostile reasons")
    parser.add_argument("--events", type=int, default=2000, help="random events")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("isolations", 60.0, isolations),
        Part("budget", 20.0, budget),
        Part("readings", 40.0, readings),
        Part("hostile", 60.0, hostile),
        Part("events", 3600.0, random_events),
    ],
    repeats=5,
    add_options=_add_options,
    quick={"repeats": 1, "reasons": 1000, "events": 20},
)
