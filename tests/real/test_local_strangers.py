"""A hostile user beside a controller and an agent without certificates: nobody, with no rights."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_proto.local.secret import read_secret
from fakes.controllers import ControllerProcess, environment, start_controller
from fakes.local_secret import SECRET_FILE
from fakes.ports import reserved_port
from fakes.waits import wait_until
from real.ordinary_user import User, import_path, missing, python_for_all

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

NOBODY = User(65534, 65534)
_MEMBER = 54340
_PROGRAM = Path(__file__).with_name("stranger.py")


def _line(user: User, *arguments: str) -> list[str]:
    return [*user.become, python_for_all(), *arguments]


_ENVIRON = {"PATH": "/usr/bin:/bin", "PYTHONPATH": import_path(), "HOME": "/nonexistent"}


def run(user: User, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with arguments as a user."""
    return subprocess.run(
        _line(user, *arguments),
        env=_ENVIRON,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def asked(address: str, *secret: str) -> dict[str, str]:
    """Return how every call of a stranger ended."""
    ended = run(NOBODY, str(_PROGRAM), "ask", address, *secret)
    assert ended.returncode == 0, ended.stderr
    ends: dict[str, str] = json.loads(ended.stdout)
    assert len(ends) > 20
    return ends


def everstep(user: User, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a user."""
    return run(user, "-m", "everstep_cli.main", *arguments)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a short folder that everybody may enter: what is in it protects itself."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_nobody_can_be_an_agent_or_an_operator_over_loopback(folder: Path) -> None:
    with start_controller(folder) as running:
        address = f"127.0.0.1:{running.port}"
        for secret in ((), ("0" * 64,)):
            ends = asked(address, *secret)
            assert {told.split(":")[0] for told in ends.values()} == {"UNAUTHENTICATED"}
            assert str(SECRET_FILE) in ends["Connect"]
        assert _metric(running, "everstep_controller_unauthenticated_calls_total") == 2 * len(ends)
        assert _metric(running, "everstep_controller_streams") == 0
        there = ("--controller", address, "--secret-file", str(SECRET_FILE))
        refused = everstep(NOBODY, "pause", "--reason", "x", *there)
        assert refused.returncode == 1
        assert "is open to root only" in refused.stderr
        assert everstep(User(0, 0), "nodes", *there).returncode == 0


def test_the_secret_is_read_by_nobody_and_is_in_no_metric(folder: Path) -> None:
    with start_controller(folder) as running:
        tried = run(NOBODY, "-c", f"open({str(SECRET_FILE)!r}).read()")
        assert "PermissionError" in tried.stderr
        for path in (folder / "journal.sqlite", SECRET_FILE):
            assert path.stat().st_mode & 0o007 == 0 or path.parent.stat().st_mode & 0o001 == 0
        assert read_secret(SECRET_FILE).value not in _metrics(running)


def test_a_unix_socket_is_closed_to_all_but_owner_and_group_of_its_folder(folder: Path) -> None:
    (folder / "c").mkdir(mode=0o750)
    (folder / "c").chmod(0o750)
    os.chown(folder / "c", 0, _MEMBER)
    address = f"unix:{folder}/c/s"
    with socket_controller(folder, address):
        assert {told.split(":")[0] for told in asked(address).values()} == {"UNAVAILABLE"}
        refused = everstep(NOBODY, "nodes", "--controller", address)
        assert refused.returncode == 1
        assert f"open to root and the group gid {_MEMBER} only" in refused.stderr
        assert f"usermod -aG gid {_MEMBER}" in refused.stderr
        allowed = everstep(User(54341, _MEMBER), "nodes", "--controller", address)
        assert allowed.returncode == 0, allowed.stderr


def test_a_controller_does_not_listen_where_everybody_may_enter(folder: Path) -> None:
    for address, word in (
        (f"unix:{folder}/s", f"'chmod o= {folder}' ends"),
        ("unix:/tmp/everstep-test.sock", "every user may enter /tmp"),
    ):
        said = _refused_start(folder, address)
        assert word in said
        assert "would be an operator" in said


def test_a_controller_does_not_take_the_socket_of_another(folder: Path) -> None:
    (folder / "c").mkdir(mode=0o700)
    address = f"unix:{folder}/c/s"
    (folder / "other").mkdir()
    with socket_controller(folder, address):
        said = _refused_start(folder / "other", address)
        assert "another controller listens" in said
    # Killed, it leaves its socket behind, which is in nobody's way.
    assert (folder / "c" / "s").exists()
    with socket_controller(folder, address):
        assert everstep(User(0, 0), "nodes", "--controller", address).returncode == 0


def test_a_false_controller_on_the_port_is_told_nothing_and_orders_nothing(folder: Path) -> None:
    with reserved_port() as port, _false_controller(port) as told:
        address = f"127.0.0.1:{port}"
        with agent(folder, f'controller = "{address}"\nsecret_file = "{SECRET_FILE}"\n') as log:
            wait_until(lambda: "belongs to nobody" in log.read_text())
            refused = everstep(
                User(0, 0), "nodes", "--controller", address, "--secret-file", str(SECRET_FILE)
            )
            assert refused.returncode == 1
            assert "belongs to nobody, and not to the owner of" in refused.stderr
            assert "ss -ltnp" in refused.stderr
            heard = told()
            assert {path for path, _, _ in heard} == {"/everstep.local.v1.Probe/Probe"}
            assert {body for _, _, body in heard} == {""}
            assert read_secret(SECRET_FILE).value not in json.dumps(heard)
            assert "term 99" not in log.read_text()


def test_the_controller_is_found_again_once_the_false_one_is_gone(folder: Path) -> None:
    with reserved_port() as port:
        keys = f'controller = "127.0.0.1:{port}"\nsecret_file = "{SECRET_FILE}"\n'
        with agent(folder, keys) as log:
            with _false_controller(port):
                wait_until(lambda: "belongs to nobody" in log.read_text())
            with start_controller(folder, port) as running:
                wait_until(lambda: _metric(running, "everstep_controller_streams") == 1)


def test_a_socket_in_a_folder_of_a_stranger_is_not_connected_to(folder: Path) -> None:
    folder.chmod(0o1777)
    code = f"import os, socket; os.mkdir('{folder}/c', 0o755); s = socket.socket(socket.AF_UNIX)\n"
    code += f"s.bind('{folder}/c/s'); os.chmod('{folder}/c/s', 0o777); s.listen()\n"
    code += "print(s.accept())"
    with subprocess.Popen(
        _line(NOBODY, "-c", code), env=_ENVIRON, stdout=subprocess.PIPE, text=True
    ) as stranger:
        wait_until((folder / "c" / "s").exists)
        refused = everstep(User(0, 0), "nodes", "--controller", f"unix:{folder}/c/s")
        assert refused.returncode == 1
        assert f"{folder}/c belongs to nobody" in refused.stderr
        with agent(folder, f'controller = "unix:{folder}/c/s"\n') as log:
            wait_until(lambda: f"{folder}/c belongs to nobody" in log.read_text())
        assert stranger.poll() is None
        stranger.kill()
        assert stranger.communicate()[0] == ""


def test_a_secret_that_others_may_read_is_used_by_neither_side(folder: Path) -> None:
    open_secret = folder / "secret"
    open_secret.write_text("0" * 64)
    open_secret.chmod(0o644)
    line = f'secret_file = "{open_secret}"\n'
    assert "has the mode 0644" in _refused_start(folder, "127.0.0.1:0", line)
    with start_controller(folder) as running:
        there = ("--controller", f"127.0.0.1:{running.port}", "--secret-file", str(open_secret))
        refused = everstep(User(0, 0), "nodes", *there)
        assert refused.returncode == 1
        assert "has the mode 0644" in refused.stderr


@contextmanager
def socket_controller(folder: Path, address: str) -> Iterator[None]:
    """Run a controller on a Unix socket until it is killed."""
    log = folder / "controller.log"
    with log.open("w") as sink:
        process = subprocess.Popen(_controller(folder, address), env=environment(), stderr=sink)
    try:
        wait_until(
            lambda: f"listening at {address}" in log.read_text() or process.poll() is not None
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


def _controller(folder: Path, address: str, more: str = "") -> list[str]:
    file = folder / "controller.toml"
    file.write_text(
        f'listen = "{address}"\nmetrics = ""\njournal = "{folder}/j/journal.sqlite"\n'
        f'log_style = "text"\n{more}'
    )
    return [sys.executable, "-m", "everstep_controller.main", "--config", str(file)]


def _refused_start(folder: Path, address: str, more: str = "") -> str:
    ended = subprocess.run(
        _controller(folder, address, more),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


@contextmanager
def agent(folder: Path, keys: str) -> Iterator[Path]:
    """Run an agent; yield its log."""
    (folder / "kmsg").touch()
    config, log = folder / "agent.toml", folder / "agent.log"
    config.write_text(
        f'node = "node-1"\n{keys}data_folder = "{folder}/data"\nkernel_log = "{folder}/kmsg"\n'
        'metrics_address = ""\nliveness_address = "127.0.0.1:0"\nlog_style = "text"\n'
        "reconnect_backoff_max_s = 0.2\n"
        f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = 0\n'
    )
    command = [sys.executable, "-m", "everstep_agent.main", "--config", str(config)]
    with log.open("w") as sink:
        process = subprocess.Popen(command, env=environment(), stderr=sink)
    try:
        yield log
    finally:
        process.kill()
        process.wait()


@contextmanager
def _false_controller(port: int) -> Iterator[Callable[[], list[list[str]]]]:
    """Have nobody listen on a port; yield what returns all that he was told so far."""
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen(
            _line(NOBODY, str(_PROGRAM), "serve", str(port)), env=_ENVIRON, stdout=file, cwd="/"
        )

        def heard() -> list[list[str]]:
            text = os.pread(file.fileno(), 1 << 20, 0).decode()
            return [json.loads(line) for line in text.splitlines()]

        try:
            wait_until(lambda: bool(heard()))
            yield lambda: heard()[1:]
        finally:
            process.kill()
            process.wait()


def _metrics(running: ControllerProcess) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def _metric(running: ControllerProcess, name: str) -> float:
    (line,) = [line for line in _metrics(running).splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])
