"""A launcher's own services: their configuration, and what is told of the ledger."""

import os
from pathlib import Path

import pytest

from everstep.launch.standalone import supervisor
from everstep.launch.standalone.own_services import OwnServices, ledger_line, ledger_words
from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import load
from everstep_controller.config import ControllerConfig

_SOCKETS = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 48822 /tmp/e one/c.sock
0000000000000000: 00000003 00000000 00000000 0001 03 48830
0000000000000000: 00000003 00000000 00000000 0001 03 48831 /tmp/e two/c.sock
"""


def test_both_daemons_take_their_configuration_and_need_no_port(tmp_path: Path) -> None:
    folder = tmp_path / 'a "\\ ä'
    folder.mkdir()
    supervisor.write_configuration(folder)
    agent = load(AgentConfig, folder / "agent.toml")
    controller = load(ControllerConfig, folder / "controller.toml")
    assert agent.controller == controller.listen == f"unix:{folder}/controller/controller.sock"
    assert (agent.metrics_address, controller.metrics, agent.jobs.bulk_port) == ("", "", 0)
    assert agent.jobs.runtime_folder / "agent.sock" == folder / supervisor.AGENT_SOCKET
    assert os.stat(folder / "controller").st_mode & 0o077 == 0


def test_nobody_listens_where_nothing_is_or_no_name_can_be(tmp_path: Path) -> None:
    assert not supervisor.answers(tmp_path / "none.sock")
    assert not supervisor.answers(tmp_path / ("x" * 200))


def test_a_connection_is_told_from_a_socket_that_listens(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_text(_SOCKETS)
    assert not supervisor.is_connected(Path("/tmp/e one/c.sock"), table)
    assert supervisor.is_connected(Path("/tmp/e two/c.sock"), table)


def test_sockets_fit_into_the_folder_wherever_temporary_files_go(tmp_path: Path) -> None:
    far = tmp_path / ("x" * 100)
    far.mkdir()
    folder = supervisor.make_folder(str(far))
    try:
        assert len(os.fsencode(folder / supervisor.CONTROLLER_SOCKET)) <= 107
    finally:
        folder.rmdir()


def ledger(steps: int, failures: int, **spent_s: float) -> str:
    """Return what is told of a ledger of 20 s."""
    categories = [
        {"name": name.replace("_", "."), "time_ns": int(time_s * 1e9)}
        for name, time_s in spent_s.items()
    ]
    return ledger_words(
        {
            "steps": steps,
            "wall_ns": 20_000_000_000,
            "ettr_time": 0.875,
            "failures": failures,
            "categories": categories,
        }
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (ledger(30, 0), "ETTR 87.5%: 17.5 of 20.0 s went into steps that count; nothing failed"),
        (ledger(30, 1, inc_env=2.5).partition("; ")[2], "1 failure cost 2.5 s"),
        (
            ledger(30, 2, inc_env=1.0, lost_recompute=0.5).partition("; ")[2],
            "2 failures cost 1.5 s",
        ),
        (
            ledger(
                30, 0, productive=17, slow_unattributed=0.5, init_proc=1.5, init_env=0.6, gap=0.4
            ),
            "ETTR 87.5%: 17.5 of 20.0 s went into steps that count; nothing failed, start 2.1 s,"
            " between steps 0.4 s",
        ),
        (
            ledger(0, 0),
            "no step was seen, so there is no ETTR: print 'step N', tell how your lines look"
            " (--progress-pattern 'batch ([0-9]+) done'), or call everstep.step(N)",
        ),
    ],
)
def test_the_ledger_is_told_in_a_line(told: str, words: str) -> None:
    assert told == words


def test_the_last_line_is_there_also_where_the_controller_is_not(tmp_path: Path) -> None:
    told = ledger_line(OwnServices(tmp_path), "j")
    assert told == "where its time went is not known: its controller did not tell"


def test_a_service_that_says_nothing_on_a_full_disk_is_told_for_that() -> None:
    told = supervisor.why_silent(Path("/tmp/e"), 4096)
    assert told == "no space is left in /tmp/e; TMPDIR names another place"
    assert supervisor.why_silent(Path("/tmp/e"), 1 << 30) == "it said nothing"
