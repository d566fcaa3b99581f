"""Commands about a fleet against a real controller: nodes that are chosen, events, a job's end."""

import asyncio
import csv
import io
import json
from pathlib import Path

import pytest

from everstep_proto.generated import fleet_pb2
from fakes.cli_stage import Stage, training
from fakes.controllers import controller

pytestmark = pytest.mark.timeout(90)


def test_nodes_are_chosen_sorted_and_paged_by_the_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            assert (await stage.everstep("nodes")).drawn.startswith("2 nodes: 2 healthy\n")
            await stage.everstep("isolate", "node-[1-2]", "--reason", "smoke")
            claimed = await stage.everstep("nodes", "--state", "claimed", "--sort", "since")
            assert claimed.text.startswith("2 nodes: 2 healthy 2 claimed by operator")
            answer = await stage.everstep("nodes", "--node", "node-2", "--json")
            told = json.loads(answer.out)
            assert [node["node"] for node in told["nodes"]] == ["node-2"]
            assert told["summary"]["fleet_nodes"] == 2
            unknown = await stage.everstep("nodes", "--node", "node-[2-3]")
            assert unknown.code == 2
            assert "no node named 'node-3'" in unknown.err
            wrong = await stage.everstep("nodes", "--state", "sick")
            assert wrong.code == 2
            assert "no state 'sick'; states are lost, repairing" in wrong.err

    asyncio.run(scenario())


def test_events_are_listed_from_a_time_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            assert "JobStarting" in (await stage.everstep("events", "--since", "1h")).drawn
            later = await stage.everstep("events", "--since", "2150-01-01T00:00")
            assert (later.code, later.drawn) == (0, "")

    asyncio.run(scenario())


def test_a_job_is_stopped_at_a_step_boundary_and_its_launchers_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            early = await stage.everstep("job", "train", "stop", "--at-step", "3", "--reason", "x")
            assert early.code == 1
            assert "train is past step 3, at 9" in early.err
            answer = await stage.everstep("job", "train", "stop", "--reason", "the budget is spent")
            assert "the end of the job at a step boundary is planned" in answer.text
            assert "everstep job train stop --cancel" in answer.text
            other = await stage.everstep("job", "train", "restart", "--reason", "code")
            assert "train is to end" in other.err
            assert "planned the end of the job" in (await stage.everstep("job", "train")).text
            reasons = await _stopped(stage)
            assert len(reasons) == 2
            assert all(reason.endswith(": the budget is spent") for reason in reasons)
            assert all(reason.startswith("stopped by operator ") for reason in reasons)
            late = await stage.everstep("job", "train", "stop", "--reason", "again")
            assert late.code == 1
            assert "the budget is spent" in late.err

    asyncio.run(scenario())


async def _stopped(stage: Stage) -> list[str]:
    """Let the ranks be stopped on all nodes; return what their launchers are told."""
    for agent in stage.agents.values():
        await agent.order("stop_generation")
    for agent in stage.agents.values():
        stopped = fleet_pb2.GenerationStopped(generation=1, free_port=4000)
        await agent.record(9, generation_stopped=stopped)
    return [(await agent.order("end_job")).reason for agent in stage.agents.values()]


def test_the_ettr_of_the_fleet_has_what_was_not_written_down_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            whole = json.loads((await stage.everstep("ettr", "--json")).out)["whole"]
            assert whole["jobs"] == 1
            assert whole["node_ns"] == sum(one["time_ns"] for one in whole["categories"]) > 0
            assert "ETTR_time" in (await stage.everstep("ettr", "--by", "week")).drawn
            by_job = json.loads((await stage.everstep("ettr", "--by", "job", "--json")).out)
            (row,) = by_job["periods"]
            assert row["key"].startswith("train-")
            assert row["device_ns"] >= row["node_ns"] > 0
            table = (await stage.everstep("ettr", "train", "--by", "account", "--csv")).out
            (billed,) = csv.DictReader(io.StringIO(table))
            assert billed["account"] == "(none)"
            unknown = await stage.everstep("ettr", "trian", "--by", "day")
            assert unknown.code == 2
            assert "no job named 'trian' is in the history; there is train" in unknown.err
            far = await stage.everstep("ettr", "--by", "cause", "--last", "400")
            assert "No incident began in these days" in far.drawn

    asyncio.run(scenario())


def test_a_controller_that_stops_writes_the_history_that_the_next_one_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            whole = json.loads((await stage.everstep("ettr", "--by", "job", "--json")).out)
            (row,) = whole["periods"]
        async with controller(tmp_path) as again:
            stage = Stage(again, {}, capsys)
            told = (await stage.everstep("history", "hours", "--json")).out.splitlines()
            (hour, *_) = [json.loads(line) for line in told]
            assert hour["key"] == row["key"]
            assert sum(json.loads(hour["told"])["totals"].values()) > 0
            days = (await stage.everstep("history", "fleet")).drawn
            assert "fleet 2 nodes; " in days
            well = await stage.everstep("history", "incidents", "node-1")
            assert (well.code, well.drawn) == (0, "")
            wrong = await stage.everstep("history", "hours", "trian-1")
            assert wrong.code == 2
            assert f"has nothing of 'trian-1'; it has rows of {row['key']}" in wrong.err

    asyncio.run(scenario())


def test_a_report_has_the_seconds_of_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with training(tmp_path, capsys) as stage:
            path = tmp_path / "train.html"
            answer = await stage.everstep("report", "train", "-o", str(path))
            assert answer.code == 0
            ledger = json.loads((await stage.everstep("ettr", "train", "--json")).out)
            told = path.read_text(encoding="utf-8")
            assert all(f"<td>{one['name']}</td>" in told for one in ledger["categories"])
            unknown = await stage.everstep("report", "trian", "-o", str(path))
            assert (unknown.code, "train" in unknown.err) == (2, True)
            assert path.read_text(encoding="utf-8") == told

    asyncio.run(scenario())
