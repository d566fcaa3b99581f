"""Doors of the page: what may be listened on, by which names, and whom a connection names."""

from dataclasses import replace

import pytest

from everstep_cli.page.doors import NOBODY, Doors, host_name, shown_host
from everstep_proto.tls import Role

_FILE = "page.pem"
_TLS = Doors(listen="0.0.0.0:7436", certificate=_FILE, key=_FILE, names=("fleet.example",))
_PROXIED = Doors(
    listen="unix:/run/page.sock",
    names=("fleet.example",),
    user_header="X-Remote-User",
    proxy_user="www-data",
    operators=frozenset({"ann"}),
)
_SHOWN = {
    "subject": ((("commonName", "ann"),), (("organizationalUnitName", "operator"),)),
    "notAfter": "Jan  1 00:00:00 2030 GMT",
}


@pytest.mark.parametrize(
    "doors",
    [
        Doors(listen="127.0.0.1:7436"),
        Doors(listen="[::1]:80"),
        _TLS,
        _PROXIED,
        replace(_TLS, client_ca=_FILE, user_header="X-User", proxy_certificate="nginx"),
    ],
)
def test_what_is_safe_may_be_listened_on(doors: Doors) -> None:
    assert doors.problem() == ""


@pytest.mark.parametrize(
    ("doors", "told"),
    [
        (Doors(listen="0.0.0.0:7436"), "needs TLS: --certificate and --key"),
        (Doors(listen="10.0.0.1:1"), "ssh -L"),
        (replace(_TLS, names=()), "--name is missing"),
        (replace(_TLS, key=""), "--certificate and --key go together"),
        (Doors(listen="127.0.0.1:1", client_ca=_FILE), "--client-ca"),
        (Doors(listen="unix:/run/page.sock"), "add --proxy-user and --user-header"),
        (replace(_PROXIED, proxy_user=""), "--proxy-user is missing"),
        (replace(_PROXIED, names=()), "--name is missing"),
        (replace(_PROXIED, user_header=""), "--user-header is missing"),
        (replace(_PROXIED, certificate=_FILE, key=_FILE), "a Unix socket has no TLS"),
        (replace(_TLS, user_header="X-User"), "everybody can send a header"),
        (Doors(listen="127.0.0.1:1", user_header="X-User"), "everybody can send a header"),
        (replace(_TLS, user_header="X-User", proxy_user="www-data"), "for a Unix socket"),
    ],
)
def test_what_is_not_says_which_option_is_wrong(doors: Doors, told: str) -> None:
    assert told in doors.problem()


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:7436", True),
        ("LOCALHOST:80", True),
        ("[::1]:7436", True),
        ("mine.localhost:7436", True),
        ("", False),
        ("evil.example", False),
        ("evil.example:7436", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("evillocalhost", False),
        ("127.0.0.1:80/static/?", False),
        ("127.0.0.1:@evil", False),
        ("localhost:80:90", False),
        ("user@localhost", False),
        ("localhost, evil.example", False),
        (" localhost", False),
    ],
)
def test_it_answers_by_its_own_names_alone(host: str, known: bool) -> None:
    assert Doors(listen="127.0.0.1:0").is_known(host) is known


def test_off_this_machine_its_names_are_those_that_were_told() -> None:
    assert _TLS.is_known("fleet.example:7436")
    assert not _TLS.is_known("localhost:7436")
    assert not _TLS.is_known("10.0.0.1:7436")
    assert not _PROXIED.is_known("localhost")
    assert host_name("Fleet.Example.") == "fleet.example"
    assert shown_host(_TLS.listen, _TLS.names) == "fleet.example"
    assert shown_host("[::1]:1", ()) == "[::1]"


def test_a_certificate_names_a_person_with_a_role() -> None:
    peer = _TLS.peer_by_certificate(_SHOWN)
    assert peer.person is not None
    assert (peer.person.name, peer.person.role) == ("ann", Role.OPERATOR)
    assert not peer.is_proxy
    assert peer.until_s == 1893456000.0


@pytest.mark.parametrize("unit", ["agent", "page", "admin", ""])
def test_a_certificate_of_another_role_names_nobody(unit: str) -> None:
    shown = {**_SHOWN, "subject": ((("commonName", "n"),), (("organizationalUnitName", unit),))}
    assert _TLS.peer_by_certificate(shown) is NOBODY


def test_two_names_or_two_roles_in_a_certificate_are_nobody() -> None:
    name, unit = _SHOWN["subject"]
    assert _TLS.peer_by_certificate({**_SHOWN, "subject": (name, name, unit)}) is NOBODY
    both = (name, unit, (("organizationalUnitName", "viewer"),))
    assert _TLS.peer_by_certificate({**_SHOWN, "subject": both}) is NOBODY
    assert _TLS.peer_by_certificate(None) is NOBODY


def test_the_proxy_is_known_by_its_certificate_where_one_is_told() -> None:
    doors = replace(_TLS, client_ca=_FILE, user_header="X-User", proxy_certificate="ann")
    assert doors.peer_by_certificate(_SHOWN).is_proxy
    assert not _TLS.peer_by_certificate(_SHOWN).is_proxy


def test_a_proxy_names_somebody_once_and_operators_are_those_that_were_told() -> None:
    def named(*values: bytes) -> tuple[str, Role] | None:
        person = _PROXIED.named_by_proxy([(b"x-remote-user", value) for value in values])
        return None if person is None else (person.name, person.role)

    assert named(b"ann") == ("ann", Role.OPERATOR)
    assert named(b"Ann") == ("Ann", Role.VIEWER)
    assert named(b"eve") == ("eve", Role.VIEWER)
    for nobody in ((), (b"",), (b"  ",), (b"eve", b"ann"), (b"a\x1bb",)):
        assert named(*nobody) is None
