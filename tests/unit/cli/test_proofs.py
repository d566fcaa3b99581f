"""Every claim of the demo, against what was seen and against what should have been."""

from collections.abc import Iterable

import pytest

from everstep_cli.demo.cluster_view import ClusterView
from everstep_cli.demo.losses import LossLine, compare
from everstep_cli.demo.proofs import (
    ActSeen,
    DemoClaim,
    DemoRestore,
    ending,
    gpu_failed,
    node_killed,
    process_killed,
)
from everstep_cli.demo.report import DemoReport
from everstep_proto.generated import admin_pb2

FOUR = ("node-1", "node-2", "node-3", "node-4")
WITH_SPARE = ("node-1", "node-2", "node-5", "node-4")


def view(members: Iterable[str], generation: int, *incidents: admin_pb2.Incident) -> ClusterView:
    summary = admin_pb2.JobSummary(
        job="demo", state="running", generation=generation, step=30, has_step=True, members=members
    )
    nodes = [
        admin_pb2.NodeSummary(node=f"node-{n}", state="healthy", connected=True)
        for n in range(1, 6)
    ]
    return ClusterView(tuple(nodes), admin_pb2.JobDetail(summary=summary, incidents=incidents))


_CAUSES = {
    "in_place": ("process", "node-2"),
    "spare": ("node", "node-3"),
    "reform": ("finding", "node-4"),
}


def incident(plan: str, restored: int | None = 20) -> admin_pb2.Incident:
    cause, node = _CAUSES[plan]
    made = admin_pb2.Incident(
        incident="demo-1", plan=plan, step_before=20, over_ns=1, cause=cause, node=node
    )
    if restored is not None:
        made.step_restored, made.has_restored = restored, True
    return made


def restored(members: Iterable[str], generation: int, source: str = "") -> tuple[DemoRestore, ...]:
    return tuple(
        DemoRestore(node, generation, rank, 20, (source or node,))
        for rank, node in enumerate(members)
    )


def seen(
    node: str,
    after: ClusterView,
    restores: tuple[DemoRestore, ...],
    *,
    first_step: int | None = 21,
    before: ClusterView | None = None,
) -> ActSeen:
    return ActSeen(
        act=1,
        node=node,
        before=before or view(FOUR, 1),
        after=after,
        restores=restores,
        first_step=first_step,
    )


def broken(claims: Iterable[DemoClaim]) -> list[str]:
    return [claim.claim for claim in claims if not claim.held]


def test_a_killed_process_that_restored_from_its_own_node_holds() -> None:
    act = seen("node-2", view(FOUR, 2, incident("in_place")), restored(FOUR, 2))
    assert broken(process_killed(act)) == []


def test_a_restore_from_a_peer_is_not_one_from_the_own_vault() -> None:
    after = view(FOUR, 2, incident("in_place"))
    act = seen("node-2", after, restored(FOUR, 2, source="node-1"))
    assert broken(process_killed(act)) == ["node-2 restores its rank from its own vault"]


def test_a_restore_of_an_older_generation_proves_nothing() -> None:
    act = seen("node-2", view(FOUR, 2, incident("in_place")), restored(FOUR, 1))
    assert broken(process_killed(act)) == ["node-2 restores its rank from its own vault"]


def test_a_step_that_was_skipped_over_is_seen() -> None:
    act = seen("node-2", view(FOUR, 2, incident("in_place")), restored(FOUR, 2), first_step=22)
    assert broken(process_killed(act)) == ["training goes on at the step after the restored one"]


def test_a_step_that_was_made_twice_after_a_killed_process_is_seen() -> None:
    after = view(FOUR, 2, incident("in_place", restored=19))
    restores = tuple(DemoRestore(r.node, 2, r.rank, 19, r.sources) for r in restored(FOUR, 2))
    act = seen("node-2", after, restores, first_step=20)
    assert broken(process_killed(act)) == ["no step that all ranks had completed is lost"]


def test_an_incident_that_blames_another_node_is_seen() -> None:
    after = view(FOUR, 2, incident("in_place"))
    act = seen("node-1", after, restored(FOUR, 2))
    assert broken(process_killed(act)) == ["the incident has its cause (process) and its node"]


def test_without_an_incident_nothing_holds_that_depends_on_it() -> None:
    act = seen("node-2", view(FOUR, 1), (), first_step=None)
    assert len(broken(process_killed(act))) == 5


def test_a_killed_node_whose_spare_restored_from_a_survivor_holds() -> None:
    after = view(WITH_SPARE, 2, incident("spare"))
    after.nodes[2].connected = False
    restores = (
        *(r for r in restored(WITH_SPARE, 2) if r.node != "node-5"),
        DemoRestore("node-5", 2, 2, 20, ("node-4",)),
    )
    assert broken(node_killed(seen("node-3", after, restores), "node-5")) == []


def test_bytes_that_claim_to_come_from_the_dead_node_do_not_hold() -> None:
    after = view(WITH_SPARE, 2, incident("spare"))
    restores = restored(WITH_SPARE, 2, source="node-3")
    assert broken(node_killed(seen("node-3", after, restores), "node-5")) == [
        "the agent of node-3 is gone, and its machine is not taken for lost",
        "node-5 restores the shards from a replica on a peer",
    ]


def test_a_failed_gpu_whose_job_re_formed_without_it_holds() -> None:
    three = ("node-1", "node-2", "node-5")
    after = view(three, 2, incident("reform"))
    after.nodes[3].findings, after.nodes[3].reason = 1, "Xid 79: off the bus"
    after.nodes[3].claims.add(owner="automation", reason="Xid 79")
    act = seen("node-4", after, restored(three, 2), before=view(WITH_SPARE, 1))
    assert broken(gpu_failed(act)) == []


def test_ranks_that_restored_different_steps_are_seen() -> None:
    after = view(FOUR, 2, incident("reform"))
    restores = (*restored(FOUR[:3], 2), DemoRestore("node-4", 2, 3, 19, ("node-4",)))
    assert "all ranks go back to the same step" in broken(
        gpu_failed(seen("node-5", after, restores))
    )


def test_the_end_holds_only_with_every_exit_code_zero_and_an_exact_sum() -> None:
    final = view(FOUR, 4)
    assert final.job is not None
    final.job.summary.state = "ended"
    ledger = admin_pb2.Ledger(wall_ns=5, categories=[admin_pb2.Category(name="gap", time_ns=5)])
    losses = compare([(0, "a")], [(0, "a")], 1)
    assert broken(ending(final, ledger, losses, [("node-1-launcher", 0)])) == []
    assert broken(ending(final, ledger, losses, [("node-1-launcher", 1)])) == [
        "the job ends with success"
    ]
    ledger.wall_ns = 6
    assert broken(ending(final, ledger, losses, [("node-1-launcher", 0)])) == [
        "the categories sum to the wall clock, to the nanosecond"
    ]


def test_a_report_fails_with_a_sentence_on_what_did_not_happen() -> None:
    claim = DemoClaim(1, "node-2 restores its rank", False, "no restore was seen")
    report = DemoReport(duration_s=1.0, steps=10, claims=(claim,), ledger=None, losses=None)
    assert not report.passed
    assert report.failures() == ["node-2 restores its rank: not seen (no restore was seen)"]
    assert report.to_dict()["passed"] is False


def test_a_report_without_any_claim_has_not_passed() -> None:
    assert not DemoReport(duration_s=1.0, steps=10, claims=(), ledger=None, losses=None).passed


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ([(0, "a"), (1, "b")], "2 of 2 steps equal, each computed once"),
        (
            [(0, "a"), (1, "b"), (1, "b")],
            "2 of 2 steps equal; 1 was cut off by a fault and computed again, with the same result",
        ),
        (
            [(0, "a"), (0, "a"), (1, "b"), (1, "b")],
            "2 of 2 steps equal; 2 were cut off by faults and computed again, "
            "2 of them with the same result",
        ),
    ],
)
def test_steps_that_were_cut_off_are_told_from_steps_that_were_lost(
    run: list[LossLine], told: str
) -> None:
    losses = compare(run, [(0, "a"), (1, "b")], steps=2)
    *_, last = ending(ClusterView(), admin_pb2.Ledger(wall_ns=0), losses, [])
    assert (last.held, last.evidence) == (True, told)
