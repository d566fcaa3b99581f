"""What the demo draws, on terminals of several sizes."""

import io
import json

import pytest
from rich.console import Console, RenderableType

from everstep_cli.commands.session import AdminSession
from everstep_cli.demo.cluster_view import ClusterView, observe
from everstep_cli.demo.display import LogDisplay, frame
from everstep_cli.demo.losses import compare
from everstep_cli.demo.proofs import DemoClaim
from everstep_cli.demo.report import DemoReport, sheets
from everstep_cli.main import run_command
from fakes.cli_admin import EVENTS, JOB, LEDGER, NOW_NS, FakeAdmin

VIEW = ClusterView(
    tuple(FakeAdmin().nodes().nodes), JOB, tuple(EVENTS * 10), FakeAdmin().snapshots("demo")
)
REPORT = DemoReport(
    duration_s=61.0,
    steps=3,
    claims=(
        DemoClaim(1, "node-2 restores its rank from its own vault", True, "rank 1 from node-2"),
        DemoClaim(4, "the job ends with success", False, "waiting_capacity"),
    ),
    ledger=LEDGER,
    losses=compare([(0, "a")], [(0, "a")], 1),
    trouble="the end of the job: not seen",
)


def drawn(*views: RenderableType, width: int = 80) -> list[str]:
    """Return the lines that the views take."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, highlight=False)
    for view in views:
        console.print(view)
    return screen.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 50)])
def test_a_frame_fits_the_screen(width: int, height: int) -> None:
    lines = drawn(frame(["start", *"abcdefghij", "1. kill"], VIEW, 9.8, height), width=width)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert any("now   1. kill" in line for line in lines)
    assert any("generation 2, step 130, 9.8 steps/s" in line for line in lines)


def test_a_frame_shows_what_a_fault_would_go_back_to() -> None:
    lines = [line.rstrip() for line in drawn(frame([], VIEW, 0.0, 50))]
    assert "a fault now: back to the state after step 129 (own memory, peer memory)" in lines
    before = ClusterView(VIEW.nodes, JOB, VIEW.events)
    assert "no snapshot yet" in [line.rstrip() for line in drawn(frame([], before, 0.0, 50))]


def test_a_node_that_takes_no_ranks_is_not_shown_as_a_spare() -> None:
    lines = drawn(frame([], VIEW, 0.0, 50))
    (spare,) = (line for line in lines if line.startswith("node-5"))
    assert "spare" in spare


def test_a_log_tells_every_event_once() -> None:
    screen = io.StringIO()
    log = LogDisplay(Console(file=screen, width=80))
    for _ in range(2):
        log.show(ClusterView(events=tuple(EVENTS)), 0.0)
    assert screen.getvalue().count("RankExited") == 1


def test_the_report_shows_costs_claims_and_what_did_not_happen() -> None:
    text = " ".join(" ".join(drawn(*sheets(REPORT), width=120)).split())
    assert "noticing 0.012, ending processes 0.180, imports 1.400" in text
    assert "yes node-2 restores its rank from its own vault" in text
    assert "NO the job ends with success" in text
    assert "Not all of it happened: the job ends with success" in text


def test_the_report_as_json_has_costs_in_seconds() -> None:
    document = json.loads(json.dumps(REPORT.to_dict()))
    (incident,) = document["incidents"]
    assert incident["cost_s"]["inc.init"] == 1.4
    assert incident["total_s"] == pytest.approx(1.592)
    assert document["passed"] is False
    assert document["losses"]["identical"] is True


def test_a_scene_without_a_job_is_one_before_it_was_started() -> None:
    view = observe(FakeAdmin(), "another")
    assert view.state == "absent"
    assert (view.step, view.generation, view.members) == (-1, 0, ())
    assert view.node("node-9").state == "absent"


@pytest.mark.parametrize("name", ["full", "x" * 90])
def test_a_folder_that_cannot_hold_a_demo_is_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("keep") / name
    if name == "full":
        folder.mkdir()
        (folder / "file").touch()
    session = AdminSession(FakeAdmin().connect, Console(file=io.StringIO()), lambda: NOW_NS)
    assert run_command(session, ["demo", "--keep", str(folder)]) == 2
    assert "--keep" in capsys.readouterr().err
