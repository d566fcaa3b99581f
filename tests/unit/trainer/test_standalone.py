"""A launcher's own services: their configuration, and what is told of the ledger."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep.launch.standalone import supervisor
from everstep.launch.standalone.own_services import OwnServices, ledger_line, ledger_words
from everstep.launch.standalone.supervisor import Sight, StartError, StartPatience
from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import load
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.accounting.categories import Category, Group

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


_LISTEN, _CONNECT = "its controller to listen", "its agent to connect to the controller"


def _waited(sight: Callable[[float], Sight], until_s: int) -> list[tuple[int, str]]:
    """Return what people are told of a start, and when, second by second."""
    patience = StartPatience(0.0, sight(0))
    told: list[tuple[int, str]] = []
    for now_s in range(1, until_s + 1):
        if patience.is_due(now_s):
            try:
                words = patience.judge(now_s, sight(now_s))
            except StartError as error:
                return [*told, (now_s, f"failed: {error}")]
            if words:
                told.append((now_s, words))
    return told


def test_a_start_that_takes_long_is_told_after_ten_seconds_and_then_rarely() -> None:
    told = _waited(lambda now_s: Sight(_LISTEN, busy_s=0.5 * now_s, printed_bytes=0), 140)
    assert [at_s for at_s, _ in told] == [10, 70, 130]
    assert told[0][1] == f"starting takes long: for 10 s now it waits for {_LISTEN}"


def test_a_start_of_which_nothing_goes_on_is_given_up_with_what_it_waited_for() -> None:
    # Both are up, idle, and do not find each other.
    told = _waited(lambda now_s: Sight(_CONNECT, busy_s=0.02 * now_s, printed_bytes=80), 600)
    words = f"waited 60 s for {_CONNECT}, and nothing of them has gone on for 60 s"
    assert told[-1] == (60, f"failed: {words}")


@pytest.mark.parametrize(
    "sight",
    [
        lambda now_s: Sight(_LISTEN, 0.0, printed_bytes=int(now_s) // 50),
        lambda now_s: Sight(_LISTEN if now_s < 50 else _CONNECT, 0.0, 0),
        lambda now_s: Sight(_LISTEN, busy_s=0.25 * now_s, printed_bytes=0),
    ],
    ids=["prints", "comes further", "works"],
)
def test_a_start_of_which_something_goes_on_is_waited_for(sight: Callable[[float], Sight]) -> None:
    assert all("failed" not in words for _, words in _waited(sight, 100))


def test_no_start_is_waited_for_without_end() -> None:
    at_s, words = _waited(lambda now_s: Sight(_LISTEN, busy_s=now_s, printed_bytes=0), 3600)[-1]
    assert (at_s, words) == (1800, f"failed: waited 1800 s for {_LISTEN}")


def test_what_a_start_waits_for_is_read_off_its_sockets(tmp_path: Path) -> None:
    table = tmp_path / "unix"
    table.write_text("Num RefCount Protocol Flags Type St Inode Path\n")
    assert supervisor.missing(tmp_path, table) == _LISTEN
    controller = tmp_path / supervisor.CONTROLLER_SOCKET
    table.write_text(f"0: 00000002 00000000 00010000 0001 01 1 {controller}\n")
    assert supervisor.missing(tmp_path, table) == "its agent to listen"
    agent = tmp_path / supervisor.AGENT_SOCKET
    agent.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(agent))
        server.listen()
        assert supervisor.missing(tmp_path, table) == _CONNECT
        with table.open("a") as more:
            more.write(f"0: 00000003 00000000 00000000 0001 03 2 {controller}\n")
        assert supervisor.missing(tmp_path, table) == ""


def test_work_is_counted_of_all_processes_of_a_group_and_of_no_others(tmp_path: Path) -> None:
    for pid, group, ran_ns in ((7, 7, 10**9), (8, 7, 2 * 10**9), (9, 9, 5 * 10**9)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a ) b) S 1 {group} {group} 0 -1\n")
        (tmp_path / f"{pid}/schedstat").write_text(f"{ran_ns} 500000000 12\n")
    (tmp_path / "6").mkdir()
    (tmp_path / "6/stat").write_text("")  # it has just ended
    assert supervisor.busy_s({7}, tmp_path) == 4.0


def test_of_a_start_that_failed_the_logs_are_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    (tmp_path / "controller/journal.sqlite").write_text("x")
    for name, text in (("agent.log", "it failed"), ("controller.log", ""), ("agent.toml", "a = 1")):
        (tmp_path / name).write_text(text)
    assert supervisor.keep_logs(tmp_path) == [tmp_path / "agent.log"]
    assert list(tmp_path.iterdir()) == [tmp_path / "agent.log"]


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
            " after the last step 0.4 s",
        ),
        (
            ledger(30, 0, lost_recompute=5.0, lost_inflight=0.5, planned=1.0).partition("; ")[2],
            "nothing failed, lost steps 5.5 s, planned work 1.0 s",
        ),
        (
            ledger(30, 1, lost_recompute=5.0, inc_env=1.0).partition("; ")[2],
            "1 failure cost 6.0 s",
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


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("category", Category)
def test_no_category_is_left_out_of_the_line(category: Category, failures: int) -> None:
    told = ledger(30, failures, **{category.value: 2.5})
    counted = category.group in (Group.PRODUCTIVE, Group.SLOW)
    assert ("2.5 s" in told.partition("; ")[2]) is not counted


def test_the_last_line_is_there_also_where_the_controller_is_not(tmp_path: Path) -> None:
    told = ledger_line(OwnServices(tmp_path), "j")
    assert told == "where its time went is not known: its controller did not tell"


def test_a_service_that_says_nothing_on_a_full_disk_is_told_for_that() -> None:
    told = supervisor.why_silent(Path("/tmp/e"), 4096)
    assert told == "no space is left in /tmp/e; TMPDIR names another place"
    assert supervisor.why_silent(Path("/tmp/e"), 1 << 30) == "it said nothing"
