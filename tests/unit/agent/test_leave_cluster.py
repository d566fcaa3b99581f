"""An agent that leaves its cluster is a new one to every controller; its node's past stays."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from everstep_agent.commands.leave_cluster import main
from everstep_agent.jobs.state.store import RuntimeFolder
from everstep_agent.persistence.agent_database import (
    PendingChanges,
    Remembered,
    load,
    open_or_replace,
    write,
)
from everstep_agent.persistence.data_folder import agent_database, only_agent_of

# Neither root nor nobody, to whom user namespaces map strangers.
_AGENT = 65533
_CALL = """\
import sys
from everstep_agent.commands.leave_cluster import main
sys.exit(main(sys.argv[1:]))
"""
NOTES = {
    "cluster": "c1",
    "ended_jobs": "[]",
    "highest_term": "9",
    "acknowledged": "4",
    "findings": "[]",
}


def _configure(folder: Path) -> Path:
    file = folder / "agent.toml"
    file.write_text(
        f'data_folder = "{folder}/data"\n[jobs]\nruntime_folder = "{folder}/run"\n', "utf-8"
    )
    return file


def _fill(folder: Path) -> str:
    """Have an agent have lived here; return its outbox."""
    with closing(open_or_replace(agent_database(folder / "data"))) as connection:
        known = load(connection)
        write(connection, PendingChanges(records={1: b"a record"}, notes=dict(NOTES)))
    with closing(RuntimeFolder.open(folder / "run")) as runtime:
        Path(runtime.database()).write_bytes(b"jobs")
    return known.outbox


def _load(folder: Path) -> Remembered:
    with closing(sqlite3.connect(agent_database(folder / "data"), isolation_level=None)) as known:
        return load(known)


def test_it_forgets_cluster_terms_records_and_jobs_and_keeps_what_it_knows_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outbox = _fill(tmp_path)
    assert main(["--config", str(_configure(tmp_path))]) == 0
    assert capsys.readouterr().out.startswith("left cluster c1; start the agent")
    left = _load(tmp_path)
    assert left.outbox != outbox
    assert left.records == ()
    assert {name: left.notes.get(name) for name in NOTES} == {
        **dict.fromkeys(NOTES),
        "findings": "[]",
    }
    assert not (tmp_path / "run" / "jobs.sqlite").exists()


def test_it_does_nothing_while_the_agent_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(tmp_path)
    with only_agent_of(tmp_path / "data"):
        assert main(["--config", str(_configure(tmp_path))]) == 1
    assert "systemctl stop everstep-agent; nothing was forgotten" in capsys.readouterr().err
    assert _load(tmp_path).notes["cluster"] == "c1"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_root_leaves_for_the_agent_s_user(tmp_path: Path) -> None:
    _fill(tmp_path)
    for part in (tmp_path, *tmp_path.rglob("*")):
        os.chown(part, _AGENT, _AGENT)
    tmp_path.chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="es") as name:
        # Where the agent's user may go: pytest's own folders are for root only.
        here = Path(name)
        here.chmod(0o755)
        moved = Path(shutil.move(str(tmp_path), here / "node"))
        line = [sys.executable, "-c", _CALL, "--config", str(_configure(moved))]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        ended = subprocess.run(
            line, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        assert "cluster" not in _load(moved).notes
        found = {part.stat().st_uid for part in (moved / "data").rglob("*")}
        assert found == {_AGENT}


def test_a_node_that_never_had_an_agent_has_nothing_to_forget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(_configure(tmp_path))]) == 0
    assert "it belonged to no cluster yet" in capsys.readouterr().out
    assert not (tmp_path / "data").exists()
