"""Rows of the scale benchmark: what one thing costs the controller in a fleet of a given size.

Each is the processor time from records as values of the core to the actions that follow, with the
journal's text of both; connections, protobuf and the disk are left out.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

import plan_whole
import planned_scale
from scale_fleet import JOB, RANKS_PER_NODE, Bench, Recorder, copies, form, joined

from everstep_common import reports
from everstep_common.orders import Order
from everstep_common.reports import Phase, TcpAnswer
from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.jobs.progress_rows import ProgressRows, ReportedSteps, reporters
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import RollCall
from everstep_controller.core.nodes import quorum
from everstep_controller.core.vault.catalogue import News
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.journal.codec import (
    decode_event,
    decode_state,
    encode,
    encode_actions,
    kind_of,
)
from everstep_controller.journal.port import Mark, StoredEvent, StoredSnapshot
from everstep_controller.journal.sqlite.compaction import compact, prune_snapshots
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.records.intake import Intake
from everstep_controller.runtime.event_batches import BATCH_MAX
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.vault_service import VaultService

_S = 1_000_000_000
_DAY_S = 86_400
# Every how many seconds a step ends, and how often the state is written down.
_STEP_S, _SNAPSHOT_S = 5, 300
# Steps of each of the many jobs whose memory is measured.
_STEPS_MADE = 5000
# Nodes of each of the many jobs, and ranks of the fleet's nodes: as in planned_scale.
_MEMBERS = 12


@dataclass(slots=True)
class Counted(Bench):
    """A fleet whose core is fed as the daemon feeds it, and how many orders came of that."""

    orders: int = 0
    last: Sequence[actions.Action] = ()
    waiting: list[events.Event] = field(default_factory=list)
    kind: str = ""
    asked: list[actions.ConfirmSilence] = field(default_factory=list)
    rolls: list[str] = field(default_factory=list)

    def submit(self, event: events.Event) -> None:
        """Take an event with those that come together with it, as the runtime does."""
        kind = events.batch_of(event)
        if kind != self.kind or not kind or len(self.waiting) >= BATCH_MAX:
            self.flush()
        self.waiting.append(event)
        self.kind = kind
        if not kind:
            self.flush()

    def flush(self) -> None:
        """Take what waits."""
        waiting, self.waiting = self.waiting, []
        if waiting:
            self.take(waiting[0] if len(waiting) == 1 else events.EventBatch(tuple(waiting)))

    def take(self, event: events.JournaledEvent) -> float:
        """Journal an event, hand it to the core, and write down what follows."""
        self.now_ns += 1000
        encode(event)
        self.last = self.core.handle(event, self.now_ns)
        encode_actions(self.last)
        self.orders += sum(isinstance(action, Order) for action in self.last)
        self.asked += [one for one in self.last if isinstance(one, actions.ConfirmSilence)]
        self.rolls += [one.id for one in self.last if isinstance(one, actions.CallRoll)]
        return 0.0

    def answer(self, silent: Collection[str]) -> None:
        """Have all who were asked about a silent peer say that nothing of it answers."""
        asked, self.asked = self.asked, []
        for one in asked:
            if one.node not in silent:
                self.submit(events.PeerJudged(one.node, one.peer, one.id, False, TcpAnswer.SILENT))
        self.flush()
        rolls, self.rolls = self.rolls, []
        for roll in rolls:
            self.submit(events.RollCalled(roll, len(self.nodes) - len(silent)))
        self.flush()

    def let_timers_come_due(self, silent: Collection[str]) -> None:
        """Have all timers come due whose time has come, and whatever is asked by that answered."""
        timers = self.core.state.timers
        due = [(at_ns, timer) for timer, at_ns in timers.items() if at_ns <= self.now_ns]
        for at_ns, timer in sorted(due):
            if timers.get(timer) == at_ns:
                self.submit(events.TimerDue(timer))
        self.flush()
        self.answer(silent)


@dataclass(slots=True)
class _Journal:
    """Submitting and Acknowledging of an intake: takes events at once, and counts who is told."""

    bench: Counted
    acknowledgements: int = 0

    def submit(
        self, event: events.Event, marks: tuple[Mark, ...] = ()
    ) -> "asyncio.Future[TakenEvent]":
        """See Submitting."""
        self.bench.submit(event)
        future: asyncio.Future[TakenEvent] = asyncio.get_running_loop().create_future()
        future.set_result(TakenEvent(0, 0, event, []))
        return future

    def submit_marks(self, marks: tuple[Mark, ...]) -> "asyncio.Future[None]":
        """See Submitting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def unmark(self, mark: Mark) -> None:
        """See Submitting; nothing is ignored here."""

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        """See Acknowledging."""
        self.acknowledgements += 1

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        """See Acknowledging."""


def _names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def _running(nodes: int) -> Counted:
    """Return a job of 8 ranks a node on all nodes, which runs."""
    bench = Counted(_names(nodes), _names(nodes))
    form(bench)
    for phase in Phase:
        for name in bench.members:
            report = reports.PhaseReached(1, phase)
            bench.take(events.Reported(bench.origin(name), bench.now_ns, report, JOB))
    bench.take(bench.step_of(0))
    return bench


def _many_jobs(nodes: int) -> Counted:
    """Return a fleet with a job of 12 nodes on all of it but a few."""
    bench = Counted(_names(nodes), [])
    planned_scale.fill(bench, nodes // (_MEMBERS + 1) + 1)
    return bench


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def progress(nodes: int) -> float:
    """Return seconds for all nodes' word of one step, until its row is taken and acknowledged."""
    bench = _running(nodes)
    journal, state = _Journal(bench), bench.core.state
    intake = Intake(journal, ProgressRows(lambda job: reporters(state, job)), journal, {})

    def told_of(number: int) -> list[ReportedSteps]:
        end_ns = (bench.now_ns,)
        origins = (Origin(one, f"outbox-{one}", (1 << 20) + number) for one in bench.members)
        return [ReportedSteps(JOB, 1, number, end_ns, (0,), 0, origin) for origin in origins]

    def tell(steps: Sequence[ReportedSteps]) -> None:
        for one in steps:
            if intake.is_new(one.origin):
                intake.take_steps(one, bench.now_ns)

    async def steps() -> float:
        spent = []
        for number in range(1, 4):
            bench.now_ns += 5 * _S
            told = told_of(number)
            step_s = _timed(lambda told=told: tell(told))  # type: ignore[misc]
            began = time.process_time()
            intake.tick(bench.now_ns + 2 * _S)
            await asyncio.sleep(0)
            spent.append(step_s + time.process_time() - began)
        assert journal.acknowledgements == 3 * nodes
        assert state.newest(JOB).lineage.last_step == 3
        return sorted(spent)[1]

    return asyncio.run(steps())


def vault(nodes: int) -> float:
    """Return seconds for all nodes' word of a step's copies, and the directives that follow."""
    bench = _running(nodes)
    port = Recorder()
    service = VaultService(lambda: bench.core.state, port)
    service.job_changed(JOB)
    held: dict[str, dict[bytes, object]] = {name: {} for name in bench.members}
    spent = []
    for step in range(4):
        told = [
            {f"{c.rank}/{c.step}/{c.replica}".encode(): c for c in copies(bench, index, (step,))}
            for index in range(nodes)
        ]

        def tell() -> None:
            for name, new in zip(bench.members, told, strict=True):  # noqa: B023
                known = held[name]
                gone = tuple(known.values()) if step else ()  # noqa: B023
                known.clear()
                known.update(new)
                news = News(tuple(new.values()), gone)  # type: ignore[arg-type]
                service.report(JOB, name, NodeHoldings(known, 0, news=news))  # type: ignore[arg-type]
            port.run_waiting()

        spent.append(_timed(tell))
    return sorted(spent)[len(spent) // 2]


def apart(nodes: int) -> float:
    """Return seconds to decide once more while ranks save different steps, as twice a second."""
    bench = _running(nodes)
    port = Recorder()
    service = VaultService(lambda: bench.core.state, port)
    service.job_changed(JOB)
    for index, name in enumerate(bench.members):
        # Each second node is one step ahead, in every slot that it has.
        there = [
            copy
            for ahead in (0, 1)
            for copy in copies(bench, index, [step + ahead for step in (10, 12, 14)])
            if ahead == (index - copy.replica) % 2
        ]
        held = {f"{c.rank}/{c.step}/{c.replica}".encode(): c for c in there}
        service.report(JOB, name, NodeHoldings(held, 0))

    def decide_again() -> None:
        port.run_waiting()  # it is time …
        port.run_waiting()  # … and this decides

    spent = []
    for _ in range(9):
        port.time_ns += _S // 2
        spent.append(_timed(decide_again))
        assert port.waiting, "ranks are in phase"
    return sorted(spent[1:])[len(spent) // 2]


def roll(nodes: int) -> float:
    """Return seconds to ask all agents whether they are heard, and to count their answers."""
    bench = _checked(nodes)
    state, sessions = bench.core.state, Sessions()
    for name in bench.nodes:
        sessions.open(name, f"outbox-{name}")
    rolls = RollCalls(lambda: state, sessions, bench.submit)

    async def call() -> float:
        spent = []
        for number in range(5):
            state.roll = RollCall(f"roll/{number}", "n0 is silent", bench.now_ns, nodes)
            began = time.process_time()
            rolls.call(next(iter(quorum.unanswered_calls(state))))
            for name in bench.nodes:
                rolls.take_answer(name, state.roll.id)
            spent.append(time.process_time() - began)
            assert state.roll.over, "most have answered"
        return sorted(spent)[len(spent) // 2]

    return asyncio.run(call())


def _exits_of(bench: Counted) -> list[events.Reported[reports.Report]]:
    return [
        events.Reported(
            bench.origin(name),
            bench.now_ns,
            reports.RankExited(
                generation=1,
                rank=place * RANKS_PER_NODE + rank,
                exit_code=1,
                signal=0,
                last_line="NCCL error",
                kind="collective",
            ),
            JOB,
        )
        for place, name in enumerate(bench.members)
        for rank in range(RANKS_PER_NODE)
    ]


def _stops_of(bench: Counted) -> list[events.Reported[reports.Report]]:
    stopped = reports.GenerationStopped(1, 29500)
    return [
        events.Reported(bench.origin(name), bench.now_ns, stopped, JOB) for name in bench.members
    ]


def exits(nodes: int) -> float:
    """Return seconds until a job is planned anew of which all ranks died, 8 on each node."""
    bench = _running(nodes)
    journal, state = _Journal(bench), bench.core.state
    intake = Intake(journal, ProgressRows(lambda job: reporters(state, job)), journal, {})

    def tell(event: events.Reported[reports.Report]) -> None:
        if intake.is_new(event.origin):
            intake.take_event(event.origin, event, bench.now_ns)

    died, stopped = _exits_of(bench), _stops_of(bench)

    async def exit_and_settle() -> None:
        for event in died:
            tell(event)
        intake.tick(bench.now_ns)
        bench.flush()
        for event in stopped:
            tell(event)
        bench.flush()
        await asyncio.sleep(0)

    spent_s = _timed(lambda: asyncio.run(exit_and_settle()))
    assert state.newest(JOB).generation.number == 2
    return spent_s


def plan(nodes: int) -> float:
    """Return seconds for the plan of a job of 8 ranks a node after the loss of one node."""
    whole = plan_whole.formed(nodes + nodes // 31 + 1, nodes)
    plan_whole.run(whole)
    plan_whole.lose(whole, whole.job.generation.members[32])
    return sum(whole.spent[stage][-1] for stage in plan_whole.PLAN) / 1e3


def reconnect(nodes: int) -> float:
    """Return seconds for the Hellos of all nodes after a restart, with a job to each 13 of them."""
    bench = _many_jobs(nodes)
    state = bench.core.state
    bench.take(events.ControllerStarted("bench"))
    hellos = []
    for name in bench.nodes:
        jobs = [state.jobs[job_id] for job_id in state.nodes[name].jobs.ids]
        seen = tuple(
            reports.JobOnNode(j.name, 1, launcher=True, job_id=j.id, planned_generation=1)
            for j in jobs
        )
        hellos.append(
            events.NodeConnected(
                node=name,
                boot_id="boot",
                agent_version="1",
                outbox=f"outbox-{name}",
                highest_term=1,
                host="127.0.0.1",
                jobs=seen,
            )
        )
    return _timed(lambda: [bench.take(hello) for hello in hellos])


def start(nodes: int) -> float:
    """Return seconds for what is due at a start, with a job on all nodes and their timers set."""
    bench = _running(nodes)
    core = Core(decode_state(encode(bench.core.state)))

    def begin() -> None:
        bench.core = core
        bench.take(events.ControllerStarted("bench"))
        encode_actions(core.due(bench.now_ns))

    return _timed(begin)


def lost(nodes: int) -> float:
    """Return seconds until a quarter of the fleet is lost, whole racks, that fell silent at once.

    Counted are the ends of their streams, the word of three watchers of each, the answers of those
    that are asked, all timers, and the stops and plans of the jobs that had members there.
    """
    bench = _many_jobs(nodes)
    state, silent = bench.core.state, frozenset(bench.nodes[: nodes // 4])

    def fall_silent() -> None:
        for place, name in enumerate(bench.nodes[: nodes // 4]):
            bench.submit(events.NodeDisconnected(name))
            for watcher in range(3):
                other = bench.nodes[-1 - (3 * place + watcher) % (nodes // 2)]
                bench.submit(events.PeerReported(other, name, silent=True, silent_for_ns=3 * _S))
        bench.flush()
        bench.answer(silent)
        for _ in range(80):
            bench.now_ns += _S // 4
            bench.let_timers_come_due(silent)

    spent_s = _timed(fall_silent)
    assert all(state.nodes[name].gone for name in silent), "not all are lost"
    assert not any(state.nodes[name].gone for name in state.nodes.keys() - silent)
    return spent_s


def _checked(nodes: int) -> Counted:
    """Return a fleet of nodes that wait for work."""
    bench = Counted(_names(nodes), _names(nodes))
    bench.take(events.ControllerStarted("bench"))
    bench.take(events.SettingsApplied(Settings()))
    for name in bench.nodes:
        bench.take(
            events.NodeConnected(
                node=name,
                boot_id="boot",
                agent_version="1",
                outbox=f"outbox-{name}",
                highest_term=0,
                host="127.0.0.1",
            )
        )
        order = f"{name}/check/{bench.core.state.nodes[name].health.checks}"
        passed = reports.CheckFinished(order, True, "fine")
        bench.take(events.Reported(bench.origin(name), 0, passed))
    bench.orders = 0
    return bench


def _form_job(bench: Counted) -> None:
    for name in bench.members:
        bench.take(joined(bench.origin(name), len(bench.members)))
    assert bench.core.state.newest(JOB).generation.number == 1


def forming(nodes: int) -> float:
    """Return seconds to take in the launchers of a job on all nodes."""
    bench = _checked(nodes)
    return _timed(lambda: _form_job(bench))


def forming_messages(nodes: int) -> float:
    """Return how many messages a job on all nodes costs until it is planned."""
    bench = _checked(nodes)
    _form_job(bench)
    return bench.orders


def _steps_of_a_day(bench: Counted) -> Iterator[StoredEvent]:
    for number in range(1, _DAY_S // _STEP_S + 1):
        bench.now_ns += _STEP_S * _S
        event = bench.step_of(number)
        yield StoredEvent(number, bench.now_ns, kind_of(event), encode(event))


def journal(nodes: int) -> float:
    """Return MB on disk after a day of a job on all nodes, with the snapshots that are kept.

    Rows are committed by the hour, and of the snapshots only those are written that are not deleted
    before the end: neither changes what is in the file.
    """
    bench = _running(nodes)
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        store = SqliteJournal(Path(folder) / "journal")
        state = encode(bench.core.state)
        for hour, rows in groupby(_steps_of_a_day(bench), lambda one: one.seq * _STEP_S // 3600):
            stored = list(rows)
            last = stored[-1]
            store.begin()
            store.append(stored, [Mark(one, f"outbox-{one}", last.seq) for one in bench.nodes])
            if hour in (0, 23, 24):
                store.save_snapshot(StoredSnapshot(last.seq, last.now_ns, "bench", state))
            store.commit()
        compact(store, bench.now_ns - 7 * _DAY_S * _S, 0)
        store.close()
        return sum(one.stat().st_size for one in Path(folder).iterdir()) / 1e6


def fold(nodes: int) -> float:
    """Return seconds to read the state again, and to fold a day of a job on all nodes."""
    bench = _running(nodes)
    text, stored = encode(bench.core.state), list(_steps_of_a_day(bench))

    def read() -> None:
        core = Core(decode_state(text))
        for one in stored:
            core.handle(decode_event(one.kind, one.body), one.now_ns)

    return _timed(read)


def snapshots(nodes: int) -> float:
    """Return how many snapshots of the state are kept at most in three weeks, events for one."""
    del nodes
    most, week_ns = 0, 7 * _DAY_S * _S
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        store = SqliteJournal(Path(folder) / "journal")
        store.begin()
        for number in range(1, 21 * _DAY_S // _SNAPSHOT_S + 1):
            at_ns = number * _SNAPSHOT_S * _S
            store.save_snapshot(StoredSnapshot(number, at_ns, "bench", b"state"))
            prune_snapshots(store, at_ns - week_ns)
            most = max(most, len(store.snapshots_taken()))
        store.commit()
        store.close()
    return most


# What a controller without connections has in memory: its modules, a loop, and the state.
_HOLD = """
import asyncio, gc, pathlib, sys
import everstep_controller.service
from everstep_controller.core.dispatch.core import Core
from everstep_controller.journal.codec import decode_state
core = Core(decode_state(pathlib.Path(sys.argv[1]).read_bytes()))
asyncio.new_event_loop()
gc.collect()
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
"""


def memory(nodes: int) -> float:
    """Return MiB of a process with the state of a job on all nodes that has run for a day."""
    bench = _running(nodes)
    for stored in _steps_of_a_day(bench):
        bench.core.handle(decode_event(stored.kind, stored.body), stored.now_ns)
    return _held_mib(bench)


def memory_jobs(nodes: int) -> float:
    """Return MiB with jobs of 12 nodes, 1,000 on 12,500, of which each has made 5,000 steps.

    The first one makes them; the others are given a ledger like its own.
    """
    bench = Counted(_names(nodes), [])
    planned_scale.fill(bench, nodes * 2 // 25)
    first, *others = bench.core.state.jobs.values()
    for number in range(_STEPS_MADE):
        bench.now_ns += _STEP_S * _S
        row = bench.step_of(number)
        bench.core.handle(replace(row, job=first.id), bench.now_ns)
    assert first.ledger.step_count == _STEPS_MADE
    for job in others:
        job.ledger, job.lineage.last_step = first.ledger, first.lineage.last_step
    return _held_mib(bench)


def _held_mib(bench: Bench) -> float:
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        path = Path(folder) / "state"
        path.write_bytes(encode(bench.core.state))
        command = [sys.executable, "-c", _HOLD, str(path)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return float(done.stdout) / 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """One row: how it is measured, in what, at which sizes, and the most that it shall be."""

    what: str
    measure: Callable[[int], float]
    unit: str
    target: float
    sizes: tuple[int, ...] = (1000, 3000, 12_500)
    # By size, the most that it shall be at smaller ones.
    also: Mapping[int, float] = field(default_factory=dict)


ROWS: Mapping[str, Measured] = MappingProxyType(
    {
        "progress": Measured("progress of one step of a job on all nodes", progress, "s", 0.1),
        "vault": Measured("vault reports and refreshes of a step", vault, "s", 0.4),
        "apart": Measured(
            "one of two decisions a second while ranks save different steps",
            apart,
            "s",
            0.3,
            (512, 2048, 12_500),
            {2048: 0.05},
        ),
        "exits": Measured("all ranks exit (8 a node), all nodes stop", exits, "s", 1.0),
        "plan": Measured(
            "plan of 8 ranks a node: 16,384 on 2,048, 100,000 on 12,500",
            plan,
            "s",
            0.5,
            (512, 2048, 12_500),
            {2048: 0.1},
        ),
        "reconnect": Measured("all agents reconnect, many jobs", reconnect, "s", 3.0),
        "start": Measured("what is due at a start", start, "s", 1.0),
        "lost": Measured("a quarter of the fleet lost", lost, "s", 2.0),
        "roll": Measured("a roll call of all agents, and their answers", roll, "s", 0.05),
        "forming": Measured("forming a job of 2,048 nodes", forming, "s", 0.3, (512, 1024, 2048)),
        "messages": Measured(
            "forming it: messages", forming_messages, "", 16_384, (512, 1024, 2048)
        ),
        "journal": Measured("journal of a day with a step every 5 s", journal, "MB", 200),
        "fold": Measured("reading that day again", fold, "s", 5.0),
        "snapshots": Measured(
            "snapshots of the state kept: 2 for a start, 3 for a replay", snapshots, "", 5, (1000,)
        ),
        "memory": Measured("memory of state and loop, one job on all nodes", memory, "MiB", 500),
        "memory-jobs": Measured(
            "the same, jobs of 12 nodes with 5,000 steps each: 1,000 on 12,500",
            memory_jobs,
            "MiB",
            500,
        ),
    }
)


def main(name: str, nodes: int) -> float:
    """Return the value of one row."""
    collect_garbage_seldom()  # as the daemon does
    return ROWS[name].measure(nodes)
