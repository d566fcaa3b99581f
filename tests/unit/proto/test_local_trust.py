"""What a process trusts of its machine where no certificates say who is who."""

import os
import stat
from pathlib import Path

import pytest

from everstep_proto.local.address import address_problem, default_folder, socket_path
from everstep_proto.local.client import LocalAccess, NoControllerError
from everstep_proto.local.connections import owners_of_far_ends
from everstep_proto.local.ownership import UntrustedError, trusted_owner
from everstep_proto.local.secret import SecretFile, make_secret, read_secret

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
MALLORY = 54399


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("unix:/run/x/s", Path("/run/x/s")),
        ("unix:///run/x/s", Path("/run/x/s")),
        ("127.0.0.1:1", None),
        ("host:1", None),
    ],
)
def test_an_address_is_a_socket_or_a_host_and_port(address: str, path: Path | None) -> None:
    assert socket_path(address) == path
    assert address_problem("listen", address) == ""


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("here", "unix:/path or host:port"),
        ("127.0.0.1:x", "unix:/path or host:port"),
        ("unix:relative/s", "absolute path"),
        ("unix:", "absolute path"),
        ("unix:/" + "x" * 107, "at most 107 bytes"),
    ],
)
def test_what_is_no_address_is_told_with_what_was_expected(address: str, word: str) -> None:
    problem = address_problem("listen", address)
    assert problem.startswith("listen: ")
    assert word in problem


def test_the_folder_of_a_service_comes_before_that_of_a_user(tmp_path: Path) -> None:
    system, user = tmp_path / "run", {"XDG_STATE_HOME": "/home/u/state"}
    assert default_folder(system, user, uid=7) == Path("/home/u/state/everstep-controller")
    assert default_folder(system, user, uid=0) == system
    system.mkdir()
    assert default_folder(system, user, uid=7) == system


def test_a_secret_is_made_once_and_only_its_owner_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "secret"
    make_secret(path)
    first = read_secret(path)
    make_secret(path)
    assert read_secret(path) == first
    assert len(bytes.fromhex(first.value)) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["secret"]


def test_the_group_of_the_folder_may_read_a_secret_in_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    make_secret(tmp_path / "secret")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o640


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o660, 0o666])
def test_a_secret_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    make_secret(path)
    path.chmod(mode)
    with pytest.raises(UntrustedError, match=f"has the mode {mode:04o}"):
        read_secret(path)


def test_a_link_a_pipe_and_half_a_secret_are_refused(tmp_path: Path) -> None:
    make_secret(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "half").write_text("abc")
    (tmp_path / "half").chmod(0o600)
    for name, word in (("link", "cannot be read"), ("pipe", "not a file"), ("half", "64 hex")):
        with pytest.raises(UntrustedError, match=word):
            read_secret(tmp_path / name)


def test_a_secret_that_is_not_there_is_told_with_who_makes_it(tmp_path: Path) -> None:
    with pytest.raises(UntrustedError, match="the controller makes it when it starts"):
        read_secret(tmp_path / "secret")


@needs_root
def test_a_secret_of_somebody_else_is_refused(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    os.chown(tmp_path / "secret", MALLORY, MALLORY)
    with pytest.raises(UntrustedError, match=f"belongs to uid {MALLORY}"):
        read_secret(tmp_path / "secret")


def test_only_the_newest_secret_counts_once_the_file_is_replaced(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    old = read_secret(tmp_path / "secret").value
    compared = SecretFile(tmp_path / "secret")
    assert compared.matches(old)
    make_secret(tmp_path / "next")
    (tmp_path / "next").rename(tmp_path / "secret")
    assert not compared.matches(old)
    assert compared.matches(read_secret(tmp_path / "secret").value)


def test_a_secret_that_is_gone_or_too_open_leaves_the_one_before(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    old = read_secret(tmp_path / "secret").value
    compared = SecretFile(tmp_path / "secret")
    (tmp_path / "secret").write_text("0" * 64)
    (tmp_path / "secret").chmod(0o644)
    assert compared.matches(old)
    assert not compared.matches("0" * 64)
    (tmp_path / "secret").unlink()
    assert compared.matches(old)


@pytest.mark.parametrize("given", ["", "0" * 64, "é", b"\xff\x00"])
def test_whatever_else_comes_is_not_the_secret(tmp_path: Path, given: str | bytes) -> None:
    make_secret(tmp_path / "secret")
    assert not SecretFile(tmp_path / "secret").matches(given)


@needs_root
def test_a_folder_that_a_stranger_made_is_refused_and_one_that_root_gave_him_is_his(
    tmp_path: Path,
) -> None:
    shared, given = tmp_path / "shared", tmp_path / "given"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "mine").mkdir(mode=0o700)
    os.chown(shared / "mine", MALLORY, MALLORY)
    with pytest.raises(UntrustedError, match=f"mine belongs to uid {MALLORY}"):
        trusted_owner(shared / "mine")
    given.mkdir(mode=0o750)
    os.chown(given, MALLORY, MALLORY)
    assert trusted_owner(given) == MALLORY
    os.chown(given, 65534, 65534)  # in a user namespace, that is everybody
    with pytest.raises(UntrustedError, match="given belongs to nobody"):
        trusted_owner(given)


@needs_root
def test_a_link_that_a_stranger_made_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    shared, real = tmp_path / "shared", tmp_path / "real"
    shared.mkdir()
    shared.chmod(0o1777)
    real.mkdir()
    os.symlink(real, shared / "link")
    os.lchown(shared / "link", MALLORY, MALLORY)
    with pytest.raises(UntrustedError, match=f"link belongs to uid {MALLORY}"):
        trusted_owner(shared / "link")


def test_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UntrustedError, match=r"every user may write .*open"):
        trusted_owner(tmp_path / "open" / "x")


def test_a_socket_that_is_not_there_is_no_controller(tmp_path: Path) -> None:
    with pytest.raises(NoControllerError, match="no controller listens at"):
        LocalAccess(address=f"unix:{tmp_path}/s").check_socket()
    (tmp_path / "s").touch()
    with pytest.raises(UntrustedError, match="not a socket"):
        LocalAccess(address=f"unix:{tmp_path}/s").check_socket()


_HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)


def _row(local: str, remote: str, state: str, uid: int, inode: int) -> str:
    return (
        f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode}\n"
    )


def _proc(folder: Path, v4: str, v6: str = "") -> Path:
    (folder / "self" / "net").mkdir(parents=True)
    (folder / "self" / "net" / "tcp").write_text(_HEAD + v4)
    (folder / "self" / "net" / "tcp6").write_text(_HEAD + v6)
    return folder


_OURS, _PORT = "0100007F:96BE", "0100007F:1D09"


def test_the_owner_of_the_far_end_of_a_connection_is_told(tmp_path: Path) -> None:
    me = os.geteuid()
    rows = _row(_OURS, _PORT, "01", me, 7) + _row(_PORT, _OURS, "01", MALLORY, 8)
    assert owners_of_far_ends("127.0.0.1", 7433, _proc(tmp_path, rows)) == {MALLORY}


def test_an_end_in_the_table_of_ipv6_is_the_same_address(tmp_path: Path) -> None:
    mapped = "0000000000000000FFFF0000"
    theirs = _row(f"{mapped}{_PORT}", f"{mapped}{_OURS}", "01", MALLORY, 8)
    proc = _proc(tmp_path, _row(_OURS, _PORT, "01", os.geteuid(), 7), theirs)
    assert owners_of_far_ends("127.0.0.1", 7433, proc) == {MALLORY}
    assert owners_of_far_ends("localhost", 7433, proc) == {MALLORY}
    assert owners_of_far_ends("127.0.0.2", 7433, proc) == set()


def test_who_only_listens_or_has_not_accepted_yet_is_nobody(tmp_path: Path) -> None:
    me = os.geteuid()
    rows = _row(_PORT, "00000000:0000", "0A", MALLORY, 5)
    rows += _row(_OURS, _PORT, "01", me, 7) + _row(_PORT, _OURS, "01", 0, 0)
    assert owners_of_far_ends("127.0.0.1", 7433, _proc(tmp_path, rows)) == set()


def test_connections_of_other_users_are_their_own_affair(tmp_path: Path) -> None:
    rows = _row(_OURS, _PORT, "01", MALLORY, 7) + _row(_PORT, _OURS, "01", MALLORY, 8)
    assert owners_of_far_ends("127.0.0.1", 7433, _proc(tmp_path, rows)) == set()
