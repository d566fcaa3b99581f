"""Pod enrolment of an agent: when it asks, how often, and what a configuration must have for it."""

import argparse
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.commands.pod_enrolment import enrolled
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.certificate_files import CertificateFiles, FilesError
from everstep_agent.enrolment.enrol_pod import enrol_once, main
from everstep_agent.enrolment.settings import EnrolmentSettings
from everstep_common.config import ConfigError
from fakes.authority import Authority


def _config(folder: Path, **changes: object) -> AgentConfig:
    enrolment = EnrolmentSettings(
        address="controller:7438",
        kubernetes_token=folder / "token",
        authority=folder / "ca.pem",
    )
    config = AgentConfig(
        node="gpu-1",
        controller="controller:7433",
        data_folder=folder / "data",
        enrolment=replace(enrolment, **changes),  # type: ignore[arg-type]
    )
    return replace(config, jobs=replace(config.jobs, runtime_folder=folder / "run"))


def _sign(folder: Path, name: str = "gpu-1") -> None:
    """Put a certificate where an answer of the controller puts it."""
    files = CertificateFiles.below(folder / "data")
    files.folder.mkdir(parents=True)
    signer = folder / "signer"
    signer.mkdir()
    tls = Authority(signer).issue(name, "agent")
    assert tls.ca is not None
    assert tls.certificate is not None
    assert tls.key is not None
    files.authorities.write_bytes(tls.ca.read_bytes())
    files.own.write_bytes(tls.key.read_bytes() + tls.certificate.read_bytes())


def test_it_asks_until_there_is_a_certificate_and_tells_each_reason_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    answers, waits = ["nobody listens", "nobody listens", "its pod is gone", ""], list[float]()

    def ask(_: AgentConfig) -> str:
        said = answers.pop(0)
        if not said:
            _sign(tmp_path)
        return said

    made = enrolled(_config(tmp_path), ask, waits.append)
    assert made.tls.certificate == tmp_path / "data/tls/agent.pem"
    assert made.tls.enabled
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert said == ["nobody listens", "its pod is gone"]
    assert len(waits) == 3
    assert waits[0] < 1.5 < waits[2] < 6


def test_a_certificate_that_is_there_is_not_asked_for_again_until_it_has_ended(
    tmp_path: Path,
) -> None:
    _sign(tmp_path)
    asked = list[str]()

    def ask(config: AgentConfig) -> str:
        asked.append(config.node_name)
        return ""

    enrolled(_config(tmp_path), ask, wall_s=lambda: 0.0)
    assert asked == []
    enrolled(_config(tmp_path), ask, wall_s=lambda: 1e11)
    assert asked == ["gpu-1"]


def test_an_agent_that_is_no_pod_is_left_as_it_is() -> None:
    config = AgentConfig()
    assert enrolled(config) is config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"address": ""}, "enrolment.address: missing; with kubernetes_token it is"),
        ({"authority": None}, "enrolment.authority: missing; with kubernetes_token it is"),
        ({"kubernetes_token": None}, "enrolment.authority: is of use only with"),
    ],
)
def test_half_a_configuration_says_what_is_missing(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    problems = _config(tmp_path, **changes).problems()
    assert [one for one in problems if one.startswith(said)]
    if "kubernetes_token" not in changes:
        assert _config(tmp_path).problems() == []
        assert len(problems) == 1


def test_certificates_of_ones_own_and_a_pods_are_not_both_taken(tmp_path: Path) -> None:
    config = _config(tmp_path)
    both = replace(config, tls=replace(config.tls, ca=tmp_path / "ca.pem"))
    (problem,) = both.problems()
    assert problem.startswith("tls: names certificates of your own")


def test_a_certificate_that_cannot_be_used_is_told_with_its_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ca: .* cannot be read"):
        enrolled(_config(tmp_path), lambda _: "", lambda _: None)


@pytest.mark.parametrize(
    ("token", "authority", "said"),
    [
        (None, "-----BEGIN CERTIFICATE-----", "token: No such file or directory"),
        ("", "-----BEGIN CERTIFICATE-----", "has no token in it: the pod needs a projected volume"),
        ("x" * 20_000, "-----BEGIN CERTIFICATE-----", "has no token in it"),
        ("abc", "", "has no certificate in it: the controller writes it into the ConfigMap"),
    ],
)
def test_what_the_pod_was_not_given_is_named(
    token: str | None,
    authority: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    (tmp_path / "ca.pem").write_text(authority)
    words = [str(tmp_path / "data/tls"), "gpu-1", "127.0.0.1:1", ""]
    assert main([*words, str(tmp_path / "ca.pem"), str(tmp_path / "token")]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_one_sentence_is_raised_for_an_empty_token(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    given = argparse.Namespace(token=tmp_path / "token", authority=tmp_path / "ca.pem")
    with pytest.raises(FilesError, match="audience: everstep"):
        enrol_once(given)
