"""Queries of the admin API: nodes, findings, incidents, jobs, ledgers, and reasons for states."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from everstep_common.version import VERSION
from everstep_controller.api.admin.controllers import OwnPart
from everstep_controller.api.admin.drivers import DriverQueries
from everstep_controller.api.admin.enrolment import TokenIssuer
from everstep_controller.api.admin.errors import (
    OrderRefusedError,
    UnknownNameError,
    job_named,
    node_named,
)
from everstep_controller.api.admin.event_log import EventLog, LineChoice
from everstep_controller.api.admin.fleet_ledger import LedgerQuestion, question_of
from everstep_controller.api.admin.history_queries import (
    CurrentHistory,
    current_history,
    history_range,
    history_rows,
    ledger_from,
)
from everstep_controller.api.admin.messages import fleet_messages as messages
from everstep_controller.api.admin.messages.ledger_messages import ledger
from everstep_controller.api.admin.node_list import list_nodes
from everstep_controller.api.admin.series import SampleSource
from everstep_controller.api.admin.snapshots import SnapshotOperations, SnapshotSource
from everstep_controller.api.fleet.node_questions import NodeQuestions
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.fleet.incidents import fleet_incidents, open_incident
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import Claim, NodeRecord, OpenFinding
from everstep_controller.core.model.state import CONTROLLER, FLEET, State
from everstep_controller.core.nodes import budgets, evidence_age
from everstep_controller.core.nodes.claims import no_spare
from everstep_controller.core.nodes.isolation_view import isolation_sentences
from everstep_controller.core.planned.forecast import describe
from everstep_controller.core.planned.swaps import slow_sentences, swap_plan
from everstep_controller.drivers.worker import SchedulerReading
from everstep_controller.inspection.inspector import Inspector
from everstep_controller.journal.port import JournalReader
from everstep_controller.journal.reading import JournalReads
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.slow.collective_arrival.collective_finding import SeenLook
from everstep_controller.slow.live import LiveFinding
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages
from everstep_controller.webhooks.webhooks import UnknownWebhookError, Webhooks
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

_INCIDENTS_MAX = 1000
_DECISIONS = 10


@dataclass(frozen=True, slots=True)
class AdminSources:
    """Sources of what the admin API answers."""

    runtime: Runtime
    sessions: Sessions
    kernel: NewestKernelMessages
    history: JournalReader
    reads: JournalReads
    vault: SnapshotSource
    questions: NodeQuestions
    inspector: Inspector
    slowness: Callable[[JobRecord], LiveFinding]
    collectives: Callable[[JobRecord], Awaitable[SeenLook | None]]
    trouble: Callable[[], ShellTrouble]
    # Which ranks of a job that runs print steps; "": they tell them otherwise.
    printed: Callable[[JobRecord], str]
    webhooks: Webhooks
    # What each scheduler said last, and how many calls of each driver have failed, by its name.
    readings: Callable[[], Mapping[str, SchedulerReading]]
    failed_calls: Callable[[], Mapping[str, int]]
    samples: SampleSource
    price_per_device_hour: float
    # The controller that answers.
    own: OwnPart
    # What makes tokens; None where this controller signs no certificates.
    token_issuer: TokenIssuer | None = None


class Queries:
    """Questions about fleet, jobs and controller, a method each; they raise UnknownNameError."""

    def __init__(
        self,
        sources: AdminSources,
        log: EventLog,
        snapshots: SnapshotOperations,
        drivers: DriverQueries,
    ) -> None:
        self._runtime = sources.runtime
        self._sessions = sources.sessions
        self._kernel = sources.kernel
        self._history = sources.history
        self._trouble = sources.trouble
        self._printed = sources.printed
        self._webhooks = sources.webhooks
        self._log = log
        self._snapshots = snapshots
        self._drivers = drivers
        self._started_ns = sources.runtime.now_ns()
        self._one_sum = asyncio.Lock()
        self._price = sources.price_per_device_hour

    def nodes(self, request: admin_pb2.ListNodesRequest) -> admin_pb2.ListNodesReply:
        """Return the nodes that are asked for. Raises UnusableRequestError, too."""
        return list_nodes(self._runtime.state, request)

    def node(self, name: str) -> admin_pb2.NodeDetail:
        """Return one node."""
        node = self._node(name)
        clock = self._sessions.clock(name).estimate(self._runtime.now_ns())
        state, kernel = self._runtime.state, self._kernel.of(name)
        return messages.node_detail(state, node, clock, kernel, self._drivers.views_of(name))

    def findings(self, name: str) -> admin_pb2.ListFindingsReply:
        """Return open findings, of one node if one is named; the controller has some of its own."""
        nodes = [self._node(name)] if name and name != CONTROLLER else []
        if not name:
            nodes = list(self._runtime.state.nodes.values())
        held = [(node.name, finding) for node in nodes for finding in node.health.findings.values()]
        if name in ("", CONTROLLER):
            held += [(CONTROLLER, finding) for finding in self.controller_findings()]
        order = {id(f): i for i, f in enumerate(messages.worst_first(f for _, f in held))}
        held.sort(key=lambda pair: order[id(pair[1])])
        state = self._runtime.state
        lines = [messages.finding_line(state, node, finding) for node, finding in held]
        return admin_pb2.ListFindingsReply(findings=lines)

    def controller_findings(self) -> list[OpenFinding]:
        """Return what the controller has found about itself."""
        return list(
            open_controller_findings(self._runtime.state, self._trouble(), self._log.last_ns)
        )

    def webhooks(self) -> admin_pb2.ListWebhooksReply:
        """Return how each webhook of the controller fares."""
        lines = [answer(admin_pb2.WebhookLine, one) for one in self._webhooks.statuses()]
        return admin_pb2.ListWebhooksReply(webhooks=lines)

    async def test_webhook(self, name: str) -> admin_pb2.TestWebhookReply:
        """Have a test event sent, and return the answer. Raises OrderRefusedError, too."""
        try:
            answer = await self._webhooks.test(name)
        except UnknownWebhookError as error:
            raise UnknownNameError(str(error)) from error
        except TimeoutError as error:
            raise OrderRefusedError(
                f"webhook {name} has not come to it: another request hangs; 'everstep webhooks' "
                "shows its newest answer"
            ) from error
        status = next(one for one in self._webhooks.statuses() if one.name == name)
        return admin_pb2.TestWebhookReply(
            accepted=answer.accepted, answer=answer.sentence, host=status.host
        )

    def incidents(self, *, open_only: bool) -> admin_pb2.ListIncidentsReply:
        """Return the incidents of the fleet, newest first; of all kinds."""
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        listed = [
            messages.fleet_incident(state, one, now_ns)
            for one in fleet_incidents(state)
            if not (open_only and one.over_ns)
        ]
        return admin_pb2.ListIncidentsReply(incidents=listed[:_INCIDENTS_MAX])

    def subject(self, name: str) -> NodeRecord | JobRecord:
        """Return a node or job."""
        state = self._runtime.state
        subject = state.nodes.get(name) or state.job(name)
        if subject is None:
            raise UnknownNameError(f"no node or job named {name!r}")
        return subject

    async def why(self, name: str) -> admin_pb2.WhyReply:
        """Return why a node or job is in its state. Raises JournalAccessError, too."""
        lines = await self._log.lines(LineChoice(self.subject(name).name, _DECISIONS))
        state, subject = self._runtime.state, self.subject(name)
        kind = "node" if isinstance(subject, NodeRecord) else "job"
        paused = state.paused.get(subject.name) or state.paused.get(FLEET, "")
        told = explain(subject, paused, self._more(subject))
        if state.halted:
            told += f"; this is what was known before the controller halted: {state.halted}"
        return admin_pb2.WhyReply(
            kind=kind,
            state=subject.state.value,
            answer=told,
            decisions=[answer(admin_pb2.Event, line) for line in lines],
            incident=messages.newest_incident(state, subject, self._runtime.now_ns()),
            hang=messages.hang_line(subject) if isinstance(subject, JobRecord) else None,
        )

    def _more(self, subject: NodeRecord | JobRecord) -> Iterator[str]:
        if isinstance(subject, JobRecord) and (printed := self._printed(subject)):
            yield printed
        yield from _more(self._runtime.state, subject, self._runtime.now_ns())

    def jobs(self) -> admin_pb2.ListJobsReply:
        """Return the newest job of each name and those that wait to begin, running ones first."""
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        jobs = [job for job in state.jobs.values() if job.after or state.is_current(job)]
        jobs.sort(key=lambda job: (job.state.value == "ended", job.name, job.created_ns))
        lines = [messages.job_summary(state, job, now_ns) for job in jobs]
        return admin_pb2.ListJobsReply(jobs=lines, halted=state.halted)

    def job(self, name: str) -> admin_pb2.JobDetail:
        """Return one job."""
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        job = self._job(name)
        detail = messages.job_detail(state, job, now_ns)
        if printed := self._printed(job):
            detail.summary.reason += f"; {printed}"
        if state.is_current(job):
            self._snapshots.complete(detail)
        return detail

    def ledger(self, name: str) -> admin_pb2.Ledger:
        """Return where a job's time went."""
        return ledger(self._runtime.state, self._job(name), self._runtime.now_ns())

    async def fleet_ledger(self, request: admin_pb2.GetFleetLedgerRequest) -> admin_pb2.FleetLedger:
        """Return where the time of jobs went. Raises UnusableRequestError."""
        asked = question_of(request, self._runtime.now_ns(), self._price)
        current = current_history(self._runtime.state, asked)
        # A large fleet's takes a second: in a thread, and only one at a time, whoever asks.
        async with self._one_sum:
            return await asyncio.to_thread(self._ask_history, asked, current)

    def _ask_history(self, asked: LedgerQuestion, current: CurrentHistory) -> admin_pb2.FleetLedger:
        with closing(self._history.another_reader()) as history:
            return ledger_from(history, asked, current)

    def history(self, request: admin_pb2.GetHistoryRequest) -> AsyncIterator[admin_pb2.HistoryRow]:
        """Return the rows of the history that are asked for. Raises UnusableRequestError."""
        asked = history_range(request, self._runtime.now_ns())
        state, key = self._runtime.state, request.key
        known = key in state.nodes or key in state.jobs or key in state.incidents
        return history_rows(self._history, asked, known=known)

    def controller(self) -> admin_pb2.ControllerDetail:
        """Return the state of the controller itself."""
        state = self._runtime.state
        return admin_pb2.ControllerDetail(
            version=VERSION,
            term=state.term,
            mode=state.settings.mode.value,
            halted=state.halted,
            paused=sorted(state.paused),
            journal_events=self._runtime.seq,
            started_ns=self._started_ns,
            budgets=budgets.summary(state),
            cluster_id=state.cluster_id,
            drivers_paused=state.drivers_paused,
        )

    def _node(self, name: str) -> NodeRecord:
        return node_named(self._runtime.state, name)

    def _job(self, name: str) -> JobRecord:
        return job_named(self._runtime.state, name)


def _more(state: State, subject: NodeRecord | JobRecord, now_ns: int) -> Iterator[str]:
    """Yield what is known of a node or job elsewhere than in its own record."""
    if isinstance(subject, NodeRecord):
        yield from evidence_age.objections(subject, now_ns)
        yield from isolation_sentences(state, subject.name)
        if plan := swap_plan(state, subject):
            yield plan
        yield from slow_sentences(state, subject)
    else:
        yield from judged_cause(state, subject)
        for held in unsaved.findings_of_job(state, subject):
            yield f"{held.finding.message}; {held.finding.rule}"


def judged_cause(state: State, job: JobRecord) -> Iterator[str]:
    """Yield what the open incident of a job was judged to come from, unless the job says it."""
    incident = open_incident(state, job)
    if incident is not None and incident.verdict not in ("", job.reason):
        yield f"the fault was judged: {incident.verdict}"


def explain(subject: NodeRecord | JobRecord, paused: str, more: Iterable[str] = ()) -> str:
    """Return the sentence; ``paused`` is why automation for it waits, or empty; ``more`` to say."""
    parts = [f"{subject.name} is {subject.state.value}: {subject.reason}"]
    if isinstance(subject, NodeRecord):
        parts += [_claimed(claim, subject.reason) for claim in subject.isolation.claims]
        if subject.isolation.deferred:
            parts.append(f"should be isolated: {subject.isolation.deferred}")
        if failed := no_spare(subject):
            parts.append(failed)
        if subject.doubtful:
            parts.append(f"doubtful: {subject.liveness.silence.doubt}")
    if isinstance(subject, JobRecord) and subject.planned is not None:
        parts.append(describe(subject, subject.planned))
    parts.extend(more)
    if paused:
        parts.append(f"automation is paused: {paused}")
    return "; ".join(parts)


def _claimed(claim: Claim, told: str) -> str:
    ranks = "new ranks, and its own leave at a step boundary" if claim.draining else "ranks"
    words = f"takes no {ranks} ({claim.owner})"
    return words if claim.reason == told else f"{words}: {claim.reason}"
