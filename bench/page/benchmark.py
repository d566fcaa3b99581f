"""Page benchmark: how soon a browser shows a fleet, and what those who look cost the controller.

A controller knows 2,000 or 12,500 nodes, made as `python bench scale` makes them, one of 40 with a
finding, and a job that makes two steps a second. No agents are behind the nodes, so that the
controller does nothing but what it is asked. The page is `everstep page`, the browser a headless
Chromium on the same machine. First paint is from the click until nodes are seen, asked of the
controller anew each time; an update is what the browser computes for 20 nodes that change.
50 browsers are separate contexts: 40 look at the fleet and ten at a job that trains.
"""

import argparse
from collections.abc import Iterator
from functools import partial

from harness.processes import memory_alone_bytes
from harness.session import Benchmark, Part
from harness.table import Row, row
from harness.talk import Talk
from page.browsing import Stage, first_paints, look_for, stage, transferred_bytes, updates_s
from page.fleet import JOB

_MB = 1e6
_CHANGES, _CHANGED = 8, 20
_LARGE = 12_500
# One browser of so many looks at the job.
_JOB_ONE_OF = 5


def measure(nodes: int, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one browser and a fleet of a size."""
    large = nodes >= _LARGE
    with stage(nodes) as shown:
        paints = first_paints(shown, options.repeats)
        walls, spent = [one.wall_s for one in paints], [one.cpu_s for one in paints]
        yield row(f"{nodes} nodes: first paint", walls, "s", target=1.0 if large else 0.2)
        yield row(f"{nodes} nodes: processor time of it, all together", spent, "CPU s")
        if large:
            yield row(f"{nodes} nodes: update", updates_s(shown, _CHANGES, _CHANGED), "s")
            yield row(f"{nodes} nodes: transferred", [transferred_bytes(shown) / _MB], "MB")
            memory = memory_alone_bytes(shown.page_pid) / _MB
            yield row(f"{nodes} nodes: memory of the page's process", [memory], "MB")
            return
        updates = updates_s(shown, _CHANGES, _CHANGED)
        yield row(f"{nodes} nodes: update", updates, "s", target=0.03)
        yield row(f"{nodes} nodes: transferred", [transferred_bytes(shown) / _MB], "MB", target=1.0)


def measure_browsers(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what many browsers cost the controller beside the fleet's own changes."""
    with stage(options.nodes) as shown:
        look_for([], 2.0, shown, _CHANGED)
        idle, idle_held_s = _cost(shown, [], options.seconds)
        visitors = [shown.visitor() for _ in range(options.browsers)]
        pages = [visitor.new_page() for visitor in visitors]
        for place, page in enumerate(pages):
            path = f"job/{JOB}" if place % _JOB_ONE_OF == 0 else ""
            page.goto(shown.root() + path, wait_until="commit")
        pages[-1].wait_for_timeout(5000)
        busy, held_s = _cost(shown, pages, options.seconds)
        what = f"{options.browsers} browsers, {options.nodes} nodes: "
        yield row(f"{what}cost at the controller", [100 * (busy - idle)], "% core", target=5.0)
        yield row(f"{what}its loop is held at most", [held_s * 1e3], "CPU ms", target=20.0)
        yield row("the same without browsers", [idle_held_s * 1e3], "CPU ms")
        memory = memory_alone_bytes(shown.page_pid) / _MB
        yield row(f"{what}memory of the page's process", [memory], "MB", target=80.0)
        for visitor in visitors:
            visitor.close()


def _cost(shown: Stage, pages: list, seconds: float) -> tuple[float, float]:  # type: ignore[type-arg]
    """Return the cores that the controller takes, and how long its loop is held at most."""
    before, _ = _looked(shown.fleet)
    look_for(pages, seconds, shown, _CHANGED)
    after, held_s = _looked(shown.fleet)
    return (after - before) / seconds, held_s


def _looked(fleet: Talk) -> tuple[float, float]:
    told = fleet.ask("look")
    assert isinstance(told, dict)
    return float(told["cpu_s"]), float(told["held_s"])


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--browsers", type=int, default=50, metavar="N", help="that look at once")
    parser.add_argument("--nodes", type=int, default=2000, metavar="N", help="that they look at")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("2000", 60.0, partial(measure, 2000)),
        Part("12500", 100.0, partial(measure, _LARGE)),
        Part("browsers", 120.0, measure_browsers),
    ],
    repeats=5,
    seconds=20.0,
    add_options=_add_options,
    quick={"repeats": 1, "seconds": 6.0, "browsers": 5},
)
