"""Ranks that SIGKILL does not end are a finding until they are gone."""

from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.host.unkillable_ranks import HELD, STUCK, HeldRank, judge_held
from everstep_agent.ipc.processes import kernel_wait
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy

KEY = FindingKey("job/llama", HELD)


def test_held_ranks_are_named() -> None:
    held = [HeldRank(pid) for pid in range(70, 90)]
    (judged,) = judge_held({"llama": held, "other": []}, [])
    assert isinstance(judged, Faulty)
    assert judged.key == KEY
    assert "processes 70, 71, 72, 73, 74, 75, 76, 77 …" in judged.finding.evidence


def test_it_is_over_when_they_are_gone() -> None:
    assert list(judge_held({"llama": []}, [KEY])) == [Healthy(KEY, "the processes are gone")]
    assert list(judge_held({"llama": []}, [])) == []


def test_the_condition_is_listed() -> None:
    assert HELD in CONDITIONS
    assert STUCK.condition in CONDITIONS


def _of_node(*held: HeldRank) -> Finding | None:
    judged = {one.key: one for one in judge_held({"llama": held}, [STUCK])}
    told = judged[STUCK]
    return told.finding if isinstance(told, Faulty) else None


@pytest.mark.parametrize("where", ["nv_dma_map", "uvm_lock", "mlx5_cmd_exec", "os_acquire_mutex"])
def test_a_node_whose_driver_does_not_let_go_of_a_killed_rank_needs_a_reboot(where: str) -> None:
    found = _of_node(HeldRank(70, ""), HeldRank(71, where))
    assert found is not None
    assert (found.severity, found.mode) == (Severity.FATAL, Mode.ENFORCE)
    assert found.suggested_action is SuggestedAction.REBOOT_NODE
    assert f"71 in {where}" in found.evidence


def test_where_the_kernel_does_not_say_in_what_it_waits_only_people_are_told() -> None:
    found = _of_node(HeldRank(70, ""))
    assert found is not None
    assert (found.severity, found.mode) == (Severity.FATAL, Mode.ADVISE)
    assert "70 in an unknown place" in found.evidence


@pytest.mark.parametrize("where", [None, "request_wait_answer", "rpc_wait_bit_killable"])
def test_a_rank_that_frees_memory_or_waits_for_a_file_server_is_no_fault_of_the_node(
    where: str | None,
) -> None:
    assert _of_node(HeldRank(70, where)) is None


def _thread(proc: Path, number: int, state: str, wchan: str) -> None:
    folder = proc / "70" / "task" / str(number)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{number} (a) D) {state} 1 70 70")
    (folder / "wchan").write_text(wchan)


def test_a_process_waits_in_the_kernel_where_one_of_its_threads_does(tmp_path: Path) -> None:
    assert kernel_wait(70, tmp_path) is None
    _thread(tmp_path, 70, "Z", "0")
    assert kernel_wait(70, tmp_path) is None
    _thread(tmp_path, 71, "D", "nv_dma_map")
    assert kernel_wait(70, tmp_path) == "nv_dma_map"
    (tmp_path / "70" / "task" / "71" / "wchan").write_text("0")
    assert kernel_wait(70, tmp_path) == ""
