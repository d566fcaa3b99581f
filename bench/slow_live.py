"""Who is slow in a running job, at the controller: time on a processor, and what the loop waits.

    python bench/slow_live.py [--ranks N] [--rows N] [--json]

A job of 8 ranks a node; each row is what all nodes tell within 5 s, and is judged in a thread as
the controller does. One rank is slow from the middle on, so that both the calm and the busy case
are in it. ``loop late`` is how late a task of the event loop wakes that sleeps for a millisecond.
"""

import argparse
import asyncio
import json
import time

import numpy as np
from table import lines

from everstep_common.reports import RankColumns
from everstep_controller.slow.live import LivePlaces, LiveSlowness

_EACH, _SLOW, _FACTOR = 8, 5, 1.3
_TARGET_MS = 50.0
_WARM_ROWS = 3


class Job:
    """Ranks that tell their own work, all at once."""

    def __init__(self, ranks: int) -> None:
        self._nodes = ranks // _EACH
        names = tuple(f"n{place}" for place in range(self._nodes))
        domains = tuple(f"leaf{place // 32}" for place in range(self._nodes))
        self.live = LiveSlowness(LivePlaces(names, domains, _EACH))
        self._own_us = np.zeros(ranks, dtype=np.int64)
        self._steps = 0
        self._chance = np.random.default_rng(1)

    def work(self, *, slow: bool) -> dict[int, RankColumns]:
        """Return what the nodes tell after 10 more steps."""
        self._steps += 10
        own_s = 5.0 * (1 + 0.01 * self._chance.standard_t(3, len(self._own_us)))
        if slow:
            own_s[_SLOW] *= _FACTOR
        self._own_us += (own_s * 1e6).astype(np.int64)
        packed = (self._own_us << 16 | self._steps).astype("<i8")
        return {place: self._columns(place, packed) for place in range(self._nodes)}

    def _columns(self, place: int, packed: "np.typing.NDArray[np.int64]") -> RankColumns:
        own = packed[place * _EACH : (place + 1) * _EACH].tobytes()
        empty = bytes(8 * _EACH)
        return RankColumns(
            job="j-1",
            generation=1,
            first_rank=place * _EACH,
            steps=empty,
            median_ms=empty,
            p99_ms=empty,
            since_ms=empty,
            own=own,
        )


async def _wait_late(late_ms: list[float]) -> None:
    while True:
        began_s = time.perf_counter()
        await asyncio.sleep(0.001)
        late_ms.append(1e3 * (time.perf_counter() - began_s) - 1)


async def measure(ranks: int, rows: int) -> dict[str, float]:
    """Judge the rows, and return the numbers in milliseconds."""
    job, cpu_ms, late_ms = Job(ranks), list[float](), list[float]()
    waiter = asyncio.create_task(_wait_late(late_ms))
    named, while_judged = -1, list[float]()
    for row in range(rows):
        slow = row >= rows // 2
        told = job.work(slow=slow)
        await asyncio.sleep(0.01)
        before, began_s = len(late_ms), time.process_time()
        finding = await asyncio.to_thread(job.live.judge_told, told, 10 * row)
        cpu_ms.append(1e3 * (time.process_time() - began_s))
        await asyncio.sleep(0.002)
        while_judged += late_ms[before:] if row >= _WARM_ROWS else []
        if named < 0 and finding.parts:
            named = row - rows // 2
            assert [part.name for part in finding.parts] == [str(_SLOW)]
    waiter.cancel()
    judged = cpu_ms[_WARM_ROWS:]
    return {
        "median_ms": float(np.median(judged)),
        "longest_ms": max(judged),
        "loop_late_median_ms": float(np.median(while_judged)),
        "loop_late_p99_ms": float(np.quantile(while_judged, 0.99)),
        "named_after_rows": named,
    }


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    found = asyncio.run(measure(given.ranks, given.rows))
    met = found["median_ms"] <= _TARGET_MS
    if given.json:
        print(json.dumps({"ranks": given.ranks, **found, "target_ms": _TARGET_MS, "met": met}))
    else:
        table = [[name, f"{value:.2f}"] for name, value in found.items()]
        print("\n".join(lines(("what", "value"), table, (1,))))
        print(f"median on a processor ≤ {_TARGET_MS:.0f} ms: {'met' if met else 'NOT met'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
