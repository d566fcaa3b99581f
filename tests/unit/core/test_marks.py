"""Only the jobs that an event may have changed are looked at: looking at all changes nothing."""

import random
from typing import NoReturn

import pytest

from everstep_common import reports
from everstep_common.reports import JobOnNode, Phase
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.dispatch.reconcile import reconcile
from everstep_controller.core.jobs import membership
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node_liveness import Confirmation
from everstep_controller.core.model.state import State, jobs_involving, jobs_of_node
from everstep_controller.core.nodes.lifecycle import check_order
from everstep_controller.core.recovery import blame
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn
from everstep_controller.journal.codec import encode
from unit.core.test_decisions import XID, S, Story, launcher_joined

JOBS = ("a", "b", "c")


class Looking(Core):
    """A core that marks everything after each event, and at which nothing may change by that."""

    def handle(self, event: events.JournaledEvent, now_ns: int) -> list[actions.Action]:
        done = super().handle(event, now_ns)
        before = encode(self.state)
        turn = Reconciliation(self.state, now_ns)
        for name in self.state.nodes:
            turn.mark_node(name)
        # What only a timer says that has not been told yet is no change that was not marked.
        for job_id in self.state.jobs:
            if self.state.timers.get(f"{TimerKind.FORMING}/{job_id}", now_ns) >= now_ns:
                turn.mark_job(job_id, moved=True)
        for window_id in self.state.windows:
            if self.state.timers.get(f"{TimerKind.MAINTENANCE}/{window_id}", 0) > now_ns:
                turn.mark_window(window_id)
        reconcile(turn)
        assert not turn.actions, f"{event} had not marked what calls for {turn.actions}"
        assert encode(self.state) == before, event
        return done


class Fleet(Story):
    """Three jobs on five nodes each, of two that they need and three that they want."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        super().__init__(nodes=0)
        self.core: Core = Looking(self.core.state)
        self.nodes = [f"n{index}" for index in range(15)]
        for node in self.nodes:
            self.connect(node)
        for index, job in enumerate(JOBS):
            for node in self.nodes[index * 5 : index * 5 + 5]:
                self.joined(job, node)

    def joined(self, job: str, node: str) -> None:
        self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(nodes_max=3, reform=True, restarts_max=99, free_port=1),
                job,
            )
        )

    def anything(self) -> None:
        """Tell one thing that may happen."""
        job, node = self.random.choice(JOBS), self.random.choice(self.nodes)
        self.random.choice(
            (self._operator, self._operator, self._stream, self._time, self._job, self._job)
        )(job, node)

    def _operator(self, job: str, node: str) -> None:
        begin_ns = self.now_ns + 700 * S
        window = f"m-{self.core.state.windows_ordered}"
        ending = events.StopOrdered(job, "ops", "over")
        self.tell(
            self.random.choice(
                (
                    events.OperatorDrained(node, "ops", "fan"),
                    events.OperatorIsolated(node, "ops", "smoke"),
                    events.OperatorReleased(node, "ops", "good"),
                    events.OperatorReleased(node, "ops", "good"),
                    events.RestartOrdered(job, "ops", "code"),
                    events.RestartCancelled(job, "ops"),
                    # Few, or no job would be left.
                    ending if self.random.random() < 0.1 else events.RestartCancelled(job, "ops"),
                    events.AutomationPaused(job, "ops", "look"),
                    events.AutomationResumed(job, "ops"),
                    events.MaintenanceCancelled(window, "ops"),
                    events.MaintenanceOrdered(
                        nodes=(node,), begin_ns=begin_ns, end_ns=begin_ns + 99 * S, operator="ann"
                    ),
                )
            )
        )

    def _stream(self, job: str, node: str) -> None:
        record = self.core.state.newest(job)
        known = (JobOnNode(job, record.generation.number, launcher=node in record.launchers),)
        if self.random.random() < 0.3:
            self.find(node, XID)
        elif self.random.random() < 0.3:
            self._check(node)
        elif self.random.random() < 0.3:
            self._peers(node)
        elif self.core.state.nodes[node].liveness.connected:
            self.tell(events.NodeDisconnected(node))
        else:
            self.connect(node, boot=self.random.choice("12"), jobs=self.random.choice((known, ())))
            if self.random.random() < 0.5:
                self.joined(job, node)

    def _check(self, node: str) -> None:
        order = check_order(self.core.state.nodes[node])
        passed = self.random.random() < 0.5
        report = reports.CheckFinished(order.id, passed, "good" if passed else "nvml: no answer")
        self.tell(events.Reported(self.origin(node), self.now_ns, report))

    def _peers(self, node: str) -> None:
        other = self.random.choice(self.nodes)
        self.tell(events.PeerReported(other, node, self.random.random() < 0.7))
        waiting = self.core.state.nodes[node].liveness.confirmation
        for peer in waiting.asked if waiting is not None else ():
            alive = self.random.random() < 0.5
            self.tell(events.PeerJudged(peer, node, waiting.id if waiting else "", alive))

    def _die(self, job: str) -> None:
        generation = self.core.state.newest(job).generation
        for member in generation.members[:1]:
            exit = reports.RankExited(
                generation=generation.number, rank=0, exit_code=1, signal=0, last_line="boom"
            )
            self.tell(events.Reported(self.origin(member), self.now_ns, exit, job))

    def _time(self, job: str, node: str) -> None:
        self.now_ns += self.random.choice((1, 20, 200)) * S
        for name, at_ns in sorted(self.core.state.timers.items(), key=lambda pair: pair[1]):
            if at_ns <= self.now_ns:
                self.tell(events.TimerDue(name), 0)

    def _job(self, job: str, node: str) -> None:
        record = self.core.state.newest(job)
        if record.state is JobState.STOPPING:
            for member in list(record.generation.members):
                stopped = events.Reported(
                    self.origin(member),
                    self.now_ns,
                    reports.GenerationStopped(record.generation.number, 1),
                    job,
                )
                self.tell(stopped)
        elif record.state is JobState.REPLANNING:
            step = record.lineage.recoverable_step
            generation = record.generation.number
            self.tell(events.RecoveryStepChosen(job=job, generation=generation, step=step))
        elif record.state is JobState.RUNNING and self.random.random() < 0.2:
            self._die(job)
        elif record.state is JobState.RUNNING:
            self._step(job)
        else:
            for member in list(record.generation.members):
                phase = events.Reported(
                    self.origin(member),
                    self.now_ns,
                    reports.PhaseReached(record.generation.number, Phase.RESTORED),
                    job,
                )
                self.tell(phase)

    def _step(self, job: str) -> None:
        record = self.core.state.newest(job)
        step = 0 if record.lineage.last_step is None else record.lineage.last_step + 1
        row = events.JobProgressed(
            job=job, generation=record.generation.number, first_step=step,
            end_ns=(self.now_ns + S // 10,), stall_ns=(0,), recoverable_step=step,
        )  # fmt: skip
        self.tell(row)
        self.tell(events.StepRecoverable(job, record.generation.number, step))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_job_is_missed(seed: int) -> None:
    fleet = Fleet(seed)
    for _ in range(150):
        fleet.anything()
        state = fleet.core.state
        for name, node in state.nodes.items():
            there = [
                j.id for j in state.jobs.values() if name in (*j.launchers, *j.generation.members)
            ]
            assert sorted(job.id for job in jobs_of_node(state, node)) == sorted(there)
            involved = {
                j.id for j in state.jobs.values() if j.id in there or name in j.lineage.holders
            }
            assert {job.id for job in jobs_involving(state, node)} == involved
        _check_questions(state)
        assert state.index == state.compute_index()


def _check_questions(state: State) -> None:
    """Compare what nodes were asked about with who waits for their answers."""
    for node in state.nodes.values():
        asked = [
            n.name for n in state.nodes.values() if _is_asked(node.name, n.liveness.confirmation)
        ]
        assert sorted(node.liveness.questions) == sorted(asked)


def _is_asked(node: str, waiting: Confirmation | None) -> bool:
    return waiting is not None and node in waiting.asked and node not in waiting.verdicts


class _Counted(dict[str, JobRecord]):
    """Jobs by id that count how many of them are looked at."""

    looked_at = 0

    def __init__(self, jobs: dict[str, JobRecord]) -> None:
        super().__init__(jobs)
        self.ids: list[str] = []

    def __getitem__(self, job_id: str) -> JobRecord:
        self.looked_at += 1
        self.ids.append(job_id)
        return super().__getitem__(job_id)

    def values(self) -> NoReturn:
        raise AssertionError("all jobs were looked at")


def test_a_finding_is_compared_with_the_jobs_of_its_node_however_many_there_are() -> None:
    fleet = Fleet(0)
    state = fleet.core.state
    state.jobs = counted = _Counted(state.jobs)
    turn = Reconciliation(state, fleet.now_ns)
    blame.reconcile_node(turn, state.nodes["n7"])
    assert counted.looked_at == 1


def test_a_node_that_connects_is_compared_with_its_own_jobs_however_many_there_are() -> None:
    fleet = Fleet(0)
    state = fleet.core.state
    state.jobs = counted = _Counted(state.jobs)
    hello = events.NodeConnected(
        node="n7", boot_id="2", agent_version="0.1.0", outbox="b", highest_term=0, host="n7"
    )
    Core(state).handle(hello, fleet.now_ns)
    assert set(counted.ids) == {state.names["b"]}


def test_what_concerns_no_job_has_none_looked_at() -> None:
    fleet = Fleet(0)
    state = fleet.core.state
    state.jobs = counted = _Counted(state.jobs)
    Core(state).handle(events.PeerReported("n0", "n1", silent=False), fleet.now_ns)
    assert counted.looked_at == 0


def test_a_node_that_comes_back_without_launchers_concerns_the_job_that_had_one_there() -> None:
    fleet = Fleet(0)
    turn = Turn(fleet.core.state, fleet.now_ns)
    membership.node_back(turn, "n14", (), fleet.now_ns)
    assert turn.marks.moved == {fleet.core.state.names["c"]}
