"""Vault reports of agents as values of the core: whole lists of copies, and changes to them."""

from collections.abc import Mapping

from everstep_common.preload import is_sound
from everstep_common.reports import VaultCopy, VaultReport
from everstep_controller.core.vault.catalogue import News
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, decoder_of

# The copies of a report are read one by one: most of them are known by their bytes.
_read_report = decoder_of(VaultReport, fleet_pb2.VaultReport, ("copies", "gone"))
_read_copy = decoder_of(VaultCopy, fleet_pb2.VaultCopy)


def lineage_of(wire: fleet_pb2.VaultReport) -> str:
    """Return the lineage whose copies are told; where no id was told yet, the name of the job."""
    return wire.lineage_id or wire.job


def vault_report(
    node: str, wire: fleet_pb2.VaultReport, known: Mapping[bytes, Copy]
) -> NodeHoldings:
    """Return what a node reports as a whole list. Raises WireError.

    A copy is told by the bytes of its message: the many that were in the report before are
    ``known``, and only the few new ones are read.
    """
    told = zip(map(fleet_pb2.VaultCopy.SerializeToString, wire.copies), wire.copies, strict=True)
    copies = {one: known.get(one) or _copy(node, copy) for one, copy in told}
    return _report(wire, copies)


def changed(node: str, wire: fleet_pb2.VaultReport, told: dict[bytes, Copy] | None) -> NodeHoldings:
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
) -> NodeHoldings:
    report: VaultReport = _read_report(wire, (), ())
    # A preload is obeyed by processes of the job on other nodes: what is none is not passed on.
    sound = report.preload is not None and is_sound(report.preload)
    return NodeHoldings(
        copies,
        report.settled_generation,
        stored=report.stored,
        failures=tuple(((one.generation, one.step), one.reason) for one in report.persist_failures),
        bad_copies=len(report.bad_copies),
        news=news,
        standbys=report.standbys,
        preload=report.preload if sound else None,
        replicas_short=report.replicas_short,
        storage_id=report.storage_id,
        turnover=report.turnover,
        passed=report.passed,
    )


def _copy(node: str, wire: fleet_pb2.VaultCopy) -> Copy:
    held: VaultCopy = _read_copy(wire)
    return Copy(
        node,
        held.generation,
        held.rank,
        held.step,
        held.replica,
        held.root_hash.hex(),
        held.size_bytes,
        held.layout.hex(),
        Tier.DISK if held.on_disk else Tier.MEMORY,
        held.needed_layout.hex(),
    )
