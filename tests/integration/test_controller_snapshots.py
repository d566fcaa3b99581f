"""`everstep snapshots` and `job NAME forget` against a real controller; the agents are fakes."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import agent_stream
from fakes.cli_stage import NODES, Answer, Stage, training
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(90)


def test_the_steps_of_a_job_are_shown_with_their_copies_and_what_would_be_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, Answer]:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-1", 7, 8, 9)
            await stage.report("node-2", 7, 8)
            shown = await stage.until("peer memory: all", "snapshots", "train")
            return shown, await stage.everstep("snapshots", "train", "--json")

    shown, told = asyncio.run(scenario())
    assert all(len(line) <= 80 for line in shown.drawn.splitlines())
    table = json.loads(told.out)
    assert (table["job"], table["state"], table["step"]) == ("train", "running", 9)
    assert (table["restore_step"], table["restore_generation"]) == (9, 1)
    assert table["recoverable_step"] == 8
    newest = table["steps"][0]
    assert (newest["step"], newest["parts"], newest["parts_held"]) == (9, 2, 2)
    assert [(t["tier"], t["parts"], t["nodes"]) for t in newest["tiers"]] == [
        ("own memory", 1, ["node-1"]),
        ("peer memory", 1, ["node-1"]),
    ]


def test_a_newest_step_that_is_not_whole_is_named_with_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, Answer]:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-1", 7, 8, 9, replicas=False)
            await stage.report("node-2", 7, 8, replicas=False)
            shown = await stage.until("→ 8", "snapshots", "train")
            return shown, await stage.everstep("snapshots", "train", "--json")

    shown, told = asyncio.run(scenario())
    table = json.loads(told.out)
    assert (table["restore_step"], table["steps"][0]["state"]) == (8, "partial")
    assert "9" in table["not_newer"]
    assert "not newer" in shown.drawn


def test_single_copies_are_listed_by_step_and_by_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, Answer]:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-1", 7, 8)
            await stage.report("node-2", 8)
            await stage.until("own memory: all on node-[1-2]", "snapshots", "train")
            options = ["snapshots", "train", "--copies", "--json"]
            return (
                await stage.everstep(*options, "--step", "8"),
                await stage.everstep(*options, "--node", "node-1"),
            )

    of_step, of_node = asyncio.run(scenario())
    copies = [json.loads(line) for line in of_step.out.splitlines()]
    assert {(c["rank"], c["tier"], c["node"]) for c in copies} == {
        (0, "own memory", "node-1"),
        (1, "peer memory", "node-1"),
        (1, "own memory", "node-2"),
        (0, "peer memory", "node-2"),
    }
    assert {c["root_hash"] for c in copies if c["rank"] == 1} == {"0108" * 8}
    assert {c["layout"] for c in copies if c["rank"] == 1} == {"01" * 16}
    assert {json.loads(line)["step"] for line in of_node.out.splitlines()} == {7, 8}


def test_what_a_fault_would_cost_is_a_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> str:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-1", 7, 8)
            await stage.report("node-2", 7, 8)
            await stage.until("survives the loss of any one node", "snapshots", "train")
            url = f"http://127.0.0.1:{stage.running.metrics_port}/metrics"
            # In a thread: the answer is collected on this loop.
            with await asyncio.to_thread(urllib.request.urlopen, url, timeout=20) as answer:
                return str(answer.read().decode())

    lines = asyncio.run(scenario()).splitlines()
    assert 'everstep_job_restore_step{job="train"} 8.0' in lines
    assert 'everstep_job_recoverable_steps_behind{job="train"} 1.0' in lines
    assert 'everstep_job_snapshot_interval_steps{job="train"} 1.0' in lines
    assert 'everstep_job_snapshot_steps{job="train",state="complete"} 2.0' in lines
    assert 'everstep_job_snapshots_skipped_total{job="train"} 0.0' in lines
    age = 'everstep_job_recoverable_step_age_seconds{job="train"}'
    assert any(line.startswith(age) for line in lines)


@pytest.mark.parametrize(
    "command",
    [
        ["snapshots", "trian"],
        ["snapshots", "trian", "--copies"],
        ["job", "trian", "forget"],
    ],
)
def test_an_unknown_job_is_one_sentence_with_the_nearest_name(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> Answer:
        async with training(tmp_path, capsys) as stage:
            return await stage.everstep(*command)

    answer = asyncio.run(scenario())
    assert (answer.code, answer.drawn, answer.out) == (2, "", "")
    assert "no job named 'trian'; did you mean 'train'?" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_an_unknown_node_is_not_an_empty_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> Answer:
        async with training(tmp_path, capsys) as stage:
            return await stage.everstep("snapshots", "train", "--copies", "--node", "node-7")

    answer = asyncio.run(scenario())
    assert answer.code == 2
    assert "no node named 'node-7'" in answer.err


def test_a_running_job_forgets_nothing_and_says_what_to_do_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, str]:
        async with training(tmp_path, capsys) as stage:
            answer = await stage.everstep("job", "train", "forget")
            return answer, stage.running.runtime.state.newest("train").ending.forgotten_by

    answer, forgotten_by = asyncio.run(scenario())
    assert answer.code == 1
    assert answer.err.startswith("Error: train is running, and its snapshots are what it would")
    assert "everstep job train forget" in answer.err
    # Steps and timers are journaled meanwhile; the command is not.
    assert forgotten_by == ""


def test_an_ended_job_is_forgotten_on_every_node_and_only_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def drop(stage: Stage, node: str) -> str:
        order = await stage.agents[node].order("forget_job")
        await stage.report(node)
        return order.reason

    async def scenario() -> tuple[Answer, list[str], Answer, Answer]:
        async with training(tmp_path, capsys) as stage:
            for node in NODES:
                await stage.report(node, 8)
            await stage.until("own memory: all on node-[1-2]", "snapshots", "train")
            await stage.end()
            ended = await stage.until("own memory: all on node-[1-2]", "snapshots", "train")
            assert "nothing: the job has ended; what nodes keep of it goes after" in ended.text
            asked = asyncio.create_task(stage.everstep("job", "train", "forget"))
            reasons = [await drop(stage, node) for node in NODES]
            first = await asked
            again = await stage.everstep("job", "train", "forget")
            events = await stage.everstep("events", "--subject", "train")
            return first, reasons, again, events

    first, reasons, again, events = asyncio.run(scenario())
    assert first.text == "train: 4.0 GiB of snapshots dropped from memory on node-[1-2]"
    assert len(set(reasons)) == 1
    assert reasons[0].startswith("forgotten by ")
    assert again.text == "train: no node keeps memory of it"
    assert events.text.count("JobForgotten") == 1


def test_a_node_that_is_away_is_told_when_it_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, fleet_pb2.Order]:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-2", 8)
            await stage.until("own memory: 1 of 2 on node-2", "snapshots", "train")
            await stage.end()
            stage.agents["node-2"].call.cancel()
            nodes = stage.running.runtime.state.nodes
            await eventually(lambda: not nodes["node-2"].liveness.connected)
            answer = await stage.everstep("job", "train", "forget")
            async with agent_stream(stage.running.port, "node-2") as back:
                await back.hello(term=1, jobs=(fleet_pb2.JobOnNode(job="train", generation=1),))
                return answer, await back.order("forget_job")

    answer, order = asyncio.run(scenario())
    assert answer.text == "train: 2.0 GiB of snapshots on node-2, away now: dropped when back"
    assert order.forget_job.job == "train"


def test_a_node_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> Answer:
        async with training(tmp_path, capsys) as stage:
            await stage.report("node-2", 8)
            await stage.until("own memory: 1 of 2 on node-2", "snapshots", "train")
            await stage.end()
            return await stage.everstep("job", "train", "forget")

    answer = asyncio.run(scenario())
    assert answer.code == 0
    assert "2.0 GiB of snapshots still being dropped on node-2; ask again" in answer.text


def test_a_controller_that_acts_on_nothing_says_so_and_drops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> tuple[Answer, str, str]:
        async with training(tmp_path, capsys) as stage:
            await stage.end()
            await stage.until("ended", "snapshots", "train")
            async with agent_stream(stage.running.port, "node-8") as refused:
                await refused.send_hello(term=99)
                assert "nobody else says so" in (await refused.end())[1]
            async with agent_stream(stage.running.port, "node-9") as stranger:
                await stranger.hello(term=99)
                answer = await stage.everstep("job", "train", "forget")
            state = stage.running.runtime.state
            return answer, state.halted, state.newest("train").ending.forgotten_by

    answer, halted, forgotten_by = asyncio.run(scenario())
    assert halted
    assert answer.code == 1
    assert f"did not take the order: {halted}" in answer.err
    assert forgotten_by == ""
