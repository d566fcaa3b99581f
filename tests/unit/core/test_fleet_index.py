"""The fleet index is what the records say, whatever became of them, and in no snapshot."""

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.fleet_index import FilingBasis, FleetIndex
from everstep_controller.core.model.job import JobRecord, JobSpec
from everstep_controller.core.model.node import (
    AUTOMATION,
    OPERATOR,
    Claim,
    FindingOwner,
    Isolation,
    NodeHealth,
    NodeRecord,
    NodeSpec,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.model.node_liveness import NodeLiveness, Silence, StreamEnds
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State, add_job, remove_job
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import XID, Story

_MACHINE = "m-0"
_OBSERVED = Settings(observe=("GpuMetricsVanished",))
_LISTS = (
    *("silent", "held", "presumed_lost", "flapping", "draining", "deferred", "isolated"),
    *("returned", "precursors"),
)
# What a snapshot of the version before has besides, hand-kept then; here all of it is wrong.
_HAND_KEPT: dict[str, object] = {
    "ids_of_name": {"gone": ["gone-1"]},
    "machines": {"m-x": ["gone"]},
    "on_its_machine": ["gone"],
    "heard": {"": ["gone"]},
    "heard_total": 7,
    "heard_domains": [""],
    "expected": {"": ["gone"]},
    "expected_total": 7,
    "present": {"": ["gone"]},
    "present_domains": [""],
    **{name: ["gone"] for name in _LISTS},
}


def _claims(draw: st.DrawFn) -> list[Claim]:
    owners = draw(st.lists(st.sampled_from((AUTOMATION, OPERATOR)), unique=True))
    booleans = st.booleans()
    return [Claim(owner, "w", 1, dead=draw(booleans), draining=draw(booleans)) for owner in owners]


def _findings(draw: st.DrawFn) -> dict[str, OpenFinding]:
    if not draw(st.booleans()):
        return {}
    finding = Finding(
        component="gpu",
        condition=draw(st.sampled_from(("GpuMetricsVanished", "XidFatal"))),
        severity=draw(st.sampled_from(Severity)),
        message="m",
        suggested_action=SuggestedAction.WATCH,
    )
    owner, accepted = draw(st.sampled_from(FindingOwner)), draw(st.sampled_from(("", "ann")))
    return {"f": OpenFinding(finding, 1, owner, accepted_by=accepted)}


@st.composite
def _records(draw: st.DrawFn) -> NodeRecord:
    """Return a record with anything in what the index is computed from."""
    booleans, words = st.booleans(), st.sampled_from(("", "w"))
    return NodeRecord(
        draw(st.sampled_from(("n0", "n1", "n2", "n3"))),
        draw(st.sampled_from(NodeState)),
        isolation=Isolation(claims=_claims(draw), deferred=draw(words)),
        health=NodeHealth(findings=_findings(draw)),
        liveness=NodeLiveness(
            connected=draw(booleans),
            silent_since_ns=draw(st.integers(0, 1)),
            silent_to=draw(st.sampled_from(([], ["n9"]))),
            silence=Silence(held=draw(words), doubt=draw(words)),
            absent=draw(booleans),
            lost_by=draw(words),
        ),
        streams=StreamEnds(flaps_since_ns=draw(st.integers(0, 1))),
        spec=NodeSpec(
            machine=draw(st.sampled_from(("", _MACHINE, "m-1"))),
            domain=draw(st.sampled_from(("", "r0", "r1"))),
            liveness_address=draw(words),
        ),
    )


@given(st.lists(_records() | st.sampled_from(("n0", "n1", "n2", "n3"))), st.booleans())
def test_an_index_after_any_history_is_the_one_of_what_is_left(
    history: list[NodeRecord | str], observed: bool
) -> None:
    basis, index = FilingBasis(_OBSERVED if observed else Settings(), _MACHINE), FleetIndex()
    left: dict[str, NodeRecord] = {}
    for one in history:
        if isinstance(one, str):
            left.pop(one, None)
            index.forget(one)
        else:
            left[one.name] = one
            index.refresh(one, basis)
        assert index == FleetIndex.of(left.values(), (), basis)


@given(st.lists(_records()))
def test_each_list_is_of_those_nodes_in_the_order_of_names(records: list[NodeRecord]) -> None:
    nodes = {record.name: record for record in records}
    index, known = State(nodes=nodes, machine=_MACHINE).index, sorted(nodes)

    def of(wanted: Callable[[NodeRecord], bool]) -> list[str]:
        return [name for name in known if wanted(nodes[name])]

    def heard(node: NodeRecord) -> bool:
        return node.liveness.connected and not node.liveness.silent_to and not node.doubtful

    def expected(node: NodeRecord) -> bool:
        return not node.gone and node.state is not NodeState.MAINTENANCE

    def present(node: NodeRecord) -> bool:
        return not node.gone and bool(node.spec.liveness_address)

    for groups, wanted in (
        (index.heard, heard),
        (index.expected, expected),
        (index.present, present),
    ):
        found = of(wanted)
        domains = sorted({nodes[name].spec.domain for name in found})
        assert list(groups) == [
            (domain, [name for name in found if nodes[name].spec.domain == domain])
            for domain in domains
        ]
        assert (groups.keys, groups.total) == (domains, len(found))
    assert index.silent == of(lambda node: expected(node) and node.liveness.silent_since_ns > 0)
    assert index.draining == of(lambda node: node.draining)
    assert index.deferred == of(lambda node: bool(node.isolation.deferred))
    assert index.flapping == of(lambda node: node.streams.flaps_since_ns > 0)
    assert index.on_its_machine == list(index.machines.of(_MACHINE))


def _job(number: int, name: str) -> JobRecord:
    spec = JobSpec(uid=0, token_sha256="", nodes_min=1, nodes_max=1, processes_per_node=1)
    return JobRecord(id=f"{name}-{number}", name=name, spec=spec, ledger=Ledger(0))


@given(st.lists(st.integers(0, 5)))
def test_jobs_of_a_name_are_known_in_the_order_in_which_they_came(numbers: list[int]) -> None:
    state = State()
    for number in numbers:
        job = _job(number, "ab"[number % 2])
        if job.id in state.jobs:
            remove_job(state, state.jobs[job.id])
        else:
            add_job(state, job)
        assert state.index == state.compute_index()
    names = {job.name for job in state.jobs.values()}
    assert state.index.ids_of_name == {
        name: [job.id for job in state.jobs.values() if job.name == name] for name in names
    }


def test_no_snapshot_has_an_index_and_whoever_reads_one_has_it_computed() -> None:
    story = Story(nodes=5)
    story.lose("n1")
    story.find("n2", XID)
    written = json.loads(encode(story.core.state))
    assert "index" not in written
    assert written.keys().isdisjoint(_HAND_KEPT)
    restored = decode_state(encode(story.core.state))
    assert restored == story.core.state
    assert restored.index == story.core.state.index
    assert restored.index.isolated == ["n2"]


def test_a_snapshot_with_lists_that_were_kept_by_hand_is_read_without_them() -> None:
    story = Story(nodes=5)
    story.find("n2", XID)
    older = json.loads(encode(story.core.state)) | _HAND_KEPT
    restored = decode_state(json.dumps(older).encode())
    assert restored == story.core.state
    assert restored.index == story.core.state.index
