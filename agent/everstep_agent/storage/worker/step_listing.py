"""Step listing: which steps in storage are whole, and which of them a job goes on from.

Steps are found by their manifests, on the branch of the newest generation; ``latest`` is a hint.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from everstep_agent.storage.backends.backend import StorageBackend, UnusableFileError
from everstep_agent.storage.formats.branch import GenerationFolder, StoredBranch, find_branch
from everstep_agent.storage.formats.latest_pointer import ReadPointer, pointer_to, read_pointer
from everstep_agent.storage.formats.records import (
    LatestPointer,
    RecordError,
    StepKey,
    StepManifest,
    data_name,
    decode_record,
    is_sane,
    key_of,
    record_hash,
)
from everstep_agent.storage.worker.generation_beginning import read_generation
from everstep_agent.storage.worker.messages import StepListing, StorageOrigin
from everstep_common.reports import StoredStep

MANIFEST = "manifest.json"
# How many of the newest steps are looked at in a folder that is never tidied, besides those on the
# way back to the newest whole step of the branch.
_STEPS_SEEN_MAX = 64
# Number of damaged steps that are named to people.
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class StepLook:
    """A step as it was seen: whole, or why it cannot be used; ``damaged``: it was whole once."""

    stored: StoredStep | None
    problem: str = ""
    damaged: bool = False

    @property
    def usable(self) -> StoredStep | None:
        """Return the step if it is whole, and nothing speaks against it."""
        return None if self.problem else self.stored


def find_whole_step(backend: StorageBackend, key: StepKey) -> StoredStep | None:
    """Return a step that is whole: its manifest can be read, and every file has its size."""
    return look_at_step(backend, key).stored


def look_at_step(backend: StorageBackend, key: StepKey) -> StepLook:
    """Return what there is of a step. Raises OSError and BackendError where nobody can say."""
    try:
        content = backend.read_small(key, MANIFEST)
        if content is None:
            return StepLook(None, "it was never complete")
        manifest = _manifest_of(content, key)
        for file in manifest.files:
            name = data_name(file.rank)
            if backend.file_size(key, name) != file.file_bytes:
                return StepLook(None, f"{name} is missing or has another size", damaged=True)
    except (RecordError, UnusableFileError) as error:
        return StepLook(None, f"{MANIFEST} cannot be used: {error}", damaged=True)
    stored = StoredStep(
        generation=key.generation,
        step=key.step,
        world_size=manifest.world_size,
        manifest_hash=record_hash(content).hex(),
        size_bytes=manifest.size_bytes,
        skipped=manifest.skipped,
    )
    return StepLook(stored)


def list_steps(backend: StorageBackend, manifest_of: StepKey | None) -> StepListing:
    """Return what is whole, newest last, and which of it a job goes on from."""
    pointer = _read_latest(backend)
    seen = _Seen(backend, backend.list_steps(), pointer.latest)
    folders = _Folders(backend, seen.by_generation())
    branch = find_branch(folders, pointer.latest)
    choice = _choose(seen, branch, folders, pointer)
    recent = seen.keys[-_STEPS_SEEN_MAX:]
    found = {key: stored for key in recent if (stored := seen.look_at(key).usable)}
    for stored in filter(None, (choice.usable, choice.other)):
        found[key_of(stored)] = stored
    latest = pointer.latest
    newest = max(max(folders, default=0), latest.generation if latest else 0)
    return StepListing(
        latest=_pointer(branch, choice.usable),
        newest_generation=newest,
        steps=tuple(found[key] for key in sorted(found)),
        manifest=_manifest(backend, manifest_of) if manifest_of else None,
        lost_latest=choice.lost,
        branch=tuple(reversed(choice.branch)),
        origin=_origin(branch),
        other=_pointer(branch, choice.other),
        note=choice.note,
        doubt=choice.doubt,
    )


@dataclass(slots=True)
class _Seen:
    """Steps that have a folder, oldest first; each is looked at once, when it is asked for."""

    backend: StorageBackend
    keys: list[StepKey]
    latest: LatestPointer | None
    _looks: dict[StepKey, StepLook] = field(default_factory=dict)

    def look_at(self, key: StepKey) -> StepLook:
        """Return what there is of a step."""
        if key not in self._looks:
            self._looks[key] = self._compared(key, look_at_step(self.backend, key))
        return self._looks[key]

    def _compared(self, key: StepKey, look: StepLook) -> StepLook:
        """Return a look at a step, with what ``latest`` says against its manifest."""
        if look.stored is None or self.latest is None or key != self.latest.target:
            return look
        if look.stored.manifest_hash == self.latest.manifest_hash:
            return look
        return replace(look, problem=f"{MANIFEST} is not the one that latest names", damaged=True)

    def by_generation(self) -> dict[int, list[int]]:
        """Return the numbers of the steps in each generation's folder."""
        found: dict[int, list[int]] = defaultdict(list)
        for key in self.keys:
            found[key.generation].append(key.step)
        return dict(found)


class _Folders(Mapping[int, GenerationFolder]):
    """Folders of generations by their numbers; how one began is read when it is asked for."""

    def __init__(self, backend: StorageBackend, steps: Mapping[int, list[int]]) -> None:
        self._backend, self._steps = backend, steps
        self._numbers = frozenset(backend.list_generations())
        self._read: dict[int, GenerationFolder] = {}

    def __getitem__(self, number: int) -> GenerationFolder:
        if number not in self._numbers:
            raise KeyError(number)
        if number not in self._read:
            how = read_generation(self._backend, number)
            steps = self._steps.get(number, ())
            self._read[number] = GenerationFolder(how.beginning, how.problem, steps)
        return self._read[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(slots=True)
class _Choice:
    """The step that a job goes on from, and what its user has to know of it."""

    usable: StoredStep | None = None
    # The last steps of the generations before it on its branch, newest first.
    branch: list[StepKey] = field(default_factory=list)
    # One that a job goes on from only if its user says so.
    other: StoredStep | None = None
    lost: StepKey | None = None
    note: str = ""
    doubt: str = ""


def _choose(
    seen: _Seen, branch: StoredBranch, folders: Mapping[int, GenerationFolder], pointer: ReadPointer
) -> _Choice:
    choice, damaged, guessed = _Choice(), dict[StepKey, str](), False
    for key, known in branch.steps(folders):
        look = seen.look_at(key)
        if look.damaged:
            damaged[key] = look.problem
        if look.usable is not None:
            choice.usable, guessed = look.usable, not known
            known_points = branch.points[: branch.known]
            choice.branch = [point for point in known_points if point.generation < key.generation]
            break
    if guessed and branch.damaged:
        choice.other, choice.usable = choice.usable, None
    elif choice.usable is None:
        choice.other = _newest_elsewhere(seen)
    _judge(choice, branch, damaged, guessed=guessed)
    _compare(choice, pointer, seen)
    return choice


def _judge(
    choice: _Choice, branch: StoredBranch, damaged: Mapping[StepKey, str], *, guessed: bool
) -> None:
    """Say what is not as it should be: in a note, or as a doubt where nothing is certain."""
    bad = "; ".join(f"{key}: {why}" for key, why in list(damaged.items())[:_NAMED_MAX])
    if choice.usable is not None:
        place = key_of(choice.usable)
        words = [f"{bad}: it goes on from {place}, the newest complete one before"] if bad else []
        if guessed:
            words.append(
                f"{branch.broken}: it goes on from {place}, the newest complete one there is"
            )
        choice.note = "; ".join(words)
        return
    others = f"; {key_of(choice.other)} is complete there" if choice.other else ""
    if bad or (guessed and branch.broken):
        reasons = "; ".join(filter(None, [bad, branch.broken if guessed else ""]))
        choice.doubt = f"no step is known to be the newest of this job ({reasons}){others}"
    elif choice.other is not None:
        choice.note = (
            f"generation {branch.scratch or branch.newest} began from scratch and has stored no"
            f" complete step, so this job begins from scratch, too; {key_of(choice.other)} of"
            " before is complete, and stays: use --continue to go on from it"
        )
    elif branch.newest:
        choice.note = "storage has no complete step of this job"


def _compare(choice: _Choice, pointer: ReadPointer, seen: _Seen) -> None:
    """Say where ``latest`` does not point to what was found."""
    latest = pointer.latest
    target = latest.target if latest is not None else None
    if target is not None and seen.look_at(target).usable is None:
        choice.lost = target
    if choice.usable is None or target == (found := key_of(choice.usable)):
        return
    if choice.lost and choice.note:  # it is said why that one is not complete
        return
    said = f"points to {target or 'no step'}"
    words = f"latest {pointer.problem or said}; {found} is the newest complete one by its manifest"
    choice.note = "; ".join(filter(None, [choice.note, words]))


def _newest_elsewhere(seen: _Seen) -> StoredStep | None:
    """Return the newest whole step of all."""
    looks = (seen.look_at(key).stored for key in reversed(seen.keys))
    return next((stored for stored in looks if stored is not None), None)


def _pointer(branch: StoredBranch, stored: StoredStep | None) -> LatestPointer | None:
    return None if stored is None else pointer_to(branch.newest, stored)


def _origin(branch: StoredBranch) -> StorageOrigin | None:
    found = branch.beginning
    return None if found is None else StorageOrigin(found.job_id, found.cluster, found.uid)


def _read_latest(backend: StorageBackend) -> ReadPointer:
    try:
        return read_pointer(backend.read_latest())
    except UnusableFileError as error:
        return ReadPointer(problem=f"cannot be used: {error}")


def _manifest_of(content: bytes, key: StepKey) -> StepManifest:
    manifest = decode_record(StepManifest, content)
    if manifest.key != key or not is_sane(manifest):
        raise RecordError("it is of another step, or its numbers are none")
    return manifest


def _manifest(backend: StorageBackend, key: StepKey) -> StepManifest | None:
    try:
        content = backend.read_small(key, MANIFEST)
        return None if content is None else _manifest_of(content, key)
    except (RecordError, UnusableFileError):
        return None
