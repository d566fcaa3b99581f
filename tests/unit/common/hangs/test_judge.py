"""Who holds a job back: recorded and synthetic hangs, hostile reports, exits that only follow."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hangs.localise import DUMPS, episodes, judged, large_job
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.dumps.folder import read_folder
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.judging.known_software import TABLE, numbers
from everstep_common.hangs.reports.rank_report import (
    Blind,
    EvidenceSource,
    GroupReport,
    Library,
    Operation,
    OperationState,
    ProcessEnding,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict
from hung_jobs.simple import FAULTS, hung_job

_FIXTURES = Path(__file__).parents[3] / "fixtures/hangs"


def _operation(sequence: int, name: str = "all_reduce", **changed: object) -> Operation:
    whole = Operation(sequence, name, "4 Float", OperationState.SCHEDULED)
    return replace(whole, **changed)  # type: ignore[arg-type]


def _group(enqueued: int, completed: int, members: str = "0-3", size: int = 4) -> GroupReport:
    waits = enqueued > completed
    return GroupReport(
        description="default_pg",
        members=members,
        size=size,
        enqueued=enqueued,
        completed=completed,
        pending_count=int(waits),
        pending=(_operation(completed + 1),) if waits else (),
    )


def _waits(rank: int) -> RankHangReport:
    return RankHangReport(rank=rank, world_size=4, groups=(_group(7, 6),))


def _late(rank: int, process: ProcessFacts | None = None) -> RankHangReport:
    process = process or ProcessFacts()
    return RankHangReport(rank=rank, world_size=4, groups=(_group(6, 6),), process=process)


def _named(verdict: HangVerdict) -> dict[int, HangClass]:
    return {one.rank: one.kind for one in verdict.culprits}


def _judged(*reports: RankHangReport) -> HangVerdict:
    return judge(reports, 4)


# --- recorded hangs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "culprit", "kind"),
    [
        ("gloo_sleep", 2, HangClass.CPU_SIDE),
        ("gloo_gil", 3, HangClass.CPU_SIDE),
        ("gloo_stop", 2, HangClass.SILENT),
        ("gloo_skip", 2, HangClass.DESYNC),
    ],
)
def test_the_culprit_of_a_recorded_hang_is_named(
    recorded: str, culprit: int, kind: HangClass
) -> None:
    folder = read_folder(_FIXTURES / recorded, world_size=4)
    assert _named(judge(folder.reports.values(), folder.world_size)) == {culprit: kind}


def test_a_rank_in_a_send_that_gloo_does_not_record_is_no_culprit() -> None:
    folder = read_folder(_FIXTURES / "gloo_norecv", world_size=4)
    alone = judge(folder.reports.values(), 4)
    assert alone.confidence is Confidence.LIKELY
    inside = ("distributed_c10d.py:2500 send", "train.py:30 step")
    reports = [
        replace(one, process=ProcessFacts(python_stack=inside)) for one in folder.reports.values()
    ]
    verdict = judge(reports, 4)
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "2")


def test_all_culprits_of_the_public_dumps_are_named_and_nobody_else() -> None:
    rows = [judged(folder, truth) for folder, truth in episodes()]
    # Where the dumps are not beside the repository, there is nothing to judge.
    assert bool(rows) == (DUMPS is not None)
    assert all((row["false"], row["missed"]) == (0, 0) for row in rows)


# --- synthetic hangs -----------------------------------------------------------------------------


def _scored(fault: str, seeds: Iterable[int], missing: float) -> tuple[int, int, int]:
    found = false = missed = 0
    for seed in seeds:
        job = hung_job(seed, fault, missing=missing)
        named = set(_named(judge(job.reports, job.world_size)))
        found += len(named & job.culprits)
        false += len(named - job.culprits)
        missed += len(job.culprits - named)
    return found, false, missed


@pytest.mark.parametrize("fault", [one for one in FAULTS if one not in ("skipped", "silent")])
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_culprits_of_synthetic_jobs_are_named_and_hardly_anybody_else(
    fault: str, missing: float
) -> None:
    found, false, missed = _scored(fault, range(25), missing)
    print(
        f"{fault}: precision {found / (found + false):.3f}, recall {found / (found + missed):.3f}"
    )
    assert found >= 0.95 * (found + missed)
    assert false <= 0.05 * found


def test_a_rank_that_told_nothing_is_named_where_only_it_did_not() -> None:
    found, false, missed = _scored("silent", range(25), 0.0)
    assert false == 0
    assert found >= 0.85 * (found + missed)


def test_innocent_ranks_without_a_dump_are_hardly_ever_named() -> None:
    _, false, _ = _scored("silent", range(25), 0.15)
    assert false <= 1


def test_a_skipped_operation_is_never_blamed_on_hardware() -> None:
    hard = {HangClass.DEAD, HangClass.FROZEN, HangClass.GIL_HELD}
    for seed in range(25):
        job = hung_job(seed, "skipped")
        assert judge(job.reports, job.world_size).kind not in hard


@given(st.integers(0, 10**6))
def test_the_order_of_the_reports_changes_nothing(seed: int) -> None:
    job = hung_job(seed, missing=0.1)
    ahead = judge(job.reports, job.world_size)
    back = judge(job.reports[::-1], job.world_size)
    assert _named(ahead) == _named(back)
    assert ahead.kind is back.kind


@given(st.integers(0, 10**6), st.sampled_from(FAULTS))
def test_a_verdict_is_bounded_and_comes_back_from_its_json(seed: int, fault: str) -> None:
    job = hung_job(seed, fault, missing=0.2)
    verdict = judge(job.reports, job.world_size)
    text = json_text(verdict)
    assert len(text) <= 65_536
    assert from_json(HangVerdict, json.loads(text)) == verdict


def test_one_culprit_of_a_large_job_is_named() -> None:
    assert set(_named(judge(large_job({700}, 2048), 2048))) == {700}


# --- classes -------------------------------------------------------------------------------------


def test_what_is_true_of_several_ranks_is_said_of_each() -> None:
    gone = ProcessFacts(state=ProcessState.DEAD)
    one = _judged(*map(_waits, range(3)), _late(3, gone)).sentence
    assert one.startswith("Rank 3 holds the job back: dead. Its process is gone")
    two = _judged(*map(_waits, range(2)), _late(2, gone), _late(3, gone)).sentence
    assert two.startswith("Ranks 2-3 hold the job back: dead. The process of each is gone")


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        (ProcessFacts(), HangClass.CPU_SIDE),
        (ProcessFacts(ProcessState.STOPPED), HangClass.FROZEN),
        (ProcessFacts(ProcessState.UNINTERRUPTIBLE, 11_000, "nfs_wait"), HangClass.STORAGE),
        (ProcessFacts(ProcessState.UNINTERRUPTIBLE, 11_000, "uvm_lock"), HangClass.FROZEN),
        (ProcessFacts(ProcessState.UNINTERRUPTIBLE, 900), HangClass.CPU_SIDE),
        (ProcessFacts(answers_ping=False), HangClass.FROZEN),
        (ProcessFacts(answers_ping=True, gil_held=True), HangClass.GIL_HELD),
        (ProcessFacts(ending=ProcessEnding(exit_code=0, signal=9)), HangClass.DEAD),
        (
            ProcessFacts(ending=ProcessEnding(exit_code=1, signal=0, text="ValueError: x")),
            HangClass.DEAD,
        ),
    ],
)
def test_the_class_of_a_culprit_is_what_its_process_shows(
    process: ProcessFacts, kind: HangClass
) -> None:
    assert _named(_judged(_waits(0), _waits(1), _late(2, process), _waits(3))) == {2: kind}


@pytest.mark.parametrize(
    "text",
    [
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
        "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation",
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress",
        "RuntimeError: Connection closed by peer [10.0.0.3]:4711",
    ],
)
def test_who_gives_up_waiting_first_is_not_the_culprit(text: str) -> None:
    gave_up = ProcessFacts(
        ProcessState.DEAD, ending=ProcessEnding(exit_code=1, signal=6, text=text)
    )
    verdict = _judged(replace(_waits(0), process=gave_up), _waits(1), _late(2), _waits(3))
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_a_rank_that_gave_up_and_left_no_dump_is_not_the_culprit() -> None:
    ending = ProcessEnding(exit_code=1, signal=0, kind="collective")
    gave_up = RankHangReport(rank=0, process=ProcessFacts(ProcessState.DEAD, ending=ending))
    assert _named(_judged(gave_up, _waits(1), _waits(2), _waits(3))) == {}


def test_a_gpu_that_did_not_complete_what_its_peers_have_is_the_culprit() -> None:
    reports = [RankHangReport(rank=n, groups=(_group(9, 8),)) for n in (0, 1, 3)]
    behind = RankHangReport(rank=2, groups=(_group(9, 5),))
    assert _named(_judged(*reports, behind)) == {2: HangClass.GPU_SIDE}


def test_a_collective_that_all_have_enqueued_and_nobody_completes_isolates_nobody() -> None:
    verdict = _judged(*map(_waits, range(4)))
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.FABRIC, {}, "0-3")


def test_a_gpu_that_has_not_started_what_its_peers_run_is_the_culprit() -> None:
    def runs(rank: int, state: OperationState) -> RankHangReport:
        group = replace(_group(7, 6), pending=(_operation(7, state=state),))
        return RankHangReport(rank=rank, groups=(group,))

    started = [runs(rank, OperationState.STARTED) for rank in (0, 1, 3)]
    verdict = _judged(*started, runs(2, OperationState.SCHEDULED))
    assert _named(verdict) == {2: HangClass.GPU_SIDE}


def test_another_shape_than_that_of_the_group_is_the_program() -> None:
    other = replace(_group(7, 6), pending=(_operation(7, shapes="5 Float"),))
    verdict = _judged(_waits(0), _waits(1), RankHangReport(rank=2, groups=(other,)), _waits(3))
    assert _named(verdict) == {2: HangClass.DESYNC}
    assert "5 Float" in verdict.sentence


def test_the_same_elements_in_another_shape_are_no_mismatch() -> None:
    other = replace(_group(7, 6), pending=(_operation(7, shapes="2x2 Float"),))
    verdict = _judged(_waits(0), _waits(1), RankHangReport(rank=2, groups=(other,)), _waits(3))
    assert verdict.kind is HangClass.FABRIC


def test_two_ranks_that_wait_for_each_other_in_two_groups_are_the_program() -> None:
    def waits_in(rank: int, first: bool) -> RankHangReport:
        one = replace(_group(*((3, 2) if first else (2, 2)), "0-1", 2), description="a")
        other = replace(_group(*((2, 2) if first else (3, 2)), "0-1", 2), description="b")
        return RankHangReport(rank=rank, groups=(one, other))

    verdict = judge([waits_in(0, True), waits_in(1, False)], 2)
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "0-1")


def test_a_job_in_which_nobody_waits_has_no_culprit() -> None:
    verdict = _judged(*map(_late, range(4)))
    assert (verdict.kind, _named(verdict)) == (HangClass.NO_WAIT, {})


def test_where_no_recorder_tells_the_one_rank_outside_of_communication_is_named() -> None:
    inside = ProcessFacts(python_stack=("distributed_c10d.py:3200 all_reduce", "train.py:9 step"))
    outside = ProcessFacts(python_stack=("loader.py:77 read", "train.py:8 step"))
    reports = [RankHangReport(rank=n, process=outside if n == 2 else inside) for n in range(4)]
    assert _named(_judged(*reports)) == {2: HangClass.CPU_SIDE}
    nobody = [RankHangReport(rank=n, process=outside) for n in range(4)]
    assert _named(_judged(*nobody)) == {}


def test_a_published_fault_of_a_mapped_library_isolates_nobody() -> None:
    libraries = (Library("nccl", "2.28.9"), Library("machine", "aarch64"))
    verdict = _judged(*(replace(_waits(n), libraries=libraries) for n in range(4)))
    assert (verdict.kind, _named(verdict)) == (HangClass.KNOWN_SOFTWARE, {})
    assert "2.29.3 mends it" in verdict.sentence


@pytest.mark.parametrize(
    "libraries",
    [
        (Library("nccl", "2.29.3"), Library("machine", "aarch64")),
        (Library("nccl", "2.28.9"), Library("machine", "x86_64")),
        (Library("nccl", "2.28.9"),),
        (Library("nccl", ""), Library("machine", "aarch64")),
    ],
)
def test_a_library_without_the_fault_is_not_blamed(libraries: tuple[Library, ...]) -> None:
    verdict = _judged(*(replace(_waits(n), libraries=libraries) for n in range(4)))
    assert verdict.kind is HangClass.FABRIC


def test_every_known_fault_names_its_source_and_the_release_that_mends_it() -> None:
    assert all(one.source.startswith("https://") for one in TABLE)
    assert all(numbers(one.since) < numbers(one.mended) for one in TABLE)


# --- hostile reports -----------------------------------------------------------------------------


def test_a_rank_that_speaks_for_a_group_it_is_not_in_is_invalid_and_not_blamed() -> None:
    liar = RankHangReport(rank=2, groups=(_group(1, 1, "0-1", 2),))
    verdict = _judged(_waits(0), _waits(1), liar, _waits(3))
    assert any("invalid" in line for line in verdict.blind)
    assert set(_named(verdict)) <= {2}
    assert all(kind is HangClass.SILENT for kind in _named(verdict).values())


def test_what_was_falsely_told_in_a_ranks_name_is_no_evidence_against_it() -> None:
    false = RankHangReport(rank=2, blind=(Blind(EvidenceSource.IDENTITY, "two dumps contradict"),))
    verdict = _judged(_waits(0), _waits(1), false, _waits(3))
    assert _named(verdict) == {}
    assert verdict.suspects == "2"


def test_groups_that_name_more_ranks_than_the_job_has_are_left_out() -> None:
    huge = replace(_group(9, 9, "0-199999", 200_000), description="huge")
    reports = [replace(one, groups=(*one.groups, huge)) for one in map(_waits, (0, 1, 3))]
    verdict = _judged(*reports, _late(2))
    assert _named(verdict) == {2: HangClass.CPU_SIDE}
    told = "1 group is left out: of ranks beyond the 4 of the job, or of too many"
    assert told in verdict.blind


def test_a_report_of_a_rank_that_the_job_does_not_have_is_left_out() -> None:
    verdict = _judged(_waits(0), _waits(1), _late(2), _waits(3), _late(77))
    assert set(_named(verdict)) == {2}


_groups = st.builds(
    GroupReport,
    description=st.sampled_from(["a", "b"]),
    members=st.sampled_from(["0-3", "0-1", "2-3", "1-3:2", "9", "group:1", "sha256:0", "x", "3-0"]),
    size=st.integers(0, 5),
    enqueued=st.none() | st.integers(0, 4),
    completed=st.none() | st.integers(0, 4),
    p2p_enqueued=st.none() | st.integers(0, 3),
    p2p_completed=st.none() | st.integers(0, 3),
    pending_count=st.just(8),
    pending=st.lists(
        st.builds(
            Operation,
            sequence=st.integers(0, 4),
            name=st.sampled_from(["all_reduce", "send", "recv", "broadcast"]),
            shapes=st.sampled_from(["", "4 Float", "4 Float -> 8 Float", "9x -> ,"]),
            state=st.sampled_from(OperationState),
            peer=st.none() | st.integers(0, 5),
        ),
        max_size=3,
    ).map(tuple),
    done=st.sampled_from(["", "all_reduce 4 Float", "broadcast"]),
)
_reports = st.builds(
    RankHangReport,
    rank=st.integers(0, 4),
    world_size=st.integers(0, 6),
    groups=st.lists(_groups, max_size=4).map(tuple),
    process=st.builds(
        ProcessFacts,
        state=st.sampled_from(ProcessState),
        gil_held=st.none() | st.booleans(),
        answers_ping=st.none() | st.booleans(),
        python_stack=st.sampled_from([(), ("a.py:1 f",), ("distributed_c10d.py:1 send",)]),
    ),
    departure=st.sampled_from(["", "a where b came"]),
)


@given(st.lists(_reports, max_size=6), st.integers(0, 6))
def test_any_reports_get_a_verdict_of_ranks_of_the_job(
    reports: list[RankHangReport], world_size: int
) -> None:
    verdict = judge(reports, world_size)
    known = {report.rank for report in reports} | set(range(verdict.world_size))
    assert set(_named(verdict)) <= known
    assert verdict.sentence


# --- what live jobs with gloo show ---------------------------------------------------------------


def _live(rank: int, process: ProcessFacts, group: GroupReport | None = None) -> RankHangReport:
    group = group or _group(6, 6)
    return RankHangReport(rank=rank, world_size=4, backend="gloo", groups=(group,), process=process)


_UNFIT = ProcessFacts(
    ProcessState.DEAD,
    ending=ProcessEnding(
        exit_code=0,
        signal=6,
        text="what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <="
        " op.nbytes. 96 vs 48. Received data size doesn't match expected size.",
    ),
)
_CLOSED = ProcessFacts(
    ProcessState.DEAD,
    ending=ProcessEnding(exit_code=1, signal=0, text="RuntimeError: Connection closed by peer"),
)


def _sleeps(*python: str, native: tuple[str, ...] = ("libpython3.11.so.1.0",)) -> ProcessFacts:
    return ProcessFacts(ProcessState.SLEEPING, python_stack=python, native_stack=native)


def _waits_for_a_handle(*python: str) -> ProcessFacts:
    return _sleeps(*python, native=("libtorch_cpu.so", "libtorch_python.so"))


def test_a_rank_that_aborts_over_data_that_does_not_fit_is_not_the_culprit() -> None:
    """The innocent one can be the one that aborts: it got what another sent."""
    everybody = [_live(0, _UNFIT), *(_live(rank, _CLOSED) for rank in (1, 2, 3))]
    verdict = _judged(*everybody)
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "0")
    assert "no node is at fault" in verdict.sentence


def test_data_that_does_not_fit_after_a_rank_gave_up_waiting_accuses_nobody() -> None:
    ending = ProcessEnding(exit_code=1, signal=0, text="Timed out waiting 5000ms for recv")
    gave_up = replace(_waits(0), process=ProcessFacts(ProcessState.DEAD, ending=ending))
    unfit = replace(_waits(1), process=_UNFIT)
    verdict = _judged(gave_up, unfit, _late(2), _waits(3))
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_ranks_that_stay_when_one_has_aborted_over_data_are_not_blamed() -> None:
    stays = _sleeps("train.py:9 on_error")
    behind = _live(1, stays, _group(9, 5))
    verdict = _judged(_live(0, _UNFIT), behind, *(_live(rank, stays) for rank in (2, 3)))
    assert (verdict.kind, _named(verdict)) == (HangClass.DESYNC, {})


def test_sends_and_receives_of_all_ranks_that_nobody_records_are_the_program() -> None:
    send, recv = "distributed_c10d.py:2753 send", "distributed_c10d.py:2799 recv"
    stacks = [send, recv, recv, "distributed_c10d.py:3252 all_reduce"]
    verdict = _judged(*(_live(rank, _sleeps(stack)) for rank, stack in enumerate(stacks)))
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "0-2")
    assert verdict.confidence is Confidence.UNSURE  # or the network between two nodes


def test_on_one_node_no_network_explains_waits_that_nobody_records() -> None:
    waits = replace(_live(0, _sleeps("distributed_c10d.py:2799 recv")), node="gpu-1")
    verdict = _judged(*(replace(waits, rank=rank) for rank in range(4)))
    assert (verdict.kind, verdict.confidence) == (HangClass.DESYNC, Confidence.LIKELY)


def _sends(rank: int, written_bytes: int, group: GroupReport | None = None) -> RankHangReport:
    stack = _sleeps("distributed_c10d.py:2753 send", "train.py:17 share")
    return _live(rank, replace(stack, written_bytes=written_bytes), group)


def test_a_rank_that_sends_much_data_over_a_slow_network_is_no_fault_of_the_program() -> None:
    """As recorded of 600 MB at 60 Mbit/s from rank 0 to rank 1, while the others wait."""
    waits = _live(2, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    receives = _live(1, _sleeps("distributed_c10d.py:2799 recv", "train.py:18 share"))
    others = (receives, waits, replace(waits, rank=3))
    verdict = _judged(_sends(0, 7_500_000), *others)
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.NO_WAIT, {}, "")
    assert verdict.sentence.startswith("Rank 0 sends data, 7.5 MB since the last look")
    # Whose other end never comes sends nothing.
    assert _judged(_sends(0, 300), *others).kind is HangClass.DESYNC


def test_ranks_that_send_where_no_recorder_tells_anything_are_no_fault_of_the_program() -> None:
    receives = _live(1, _sleeps("distributed_c10d.py:2799 recv"))
    others = tuple(replace(receives, rank=rank) for rank in (1, 2, 3))
    assert _judged(_sends(0, 7_500_000), *others).kind is HangClass.NO_WAIT


def test_a_large_broadcast_that_all_have_come_to_is_no_fabric_that_fails() -> None:
    waits = _sleeps("distributed_c10d.py:2900 broadcast")
    everybody = [_live(rank, waits, _group(7, 6)) for rank in range(4)]
    assert _judged(*everybody).kind is HangClass.FABRIC
    everybody[0] = _live(0, replace(waits, written_bytes=7_500_000), _group(7, 6))
    assert _judged(*everybody).kind is HangClass.NO_WAIT
    # With NCCL what a rank writes is a file, and no data of the operation.
    with_nccl = [replace(report, backend="nccl") for report in everybody]
    assert _judged(*with_nccl).kind is HangClass.FABRIC


def test_members_that_have_not_completed_a_broadcast_yet_may_be_sending() -> None:
    waits = replace(_sleeps("distributed_c10d.py:2900 broadcast"), written_bytes=7_500_000)
    behind = [_live(rank, waits, _group(7, 6)) for rank in (0, 1)]
    done = [_live(rank, _sleeps("distributed_c10d.py:3252 wait"), _group(7, 7)) for rank in (2, 3)]
    verdict = _judged(*behind, *done)
    assert (verdict.kind, _named(verdict)) == (HangClass.NO_WAIT, {})


def test_a_job_of_which_one_rank_is_outside_of_its_sends_is_held_back_by_that_rank() -> None:
    waits = _sleeps("distributed_c10d.py:2799 recv")
    verdict = _judged(_live(0, _sleeps("data.py:7 load")), *(_live(n, waits) for n in (1, 2, 3)))
    assert _named(verdict) == {0: HangClass.CPU_SIDE}


def test_a_rank_that_waits_for_the_handle_of_a_receive_is_not_blamed() -> None:
    waits = _live(0, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    handle = _live(2, _waits_for_a_handle("pipeline.py:12 receive"))
    verdict = _judged(waits, replace(waits, rank=1), handle, replace(waits, rank=3))
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "2")
    assert "rank 2 in sends and receives" in verdict.sentence
    assert "(rank 2 in pipeline.py:12 receive)" in verdict.sentence


def test_where_a_rank_stands_is_told_by_both_ends_of_its_stack() -> None:
    """As recorded of a rank that waits for a worker of its data loader."""
    frames = ["selectors.py:415 select", "connection.py:947 wait", "connection.py:440 _poll"]
    frames += [f"dataloader.py:{line} get" for line in (1200, 1300, 1400)]
    waits = _live(0, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    loads = _live(2, _sleeps(*frames, "train.py:70 epoch", "train.py:99 <module>"))
    told = _judged(waits, replace(waits, rank=1), loads, replace(waits, rank=3)).culprits[0].reason
    assert told.endswith(
        "; it is in selectors.py:415 select < connection.py:947 wait < … < train.py:70 epoch <"
        " train.py:99 <module>"
    )


def test_where_a_rank_stands_in_its_script_is_told_however_many_frames_are_around_it() -> None:
    waits = _live(0, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    script = ["train.py:310 evaluate", "train.py:230 step", "train.py:99 run", "train.py:52 main"]
    frames = ["pathlib.py:1013 stat", "pathlib.py:1235 exists", "cache.py:7 ready", *script]
    stands = _live(2, _sleeps(*frames, "train.py:320 <module>"))
    told = _judged(waits, replace(waits, rank=1), stands, replace(waits, rank=3)).culprits[0].reason
    assert told.endswith(
        "; it is in pathlib.py:1013 stat < pathlib.py:1235 exists < … < train.py:310 evaluate < … <"
        " train.py:52 main < train.py:320 <module>"
    )


def test_a_rank_that_waits_for_a_lock_of_its_own_is_blamed() -> None:
    waits = _live(0, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    locked = _live(2, _sleeps("pipeline.py:12 receive"))
    verdict = _judged(waits, replace(waits, rank=1), locked, replace(waits, rank=3))
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_with_nccl_a_rank_that_sleeps_in_the_backward_pass_is_blamed() -> None:
    """Its main thread waits within torch for a thread that runs a hook of the program."""
    waits = replace(_live(0, _sleeps("train.py:9 step"), _group(7, 6)), backend="nccl")
    backward = replace(_live(2, _waits_for_a_handle("train.py:9 step")), backend="nccl")
    verdict = _judged(waits, replace(waits, rank=1), backward, replace(waits, rank=3))
    assert _named(verdict) == {2: HangClass.CPU_SIDE}


def test_the_library_in_which_a_thread_keeps_the_gil_is_told() -> None:
    def held(library: str) -> str:
        facts = ProcessFacts(ProcessState.SLEEPING, gil_held=True, native_stack=(library,))
        return _judged(_waits(0), _waits(1), _late(2, facts), _waits(3)).sentence

    assert "libdata.so" in held("libdata.so")
    assert "its main thread" not in held("libpython3.11.so.1.0")


@pytest.mark.parametrize(
    ("state", "named"),
    [(ProcessState.DEAD, {0}), (ProcessState.STOPPED, {0, 1})],
    ids=["died", "stopped"],
)
def test_who_does_something_about_a_rank_that_died_is_not_blamed(
    state: ProcessState, named: set[int]
) -> None:
    waits = _live(2, _sleeps("distributed_c10d.py:3252 all_reduce"), _group(7, 6))
    elsewhere = _live(1, _sleeps("train.py:90 save_what_there_is"))
    gone = _live(0, ProcessFacts(state))
    assert set(_named(_judged(gone, elsewhere, waits, replace(waits, rank=3)))) == named


def _circle(rank: int, process: ProcessFacts) -> RankHangReport:
    """Return one of two ranks that wait for each other, in two groups of both."""
    first, second = ((7, 6), (6, 6)) if rank else ((6, 6), (7, 6))
    groups = (_group(*first, "0-1", 2), replace(_group(*second, "0-1", 2), description="other"))
    return RankHangReport(rank=rank, world_size=2, groups=groups, process=process)


def test_a_circle_of_ranks_that_all_stand_in_it_is_the_program() -> None:
    inside = _sleeps("distributed_c10d.py:3252 all_reduce")
    verdict = judge([_circle(0, inside), _circle(1, inside)], 2)
    assert (verdict.kind, _named(verdict)) == (HangClass.DESYNC, {})
    assert verdict.confidence is Confidence.LIKELY


def test_a_rank_of_a_circle_that_stands_elsewhere_holds_the_other_back() -> None:
    """Its collective runs beside it; it has not come to the one that the other waits in."""
    inside = _sleeps("distributed_c10d.py:3252 all_reduce")
    verdict = judge([_circle(0, inside), _circle(1, _sleeps("data.py:7 load"))], 2)
    assert _named(verdict) == {1: HangClass.CPU_SIDE}


def test_a_rank_that_stands_in_a_receive_instead_of_a_collective_left_that_out() -> None:
    """Without a stack it may only have posted the receive, and be late for the collective."""

    def pipe(operation: Operation | None) -> GroupReport:
        pending = (operation,) if operation else ()
        count = operation.sequence if operation else 8
        counts = {"p2p_enqueued": count, "p2p_completed": 8, "pending_count": len(pending)}
        group = GroupReport("PIPELINE", "0,2", 2, 0, 0, pending=pending)
        return replace(group, **counts)  # type: ignore[arg-type]

    whole, sent = _group(7, 6), pipe(None)
    posted = pipe(_operation(9, "recv", peer=0))
    reports = [RankHangReport(rank=rank, world_size=4, groups=(whole,)) for rank in (1, 3)]
    reports.append(RankHangReport(rank=0, world_size=4, groups=(whole, sent)))
    late = RankHangReport(rank=2, world_size=4, groups=(_group(6, 6), posted))
    assert _named(_judged(*reports, late)) == {2: HangClass.CPU_SIDE}
    stack = ProcessFacts(python_stack=("distributed_c10d.py:2799 recv", "pipeline.py:12 receive"))
    departed = replace(late, process=stack)
    assert _named(_judged(*reports, departed)) == {2: HangClass.DESYNC}
