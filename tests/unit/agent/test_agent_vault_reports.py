"""What is told of the vault on one stream adds up to what the node holds."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault_reports import VaultReports
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.vault.copies import Copy
from everstep_proto.generated import fleet_pb2


def _copy(rank: int, step: int = 0) -> fleet_pb2.VaultCopy:
    return fleet_pb2.VaultCopy(generation=1, rank=rank, step=step, root_hash=b"h", layout=b"l")


def _report(*ranks: int, bad: tuple[str, ...] = (), job: str = "j") -> fleet_pb2.VaultReport:
    copies = [_copy(rank) for rank in ranks]
    return fleet_pb2.VaultReport(job=job, copies=copies, bad_copies=bad)


def _sent(reports: VaultReports, report: fleet_pb2.VaultReport) -> fleet_pb2.VaultReport:
    reports.put(report)
    sent = reports.pop_next()
    assert sent is not None
    assert reports.pop_next() is None
    return sent


def test_the_first_report_of_a_stream_is_whole_and_the_next_a_change() -> None:
    reports = VaultReports()
    reports.begin()
    assert _sent(reports, _report(0, 1)) == _report(0, 1)
    change = _sent(reports, _report(1, 2))
    assert change.change
    assert ([c.rank for c in change.copies], [c.rank for c in change.gone]) == ([2], [0])
    reports.begin()
    assert _sent(reports, _report(1, 2)) == _report(1, 2)


def test_that_memory_is_short_for_replicas_is_told_with_a_change_too() -> None:
    reports = VaultReports()
    reports.begin()
    told: dict[bytes, Copy] = vault_report("a", _sent(reports, _report(0)), {}).copies
    for short in (True, True, False):
        report = _report(0, 1)
        report.replicas_short = short
        change = _sent(reports, report)
        assert change.change
        assert changed("a", change, told).replicas_short is short


def test_jobs_do_not_mix() -> None:
    reports = VaultReports()
    reports.begin()
    _sent(reports, _report(0))
    assert not _sent(reports, _report(1, job="other")).change


def test_what_an_unsent_report_said_of_bad_copies_is_told_with_the_next() -> None:
    reports = VaultReports()
    reports.put(_report(0, 1, bad=("rank 1: flipped",)))
    assert list(_sent(reports, _report(0, bad=("rank 2: flipped",))).bad_copies) == [
        "rank 1: flipped",
        "rank 2: flipped",
    ]


_HELD = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6, unique=True)


@given(st.lists(st.tuples(st.booleans(), _HELD), max_size=12))
def test_the_controller_knows_the_newest_list_whatever_streams_are_lost(
    story: list[tuple[bool, list[tuple[int, int]]]],
) -> None:
    reports, told = VaultReports(), dict[bytes, Copy]()
    known: dict[bytes, Copy] | None = None
    for new_stream, held in story:
        if new_stream or known is None:
            reports.begin()
            known = None
        report = fleet_pb2.VaultReport(job="j", copies=[_copy(*place) for place in held])
        sent = _sent(reports, report)
        taken = changed("n", sent, known) if sent.change else vault_report("n", sent, told)
        known = told = taken.copies
        assert {(copy.rank, copy.step) for copy in told.values()} == set(held)


def _with_preload(*modules: str) -> fleet_pb2.VaultReport:
    report = _report(len(modules))
    report.preload.modules.extend(modules)
    return report


def _preloads(reports: VaultReports, *told: fleet_pb2.VaultReport) -> list[list[str]]:
    return [list(_sent(reports, one).preload.modules) for one in told]


def test_what_ranks_load_is_told_once_on_a_stream_and_when_it_changes() -> None:
    reports = VaultReports()
    for _ in range(2):
        reports.begin()
        told = _preloads(
            reports, _with_preload("a"), _with_preload("a"), _with_preload("a", "b"), _report(1)
        )
        assert told == [["a"], [], ["a", "b"], []]
        # Of another job of the name, perhaps, which the controller knows nothing of.
        assert _preloads(reports, _with_preload("a", "b")) == [["a", "b"]]
