"""What waits on the nodes of a job, from agents' reports to metrics and the command line."""

from everstep_cli.views.jobs import standby_facts
from everstep_common.reports import Standbys
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.vault.directives import Holdings
from everstep_controller.metrics.collector import standby_metrics
from everstep_proto.generated import admin_pb2, fleet_pb2

_GIB = 1024**3


def _wire(*, change: bool = False) -> fleet_pb2.VaultReport:
    told = fleet_pb2.Standbys(ready=3, making=1, memory_bytes=7)
    return fleet_pb2.VaultReport(job="j", standbys=told, change=change)


def _line(node: str, ready: int, **others: int | str) -> admin_pb2.StandbyLine:
    line = admin_pb2.StandbyLine(node=node, ready=ready, memory_bytes=_GIB)
    line.MergeFrom(admin_pb2.StandbyLine(**others))  # type: ignore[arg-type]
    return line


def test_a_report_tells_what_waits_also_one_that_is_a_change() -> None:
    assert vault_report("a", _wire(), {}).standbys == Standbys(3, 1, 7)
    assert changed("a", _wire(change=True), {}).standbys == Standbys(3, 1, 7)


def test_a_report_that_does_not_tell_of_any_ends_what_was_known() -> None:
    vault = Holdings()
    vault.record("a", vault_report("a", _wire(), {}))
    vault.record("b", vault_report("b", _wire(), {}))
    vault.record("a", vault_report("a", fleet_pb2.VaultReport(job="j"), {}))
    assert vault.standbys == {"b": Standbys(3, 1, 7)}


def test_a_lost_node_has_none() -> None:
    vault = Holdings()
    vault.record("a", vault_report("a", _wire(), {}))
    vault.forget("a")
    assert vault.standbys == {}


def test_metrics_add_up_the_nodes_of_a_job() -> None:
    nodes = {
        "a": Standbys(3, 1, 7),
        "b": Standbys(0, 0, 0, "one died"),
        "c": Standbys(4, 0, 9),
    }
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in standby_metrics([("j", nodes), ("k", {})])
        for sample in family.samples
    }
    assert samples == {
        ("everstep_job_standbys", "j", "ready"): 7,
        ("everstep_job_standbys", "j", "making"): 1,
        ("everstep_job_standby_memory_bytes", "j"): 16,
        ("everstep_job_nodes_without_standbys", "j"): 1,
        ("everstep_job_standbys", "k", "ready"): 0,
        ("everstep_job_standbys", "k", "making"): 0,
        ("everstep_job_standby_memory_bytes", "k"): 0,
        ("everstep_job_nodes_without_standbys", "k"): 0,
    }


def test_nodes_that_have_as_many_are_one_line() -> None:
    lines = [_line(f"n{number}", 8) for number in (1, 2, 3)]
    lines += [_line("n4", 2, making=6), _line("n5", 0, ended="one takes 5.0 GiB")]
    assert standby_facts(lines) == [
        ("standbys", "none on n5: one takes 5.0 GiB"),
        ("", "2 ready, 6 being made on n4, 1.0 GiB"),
        ("", "8 ready on n[1-3], 1.0 GiB a node at most"),
    ]


def test_a_job_without_any_has_no_line() -> None:
    assert standby_facts([]) == []
    assert standby_facts([_line("n1", 0)]) == []
