"""A node says that its ranks stand still: they are looked at, and what is seen is acted upon."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from everstep_common.codec import json_text
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.state import State
from everstep_controller.inspection.evidence import HangEvidence
from everstep_controller.inspection.hang_judgement import judge_hang
from everstep_controller.inspection.judge_process import JudgeError
from everstep_controller.inspection.judge_trials import JudgeTrials
from everstep_controller.runtime.judge_failures import JudgeFailures
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel
from integration.test_controller_judging import until_open
from integration.test_controller_streams import run_to_step

pytestmark = pytest.mark.timeout(120)
# As often is tried what a busy machine may be too slow for.
_TRIES_MAX = 3
_STILL = fleet_pb2.RanksStandStill(generation=1, step=7, since_boot_ns=20, usual_ns=700_000_000)


def _report(state: ProcessState) -> str:
    return json_text(RankHangReport(rank=0, world_size=1, process=ProcessFacts(state=state)))


async def _answer(agent: AgentStream, *reports: str, missing: str = "") -> None:
    """Answer the next look at the ranks."""
    asked = await agent.wait_for("inspect")
    await _tell(agent, asked.inspect, *reports, missing=missing)


async def _tell(
    agent: AgentStream, asked: fleet_pb2.InspectRanks, *reports: str, missing: str = ""
) -> None:
    assert asked.job == "train"
    told = fleet_pb2.RanksInspected(
        inspection_id=asked.inspection_id, reports=reports, missing=missing
    )
    await agent.send(inspected=told)


async def _answer_until_stopped(agent: AgentStream, *reports: str) -> fleet_pb2.Order:
    """Answer every look until the generation is stopped: one that came too late is not the last."""
    while True:
        message = await agent.wait_for("inspect", "order")
        if message.WhichOneof("body") == "inspect":
            await _tell(agent, message.inspect, *reports)
        elif message.order.WhichOneof("body") == "stop_generation":
            return message.order


def test_a_stopped_rank_is_seen_at_once_and_its_generation_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            order = await _answer_until_stopped(agent, _report(ProcessState.STOPPED))
            job = running.runtime.state.newest("train")
            assert job.recovery.hangs[0].culprits == ((0, "node-1"),)
            return order.reason, json.dumps([str(one) for one in job.recovery.hangs])

    reason, hangs = asyncio.run(scenario())
    assert "Its process is stopped" in reason
    assert "FROZEN" in hangs
    (kept,) = (tmp_path / "journal.hangs").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("restarted", [False, True])
def test_ranks_that_are_killed_while_somebody_looks_at_them_are_not_told_to_be_dead(
    tmp_path: Path, restarted: bool
) -> None:
    async def scenario(folder: Path) -> str:
        async with (
            controller(folder) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            await agent.healthy()
            await run_to_step(agent, 7)
            stub = admin_pb2_grpc.AdminStub(channel)
            look = stub.InspectJob(admin_pb2.InspectJobRequest(job="train"))
            asked = (await agent.wait_for("inspect")).inspect.inspection_id
            await agent.record(7, ranks_stand_still=_STILL)
            await _answer_until_stopped(agent, _report(ProcessState.STOPPED))
            if restarted:
                copy = fleet_pb2.VaultCopy(
                    generation=1, rank=0, step=7, root_hash=b"hash", size_bytes=8, layout=b"w"
                )
                report = fleet_pb2.VaultReport(job="train", copies=[copy], settled_generation=1)
                await agent.send(vault=report)
                stopped = fleet_pb2.GenerationStopped(generation=1, at_boot_ns=40, free_port=29501)
                await agent.record(8, generation_stopped=stopped)
                await agent.order("start_generation")
            dead = fleet_pb2.RanksInspected(
                inspection_id=asked, reports=[_report(ProcessState.DEAD)]
            )
            await agent.send(inspected=dead)
            try:
                await anext(aiter(look))
            except grpc.aio.AioRpcError as error:
                return error.details() or ""
            # The judge took longer than a node may take to answer whoever looks.
            return ""

    folders = [tmp_path / str(number) for number in range(_TRIES_MAX)]
    for folder in folders:
        folder.mkdir()
    tries = (asyncio.run(scenario(folder)) for folder in folders)
    told = next(filter(None, tries), "")
    how = "was stopped meanwhile" if restarted else "is being stopped"
    assert told.startswith(f"generation 1 of train {how}: train stands still, ")
    assert "Rank 0 holds the job back: frozen. Its process is stopped" in told
    assert told.endswith("; 'everstep why train' tells more")


def test_a_job_of_which_nobody_waits_is_looked_at_again_until_its_ranks_go_on(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            await _answer(agent, missing="its launcher does not answer")
            await _answer(agent, "no report at all", _report(ProcessState.SLEEPING))
            await _answer(agent, _report(ProcessState.SLEEPING))
            state = running.runtime.state
            assert state.newest("train").state is JobState.STALLED
            assert state.newest("train").hang.seen is None
            await agent.record(8, ranks_go_on=fleet_pb2.RanksGoOn(generation=1, at_boot_ns=30))
            await agent.acknowledged(8)
            assert state.newest("train").state is JobState.RUNNING

    asyncio.run(scenario())
    assert list((tmp_path / "journal.hangs").iterdir()) == [], "nothing was told of these looks"


def _stuck_in_the_fabric() -> str:
    """Return the report of a rank that waits in an operation which all have enqueued."""
    operation = Operation(8, "all_reduce", "4 Float", OperationState.STARTED)
    group = GroupReport("default_pg", "0", 1, 8, 7, pending_count=1, pending=(operation,))
    return json_text(RankHangReport(rank=0, world_size=1, groups=(group,)))


def test_what_might_go_on_is_stopped_by_the_first_look_after_the_patience(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            settings = replace(running.runtime.state.settings, hang_patience_ns=2_000_000_000)
            await running.runtime.submit(events.SettingsApplied(settings))
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            order = await _answer_until_stopped(agent, _stuck_in_the_fabric())
            return sum(one.WhichOneof("body") == "inspect" for one in agent.seen), order.reason

    looks, reason = asyncio.run(scenario())
    assert 2 <= looks <= 4
    assert "no rank has moved for" in reason


def test_a_pause_is_waited_for_and_what_stands_still_after_it_is_not(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, int]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            settings = replace(running.runtime.state.settings, hang_patience_ns=1)
            await running.runtime.submit(events.SettingsApplied(settings))
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            stuck = _stuck_in_the_fabric()
            paused = stuck.replace('"phase":""', '"phase":"pause: evaluation"')
            assert paused != stuck
            await _answer(agent, paused)
            await _answer(agent, paused)
            await _answer(agent, stuck)
            job = running.runtime.state.newest("train")
            plan, restarts = job.hang.plan, len(job.recovery.hangs)
            await _answer_until_stopped(agent, stuck)
            return plan, restarts

    plan, restarts = asyncio.run(scenario())
    assert plan.startswith("rank 0, evaluation: that is no step")
    assert restarts == 0


def test_who_sits_before_the_launcher_reads_that_the_job_stands_still_and_that_it_goes_on(
    tmp_path: Path,
) -> None:
    async def scenario() -> list[str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            stalled = (await agent.wait_for("tell_launcher")).tell_launcher
            await agent.record(8, ranks_go_on=fleet_pb2.RanksGoOn(generation=1, at_boot_ns=30))
            again = (await agent.wait_for("tell_launcher")).tell_launcher
            assert stalled.job_id == again.job_id == running.runtime.state.newest("train").id
            return [stalled.text, again.text]

    stalled, again = asyncio.run(scenario())
    assert "train is stalled: no step and no collective for" in stalled
    assert again == "train is running: its ranks go on"


def test_a_generation_that_ended_because_ranks_gave_up_is_asked_about_and_who_did_not_come_is_told(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[int, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            exited = fleet_pb2.RankExited(
                generation=1,
                rank=0,
                exit_code=1,
                kind="collective_timeout",
                exception="RuntimeError: Timed out waiting 5000ms for recv operation to complete",
            )
            await agent.record(7, rank_exited=exited)
            assert (await agent.order("stop_generation")).stop_generation.look
            asked = (await agent.wait_for("inspect")).inspect
            reports = (_report(ProcessState.STOPPED),)
            told = fleet_pb2.RanksInspected(inspection_id=asked.inspection_id, reports=reports)
            await agent.send(inspected=told)
            return asked.generation, (await agent.wait_for("tell_launcher")).tell_launcher.text

    generation, sentence = asyncio.run(scenario())
    assert generation == 1
    assert sentence.startswith("train: why generation 1 ended: ")
    assert "Its process is stopped" in sentence
    assert len(list((tmp_path / "journal.hangs").iterdir())) == 1


def test_who_sits_before_the_launcher_reads_who_did_not_come_to_an_operation_that_timed_out(
    tmp_path: Path,
) -> None:
    async def scenario() -> str:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            job = running.runtime.state.newest("train")
            event = events.TimeoutJudged(job.id, 1, "Rank 2 holds the job back: CPU side.")
            await running.runtime.submit(event)
            return str((await agent.wait_for("tell_launcher")).tell_launcher.text)

    assert asyncio.run(scenario()) == (
        "train: why generation 1 ended: Rank 2 holds the job back: CPU side."
    )


def test_a_look_that_finds_nobody_any_more_says_that_what_was_found_is_no_longer_so(
    tmp_path: Path,
) -> None:
    async def scenario() -> list[str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            await agent.record(7, ranks_stand_still=_STILL)
            await _answer(agent, _stuck_in_the_fabric())
            await _answer(agent, _report(ProcessState.SLEEPING))
            texts: list[str] = []
            while not texts or "no longer so" not in texts[-1]:
                texts.append((await agent.wait_for("tell_launcher")).tell_launcher.text)
            return texts

    assert (
        "train: what was found before is no longer so: No rank told its operations"
        in (asyncio.run(scenario())[-1])
    )


def test_a_look_that_cannot_be_judged_is_a_finding_until_one_is(tmp_path: Path) -> None:
    async def scenario() -> tuple[str, str, str]:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            await run_to_step(agent, 7)
            # The folder of evidence cannot be made: there is nothing that a judge could read.
            folder = tmp_path / "journal.hangs"
            folder.touch()
            await agent.record(7, ranks_stand_still=_STILL)
            await _answer(agent, _report(ProcessState.STOPPED))
            await _answer(agent, _report(ProcessState.STOPPED))
            (finding,) = await until_open(running.port, {("controller", "JudgeFailed")})
            state = running.runtime.state
            plan = state.newest("train").hang.plan
            assert state.newest("train").state is JobState.STALLED
            folder.unlink()
            order = await _answer_until_stopped(agent, _report(ProcessState.STOPPED))
            await until_open(running.port, set())
            return finding.message, plan, order.reason

    message, plan, reason = asyncio.run(scenario())
    assert message.startswith("hang-look fails at train: who holds back a job")
    assert plan.startswith("it is restarted when no rank has moved for 600 s: ")
    assert "Its process is stopped" in reason


def test_the_judges_are_tried_before_they_are_needed(tmp_path: Path) -> None:
    async def scenario() -> list[list[str]]:
        failures = JudgeFailures(State, lambda: 1, lambda *_: None)
        found = []
        for folder in (tmp_path / "file", tmp_path / "folder"):
            (tmp_path / "file").touch()
            await JudgeTrials(HangEvidence(folder), failures).try_once()
            found.append([one.judge for one in failures.open_failures()])
        return found

    assert asyncio.run(scenario()) == [["collective-look", "hang-look"], []]
    assert list((tmp_path / "folder").iterdir()) == []


def test_the_judge_is_the_first_that_a_machine_without_memory_ends() -> None:
    program = (
        "import os; from everstep_controller.inspection import judge; "
        "judge.let_controller_first();"
        "print(open('/proc/self/oom_score_adj').read().strip(), os.nice(0))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    score, nice = map(int, found.stdout.split())
    assert score == 900
    assert nice >= min(os.nice(0) + 5, 19)


def test_what_the_judge_cannot_read_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    evidence = HangEvidence(tmp_path)
    good = evidence.write([NodeTold("n0", 0, 1, (_report(ProcessState.STOPPED),))])
    look = asyncio.run(judge_hang(good, 7))
    assert (look.at_ns, look.stuck, look.verdict.kind.value) == (7, (0,), "frozen")
    bad = tmp_path / "bad.jsonl.gz"
    bad.write_bytes(b"no gzip")
    with pytest.raises(JudgeError, match=r"the judge exited 1: .*BadGzipFile"):
        asyncio.run(judge_hang(bad, 7))
