"""Persistence: the steps of a job that are brought to storage, and where `latest` there points.

Nothing here is journaled: what lies in storage, agents can tell again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from everstep_common.orders import Publish, StoredFile
from everstep_common.reports import Storage, StoredStep
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, Parts, Tier
from everstep_controller.core.vault.recovery_step import is_whole

# The first step of a job is stored about so long after it could be restored from memory: two faults
# in a row cost all that was made since the newest stored one. Each wait after it is twice as long,
# up to the interval that the job's user has asked for.
FIRST_STORED_NS = 30_000_000_000

# Fewest steps kept in storage: publishing one removes an older one at once, and one is no reserve.
KEEP_MIN = 2


@dataclass(frozen=True, slots=True)
class PersistenceInput:
    """Inputs of a decision: the job, the copies that are held of it, and the nodes that answer."""

    job: JobRecord
    # The generation that runs or ran last, and its ranks.
    generation: int
    world_size: int
    catalogue: Catalogue
    # The newest step that may be named: no part of it is freed before it is written.
    recoverable: int | None
    connected: Sequence[str]
    now_ns: int
    # The step that ranks of absent agents write by themselves; None: none is.
    absent_step: int | None = None


@dataclass(slots=True)
class Persistence:
    """Progress of bringing a job's steps to storage."""

    generation: int = 0
    # The steps of this generation that were named and are not whole in storage yet.
    named: list[int] = field(default_factory=list)
    # Those of older generations: their last files may still be being written.
    underway: set[StepKey] = field(default_factory=set)
    # The step and the time from which the next one is counted.
    counted_step: int = 0
    counted_ns: int = 0
    # The same before the newest one was named.
    counted_before: tuple[int, int] = (0, 0)
    # How long the next step waits at most while the intervals grow; 0: they have grown.
    early_ns: int = 0
    publisher: str = ""
    failures: dict[StepKey, str] = field(default_factory=dict)
    # When the newest of them was named, and how long the newest that is stored was on its way.
    named_ns: int = 0
    storing_ns: int = 0
    # The newest step that was seen whole in storage, and when that was first known.
    newest: StoredStep | None = None
    newest_ns: int = 0
    # The step that ranks of absent agents write by themselves.
    absent: int | None = None

    def decide(self, inputs: PersistenceInput) -> Publish | None:
        """Name the next step if one is due; return what the publisher shall do."""
        storage = inputs.job.spec.storage
        if storage is None:
            return None
        stored = stored_on_branch(inputs.job, inputs.catalogue)
        if self.generation != inputs.generation:
            self._begin(inputs)
            # A job that has a step there, as one that was restored from it, has time.
            self.early_ns = 0 if stored else first_stored_ns(inputs.job)
        self._note_newest(stored, inputs.now_ns)
        keys = [(self.generation, step) for step in self.named]
        self.named = [key[1] for key in keys if not self._settled(key, stored)]
        self._give_up_lost(inputs)
        self.underway |= partly_written(inputs)
        self.underway = {key for key in self.underway if self._may_follow(inputs.job, key, stored)}
        self._name_absent(inputs.absent_step)
        self._name(inputs, storage, stored)
        self._choose_publisher(inputs)
        return self._publish(inputs, storage, stored) if self.publisher else None

    def last_step_settled(self, inputs: PersistenceInput) -> str:
        """Return the sentence that ends the wait for a job's last step; empty while it lasts."""
        step = inputs.recoverable
        settled = [inputs.catalogue.settled(node) >= self.generation for node in inputs.connected]
        if inputs.job.ending.done and not all(settled):
            return ""  # A newer step than this one may still be verified.
        if step is None:
            return "no step is held as a whole any more" if settled and all(settled) else ""
        key = (self.generation, step)
        if key <= max(stored_on_branch(inputs.job, inputs.catalogue), default=(0, 0)):
            return f"its last recoverable step, {step}, is in storage"
        if key in self.failures:
            return f"step {step} could not be brought to storage: {self.failures[key]}"
        return ""

    def last_step_missed(self, inputs: PersistenceInput) -> bool:
        """Return whether the wait for a job's last step is over without it, where it has one."""
        step, stored = inputs.recoverable, stored_on_branch(inputs.job, inputs.catalogue)
        return step is not None and (self.generation, step) > max(stored, default=(0, 0))

    # ---------------------------------------------------------------------------------------------

    def _begin(self, inputs: PersistenceInput) -> None:
        self.underway.update((self.generation, step) for step in self.named)
        self.generation, self.named = inputs.generation, []
        self.counted_step = inputs.job.lineage.restored[1] if inputs.job.lineage.restored else 0
        self.counted_ns = inputs.now_ns
        known = {point.generation for point in inputs.job.lineage.branch}
        self.failures = {key: why for key, why in self.failures.items() if key[0] in known}

    def _note_newest(self, stored: Mapping[StepKey, StoredStep], now_ns: int) -> None:
        newest = stored[max(stored)] if stored else None
        if newest is not None and (self.newest is None or newest.key != self.newest.key):
            self.newest_ns = now_ns
            if newest.step in self.named and newest.step == self.counted_step:
                self.storing_ns = now_ns - self.named_ns
        self.newest = newest

    def _settled(self, key: StepKey, stored: Mapping[StepKey, StoredStep]) -> bool:
        # One that a newer step has overtaken in storage is of no use, and is removed there.
        return key in self.failures or key <= max(stored, default=(0, 0))

    def _give_up_lost(self, inputs: PersistenceInput) -> None:
        """Give up steps of which a part was lost before it was written, as with an agent's memory.

        No other one is named before they are stored. The next one is due as if they had never been.
        """
        lost = [n for n in self.named if n != self.absent and not is_held(inputs, n)]
        if lost:
            self.named = [step for step in self.named if step not in lost]
            self.counted_step, self.counted_ns = self.counted_before

    def _may_follow(
        self, job: JobRecord, key: StepKey, stored: Mapping[StepKey, StoredStep]
    ) -> bool:
        """Return whether a step may still become the newest one in storage."""
        return on_branch(job, key) and not self._settled(key, stored)

    def _name(
        self, inputs: PersistenceInput, storage: Storage, stored: Mapping[StepKey, StoredStep]
    ) -> None:
        """Name the recoverable step: of that one no part can be gone when the word arrives."""
        step = inputs.recoverable
        if step is None:
            if self.early_ns:
                self.counted_ns = inputs.now_ns  # there is nothing to lose yet
            return
        if step in self.named or self._settled((self.generation, step), stored):
            return
        if not is_stopped(inputs.job) and (
            self.named or not self._due(step, storage, inputs.now_ns)
        ):
            return
        self.named.append(step)
        self.named_ns = inputs.now_ns
        self.early_ns = _grown(self.early_ns, storage)
        self.counted_before = self.counted_step, self.counted_ns
        self.counted_step, self.counted_ns = step, inputs.now_ns

    def _name_absent(self, step: int | None) -> None:
        """Name a step ahead that ranks of absent agents write, until it is given up."""
        if step == self.absent:
            return
        self.named = [one for one in self.named if one != self.absent]
        self.absent = step
        if step is not None and step not in self.named:
            self.named.append(step)

    def _due(self, step: int, storage: Storage, now_ns: int) -> bool:
        passed_ns = now_ns - self.counted_ns
        if self.early_ns and passed_ns >= self.early_ns:
            return True
        if step <= self.counted_step:
            return False
        by_steps = storage.every_steps
        if by_steps and step // by_steps > self.counted_step // by_steps:
            return True
        return bool(storage.every_ns) and passed_ns >= storage.every_ns

    def _choose_publisher(self, inputs: PersistenceInput) -> None:
        """Keep the publisher as long as it is there; another's word is never half of an order.

        Only who has told what is in storage is one: what it is told to keep must be complete.
        """
        able = [node for node in inputs.connected if inputs.catalogue.sees_storage(node)]
        if self.publisher not in able:
            self.publisher = able[0] if able else ""

    def _publish(
        self, inputs: PersistenceInput, storage: Storage, stored: Mapping[StepKey, StoredStep]
    ) -> Publish:
        job = inputs.job
        written = {k: v for k, v in written_steps(inputs).items() if k not in self.failures}
        # In order, so that each step whose files are all there gets its manifest.
        newest = max(stored, default=None)
        ahead = [key for key in written if newest is None or key > newest]
        chosen = min(ahead, default=newest)
        target = chosen and (stored.get(chosen) or _unnamed(job, written[chosen], chosen))
        files: tuple[StoredFile, ...] = ()
        if chosen is not None and chosen not in stored:
            files = _files(written[chosen], inputs.catalogue)
        newest_first = sorted(stored, reverse=True)
        kept = {key: stored[key] for key in newest_first[: max(KEEP_MIN, storage.keep)]}
        restored = job.lineage.restored
        if restored is not None and restored in stored:
            kept[restored] = stored[restored]
        for key in ahead:
            kept.setdefault(key, _unnamed(job, written[key], key))
        for key in (*self.underway, *((self.generation, step) for step in self.named)):
            kept.setdefault(key, StoredStep(*key, inputs.world_size, "", 0))
        keep = tuple(kept[key] for key in sorted(kept, reverse=True)) if stored or written else ()
        if not all(node in inputs.catalogue.nodes for node in job.generation.members):
            # Of what a part is there, the rest may be told by a node that is still to be heard.
            keep = ()
        # Only where a manifest is to be written: elsewhere a rollback would change orders that are
        # done.
        skipped = tuple(job.lineage.skipped) if files else ()
        return Publish(self.generation, target, files, keep, skipped)


def first_stored_ns(job: JobRecord) -> int:
    """Return when the first step of a job is stored: jobs that began together do so one by one."""
    return FIRST_STORED_NS * (768 + crc32(job.id.encode()) % 512) // 1024


def _grown(early_ns: int, storage: Storage) -> int:
    """Return the wait after an early one; 0 where the interval decides from here on."""
    grown_ns = 2 * early_ns
    return grown_ns if grown_ns < storage.every_ns else 0


def choose_stand_ins(inputs: PersistenceInput, named: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return which nodes write files of ranks whose own node cannot, from their replicas."""
    found: dict[str, set[int]] = {}
    present = frozenset(inputs.connected)
    steps = inputs.catalogue.steps(inputs.generation)
    for copies in (steps[step] for step in named if step in steps):
        able = [c for c in copies if c.node in present and c.tier is Tier.MEMORY]
        owned = {copy.rank for copy in able if not copy.replica} | copies.files.ranks
        replicas = {copy.rank: copy.node for copy in able if copy.rank not in owned}
        for rank, node in replicas.items():
            found.setdefault(node, set()).add(rank)
    return {node: tuple(sorted(ranks)) for node, ranks in found.items()}


def is_held(inputs: PersistenceInput, step: int) -> bool:
    """Return whether all parts of a step are in memory, in files, or in both together."""
    copies = inputs.catalogue.steps(inputs.generation).get(step)
    if copies is not None and len(copies.memory.ranks) >= inputs.world_size:
        return True  # as a rule: to unite a hundred thousand ranks with their files takes its time
    parts = inputs.catalogue.parts((inputs.generation, step), (), files=True)
    if len(parts.ranks) >= inputs.world_size:
        return True
    points = (p for p in inputs.job.lineage.branch if p.generation == inputs.generation)
    return any(is_whole(point, parts) for point in points)


def lacks_own(inputs: PersistenceInput, named: Sequence[int]) -> bool:
    """Return whether some rank can write no file of a step itself: its own copy is lost."""
    steps = inputs.catalogue.steps(inputs.generation)
    return any(
        len(copies.memory.own) < inputs.world_size
        and len(copies.memory.own | copies.files.ranks) < inputs.world_size
        for copies in (steps[step] for step in named if step in steps)
    )


def is_stopped(job: JobRecord) -> bool:
    """Return whether no generation runs: then the newest step is brought to storage in any case."""
    return job.state not in ACTIVE


def stored_on_branch(job: JobRecord, catalogue: Catalogue) -> dict[StepKey, StoredStep]:
    """Return the whole steps in storage that are of the job's current branch."""
    found = {key: next(iter(seen.values())) for key, seen in catalogue.stored().items()}
    return {key: step for key, step in found.items() if on_branch(job, key)}


def on_branch(job: JobRecord, key: StepKey) -> bool:
    """Return whether a step is of the job's current branch."""
    return any(point.has(*key) for point in job.lineage.branch)


def partly_written(inputs: PersistenceInput) -> set[StepKey]:
    """Return the steps of older generations of which some part has been reported as a file."""
    return {
        (point.generation, number)
        for point in inputs.job.lineage.branch
        if point.generation != inputs.generation
        for number, copies in inputs.catalogue.steps(point.generation).items()
        if copies.files
    }


def written_steps(inputs: PersistenceInput) -> dict[StepKey, tuple[Copy, ...]]:
    """Return the steps of the branch of which every part has been reported as a file."""
    stored = inputs.catalogue.stored()
    return {
        (point.generation, number): tuple(copy for copy in copies if copy.tier is Tier.DISK)
        for point in inputs.job.lineage.branch
        for number, copies in inputs.catalogue.steps(point.generation).items()
        if point.has(point.generation, number)
        and is_whole(point, Parts(copies.files.ranks, copies.files.layouts))
        and (point.generation, number) not in stored
    }


def _unnamed(job: JobRecord, copies: Sequence[Copy], key: StepKey) -> StoredStep:
    """Return a step whose manifest, and so its hash, is still to be written."""
    ranks = {copy.rank: copy.size_bytes for copy in copies}
    # Where ranks have equal parts, one file may stand for several ranks.
    world_size = next(point.world_size for point in job.lineage.branch if point.has(*key))
    return StoredStep(*key, world_size or len(ranks), "", sum(ranks.values()))


def _files(copies: Sequence[Copy], catalogue: Catalogue) -> tuple[StoredFile, ...]:
    by_rank = {copy.rank: copy for copy in copies}
    folders = {node: catalogue.storage_id(node) for node in {copy.node for copy in copies}}
    return tuple(
        StoredFile(copy.rank, copy.root_hash, copy.size_bytes, copy.layout, folders[copy.node])
        for _, copy in sorted(by_rank.items())
    )
