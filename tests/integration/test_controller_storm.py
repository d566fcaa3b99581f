"""The controller is killed again and again while a real job runs and fails."""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_controller.core.actions import StartGeneration
from everstep_controller.journal.codec import decode_actions
from everstep_controller.journal.port import JournalBackend
from everstep_controller.journal.sqlite.journal import SqliteBackend
from fakes.postgres_server import postgres_server
from integration.journals import postgres_backend
from integration.real_fleet import JOB, RealFleet, running_fleet

STEPS = 300
STEP_S = 0.04
NODES = ("node-1", "node-2")


def storm(
    seed: int,
    kills: int,
    steps: int,
    journal_url: str = "",
    journal: Callable[[Path], JournalBackend] = SqliteBackend,
) -> None:
    """Train; kill the controller at random moments and two ranks among them; judge the end."""
    random_ = random.Random(seed)
    deadlines = sorted(random_.uniform(0.1, 0.8) for _ in range(kills))
    rank_kills = {kills // 3: "node-1", 2 * kills // 3: "node-2"}
    struck = 0
    with running_fleet(*NODES, journal_url=journal_url) as fleet:
        fleet.launch(steps, STEP_S)
        fleet.until("a first step", 40, lambda: fleet.step() > 0)
        for number, moment in enumerate(deadlines):
            goal = round(moment * steps)
            fleet.until(f"step {goal}", 60, lambda goal=goal: fleet.step() >= goal)  # type: ignore[misc]
            if number in rank_kills:
                struck = _kill_rank(fleet, rank_kills[number], struck)
            _wait(random_.uniform(0.0, 0.6))
            fleet.end_controller()
            _wait(random_.uniform(0.0, 1.5))
            fleet.start_controller()
        fleet.until("the end of the job", 90, lambda: fleet.job().state == "ended")
        _judge(fleet, steps, journal(fleet.journal))


def _kill_rank(fleet: RealFleet, node: str, struck: int) -> int:
    """Kill a training process that has got somewhere, as the kernel's OOM killer would.

    Its generation is returned. Those up to ``struck`` are over, even where their ranks still die:
    the steps that they had made may be beyond the one that was waited for.
    """

    def killed() -> bool:
        rank = fleet.rank(node) if max(fleet.first_steps(), default=0) > struck else None
        return rank is not None and reaper.kill(rank)

    fleet.until(f"a rank on {node} after generation {struck}", 60, killed)
    return max(fleet.first_steps())


def _wait(seconds: float) -> None:
    """Let the storm strike at another moment: this time is the test's input, not a hope."""
    time.sleep(seconds)


def _judge(fleet: RealFleet, steps: int, journal: JournalBackend) -> None:
    assert fleet.job().reason == f"all ranks ended well after step {steps - 1}", fleet.logs()
    assert sorted(fleet.losses()) == list(range(steps))
    ledger = fleet.ledger(JOB)
    assert sum(category.time_ns for category in ledger.categories) == ledger.wall_ns
    assert len(ledger.incidents) >= 2
    # One that is killed may not have written down yet what it decided last.
    fleet.end_controller(signal.SIGTERM)
    replayed = fleet.replay()
    assert replayed.returncode == 0, replayed.stdout
    assert " 0 decided differently" in replayed.stdout
    for generation, orders in _plans(journal).items():
        assert all(len(plans) == 1 for plans in orders.values()), (generation, orders)


def _plans(journal: JournalBackend) -> dict[int, dict[str, set[str]]]:
    """Return what was ordered of each generation, by node; the term of an order may differ."""
    found: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    with closing(journal.open_reader()) as store:
        for body in store.decisions(0).values():
            for action in decode_actions(body):
                if isinstance(action, StartGeneration):
                    found[action.generation][action.node].add(repr(action))
    return found


@pytest.mark.timeout(420)
def test_three_kills_of_the_controller_change_nothing_for_the_job() -> None:
    storm(seed=3, kills=3, steps=STEPS)


@pytest.mark.timeout(420)
def test_three_kills_over_a_database_change_nothing_for_the_job_either() -> None:
    with postgres_server() as server:
        name = server.new_database()
        backend = postgres_backend(server, name)
        storm(4, kills=3, steps=STEPS, journal_url=server.url(name), journal=lambda _: backend)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_ten_kills_of_the_controller_change_nothing_for_the_job(seed: int) -> None:
    storm(seed, kills=10, steps=3 * STEPS)
