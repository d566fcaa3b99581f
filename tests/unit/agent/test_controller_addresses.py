"""The setting `controller` of an agent, with the addresses of several controllers."""

import socket
from pathlib import Path

import pytest

from everstep_agent.config.agent_config import AgentConfig
from everstep_common.config import ConfigError, load

_TLS = '[tls]\nca = "{0}"\ncertificate = "{0}"\nkey = "{0}"\n'


def _loaded(folder: Path, line: str, tls: bool = True, **environ: str) -> AgentConfig:
    pem, path = folder / "x.pem", folder / "agent.toml"
    pem.write_text("")
    path.write_text(line + "\n" + (_TLS.format(pem) if tls else ""))
    return load(AgentConfig, path, environ=environ)


@pytest.mark.parametrize(
    "line",
    [
        'controller = ["ctl-a:7433", "ctl-b:7433"]',
        'controller = "ctl-a:7433,ctl-b:7433"',
        'controller = "${BOTH}"',
    ],
)
def test_several_addresses_are_a_list_or_a_text(tmp_path: Path, line: str) -> None:
    config = _loaded(tmp_path, line, BOTH="ctl-a:7433, ctl-b:7433")
    assert config.controllers == ("ctl-a:7433", "ctl-b:7433")
    assert config.reachable_host == socket.gethostname()
    assert config.announced("127.0.0.1:7434") == ""


def test_a_single_address_is_as_it_was(tmp_path: Path) -> None:
    config = _loaded(tmp_path, 'controller = "127.0.0.1:7433"', tls=False)
    assert config.controllers == (config.controller,) == ("127.0.0.1:7433",)
    assert config.reachable_host == "127.0.0.1"
    assert len(AgentConfig().controllers) == 1


def test_an_agent_of_two_controllers_of_its_machine_is_for_this_machine(tmp_path: Path) -> None:
    config = _loaded(tmp_path, 'controller = ["127.0.0.1:7433", "127.0.0.1:7443"]', tls=False)
    assert config.reachable_host == "127.0.0.1"
    assert config.unreachable() == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("controller = 7", "controller: expected a string, or a list, each item a string, got 7"),
        ("controller = []", "controller: expected an address at least"),
        ('controller = ["ctl-a:7433", 7]', "controller[1]: expected a string, got 7"),
        ('controller = ["ctl-a:7433", "ctl-b"]', "expected unix:/path or host:port, got 'ctl-b'"),
        ('controller = ["ctl-a:1", "unix:/run/c.sock"]', "expected addresses of one kind"),
    ],
)
def test_wrong_addresses_are_told(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _loaded(tmp_path, line)
    assert told in str(caught.value)


def test_every_address_of_another_machine_needs_tls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _loaded(tmp_path, 'controller = ["127.0.0.1:7433", "ctl-b:7433"]', tls=False)
    assert "controller[1]: 'ctl-b:7433' is not an address of this machine alone" in str(
        caught.value
    )
