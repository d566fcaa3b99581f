"""Agent streams: the messages of agents are handled, from Hello to the end of the stream."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import grpc

from everstep_common.clock import Stamp
from everstep_common.orders import TimeRequest
from everstep_common.quantities import NUMBER_MAX
from everstep_common.reports import (
    GoingAway,
    Inventory,
    KernelMessages,
    OutputRead,
    PeerEvidence,
    PeerReport,
    Pong,
    RanksInspected,
    SampleBatch,
    TimeReply,
)
from everstep_common.version import VERSION
from everstep_controller.api.fleet import from_agent, to_agent, vault_reports
from everstep_controller.api.fleet.node_certificates import NodeCertificates
from everstep_controller.api.fleet.node_questions import NodeQuestions
from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.sessions import Session, Sessions, StreamEnd
from everstep_controller.core.events import (
    AgentAnswered,
    AgentLeaving,
    Event,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
)
from everstep_controller.core.jobs.progress_rows import ReportedSteps
from everstep_controller.core.jobs.remembered_ends import news_of_ends
from everstep_controller.core.model.node import Origin
from everstep_controller.core.nodes import agent_identity, budgets
from everstep_controller.core.nodes.agent_identity import HelloDecision, HelloVerdict
from everstep_controller.core.nodes.watchers import watched_peers
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.judging.gpu_samples import GpuSamples
from everstep_controller.judging.link_errors import LinkErrors
from everstep_controller.records.intake import Intake
from everstep_controller.records.rejections import Rejection
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.runtime.vault_service import VaultService
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages
from everstep_controller.telemetry.rank_progress import RankProgressTable
from everstep_controller.telemetry.samples import PackedSamples, SampleError, SampleRing
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire, to_wire
from everstep_proto.tls import LOCAL, Identity, Role

# Nodes come in crowds after a restart: one list for all of them, a little later.
_PEERS_DELAY_S = 0.2
# An agent whose stream ends for its certificate is back within a second. Longer is a silence.
RENEWED_S = 3.0
# How long a Hello waits here for another agent; it waits longer by coming again.
_NAME_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class StreamCollaborators:
    """Collaborators of AgentStreams."""

    runtime: Runtime
    sessions: Sessions
    rolls: RollCalls
    intake: Intake
    vault: VaultService
    samples: SampleRing
    gpus: GpuSamples
    links: LinkErrors
    ranks: RankProgressTable
    kernel: NewestKernelMessages
    questions: NodeQuestions
    # Says why no stream is opened for somebody whose certificate counts no more; "" where it does.
    certificate_trouble: Callable[[Identity], str]


class AgentStreams:
    """Handler of all agents' streams; what follows from a message is decided in the core."""

    def __init__(self, parts: StreamCollaborators) -> None:
        self._runtime = parts.runtime
        self._sessions = parts.sessions
        self._rolls = parts.rolls
        self._intake = parts.intake
        self._vault = parts.vault
        self._samples = parts.samples
        self._gpus = parts.gpus
        self._links = parts.links
        self._ranks = parts.ranks
        self._kernel = parts.kernel
        self._questions = parts.questions
        self._certificate_trouble = parts.certificate_trouble
        self._certificates = NodeCertificates(parts.runtime, parts.sessions)
        self._peers_wait = False
        self._stopping = False
        # Agents that wait for the word of the one that has the name of their node.
        self._contending: list[tuple[NodeConnected, asyncio.Future[None]]] = []
        self._takers: dict[str, Callable[[Session, fleet_pb2.AgentMessage], None]] = {
            "record": self._record,
            "samples": self._sample,
            "vault": self._vault_report,
            "time_reply": self._time_reply,
            "peer": self._peer_report,
            "evidence": self._peer_evidence,
            "pong": self._pong,
            "going_away": self._going_away,
            "output": self._output_read,
            "inspected": self._inspected,
            "kernel": self._kernel_messages,
        }

    async def open(self, hello: fleet_pb2.Hello, identity: Identity, address: str) -> Session:
        """Take a Hello; welcome its agent once it is journaled. Raises StreamEnd, WireError."""
        event = replace(self._hello(hello, identity), address=address)
        if self._judge(event).decision is HelloDecision.CONTENDS:
            await self._await_name(event)
        found = self._judge(event)
        if found.decision in (HelloDecision.REFUSED, HelloDecision.CONTENDS):
            raise await self._turn_away(event, found)
        if why := self._certificate_trouble(identity):
            raise StreamEnd(grpc.StatusCode.UNAUTHENTICATED, f"{why}: connect with a newer one")
        if why := self._certificates.revocation(identity):
            raise StreamEnd(grpc.StatusCode.FAILED_PRECONDITION, why)
        session = await self._open_session(hello, event, identity)
        if self._is_turned_away(event):  # another one came first
            self.close(session)
            raise StreamEnd(grpc.StatusCode.UNAVAILABLE, f"{event.node} is being asked for: again")
        self._welcome(session, event)
        return session

    async def _open_session(
        self, hello: fleet_pb2.Hello, event: NodeConnected, identity: Identity
    ) -> Session:
        stamp = from_wire(Stamp, hello.stamp)
        self._sessions.shift_clocks(self._runtime.hear_clock(event.node, stamp))
        session = self._sessions.open(event.node, event.outbox)
        # From here on it is looked at, whatever is waited for before its first message.
        session.shown, session.until_s = identity.shown, identity.until_s
        session.serial, session.since_s = identity.serial, identity.since_s
        session.takes_revoked = hello.takes_revoked
        session.opened_ns = self._runtime.now_ns()
        session.clock.enter_hello(stamp, session.opened_ns)
        self._intake.begin_stream(event.node, session.opened_ns)
        # Jobs that the agent does not know must not be waited for by what the event leads to.
        self._vault.connected(event.node, from_agent.lineages_seen(event))
        try:
            await self._runtime.submit(event)
        except JournalFull as error:
            self._sessions.close(session)
            raise StreamEnd(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        except asyncio.CancelledError:
            self.close(session)
            raise
        return session

    def _welcome(self, session: Session, event: NodeConnected) -> None:
        state = self._runtime.state
        welcome = fleet_pb2.Welcome(
            term=state.term,
            controller_version=VERSION,
            acknowledged=self._intake.journaled(event.outbox),
            # While it halts the journal may be of another cluster than it should be.
            cluster_id="" if state.halted else state.cluster_id,
            halted=bool(state.halted),
            fleet_nodes=len(state.nodes),
        )
        session.welcome(fleet_pb2.ControllerMessage(welcome=welcome))
        if state.halted:
            session.send(to_agent.halted(state.halted))
        self._certificates.tell(session)
        self.peers_changed()

    def close(self, session: Session) -> None:
        """A stream ended."""
        if not self._sessions.close(session) or self._stopping:
            return
        self._intake.flush_node(session.node)
        if session.renews:
            asyncio.get_running_loop().call_later(RENEWED_S, self._tell_gone, session)
        else:
            self._tell_gone(session)

    def _tell_gone(self, session: Session) -> None:
        """Have the core hear that a stream has ended, unless its agent has opened another since."""
        if self._sessions.of(session.node) is None and not self._stopping:
            self._runtime.post(NodeDisconnected(session.node, session.fault))
            self.peers_changed()

    def handle_message(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        """Take a message; what cannot be used is left out and told, and the stream goes on.

        Its agent would send it again on the next stream, before what others have to say. Raises
        StreamEnd for one after which the stream cannot go on.
        """
        if session.ending:
            # Otherwise the next record would overtake the one that could not be journaled.
            return
        taker = self._takers.get(message.WhichOneof("body") or "", _no_place)
        try:
            taker(session, message)
        except WireError as error:
            self._reject(session.node, message, error)
        except StreamEnd as end:
            session.fault = self._reject(session.node, message, WireError(end.sentence))
            raise

    def reject_bytes(self, session: Session, error: WireError) -> None:
        """Leave out bytes that are no message, and have it known; the stream goes on.

        A record among them has no number to acknowledge: the next one's stands for it.
        """
        self._reject(session.node, fleet_pb2.AgentMessage(), error)

    def busy(self, session: Session) -> bool:
        """Return whether the stream should not be read on yet."""
        return self._intake.busy(session.outbox)

    def ask_time(self, session: Session) -> None:
        """Ask a node for its clocks."""
        sent_ns = self._runtime.now_ns()
        session.asked_ns.add(sent_ns)
        refusal = budgets.prolog_refusal(self._runtime.state, session.node)
        request = to_wire(TimeRequest(sent_ns, refusal), fleet_pb2.TimeRequest)
        session.send(fleet_pb2.ControllerMessage(time_request=request))

    def stop(self, successor: str = "") -> None:
        """End all streams: the controller goes away, the nodes do not."""
        self._stopping = True
        why = f"{successor} takes over" if successor else "the controller is stopping"
        self._sessions.end_all(grpc.StatusCode.UNAVAILABLE, why, lambda _: True, successor)

    def tell_halt(self, reason: str) -> None:
        """Have every agent, and who waits there, know that the controller acts on nothing."""
        for session in self._sessions:
            session.send(to_agent.halted(reason))

    def restart_streams(self, sentence: str) -> None:
        """Have every agent connect anew."""
        self._sessions.end_all(grpc.StatusCode.ABORTED, sentence, lambda _: True)

    def note_event(self, taken: TakenEvent) -> None:
        """Go on with the Hello of those who no longer wait for an answer of another agent.

        Streams of certificates that are revoked end; those of renewed ones go on.
        """
        self._certificates.note_event(taken)
        for event, decided in self._contending:
            if not decided.done() and not agent_identity.contends(self._runtime.state, event):
                decided.set_result(None)

    def peers_changed(self) -> None:
        """Tell every node, a little later, which peers it watches."""
        if not self._peers_wait:
            self._peers_wait = True
            asyncio.get_running_loop().call_later(_PEERS_DELAY_S, self._send_peers)

    # ---------------------------------------------------------------------------------------------

    def _hello(self, hello: fleet_pb2.Hello, identity: Identity) -> NodeConnected:
        """Return the event of a Hello; of a node that is known it is told why it cannot be used."""
        _check_identity(hello.node, identity)
        try:
            event = from_agent.node_connected(hello, self._runtime.now_ns())
        except WireError as error:
            if hello.node in self._runtime.state.nodes:
                rejection = Rejection(hello.node, "hello", "", str(error))
                self._intake.reject(None, rejection, self._runtime.now_ns())
            raise
        # As a rule none is news, and each would be in the journal as often as its agent comes back.
        return replace(event, ended_jobs=news_of_ends(self._runtime.state, event))

    def _judge(self, event: NodeConnected) -> HelloVerdict:
        return agent_identity.judge_hello(self._runtime.state, event, self._runtime.now_ns())

    def _is_turned_away(self, event: NodeConnected) -> bool:
        state = self._runtime.state
        refused = agent_identity.refusal(state, event)
        return bool(refused) or agent_identity.contends(state, event)

    async def _await_name(self, event: NodeConnected) -> None:
        """Wait for what the agent says that has the name; or less, if it is away."""
        await self._knock(event)
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._contending.append(waiting := (event, decided))
        try:
            async with asyncio.timeout(_NAME_WAIT_S):
                if agent_identity.contends(self._runtime.state, event):
                    await decided
        except TimeoutError:
            pass  # its agent hears that it has to ask again
        finally:
            self._contending.remove(waiting)

    async def _turn_away(self, event: NodeConnected, found: HelloVerdict) -> StreamEnd:
        """Have it known that an agent is refused; return its answer."""
        if found.decision is HelloDecision.CONTENDS:
            sentence = (
                f"another agent had the name {event.node} a moment ago: this one gets it if that "
                "one does not come back"
            )
            return StreamEnd(grpc.StatusCode.UNAVAILABLE, sentence)
        now_ns = self._runtime.now_ns()
        if not agent_identity.is_repeated(self._runtime.state, event, found, now_ns):
            await self._knock(event)
        return StreamEnd(grpc.StatusCode.FAILED_PRECONDITION, found.reason)

    async def _knock(self, event: NodeConnected) -> None:
        """Have the core hear of a Hello for which no stream is opened."""
        knock = replace(
            event, inventory=Inventory(), open_findings=(), findings_since_ns=(), knocks=True
        )
        try:
            await self._runtime.submit(knock)
        except JournalFull as error:
            raise StreamEnd(grpc.StatusCode.UNAVAILABLE, str(error)) from error

    def _send_peers(self) -> None:
        self._peers_wait = False
        nodes = self._runtime.state.nodes
        present = [
            name for name, node in nodes.items() if not node.gone and node.spec.liveness_address
        ]
        peers = watched_peers(present, {name: nodes[name].spec.domain for name in present})
        for session in self._sessions:
            mine = peers.get(session.node, ())
            if mine != session.peers:
                session.peers = mine
                session.send(to_agent.peer_list(mine, nodes))

    def _record(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        record = message.record
        if not 0 < record.sequence <= NUMBER_MAX:
            raise WireError(f"a record whose sequence is {record.sequence}")
        if self._runtime.state.halted:
            # Nothing is taken, so nothing is acknowledged: the agent sends it again afterwards.
            return
        origin = Origin(session.node, session.outbox, record.sequence)
        try:
            self._use_record(session, record, origin)
        except WireError as error:
            if self._intake.is_new(origin):
                self._reject(session.node, message, error, origin)

    def _use_record(self, session: Session, record: fleet_pb2.Record, origin: Origin) -> None:
        now_ns = self._runtime.now_ns()
        context = from_agent.RecordContext(
            origin,
            lambda boot, at_ns: session.clock.to_controller_ns(boot, at_ns, now_ns),
            lambda stamp: session.clock.seen_ns(stamp, now_ns),
        )
        reported = from_agent.reported(record, context)
        if not self._intake.is_new(origin):
            return
        if isinstance(reported, ReportedSteps):
            self._intake.take_steps(reported, now_ns)
        else:
            self._intake.take_event(origin, reported, now_ns)

    def _reject(
        self,
        node: str,
        message: fleet_pb2.AgentMessage,
        error: WireError,
        origin: Origin | None = None,
    ) -> str:
        """Leave out a message, and have it known; return a sentence on it."""
        rejection = from_agent.rejection(node, message, error, self._user_of)
        self._intake.reject(origin, rejection, self._runtime.now_ns())
        return rejection.sentence

    def _user_of(self, job: str) -> str:
        known = self._runtime.state.job(job)
        return str(known.spec.uid) if known is not None else ""

    def _sample(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        batch, now_ns = from_wire(SampleBatch, message.samples), self._runtime.now_ns()
        first_ns = session.clock.to_controller_ns(batch.first.boot_id, batch.first.boot_ns, now_ns)
        packed = PackedSamples(batch.schema, batch.rows, first_ns, batch.interval_ns)
        try:
            self._samples.add_batch(session.node, packed, now_ns)
        except SampleError as error:
            raise WireError(str(error)) from error
        if batch.gpus is not None:
            self._gpus.add(session.node, batch.gpus, min(first_ns, now_ns))
        if batch.links is not None:
            self._links.add(session.node, batch.links, now_ns)
        self._ranks.replace(session.node, batch.ranks, now_ns)

    def _kernel_messages(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        self._kernel.replace(session.node, from_wire(KernelMessages, message.kernel))

    def _vault_report(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        report, node = message.vault, session.node
        lineage = vault_reports.lineage_of(report)
        if report.change and lineage in session.unusable_copies:
            return
        told = self._changed(session, report) if report.change else self._listed(session, report)
        if not told.copies:
            session.copies.pop(lineage, None)
        self._vault.report(lineage, node, told)
        for sentence in report.bad_copies[:16]:
            self._runtime.announce(report.job, "BadCopy", f"{session.node}: {sentence[:500]}")

    def _listed(self, session: Session, report: fleet_pb2.VaultReport) -> NodeHoldings:
        lineage = vault_reports.lineage_of(report)
        session.unusable_copies.add(lineage)
        held = self._vault.held(lineage, session.node)
        told = vault_reports.vault_report(session.node, report, held)
        session.unusable_copies.discard(lineage)
        session.copies[lineage] = told.copies
        return told

    def _changed(self, session: Session, report: fleet_pb2.VaultReport) -> NodeHoldings:
        try:
            told = session.copies.get(vault_reports.lineage_of(report))
            return vault_reports.changed(session.node, report, told)
        except WireError as error:
            # On the next stream the whole list comes, and is left out if it cannot be used.
            raise StreamEnd(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error

    def _time_reply(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        reply = from_wire(TimeReply, message.time_reply)
        if reply.sent_ns in session.asked_ns:
            session.asked_ns.discard(reply.sent_ns)
            now_ns = self._runtime.now_ns()
            session.clock.enter_reply(reply.stamp, reply.sent_ns, now_ns)

    def _peer_report(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        report = from_wire(PeerReport, message.peer)
        silent_for_ns = report.silent_for_ns if report.silent else 0
        self._hint(PeerReported(session.node, report.peer, report.silent, silent_for_ns))

    def _peer_evidence(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        told = from_wire(PeerEvidence, message.evidence)
        self._hint(
            PeerJudged(
                session.node,
                told.peer,
                told.confirm_id,
                udp=told.udp,
                tcp=told.tcp,
                late_ns=told.late_ns,
            )
        )

    def _pong(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        pong = from_wire(Pong, message.pong)
        # A stream that another one has replaced says nothing about its node any more.
        if self._sessions.of(session.node) is not session:
            return
        if not self._rolls.take_answer(session.node, pong.ping_id):
            self._hint(AgentAnswered(session.node, pong.ping_id))

    def _going_away(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        told = from_wire(GoingAway, message.going_away)
        if self._sessions.of(session.node) is session:
            self._runtime.post(AgentLeaving(session.node, told.reason))

    def _output_read(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        read = from_wire(OutputRead, message.output)
        self._questions.take_answer(session.node, read.read_id, read)

    def _inspected(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        inspected = from_wire(RanksInspected, message.inspected)
        self._questions.take_answer(session.node, inspected.inspection_id, inspected)

    def _hint(self, event: Event) -> None:
        self._runtime.post(event, again=False)


def _no_place(_: Session, message: fleet_pb2.AgentMessage) -> None:
    if message.HasField("hello"):
        raise StreamEnd(grpc.StatusCode.INVALID_ARGUMENT, "a second Hello on one stream")
    raise WireError("it has no body that this version of the controller knows")


def _check_identity(node: str, identity: Identity) -> None:
    if identity == LOCAL:
        return
    if identity.role is not Role.AGENT or identity.name != node:
        raise StreamEnd(
            grpc.StatusCode.PERMISSION_DENIED,
            f"the certificate is of {identity.name!r} ({identity.role.value}), Hello says "
            f"{node!r}: an agent's certificate needs its node's name as common name and 'agent' "
            "as organizational unit",
        )
