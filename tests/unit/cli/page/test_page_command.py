"""Options of `everstep page` that make no sense: each is a sentence, and nothing is served."""

import pytest

from unit.cli.test_fleet_commands import call

_PROXY_OPTIONS = ("--name", "x", "--user-header", "X", "--proxy-user")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--listen", "0.0.0.0:0"), "needs TLS"),
        (("--listen", "127.0.0.1"), "has no port"),
        (("--listen", "127.0.0.1:0", "--certificate", "x", "--key", "x"), "cannot be read"),
        (("--listen", "unix:/tmp/x"), "--proxy-user"),
        (
            (
                "--listen",
                "unix:/none/x",
                "--name",
                "x",
                "--user-header",
                "X",
                "--proxy-user",
                "root",
            ),
            "unix:/none/x cannot be listened on",
        ),
        (
            ("--listen", "unix:/tmp/x", *_PROXY_OPTIONS, "no"),
            "no login 'no'",
        ),
        (("--role", "root"), "'root' is not one of"),
    ],
)
def test_a_mistake_is_a_sentence(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = call("page", *options)
    assert code == 2
    assert told in " ".join(capsys.readouterr().err.split())
