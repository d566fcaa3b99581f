"""Action executor: carries out the core's actions as orders to nodes, timers and driver calls."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import grpc

from everstep_common.orders import ShardSource
from everstep_common.preload import Preload
from everstep_controller.api.fleet import to_agent
from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core import actions
from everstep_controller.core.actions import Action, Announce
from everstep_controller.core.events import (
    AgentAnswered,
    Event,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
    each_event,
)
from everstep_controller.core.jobs.restore_point import branch_told
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.model.timers import comes_due_while_halted
from everstep_controller.core.nodes.liveness import NODE_DOUBTFUL
from everstep_controller.core.vault.messages import Directive
from everstep_controller.core.vault.recovery_step import RestoreSources, group_sources
from everstep_controller.drivers.worker import DriverWorkers
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.runtime.timers import Timers
from everstep_controller.runtime.vault_service import VaultService, transfer_key


@dataclass(frozen=True, slots=True)
class ActionTargets:
    """Collaborators that carry actions out: streams, timers, drivers and the vault service."""

    sessions: Sessions
    rolls: RollCalls
    timers: Timers
    drivers: DriverWorkers
    vault: VaultService


class ActionExecutor:
    """Carries out actions; each is harmless when it is done twice."""

    def __init__(self, state: Callable[[], State], secret: bytes, targets: ActionTargets) -> None:
        self._state = state
        self._secret = secret
        self._targets = targets
        # Copies that the job started last restores from: grouped once, used for every member's
        # order.
        self._sources: RestoreSources | None = None

    def act(self, wanted: Sequence[Action]) -> None:
        """Carry out actions in their order. One for a node that is away is due when it is back."""
        for action in wanted:
            self._act(action)

    def _act(self, action: Action) -> None:
        targets = self._targets
        match action:
            case actions.SetTimer():
                targets.timers.set(action.timer, action.at_ns)
            case actions.ApplyIsolation() | actions.ReadIsolation():
                targets.drivers.call(action)
            case actions.ChooseRecoveryStep():
                targets.vault.choose(action)
            case actions.CallRoll():
                targets.rolls.call(action)
            case actions.ConfirmSilence() | actions.PingAgent() | actions.RenewStream():
                self._ask(action)
            case actions.Announce():
                pass  # The runtime has told it already.
            case _:
                self._order(action)

    def _ask(
        self, action: actions.ConfirmSilence | actions.PingAgent | actions.RenewStream
    ) -> None:
        """Ask an agent that is there for its word; of one that is away nothing is expected."""
        session = self._targets.sessions.of(action.node)
        if session is None:
            return
        match action:
            case actions.ConfirmSilence():
                session.send(to_agent.confirm(action))
            case actions.PingAgent():
                session.send(to_agent.ping(action))
            case actions.RenewStream():
                session.renew(action.reason)

    def _order(self, action: actions.Order) -> None:
        if self._targets.sessions.of(action.node) is None:
            # It is due again when the node is back; a message for it would be made in vain, which
            # at a start is one for every order there is.
            return
        state = self._state()
        if isinstance(action, actions.StartGeneration):
            job = state.jobs[action.job_id]
            action = replace(
                action,
                transfer_key=transfer_key(self._secret, job.lineage_id),
                sources=self._sources_for(action, job),
                branch=branch_told(job),
            )
        self._targets.sessions.send(action.node, to_agent.order(action, state.term))

    def _sources_for(
        self, action: actions.StartGeneration, job: JobRecord
    ) -> tuple[ShardSource, ...]:
        """Return a member's directions to the state that it restores; grouped once for all."""
        if self._sources is None or self._sources.all is not job.generation.sources:
            self._sources = group_sources(job)
        return self._sources.of(action.node)


class RuntimeVaultPort:
    """VaultPort of the daemon: connects the vault service to nodes, core and time."""

    def __init__(
        self,
        state: Callable[[], State],
        secret: bytes,
        sessions: Sessions,
        runtime: Runtime,
    ) -> None:
        self._state = state
        self._secret = secret
        self._sessions = sessions
        self._runtime = runtime

    def direct(self, node: str, directive: Directive) -> bool:
        """See VaultPort."""
        state = self._state()
        job = state.job(directive.job)
        if state.halted or job is None:
            return False
        message = to_agent.directive(directive, self._directed(job), state.nodes, state.term)
        return self._sessions.send(node, message)

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        """See VaultPort."""
        state = self._state()
        record = state.job(job)
        if state.halted or record is None:
            return False
        message = to_agent.spare_preload(self._directed(record), preload, state.term)
        return self._sessions.send(node, message)

    def _directed(self, job: JobRecord) -> to_agent.DirectedJob:
        key = transfer_key(self._secret, job.lineage_id)
        return to_agent.DirectedJob(job.name, job.id, job.lineage_id, key)

    def post(self, event: Event) -> None:
        """See VaultPort."""
        self._runtime.post(event)

    def announce(self, subject: str, reason: str, message: str) -> None:
        """See VaultPort."""
        self._runtime.announce(subject, reason, message)

    def now_ns(self) -> int:
        """See VaultPort."""
        return self._runtime.now_ns()

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """See VaultPort."""
        asyncio.get_running_loop().call_later(delay_s, callback)


class SessionAcknowledger:
    """Acknowledging of the daemon: connects the intake to the agents' streams."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def acknowledged(self, node: str, outbox: str, sequence: int) -> None:
        """See Acknowledging."""
        session = self._sessions.of(node)
        if session is not None and session.outbox == outbox:
            session.acknowledge(sequence)

    def refused(self, node: str, outbox: str, sentence: str) -> None:
        """See Acknowledging."""
        session = self._sessions.of(node)
        if session is not None and session.outbox == outbox:
            session.end(grpc.StatusCode.UNAVAILABLE, sentence)


class EventFollower:
    """Observer of every event: triggers what follows from it outside the core."""

    def __init__(
        self,
        state: Callable[[], State],
        targets: ActionTargets,
        halted: Callable[[str], None],
        resume: Callable[[], None],
        peers_changed: Callable[[], None],
    ) -> None:
        self._state = state
        self._targets = targets
        self._tell_halt = halted
        self._resume = resume
        self._peers_changed = peers_changed
        self._halted = False

    def follow(self, taken: TakenEvent) -> None:
        """Do what follows from an event and its actions."""
        state = self._state()
        if state.halted:
            # A halted core acts on nothing; what it waits for all the same is in its timers.
            timers = state.timers.items()
            awaited = {name: at_ns for name, at_ns in timers if comes_due_while_halted(name)}
            self._targets.timers.keep_only(awaited)
            if not self._halted:
                self._tell_halt(state.halted)
        elif self._halted:
            self._resume()
        self._halted = bool(state.halted)
        told = each_event(taken.event)
        if any(isinstance(event, NodeConnected | NodeDisconnected) for event in told):
            self._peers_changed()
        for name in _nodes_judged(taken):
            self._targets.vault.refresh_jobs_of(name)
        for subject in {_subject(action) for action in taken.actions}:
            self._follow_subject(state, subject)

    def _follow_subject(self, state: State, subject: str) -> None:
        node = state.nodes.get(subject)
        if node is not None and node.gone:
            self._targets.vault.forget_node(subject)
            # A node that was given up may come back with a new Hello.
            self._targets.sessions.end_all(
                grpc.StatusCode.UNAVAILABLE,
                f"{subject} is {node.state.value}: {node.reason}",
                lambda name: name == subject,
            )
            self._peers_changed()
        elif node is not None and node.doubtful:
            # What it has is not waited for any more.
            for job_id in node.jobs.ids:
                self._targets.vault.job_changed(job_id)
        job = state.job(subject)
        if job is not None:
            self._targets.vault.job_changed(job.id)


def _nodes_judged(taken: TakenEvent) -> set[str]:
    """Return the nodes whose silence began, ended, or became a doubt."""
    doubted = {
        action.subject
        for action in taken.actions
        if isinstance(action, Announce) and action.reason == NODE_DOUBTFUL
    }
    return doubted.union(*map(_node_heard, each_event(taken.event)))


def _node_heard(event: Event) -> tuple[str, ...]:
    """Return the node whose silence an event tells of."""
    match event:
        case NodeConnected(node=name) | NodeDisconnected(node=name) | AgentAnswered(node=name):
            return (name,)
        case PeerReported(peer=name) | PeerJudged(peer=name):
            return (name,)
        case _:
            return ()


def _subject(action: Action) -> str:
    """Return the node or job that an action shows to have changed."""
    if isinstance(action, actions.Announce):
        return action.subject
    about: str = getattr(action, "job_id", "") or getattr(action, "job", "")
    return about or getattr(action, "node", "")
