"""Simulated vaults under the real vault service: directives and reports arrive late."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from everstep_common.orders import Publish, ShardSource
from everstep_common.preload import Preload
from everstep_common.reports import StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.nodes.liveness import NODE_DOUBTFUL
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.runtime.vault_service import VaultService
from everstep_sim.controller import SimulatedController
from everstep_sim.fleet import JOB, SimulatedFleet
from everstep_sim.node import SimulatedNode
from everstep_sim.timeline import SECOND, VirtualTime

# A rank whose agent has not answered for so long looks for what it is to write, once a second.
_ALONE_S, _LOOK_S = 20.0, 1.0

_HEARD = events.NodeConnected | events.NodeDisconnected | events.AgentAnswered


@dataclass(slots=True)
class SharedFolder:
    """Shared storage that all nodes see, also those that the controller cannot hear any more."""

    files: dict[StepKey, dict[int, Copy]] = field(default_factory=dict)
    manifests: dict[StepKey, StoredStep] = field(default_factory=dict)
    latest: StoredStep | None = None
    # The newest generation that has moved `latest`, or fenced older ones off.
    fence: int = 0
    # Whole steps that were removed.
    removed: list[StepKey] = field(default_factory=list)
    # Files of ranks that were removed, steps of which one could not be written, and those that were
    # to become the newest one with a file that had been removed.
    gone: set[tuple[StepKey, int]] = field(default_factory=set)
    given_up: set[StepKey] = field(default_factory=set)
    missed: list[StepKey] = field(default_factory=list)
    # By generation, the newest step that ranks without an agent are to write, and since when; and
    # what they have written, which is no file of a step before a member has read it in.
    ordered: dict[int, tuple[int, int]] = field(default_factory=dict)
    own: dict[StepKey, dict[int, Copy]] = field(default_factory=dict)

    def write(self, copy: Copy) -> None:
        """Put a rank's file into its step."""
        self.files.setdefault((copy.generation, copy.step), {})[copy.rank] = copy

    def publish(self, publish: Publish) -> bool:
        """Do what the controller wants, unless a newer generation was here; tell whether."""
        if publish.generation < self.fence:
            return False
        overtakes = publish.generation > self.fence
        self.fence, target = publish.generation, publish.target
        if target is None:
            return True
        if publish.files and target.key not in self.manifests:
            written = self.files.get(target.key, {})
            absent = [file.rank for file in publish.files if file.rank not in written]
            newer = self.latest is None or target.key > self.latest.key
            if newer and any((target.key, rank) in self.gone for rank in absent):
                self.missed += [] if target.key in self.given_up else [target.key]
            if absent:
                return False
            name = f"{target.generation:04}{target.step:06}"
            size = sum(file.size_bytes for file in publish.files)
            self.manifests[target.key] = StoredStep(*target.key, target.world_size, name, size)
        forward = overtakes or self.latest is None or target.key >= self.latest.key
        if forward and target.key in self.manifests:
            self.latest = self.manifests[target.key]
            self._remove(publish, self.latest)
        return True

    def _remove(self, publish: Publish, latest: StoredStep) -> None:
        """Remove what is not kept, but nothing that may still be being written."""
        end = max((publish.generation, 0), latest.key)
        kept = {latest.key, *(step.key for step in publish.keep)}
        for key in [key for key in self.files if key < end and key not in kept]:
            self.gone.update((key, rank) for rank in self.files.pop(key))
            if self.manifests.pop(key, None) is not None:
                self.removed.append(key)

    def whole(self) -> tuple[StoredStep, ...]:
        """Return the steps that have a manifest."""
        return tuple(self.manifests[key] for key in sorted(self.manifests))


class Vaults:
    """Vault service of the controller that runs now, and the vaults of all nodes."""

    def __init__(
        self, fleet: SimulatedFleet, time: VirtualTime, controller: SimulatedController
    ) -> None:
        self._fleet = fleet
        self._time = time
        self._controller = controller
        # By the name of the job.
        self.folders: dict[str, SharedFolder] = {}
        # Chance of a file that cannot be written.
        self.write_fault_chance = 0.0
        # The longest that the word to publish a step may hang in the file system.
        self.publish_s = 3.0
        # The longest that a copy may travel to a spare.
        self.fetch_s = 3.0
        # Ranks without an agent write steps by themselves; the chance that one cannot, and since
        # when they have been alone, by node and job.
        self.own_files = False
        self.own_fault_chance = 0.0
        self._alone_since_ns: dict[tuple[str, str], int] = {}
        # What nodes were told last, which they do also of steps that come only after that.
        self._directed: dict[tuple[str, str], Directive] = {}
        # Copies that were fetched while a member was only silent.
        self.early = 0
        # By name of the job and generation, the newest step that nodes were told to be recoverable.
        self.told: dict[tuple[str, int], int] = {}
        self.service = self._new_service()

    @property
    def folder(self) -> SharedFolder:
        """Return the storage of the first job."""
        return self.folder_of(JOB)

    def folder_of(self, job: str) -> SharedFolder:
        """Return the storage of a job, by its name."""
        return self.folders.setdefault(job, SharedFolder())

    def restart(self) -> None:
        """Forget everything, as a controller that starts does."""
        self.service = self._new_service()

    def _new_service(self) -> VaultService:
        return VaultService(lambda: self._controller.core.state, _Port(self))

    def report(self, node: SimulatedNode) -> None:
        """Tell the controller what a node holds of its jobs, and what it sees in storage."""
        if self.own_files and self._fleet.agent_runs(node):
            self._do_as_told(node)
        if not self._fleet.flows(node) or node.mute_until_ns > self._time.now_ns:
            return
        for job, local in node.jobs.items():
            held = {name_of(copy): copy for copy in [*local.copies, *local.files]}
            failures = tuple((key, "disk full") for key in local.write_faults)
            stored = self.folder_of(job).whole()
            passed = local.passed_steps()
            told = NodeHoldings(held, local.settled, stored, failures, passed=passed)
            lineage = local.lineage_id or job
            self._fleet.say(node, partial(self._tell, lineage, node.name, told))

    def _tell(self, lineage: str, node: str, told: NodeHoldings) -> None:
        self.service.report(lineage, node, told)

    def follow(self, event: events.Event, done: Sequence[actions.Action]) -> None:
        """Let the service see what an event led to, as the shell does."""
        state = self._controller.core.state
        for name in _nodes_judged(event, done):
            self.service.refresh_jobs_of(name)
        for subject in {subject_of(action): None for action in done}:
            node, job = state.nodes.get(subject), state.job(subject)
            if node is not None and node.gone:
                self.service.forget_node(subject)
            elif node is not None and node.doubtful:
                for job_id in node.jobs.ids:
                    self.service.job_changed(job_id)
            if job is not None:
                self.service.job_changed(job.id)

    def choose(self, action: actions.ChooseRecoveryStep) -> None:
        """Ask for the step of a recovery."""
        self.service.choose(action)

    # --- on the nodes ----------------------------------------------------------------------------

    def directed(self, name: str, directive: Directive) -> bool:
        """Let a directive travel to its node."""
        node, record = self._fleet.nodes[name], self._controller.core.state.jobs[directive.job]
        if directive.spare is not None:
            self._fetch_soon(node, record.name, directive)
            return node.connected
        if directive.recoverable_step is not None:
            self.told[record.name, directive.generation] = directive.recoverable_step
        if node.connected:
            obey = partial(self._obey, node, node.streams, record.name, directive)
            self._time.soon(0.005, 0.1, partial(self._fleet.deliver, node, obey))
        return node.connected

    def _obey(self, node: SimulatedNode, stream: int, job: str, directive: Directive) -> None:
        local = node.of(job)
        if not node.connected or node.streams != stream or directive.generation < local.directed:
            return
        local.directed, local.pinned = directive.generation, set(directive.persist_steps)
        local.target, local.member_away = directive.replica_target, directive.member_away
        local.free_dead(directive.generation, directive.dead_steps)
        if directive.recoverable_step is not None:
            local.recoverable = directive.generation, directive.recoverable_step
            local.free_below(*local.recoverable)
            self.report(node)
        local.measure_slots(self._time.now_ns)
        local.every, local.every_from = directive.snapshot_every, directive.snapshot_from
        local.hold_after = directive.hold_after
        self._directed[node.name, job] = directive
        if self.own_files and directive.absent_step != local.absent_step:
            local.absent_step = directive.absent_step
            self._time.soon(0.05, 0.5, partial(self._order_own, node, node.boot, job, directive))
        for step in directive.persist_steps:
            self._persist(node, job, directive, step)
        publish = directive.publish
        if publish is not None and publish != local.published:
            local.published = publish
            # It is done even when the node is cut off by then.
            self._time.soon(0.05, self.publish_s, partial(self._publish, node, job, publish))

    def _fetch_soon(self, node: SimulatedNode, job: str, directive: Directive) -> None:
        sources = () if directive.prefetch is None else directive.prefetch.sources
        for source in sources if node.connected else ():
            fetch = partial(self._fetch_ahead, node, node.boot, job, source)
            self._time.soon(0.05, self.fetch_s, fetch)

    def _fetch_ahead(self, node: SimulatedNode, boot: int, job: str, source: ShardSource) -> None:
        of, wanted = self._fleet.nodes[source.node], (source.generation, source.rank, source.step)
        found = [c for c in of.of(job).copies if (c.generation, c.rank, c.step) == wanted]
        joined = not self._fleet.silent(of.name) and not self._fleet.silent(node.name)
        if found and joined and node.boot == boot:
            node.of(job).keep(found[0]._replace(node=node.name, replica=True))
            self.early += 1
            self.report(node)

    def _do_as_told(self, node: SimulatedNode) -> None:
        """Free steps, and bring others to storage, that have come only after they were named."""
        for job, local in node.jobs.items():
            directive = self._directed.get((node.name, job))
            if directive is not None and directive.generation == local.directed:
                local.free_dead(directive.generation, directive.dead_steps)
                for step in directive.persist_steps:
                    self._persist(node, job, directive, step)

    def _persist(self, node: SimulatedNode, job: str, directive: Directive, step: int) -> None:
        local, wanted = node.of(job), (directive.generation, step)
        held = [c for c in local.copies if (c.generation, c.step) == wanted]
        due = [c for c in held if not c.replica or c.rank in directive.persist_replicas]
        for copy in due if wanted not in local.write_faults else ():
            if copy in local.writing:
                continue
            local.writing.append(copy)
            self._time.soon(0.2, 4, partial(self._written, node, node.boot, job, copy))

    def _written(self, node: SimulatedNode, boot: int, job: str, copy: Copy) -> None:
        if not node.alive or node.boot != boot:
            return
        local = node.of(job)
        if self._time.rng.random() < self.write_fault_chance:
            local.write_faults.add((copy.generation, copy.step))
            self.folder_of(job).given_up.add((copy.generation, copy.step))
        else:
            self.folder_of(job).write(copy)
            local.files.append(copy._replace(tier=Tier.DISK))
        self.report(node)

    # --- steps of ranks without an agent ---------------------------------------------------------

    def save_alone(self, job: str, node: SimulatedNode, copy: Copy) -> None:
        """Have a rank write a step by itself, if its agent stays away and that step is wanted."""
        alone = (node.name, job)
        if self._fleet.agent_runs(node):
            self._alone_since_ns.pop(alone, None)
            return
        now_ns = self._time.now_ns
        since_ns = self._alone_since_ns.setdefault(alone, now_ns)
        step, at_ns = self.folder_of(job).ordered.get(copy.generation, (-1, 0))
        seen = now_ns - at_ns >= _LOOK_S * SECOND and now_ns - since_ns >= _ALONE_S * SECOND
        if step == copy.step and seen and self._time.rng.random() >= self.own_fault_chance:
            self._time.soon(0.2, 4, partial(self._written_alone, node, node.boot, job, copy))

    def _written_alone(self, node: SimulatedNode, boot: int, job: str, copy: Copy) -> None:
        if node.alive and node.boot == boot:
            own = self.folder_of(job).own
            own.setdefault((copy.generation, copy.step), {})[copy.rank] = copy

    def _order_own(self, node: SimulatedNode, boot: int, job: str, directive: Directive) -> None:
        step = directive.absent_step
        if step is None or node.boot != boot or node.of(job).absent_step != step:
            return
        if self._fleet.agent_runs(node):
            self.folder_of(job).ordered[directive.generation] = (step, self._time.now_ns)
            self._read_in(node, boot, job, directive)

    def _read_in(self, node: SimulatedNode, boot: int, job: str, directive: Directive) -> None:
        """Make files of what ranks have written by themselves, until another step is wanted."""
        local, step = node.of(job), directive.absent_step
        over = local.absent_step != step or local.directed != directive.generation
        if step is None or node.boot != boot or over:
            return
        wrote = self.folder_of(job).own.get((directive.generation, step), {})
        known = {(c.generation, c.step, c.rank) for c in local.files}
        for rank, copy in wrote.items() if self._fleet.agent_runs(node) else ():
            if (directive.generation, step, rank) not in known:
                self.folder_of(job).write(copy)
                local.files.append(copy._replace(node=node.name, tier=Tier.DISK))
                self.report(node)
        again = partial(self._read_in, node, boot, job, directive)
        self._time.after(_LOOK_S, again)

    def _publish(self, node: SimulatedNode, job: str, publish: Publish) -> None:
        if node.alive:
            self.folder_of(job).publish(publish)
            self.report(node)

    # --- the service's port ----------------------------------------------------------------------

    def post(self, event: events.Event) -> None:
        """Hand an event to the controller, unless it is away by then."""
        self._time.after(0, lambda: self._fleet.post(event))

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back, unless another controller runs by then."""
        service = self.service

        def due() -> None:
            if self._controller.up and self.service is service:
                callback()

        self._time.after(max(0.01, delay_s), due)

    def now_ns(self) -> int:
        """Return the time on the controller's timeline."""
        return self._controller.now_ns


@lru_cache(1 << 12)
def name_of(copy: Copy) -> bytes:
    """Return a name that no other copy has."""
    return repr(copy).encode()


def _nodes_judged(event: events.Event, done: Sequence[actions.Action]) -> Iterator[str]:
    """Yield the nodes whose silence began, ended, or became a doubt."""
    if isinstance(event, _HEARD):
        yield event.node
    elif isinstance(event, events.PeerReported | events.PeerJudged):
        yield event.peer
    for action in done:
        if isinstance(action, actions.Announce) and action.reason == NODE_DOUBTFUL:
            yield action.subject


def subject_of(action: actions.Action) -> str:
    """Return the node or job that an action shows to have changed."""
    if isinstance(action, actions.Announce):
        return action.subject
    about: str = getattr(action, "job_id", "") or getattr(action, "job", "")
    return about or getattr(action, "node", "")


class _Port:
    """VaultPort of the simulation: directives, events and timers in virtual time."""

    def __init__(self, vaults: Vaults) -> None:
        self._vaults = vaults

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        """See VaultPort."""
        return True

    def direct(self, node: str, directive: Directive) -> bool:
        """See VaultPort."""
        return self._vaults.directed(node, directive)

    def post(self, event: events.Event) -> None:
        """See VaultPort."""
        self._vaults.post(event)

    def announce(self, subject: str, reason: str, message: str) -> None:
        """See VaultPort."""

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """See VaultPort."""
        self._vaults.later(delay_s, callback)

    def now_ns(self) -> int:
        """See VaultPort."""
        return self._vaults.now_ns()
