"""From how ranks died to what is done, with a real controller, real agents and real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.client.admin import AdminError, list_nodes
from integration.real_fleet import RealFleet, running_fleet

pytestmark = pytest.mark.timeout(300)
_SCRIPT = Path(__file__).with_name("failing_script.py")
_BAD_BATCH = "ValueError: bad batch 12"


@pytest.fixture(scope="module")
def fleet() -> Iterator[RealFleet]:
    """Nodes that are well after each job: what dies of its script is no fault of theirs."""
    with running_fleet("node-1", "node-2") as fleet:
        yield fleet
        assert fleet.replay().returncode == 0


def _run(fleet: RealFleet, mode: str) -> None:
    """Run a job of its own to its end."""
    fleet.job_name = mode
    fleet.launch_script([str(_SCRIPT), mode])
    fleet.until("the end", 90, lambda: _ended(fleet))


def _ended(fleet: RealFleet) -> bool:
    exits = [child.process.poll() for child in fleet.launchers.values()]
    return fleet.job().state == "ended" and all(code is not None for code in exits)


def _verdicts(fleet: RealFleet) -> list[str]:
    try:
        return [incident.verdict for incident in fleet.sheet(fleet.job_name).incidents]
    except AdminError:
        return []


def test_a_script_that_fails_twice_at_the_same_step_is_stopped_and_its_exception_is_shown(
    fleet: RealFleet,
) -> None:
    _run(fleet, "exception")
    assert fleet.sheet(fleet.job_name).restarts == 1
    assert _BAD_BATCH in fleet.job().reason
    assert "the script or its data is at fault" in fleet.job().reason
    assert [_BAD_BATCH in verdict for verdict in _verdicts(fleet)] == [True]
    assert {child.process.poll() for child in fleet.launchers.values()} == {1}
    for child in fleet.launchers.values():
        assert "the script or its data is at fault" in child.log.read_text(encoding="utf-8")
    shown = " ".join(fleet.everstep("job", fleet.job_name).stdout.split())
    assert _BAD_BATCH in shown


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("nan", "the loss is nan"),
        ("device-memory", "CUDA out of memory"),
        ("goes-back", "going back does not help"),
    ],
)
def test_what_the_program_does_twice_at_the_same_step_ends_its_job(
    fleet: RealFleet, mode: str, words: str
) -> None:
    _run(fleet, mode)
    assert fleet.sheet(fleet.job_name).restarts == 1
    assert words in fleet.job().reason
    assert {child.process.poll() for child in fleet.launchers.values()} == {1}
    assert {node.state for node in list_nodes(fleet.admin).nodes} == {"healthy"}


def test_a_script_that_exits_twice_before_its_first_step_is_stopped_with_its_last_words(
    fleet: RealFleet,
) -> None:
    _run(fleet, "refuses")
    assert fleet.sheet(fleet.job_name).restarts == 1
    reason = fleet.job().reason
    assert 'exited 1 ("no configuration for this cluster"), the same as generation 1' in reason
    assert "the script ends itself" in reason
    assert {child.process.poll() for child in fleet.launchers.values()} == {1}
    assert {node.state for node in list_nodes(fleet.admin).nodes} == {"healthy"}


def test_data_that_makes_a_loss_nan_is_left_out_after_a_rollback(
    fleet: RealFleet,
) -> None:
    _run(fleet, "bad-data")
    trained = fleet.losses()
    assert sorted(trained) == list(range(20))
    batches = [int(trained[step].split(":")[0]) for step in range(20)]
    assert batches == [*range(12), *range(13, 21)]
    assert float(trained[19].split(":")[1]) == sum(batches)
    (incident,) = fleet.sheet(fleet.job_name).incidents
    assert incident.cause == "rollback"
    # The ranks do not wait for each other: the other one may have been behind.
    assert incident.step_restored <= 11
    assert "the loss is nan" in incident.message
