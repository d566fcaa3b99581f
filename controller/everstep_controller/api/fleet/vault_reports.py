"""Vault reports of agents as values of the core: whole lists of copies, and changes to them."""

from collections.abc import Mapping

from everstep_common.lessons import Lesson, is_sound
from everstep_common.reports import PersistFailure, Standbys, StoredStep
from everstep_controller.api.fleet.from_agent import name
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.catalogue import News
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.messages import VaultReport
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire

# Longest text of an agent that is kept; what is longer is cut.
TEXT_MAX = 4096


def lineage_of(wire: fleet_pb2.VaultReport) -> str:
    """Return the lineage whose copies are told; where no id was told yet, the name of the job."""
    return wire.lineage_id or wire.job


def vault_report(
    node: str, wire: fleet_pb2.VaultReport, known: Mapping[bytes, Copy]
) -> VaultReport:
    """Return what a node reports as a whole list. Raises WireError.

    A copy is told by the bytes of its message: the many that were in the report before are
    ``known``, and only the few new ones are read.
    """
    told = zip(map(fleet_pb2.Copy.SerializeToString, wire.copies), wire.copies, strict=True)
    copies = {one: known.get(one) or _copy(node, copy) for one, copy in told}
    return _report(wire, copies)


def changed(node: str, wire: fleet_pb2.VaultReport, told: dict[bytes, Copy] | None) -> VaultReport:
    """Return what a node reports as a change of the list ``told``, which it is applied to.

    Raises WireError, and changes nothing then.
    """
    names = [copy.SerializeToString() for copy in wire.gone]
    if told is None or not told.keys() >= set(names):
        raise WireError(f"a change of a list of copies of {wire.job:.80} that was not told")
    new = {copy.SerializeToString(): _copy(node, copy) for copy in wire.copies}
    new = {one: copy for one, copy in new.items() if one not in told}
    report = _report(wire, told, News(tuple(new.values()), tuple(told[one] for one in names)))
    for one in names:
        told.pop(one, None)
    told |= new
    return report


def _report(
    wire: fleet_pb2.VaultReport, copies: dict[bytes, Copy], news: News | None = None
) -> VaultReport:
    name(wire.job, "job")
    name(lineage_of(wire), "lineage")
    return VaultReport(
        copies,
        wire.settled_generation,
        stored=tuple(_stored(from_wire(StoredStep, step)) for step in wire.stored),
        failures=tuple(_failure(from_wire(PersistFailure, one)) for one in wire.persist_failures),
        bad_copies=len(wire.bad_copies),
        news=news,
        standbys=from_wire(Standbys, wire.standbys) if wire.HasField("standbys") else None,
        lesson=_lesson(wire.lesson) if wire.HasField("lesson") else None,
        replicas_short=wire.replicas_short,
    )


def _stored(step: StoredStep) -> StoredStep:
    if not step.manifest_hash:
        raise WireError(f"step {step.step} in storage without the hash of its manifest")
    return step


def _lesson(wire: fleet_pb2.Lesson) -> Lesson | None:
    """Return what ranks have loaded; None for what is no such thing: processes would obey it."""
    lesson = from_wire(Lesson, wire)
    return lesson if is_sound(lesson) else None


def _failure(told: PersistFailure) -> tuple[StepKey, str]:
    return ((told.generation, told.step), told.reason)


def _copy(node: str, wire: fleet_pb2.Copy) -> Copy:
    if not wire.root_hash:
        raise WireError(f"a copy of rank {wire.rank}, step {wire.step}, without its hash")
    return Copy(
        node,
        wire.generation,
        wire.rank,
        wire.step,
        wire.replica,
        wire.root_hash.hex(),
        wire.size_bytes,
        wire.layout.hex() or _layout_of(wire),
        Tier.DISK if wire.on_disk else Tier.MEMORY,
        wire.needed_layout.hex(),
    )


def _layout_of(wire: fleet_pb2.Copy) -> str:
    """Stand in for what an older agent does not tell: each rank is a part of its own."""
    return wire.rank.to_bytes(16, "big").hex()
