from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from everstep_common.addresses import is_loopback, split_address
from everstep_common.config import ConfigError, load
from everstep_common.judging.findings import Mode
from everstep_controller.config import ControllerConfig
from everstep_controller.core.model.settings import Settings
from everstep_controller.core_settings import CoreSettings
from everstep_controller.drivers.drivers import DriversConfig
from everstep_proto.tls import TlsSettings


def loaded(tmp_path: Path, text: str) -> ControllerConfig:
    file = tmp_path / "controller.toml"
    file.write_text(text)
    return load(ControllerConfig, file)


def test_the_defaults_work_without_a_file_and_are_those_of_the_core() -> None:
    config = load(ControllerConfig, None)
    # A journal from before one of these settings is replayed without it: it decided nothing then.
    assert config.core.settings() == Settings(
        own_restarts=3,
        spare_check_interval_ns=600_000_000_000,
        stall_timeout_ns=120_000_000_000,
        hang_patience_ns=120_000_000_000,
    )
    assert config.listen.startswith("unix:/")


def test_the_core_table_becomes_the_settings_of_the_core(tmp_path: Path) -> None:
    text = '[core]\nmode = "enforce"\nobserve = ["Odd"]\n'
    text += "confirm_timeout_s = 0.5\nlast_call_timeout_s = 3\n"
    settings = loaded(tmp_path, text).core.settings()
    assert settings.mode is Mode.ENFORCE
    assert settings.condition_modes == (("Odd", Mode.OBSERVE),)
    assert (settings.confirm_timeout_ns, settings.last_call_timeout_ns) == (
        500_000_000,
        3_000_000_000,
    )


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    text = (
        'listen = "here"\nlog_level = "loud"\nsamples_window = 0\n'
        '[core]\nisolation_budget_ratio = 2.0\nobserve = ["A"]\nenforce = ["A"]\n[tls]\nca = "/x"\n'
    )
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text)
    said = "\n".join(error.value.problems)
    for word in (
        "listen",
        "log_level",
        "samples_window",
        "isolation_budget_ratio",
        "A is in",
        "tls.key",
    ):
        assert word in said


@pytest.mark.parametrize("key", [one.name for one in fields(CoreSettings) if one.name[-2:] == "_s"])
@pytest.mark.parametrize("value", ["-1", "inf", "nan"])
def test_no_time_of_the_core_is_below_zero_or_endless(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"core.{key}"):
        loaded(tmp_path, f"[core]\n{key} = {value}\n")


def test_one_mistake_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, 'metrics = "x:y"\n')
    assert [problem for problem in error.value.problems if "metrics" in problem] == [
        f"{tmp_path}/controller.toml: metrics: expected host:port, got 'x:y'"
    ]


def test_an_open_address_needs_certificates_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs TLS"):
        loaded(tmp_path, 'listen = "0.0.0.0:7433"\n')
    files = "".join(f'{key} = "{tmp_path}/{key}"\n' for key in ("ca", "certificate", "key"))
    with pytest.raises(ConfigError, match=r"tls\.ca: .* No such file"):
        loaded(tmp_path, f'listen = "0.0.0.0:7433"\n[tls]\n{files}')


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_only_loopback_addresses_are_local(address: str, local: bool) -> None:
    assert is_loopback(address) is local


def test_addresses_split_into_host_and_port() -> None:
    assert split_address("[::1]:80") == ("::1", "80")
    assert split_address("host:80") == ("host", "80")
    assert split_address("::1") == ("::1", "")


def test_without_certificates_nothing_is_exposed_by_default() -> None:
    assert TlsSettings().problems({"listen": "127.0.0.1:1"}) == []


def test_what_is_never_found_to_stand_still_cannot_be_restarted_for_it(tmp_path: Path) -> None:
    text = "[core]\nstall_timeout_s = 0\nstall_restart_timeout_s = 600\n"
    with pytest.raises(ConfigError, match=r"core\.stall_restart_timeout_s: needs stall_timeout_s"):
        loaded(tmp_path, text)


def test_every_driver_in_the_configuration_is_made() -> None:
    config = DriversConfig()
    sections = {one.name for one in fields(config) if is_dataclass(getattr(config, one.name))}
    assert sections == set(config.parts), "a driver's section is missing in DriversConfig.parts"
