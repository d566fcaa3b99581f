"""Snapshots as they are shown: what a job would go back to, for four ranks and for 16,384."""

import io

import pytest
from google.protobuf.message import Message
from rich.console import RenderableType

from everstep_cli.main import screen
from everstep_cli.views import json_output
from everstep_cli.views.jobs import job_sheet
from everstep_cli.views.snapshots import cadence_line, copy_lines, forgotten, snapshot_sheet
from everstep_proto.generated import admin_pb2
from fakes import cli_snapshots
from fakes.cli_admin import JOB, NOW_NS


def draw(*views: RenderableType, width: int = 80) -> str:
    """Return what is drawn on a screen."""
    drawn = io.StringIO()
    for view in views:
        screen(drawn, width).print(view)
    return drawn.getvalue()


def sheet(table: admin_pb2.Snapshots) -> str:
    return draw(*snapshot_sheet(table, NOW_NS), width=200)


def changed(**fields: object) -> admin_pb2.Snapshots:
    """Return the usual snapshots with other values."""
    table = admin_pb2.Snapshots()
    table.CopyFrom(cli_snapshots.SNAPSHOTS)
    for name, value in fields.items():
        table.ClearField(name)  # type: ignore[arg-type]
        if isinstance(value, Message):
            getattr(table, name).CopyFrom(value)
        elif isinstance(value, list):
            getattr(table, name).extend(value)
        elif value is not None:
            setattr(table, name, value)
    return table


def test_the_sheet_says_where_the_job_would_go_back_to_and_why_not_further() -> None:
    told = sheet(cli_snapshots.SNAPSHOTS)
    assert "restore step  step 129 is the newest that is complete in the memory of 4 nodes" in told
    assert f"not newer     {cli_snapshots.MISSING}" in told
    assert "step 128 survives the loss of any one node, 3 s old, 2 steps behind" in told
    assert "snapshots     one step in 2 is snapshotted: a snapshot stalls 800.0 ms" in told
    assert "3 snapshots skipped" in told
    assert "slots         3 for each rank, free again 6.3 s after a snapshot (p99 7.5 s)" in told
    assert "a state       4.0 GiB in 4 parts" in told
    assert "'everstep events --subject demo'" in told


def test_a_slot_that_is_taken_for_long_is_told_without_an_exponent() -> None:
    slow = admin_pb2.Cadence()
    slow.CopyFrom(cli_snapshots.SNAPSHOTS.cadence)
    slow.slot_taken_p99_ns = 110 * 10**9
    assert "free again 6.3 s after a snapshot (p99 1 m 50 s)" in sheet(changed(cadence=slow))


def test_a_job_on_one_node_is_not_called_recoverable_from_its_loss() -> None:
    told = sheet(changed(members=1))
    assert "step 128 lasts while its node does, 3 s old" in told
    assert "any one node" not in told


def test_the_arrow_is_at_the_step_that_would_be_restored_and_nowhere_else() -> None:
    lines = [line for line in sheet(cli_snapshots.SNAPSHOTS).splitlines() if "→" in line]
    assert [line.split()[1] for line in lines] == ["129"]
    assert "→" not in sheet(changed(has_restore=False))


def test_a_step_of_an_older_generation_with_the_same_number_gets_no_arrow() -> None:
    older = admin_pb2.StepLine()
    older.CopyFrom(cli_snapshots.SNAPSHOTS.steps[1])
    older.generation, older.state, older.reason = 1, "abandoned", "the job went back to step 99"
    steps = [*cli_snapshots.SNAPSHOTS.steps, older]
    lines = [line.split() for line in sheet(changed(steps=steps)).splitlines() if "→" in line]
    assert [line[1:3] for line in lines] == [["129", "2"]]


def test_every_tier_tells_its_parts_and_nodes() -> None:
    told = sheet(cli_snapshots.SNAPSHOTS)
    assert "own memory: 3 of 4 on node-[1-2,4]" in told
    assert "peer memory: 3 of 4 on node-[1-3]" in told
    assert "local disk: all on node-[1-4]" in told
    assert "shared storage: all\n" in told.replace(" \n", "\n").replace("  ", "")


def test_a_step_that_is_not_simply_whole_has_a_sentence_that_is_told_once() -> None:
    told = sheet(cli_snapshots.SNAPSHOTS)
    assert f"step 120, probation: {cli_snapshots.CRASHED}" in told
    assert told.count(cli_snapshots.MISSING) == 1


def test_what_could_not_be_stored_is_told_with_what_could() -> None:
    told = sheet(cli_snapshots.SNAPSHOTS)
    assert "/scratch/ckpt every 20 steps or every 10 m 0 s, keeps 2 complete steps" in told
    assert "stored        step 120 of generation 2, 8 s ago, 4.0 GiB" in told
    assert "storing       step 140" in told
    assert f"not stored    step 100: {cli_snapshots.NOT_SHARED}" in told


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        (admin_pb2.StorageLine(path="/c", every_steps=1, keep=2), "/c every step, keeps"),
        (admin_pb2.StorageLine(path="/c", every_ns=10**9, keep=2), "/c every 1 s, keeps"),
        (admin_pb2.StorageLine(path="/c", keep=3), "/c when the job stops, keeps 3 complete steps"),
        (admin_pb2.StorageLine(path="/c", keep=2), "no complete step yet"),
        (admin_pb2.StorageLine(path="/c", keep=2, pending=[5, 6]), "steps 5, 6"),
        (None, "a state"),
    ],
)
def test_storage_is_told_as_it_was_asked_for(
    storage: admin_pb2.StorageLine | None, told: str
) -> None:
    shown = sheet(changed(storage=storage))
    assert told in shown
    assert ("storage " in shown.split("step  generation")[0]) is (storage is not None)


def test_a_job_without_a_snapshot_says_what_a_fault_would_cost() -> None:
    table = admin_pb2.Snapshots(
        job="demo", state="starting", generation=1, restore_reason="no snapshot was committed yet"
    )
    assert "restore step  nothing: no snapshot was committed yet" in sheet(table)
    assert "step  generation" not in sheet(table)


def test_snapshots_that_are_taken_at_every_step_need_no_reason() -> None:
    assert cadence_line(admin_pb2.Cadence(every=1)) == "every step"
    assert (
        cadence_line(admin_pb2.Cadence(every=5, skipped=1)) == "every 5 steps; 1 snapshot skipped"
    )
    assert cadence_line(admin_pb2.Cadence()) == ""


def test_sixteen_thousand_ranks_fit_a_terminal() -> None:
    told = draw(*snapshot_sheet(cli_snapshots.large(), NOW_NS))
    assert len(told.splitlines()) < 30
    assert all(len(line) <= 80 for line in told.splitlines())
    assert "peer memory: 16380 of 16384 on 2048 nodes" in " ".join(told.split())
    assert "16 TiB in 16384 parts" in told


def test_a_job_shows_where_its_state_is_brought_to() -> None:
    told = draw(*job_sheet(JOB, NOW_NS), width=200)
    assert "storage     /scratch/ckpt every 20 steps" in told
    assert "stored      step 120 of generation 2" in told
    without = admin_pb2.JobDetail(summary=JOB.summary, begun="starts from scratch, as --fresh asks")
    assert "begun       it starts from scratch, as --fresh asks" in draw(
        *job_sheet(without, NOW_NS)
    )
    assert "storage" not in draw(*job_sheet(without, NOW_NS), width=200)


def test_single_copies_are_lines_that_align() -> None:
    lines = list(copy_lines(cli_snapshots.copies(None, "")))
    assert len(lines) == 6
    places = {line.index("node") for line in lines}
    assert len(places) == 1
    assert lines[-1].endswith("node-4, away")


def test_the_json_of_snapshots_has_null_for_what_there_is_not() -> None:
    full = json_output.to_dict(cli_snapshots.SNAPSHOTS)
    assert (full["restore_step"], full["recoverable_step"]) == (129, 128)
    empty = json_output.to_dict(admin_pb2.Snapshots(job="demo"))
    assert set(empty) == set(full)
    assert not [key for key in empty if key.startswith("has_")]
    nulls = {key for key, value in empty.items() if value is None}
    assert nulls == {"step", "restore_step", "recoverable_step", "cadence", "storage"}


def test_forgetting_tells_what_became_of_the_memory_of_every_node() -> None:
    told = draw(*forgotten(cli_snapshots.FORGOTTEN), width=200).splitlines()
    assert [line.rstrip() for line in told] == [
        "demo: 9.0 GiB of snapshots dropped from memory on node-[1-3]",
        "demo: 3.0 GiB of snapshots on node-4, away now: dropped when back",
        "Its files under /scratch/ckpt stay; they are its user's.",
    ]


def test_forgetting_tells_what_is_still_on_its_way() -> None:
    reply = admin_pb2.ForgetJobReply(job="demo", dropping=["node-1"], dropping_bytes=1 << 30)
    assert "1.0 GiB of snapshots still being dropped on node-1; ask again" in draw(
        *forgotten(reply), width=200
    )


def test_forgetting_what_is_forgotten_says_that_there_is_nothing() -> None:
    told = draw(*forgotten(admin_pb2.ForgetJobReply(job="demo")))
    assert told.strip() == "demo: no node keeps memory of it"


def test_a_node_that_is_away_with_unknown_memory_is_not_called_empty() -> None:
    told = draw(*forgotten(admin_pb2.ForgetJobReply(job="demo", away=["node-4"])))
    assert "0 B" not in told
    assert "what node-4 keeps, away now: dropped when back" in told


def test_of_a_script_without_snapshots_no_copy_is_missed() -> None:
    table = admin_pb2.Snapshots(
        job="demo",
        state="running",
        generation=1,
        restore_reason="no reachable copy of rank 0",
        cadence=admin_pb2.Cadence(reason="none: its script does without Everstep's"),
    )
    assert "restore step  nothing: its script takes no snapshots" in sheet(table)
