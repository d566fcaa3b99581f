"""Saving of one step: its layout in a slot, the copy, and a check that nothing changed."""

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from everstep.copy_engine.device_copies import Device, DeviceCopies, DeviceCopy
from everstep.copy_engine.memory import Copier, Copy, Work
from everstep.copy_engine.views import ShardView, entry_of, offsets
from everstep.saving.digest import Digest, digests
from everstep.saving.early import Early
from everstep.saving.exchange import Exchange, Grant, Outcome, failed
from everstep_common.rank_messages import Entry

# Until it has ended.
_CUT_SHORT = failed("the copy was cut short")


class Layout:
    """Layout of a slot, remembered: after most steps the same shards lie at the same places."""

    def __init__(self) -> None:
        self._shards: tuple[ShardView, ...] = ()
        self._entries: tuple[Entry, ...] = ()
        self._size_bytes = 0

    def of(self, shards: tuple[ShardView, ...]) -> tuple[tuple[Entry, ...], int]:
        """Return the shards' entries, and how many bytes the slot needs."""
        if shards is self._shards and self._entries:
            return self._entries, self._size_bytes
        begins, size_bytes = offsets(shards)
        if len(shards) == len(self._shards):
            known = zip(shards, begins, self._shards, self._entries, strict=True)
            entries = tuple(
                entry if shard is then and entry.offset_bytes == at else entry_of(shard, at)
                for shard, at, then, entry in known
            )
        else:
            entries = tuple(map(entry_of, shards, begins))
        self._shards, self._entries, self._size_bytes = shards, entries, size_bytes
        return entries, size_bytes


@dataclass(frozen=True, slots=True)
class Tools:
    """Collaborators of a saving, which copy and hash a state."""

    copier: Copier
    digest: Digest | None = None
    # Finds the shards that may change too early to be copied beside training.
    early: Early = field(default_factory=lambda: Early({}))
    layout: Layout = field(default_factory=Layout)
    # None: CUDA is used once the state has a CUDA tensor.
    device: Device | None = None


class _Beside:
    """What the thread of a saving beside training shares with the training thread."""

    def __init__(self, shards: Sequence[ShardView]) -> None:
        self.work: Work | None = None
        self.copying = threading.Event()
        self.finished = threading.Event()
        self._witness: Witness | None = Witness(shards)
        self._changed = ""
        self._looking = threading.Lock()

    def changed(self) -> str:
        """Compare, once: when the copy is done, or earlier, when training may change the state."""
        with self._looking:
            witness, self._witness = self._witness, None
            if witness is not None:
                self._changed = witness.changed()
            return self._changed


class Saving:
    """One step on its way to the agent; begun where the state is complete, between two steps.

    With ``overlap``, `run` is another thread's. What is saved is one step or nothing: the agent
    takes a slot as complete only when it is told so, and it is told so after the last byte.
    """

    def __init__(
        self,
        step: int,
        shards: tuple[ShardView, ...],
        exchange: Exchange,
        tools: Tools,
        device: Device | None,
    ) -> None:
        self.step = step
        self._exchange = exchange
        self._entries, self._size_bytes = tools.layout.of(shards)
        if exchange.policy.overlap:
            shards = tools.early.detach(shards, device)
        self._shards = shards
        # Beside training one thread is enough, and leaves the other cores alone.
        self._copier = Copier(1) if exchange.policy.overlap else tools.copier
        self._digest = tools.digest
        self._devices = DeviceCopies(device, shards) if device else None
        self._beside = _Beside(shards) if exchange.policy.overlap else None
        self.outcome = _CUT_SHORT

    def run(self) -> None:
        """Do it. Raises nothing: an error is the outcome."""
        try:
            self.outcome = self._save()
        except Exception as error:  # noqa: BLE001 - whatever it is, training shall not end by it
            self.outcome = failed(f"{type(error).__name__}: {error}", error)
        finally:
            if self._beside is not None:
                self._beside.copying.set()
                self._beside.finished.set()

    def settle(self) -> None:
        """Return when the state may change; helps with what is left to copy."""
        if (beside := self._beside) is None:
            return
        beside.copying.wait()
        if beside.work is not None:
            beside.work.take_part()
            beside.work.join()
        beside.changed()
        if self._devices is not None:
            self._devices.hold()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether the agent has the step, or will never have it."""
        return self._beside is None or self._beside.finished.wait(timeout_s)

    def give_up(self) -> None:
        """Begin no further piece, and commit nothing."""
        if self._beside is not None and self._beside.work is not None:
            self._beside.work.stop()

    def _save(self) -> Outcome:
        pinner = self._devices.pinner if self._devices else None
        grant = self._exchange.begin(self.step, self._size_bytes, pinner)
        if isinstance(grant, Outcome):
            return grant
        entries = self._with_digests()
        self._copy(grant)
        changed = self._beside.changed() if self._beside is not None else ""
        if changed:
            return failed(
                f"{changed!r} was changed while step {self.step} was copied beside training;"
                " call snapshots.settle() before the change, or use overlap=False"
            )
        return self._exchange.commit(grant, entries)

    def _with_digests(self) -> tuple[Entry, ...]:
        if self._digest is None:
            return self._entries
        found = digests(self._shards, self._digest, self._copier)
        pairs = zip(self._entries, found, strict=True)
        return tuple(replace(entry, digest=digest) for entry, digest in pairs)

    def _copy(self, grant: Grant) -> None:
        pairs = zip(self._shards, self._entries, strict=True)
        placed = [(shard, entry.offset_bytes) for shard, entry in pairs]
        grant.paddings.clear(grant.address, self._entries)
        if self._devices is not None:
            self._devices.launch(
                [
                    DeviceCopy(shard.cuda, grant.address + at, shard.size_bytes)
                    for shard, at in placed
                    if shard.cuda is not None
                ]
            )
        copies = [
            Copy(grant.address + at, shard.address, shard.size_bytes)
            for shard, at in placed
            if shard.cuda is None
        ]
        try:
            self._copy_here(copies)
        finally:
            # Whatever happened, no device may still write into a slot that is given back.
            if self._devices is not None:
                self._devices.wait()

    def _copy_here(self, copies: Sequence[Copy]) -> None:
        if self._beside is None:
            self._copier.copy(copies)
            return
        work = self._beside.work = self._copier.work(copies)
        self._beside.copying.set()
        self._copier.share(work)


# Optimizers wait for the copy by themselves; whatever else changes the state (an average of the
# weights, a counter, a tensor of the script) has to wait too, and a Witness finds out when it did
# not: a state that changed while it was copied is no snapshot of any step.
#
# Torch counts the changes of a tensor, but not those through ".data" or a numpy array that shares
# its memory, and other libraries count none. So some bytes are looked at too: an update changes
# nearly all of an array. 256 arrays take 0.3 ms.
_SAMPLED_SHARDS_MAX = 256
_SAMPLE_BYTES = 64
# Where in a shard, in parts of its length.
_SAMPLES_AT = (0.0, 0.37, 0.73)


class Witness:
    """Versions and samples of a state when its copy began; made where the state is complete."""

    def __init__(self, shards: Sequence[ShardView]) -> None:
        self._shards = shards
        here = (shard for shard in shards if shard.cuda is None and shard.size_bytes)
        self._sampled = sorted(here, key=lambda shard: -shard.size_bytes)[:_SAMPLED_SHARDS_MAX]
        self._versions = _versions(shards)
        self._samples = [_sample(shard) for shard in self._sampled]

    def changed(self) -> str:
        """Return the name of a shard that is not what it was; "": none is known to be."""
        versions = _versions(self._shards)
        if versions != self._versions:
            pairs = zip(self._shards, versions, self._versions, strict=True)
            return next(shard.name for shard, now, then in pairs if now != then)
        for shard, then in zip(self._sampled, self._samples, strict=True):
            if _sample(shard) != then:
                return shard.name
        return ""


def _versions(shards: Sequence[ShardView]) -> list[object]:
    return [_version(shard.keep) for shard in shards]


def _version(array: object) -> object:
    try:
        return getattr(array, "_version", None)
    except RuntimeError:  # a tensor of torch.inference_mode() has no count
        return None


def _sample(shard: ShardView) -> bytes:
    end = max(0, shard.size_bytes - _SAMPLE_BYTES)
    size = min(_SAMPLE_BYTES, shard.size_bytes)
    return b"".join(ctypes.string_at(shard.address + int(end * at), size) for at in _SAMPLES_AT)
