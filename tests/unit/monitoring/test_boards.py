"""The boards of Grafana are as their script writes them, and ask for series that there are."""

import re
from pathlib import Path

import pytest

from boards.board import Board
from boards.files import BOARDS, FOLDER, files
from boards.panels import Panel
from integration.test_agent_metrics import metrics_page
from unit.docs.test_prometheus_rules import series_of_controller

_SERIES = re.compile(r"\beverstep[_:][a-z_0-9:]+")
_RECORDED = FOLDER.parents[1] / "prometheus" / "recording-rules.yml"
_PANELS = [
    pytest.param(panel, id=f"{board.uid}-{panel.title}")
    for board in BOARDS
    for panel in board.panels()
]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    page = metrics_page(tmp_path_factory.mktemp("agent") / "sys").decode()
    of_agent = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    recorded = set(re.findall(r"record: (\S+)", _RECORDED.read_text(encoding="utf-8")))
    return of_agent | series_of_controller() | recorded


@pytest.mark.parametrize(("path", "text"), [pytest.param(*one, id=one[0].name) for one in files()])
def test_the_files_are_as_the_script_writes_them(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run `make reference`"


@pytest.mark.parametrize("panel", _PANELS)
def test_a_panel_asks_for_series_that_there_are(panel: Panel, known: set[str]) -> None:
    named = {name for query in panel.queries for name in _SERIES.findall(query.expr)}
    assert named
    assert named - known == set()


@pytest.mark.parametrize("panel", _PANELS)
def test_a_panel_says_what_it_shows(panel: Panel) -> None:
    assert panel.text.endswith(".")
    assert len({query.expr for query in panel.queries}) == len(panel.queries)


def test_the_rules_record_from_series_that_there_are(known: set[str]) -> None:
    text = _RECORDED.read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    assert set(_SERIES.findall("\n".join(lines))) - known == set()


@pytest.mark.parametrize("board", BOARDS, ids=lambda one: one.uid)
def test_what_a_board_leads_to_is_a_board(board: Board) -> None:
    text = next(text for path, text in files() if path.stem == board.uid)
    led = set(re.findall(r"/d/(everstep-[a-z]+)", text))
    assert led <= {one.uid for one in BOARDS}
    assert led
