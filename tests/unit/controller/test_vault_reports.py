"""What agents say of their vaults, from the wire to the catalogue's facts."""

from collections.abc import Iterable

import pytest

from everstep_common.reports import StoredStep
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError


def _copy(rank: int = 0, **others: int | bool | bytes) -> fleet_pb2.VaultCopy:
    copy = fleet_pb2.VaultCopy(generation=1, rank=rank, step=5, root_hash=b"\xaa", layout=b"\x01")
    copy.MergeFrom(fleet_pb2.VaultCopy(**others))  # type: ignore[arg-type]
    return copy


def _report(*copies: fleet_pb2.VaultCopy) -> fleet_pb2.VaultReport:
    return fleet_pb2.VaultReport(job="j", copies=copies, settled_generation=3)


def test_a_copy_is_told_with_its_part_and_its_tier() -> None:
    report = vault_report("a", _report(_copy(), _copy(1, on_disk=True, size_bytes=8)), {})
    assert list(report.copies.values()) == [
        Copy("a", 1, 0, 5, False, "aa", 0, "01", Tier.MEMORY),
        Copy("a", 1, 1, 5, False, "aa", 8, "01", Tier.DISK),
    ]
    assert report.settled_generation == 3


def test_copies_that_were_told_before_are_not_made_again() -> None:
    first = vault_report("a", _report(_copy(0), _copy(1)), {})
    second = vault_report("a", _report(_copy(2), _copy(1)), first.copies)
    before = {copy.rank: copy for copy in first.copies.values()}
    after = {copy.rank: copy for copy in second.copies.values()}
    assert sorted(after) == [1, 2]
    assert after[1] is before[1]


def test_a_copy_whose_content_changed_is_another_copy() -> None:
    first = vault_report("a", _report(_copy()), {})
    changed = _copy()
    changed.root_hash = b"\xbb"
    second = vault_report("a", _report(changed), first.copies)
    assert [copy.root_hash for copy in second.copies.values()] == ["bb"]


def test_what_is_in_storage_and_what_could_not_be_brought_there_is_told() -> None:
    wire = _report()
    wire.stored.add(generation=1, step=5, world_size=2, manifest_hash=b"\x07", size_bytes=9)
    wire.persist_failures.add(generation=1, step=6, reason="disk full")
    wire.bad_copies.append("rank 0: flipped")
    report = vault_report("a", wire, {})
    assert report.stored == (StoredStep(1, 5, 2, "07", 9),)
    assert report.failures == (((1, 6), "disk full"),)
    assert report.bad_copies == 1


@pytest.mark.parametrize("wrong", ["hash", "layout", "stored", "name", "rank"])
def test_what_cannot_be_used_is_refused(wrong: str) -> None:
    wire = _report(_copy())
    if wrong == "hash":
        wire.copies[0].root_hash = b""
    elif wrong == "layout":
        wire.copies[0].layout = b""
    elif wrong == "rank":
        wire.copies[0].rank = 2**31
    elif wrong == "stored":
        wire.stored.add(generation=1, step=5)
    else:
        wire.job = "../etc"
    with pytest.raises(WireError):
        vault_report("a", wire, {})


def _change(
    *new: fleet_pb2.VaultCopy, gone: tuple[fleet_pb2.VaultCopy, ...] = ()
) -> fleet_pb2.VaultReport:
    return fleet_pb2.VaultReport(job="j", copies=new, gone=gone, change=True)


def _ranks(copies: Iterable[Copy]) -> list[int]:
    return sorted(copy.rank for copy in copies)


def test_a_change_is_applied_to_the_list_of_its_stream() -> None:
    told = vault_report("a", _report(_copy(0), _copy(1)), {}).copies
    report = changed("a", _change(_copy(2), gone=(_copy(0),)), told)
    assert report.copies is told
    assert _ranks(told.values()) == [1, 2]
    assert report.news is not None
    assert (_ranks(report.news.new), _ranks(report.news.gone)) == ([2], [0])


@pytest.mark.parametrize("wrong", ["no list", "another copy", "no hash"])
def test_a_change_that_does_not_fit_is_refused_and_changes_nothing(wrong: str) -> None:
    told = vault_report("a", _report(_copy(0), _copy(1)), {}).copies
    wire = _change(_copy(2), gone=(_copy(0),))
    if wrong == "another copy":
        wire.gone[0].root_hash = b"\xbb"
    elif wrong == "no hash":
        wire.copies[0].root_hash = b""
    with pytest.raises(WireError):
        changed("a", wire, None if wrong == "no list" else told)
    assert _ranks(told.values()) == [0, 1]


def test_the_catalogue_takes_a_change_whether_or_not_it_still_has_the_list() -> None:
    for forgets in (False, True):
        catalogue = Catalogue()
        told = vault_report("a", _report(_copy(0), _copy(1)), {}).copies
        catalogue.record_copies("a", told, 0)
        if forgets:
            catalogue.forget("a")
        report = changed("a", _change(_copy(2), gone=(_copy(0),)), told)
        catalogue.record_copies("a", report.copies, 0, report.news)
        assert _ranks(catalogue.copies()) == [1, 2]
        assert catalogue.parts((1, 5), (), files=True).ranks == {1, 2}
