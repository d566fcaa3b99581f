"""An old copy of the journal is put back while a real job runs: first nothing, then recovery."""

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_cli.client.admin import AdminError
from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child
from everstep_controller.core.events import NodeConnected
from everstep_controller.journal.codec import decode_actions, decode_event
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

NODES = ("node-1", "node-2")
# More than the test waits for: it ends the job, not the job the test.
STEPS, STEP_S = 5000, 0.05


def copy_journal(journal: Path, to: Path) -> None:
    """Copy what is committed, as a backup does."""
    with sqlite3.connect(journal) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def put_back(old: Path, journal: Path) -> None:
    for name in (journal, Path(f"{journal}-wal"), Path(f"{journal}-shm")):
        name.unlink(missing_ok=True)
    old.rename(journal)


def halted(fleet: RealFleet) -> str:
    try:
        return fleet.admin.call(
            lambda stub: stub.GetController, admin_pb2.GetControllerRequest()
        ).halted
    except AdminError:
        return ""


def acts(fleet: RealFleet) -> bool:
    try:
        return not fleet.admin.call(
            lambda stub: stub.GetController, admin_pb2.GetControllerRequest()
        ).halted
    except AdminError:
        return False


def replace_a_rank(fleet: RealFleet) -> None:
    """Kill a training process, and wait until its generation's successor trains."""
    rank = fleet.rank("node-1")
    assert rank is not None
    reaper.kill(rank)
    fleet.until("generation 2", 40, lambda: 2 in fleet.first_steps())


def before_the_job(fleet: RealFleet, old: Path) -> None:
    copy_journal(fleet.journal, old)
    fleet.launch(STEPS, STEP_S)
    fleet.until("a step", 40, lambda: fleet.step() > 20)


def before_a_generation(fleet: RealFleet, old: Path) -> None:
    fleet.launch(STEPS, STEP_S)
    fleet.until("a step", 40, lambda: fleet.step() > 20)
    copy_journal(fleet.journal, old)
    replace_a_rank(fleet)


def judge_the_halt(fleet: RealFleet) -> None:
    """The controller says that it acts on nothing, and does so; the job goes on."""
    fleet.until("a halt", 40, lambda: bool(halted(fleet)))
    assert "everstep-controller recover" in halted(fleet)
    asked = [["version"], ["nodes"], ["findings"], ["jobs"]]
    asked += [["why", JOB]] if fleet.job().state else []
    for command in asked:
        assert "this journal is old" in " ".join(fleet.everstep(*command).stdout.split()), command
    fleet.until("both agents' Hello", 40, lambda: hellos(fleet) >= set(NODES))
    fleet.until("word at the terminals", 40, lambda: all(map(says_why, fleet.launchers.values())))
    step = fleet.step()
    fleet.until("training without a controller", 30, lambda: fleet.step() > step + 20)
    assert told(fleet) == [], "a halted controller acted or acknowledged"


def says_why(launcher: Child) -> bool:
    """Return whether the terminal of a launcher says why nothing is done for its job."""
    return "acts on nothing: this journal is old" in launcher.log.read_text(encoding="utf-8")


def connected_anew(fleet: RealFleet, term: int) -> bool:
    """Return whether the agents, each connected while the controller rebuilt, are so in its term.

    They hear from the controller that it acts again, unless they were sending at that moment.
    """
    logs = [fleet.agents[name].log.read_text(encoding="utf-8") for name in NODES]
    return all(f"connected to the controller, term {term}\n" in log for log in logs)


def hellos(fleet: RealFleet) -> set[str]:
    events = [event for event in since_start(fleet) if isinstance(event, NodeConnected)]
    return {event.node for event in events}


def since_start(fleet: RealFleet) -> list[object]:
    """Return the events since the controller was started last."""
    store = SqliteJournal(fleet.journal, read_only=True)
    stored = list(store.events(0))
    store.close()
    begun = max(event.seq for event in stored if event.kind == "ControllerStarted")
    return [decode_event(e.kind, e.body) for e in stored if e.seq >= begun]


def told(fleet: RealFleet) -> list[object]:
    """Return what was decided for nodes, and which records were taken, since the last start."""
    store = SqliteJournal(fleet.journal, read_only=True)
    begun = max(event.seq for event in store.events(0) if event.kind == "ControllerStarted")
    actions = [a for body in store.decisions(begun).values() for a in decode_actions(body)]
    store.close()
    orders = [action for action in actions if hasattr(action, "node")]
    return [*orders, *(event for event in since_start(fleet) if hasattr(event, "origin"))]


@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    "lose", [before_a_generation, pytest.param(before_the_job, marks=pytest.mark.long)]
)
def test_a_job_survives_an_old_journal(lose: Callable[[RealFleet, Path], None]) -> None:
    with running_fleet(*NODES) as fleet:
        old = fleet.folder / "old.sqlite"
        lose(fleet, old)
        known = fleet.admin.call(
            lambda stub: stub.GetController, admin_pb2.GetControllerRequest()
        ).term
        generation = max(fleet.first_steps())
        fleet.until("a recoverable step", 30, lambda: fleet.sheet(JOB).has_recoverable)
        recoverable = fleet.sheet(JOB).recoverable_step
        fleet.end_controller(signal.SIGTERM)
        put_back(old, fleet.journal)
        fleet.start_controller()
        judge_the_halt(fleet)
        reached = fleet.step()
        fleet.end_controller(signal.SIGTERM)

        fleet.start_controller("recover")
        fleet.until("the end of the recovery", 60, lambda: acts(fleet))
        term = fleet.admin.call(
            lambda stub: stub.GetController, admin_pb2.GetControllerRequest()
        ).term
        assert term > known
        fleet.until("new steps", 60, lambda: fleet.step() > reached + 40)
        fleet.until("a running job", 30, lambda: fleet.job().state == "running")
        fleet.until("agents that connected anew", 30, lambda: connected_anew(fleet, term))
        later = {n: step for n, step in fleet.first_steps().items() if n > generation}
        # While no controller acts no newer step becomes recoverable; the last one must not be lost.
        assert all(step > recoverable for step in later.values()), (later, recoverable)
        assert fleet.job().generation >= generation


@pytest.mark.timeout(300)
def test_a_job_on_one_node_that_fails_while_the_controller_is_halted_is_restarted_there() -> None:
    with running_fleet("node-1") as fleet:
        old = fleet.folder / "old.sqlite"
        before_the_job(fleet, old)
        fleet.until("a recoverable step", 30, lambda: fleet.sheet(JOB).has_recoverable)
        fleet.end_controller(signal.SIGTERM)
        put_back(old, fleet.journal)
        fleet.start_controller()
        fleet.until("a halt", 40, lambda: bool(halted(fleet)))
        # Far more steps than there are slots: its agent frees them.
        reached = fleet.step()
        fleet.until("steps on its own", 60, lambda: fleet.step() > reached + 120)
        replace_a_rank(fleet)
        assert halted(fleet)
        assert told(fleet) == [], "a halted controller acted or acknowledged"
        (first,) = [step for number, step in fleet.first_steps().items() if number == 2]
        assert first > reached + 40
        fleet.until("more steps", 40, lambda: fleet.step() > first + 20)
        reached = fleet.step()
        fleet.end_controller(signal.SIGTERM)

        fleet.start_controller("recover")
        fleet.until("the end of the recovery", 60, lambda: acts(fleet))
        fleet.until("new steps", 60, lambda: fleet.step() > reached + 40)
        fleet.until("a running job", 30, lambda: fleet.job().state == "running")
        later = {n: step for n, step in fleet.first_steps().items() if n > 2}
        assert all(step > reached - 20 for step in later.values()), (later, reached)
        assert fleet.job().generation == max(fleet.first_steps())
