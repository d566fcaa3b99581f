"""`everstep-controller init`: what it makes, what it leaves, and what it says of half of it."""

import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from everstep_common.config import load
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.enrolment.own_certificate import hosts_of
from everstep_controller.initialisation import InitError, People, initialise, main
from everstep_proto.tls import Role, identity_of, server_context

_T0_S = 1_796_000_000.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration as it is shipped, but for its folders."""
    path = tmp_path / "etc" / "controller.toml"
    path.parent.mkdir()
    path.write_text(
        "# The controller.\n"
        'listen = "unix:/run/everstep-controller/controller.sock"\n'
        f'journal = "{tmp_path}/var/journal.sqlite"\n\n'
        '[core]\nmode = "advise"\n\n#[tls]\n#ca = "ca.pem"\n'
    )
    return path


def run(
    config: Path, *names: str, operator: str = "admin", now_s: float | None = None
) -> list[str]:
    return list(initialise(config, names, People(operator), now_s))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_it_makes_all_that_a_controller_needs(tmp_path: Path, config: Path) -> None:
    run(config, "control", "10.0.0.1")
    made = load(ControllerConfig, config)
    assert made.listen == "0.0.0.0:7433"
    assert made.core.mode.value == "advise"
    assert made.enrolment.address == "control:7438"
    assert len(tomllib.loads((config.with_suffix(".cluster")).read_text())["cluster"]) == 32
    tls = tmp_path / "var" / "tls"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tls.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "controller.pem": 0o600}
    own = certificate(tls / "controller.pem")
    assert hosts_of(own) == ["control", "10.0.0.1"]
    own.verify_directly_issued_by(certificate(tls / "ca.pem"))
    operator = config.parent / "operators" / "admin.pem"
    who = identity_of(certificate(operator))
    assert (who.name, who.role) == ("admin", Role.OPERATOR)
    assert stat.S_IMODE(operator.stat().st_mode) == 0o600
    server_context(made.tls)


def test_a_second_run_changes_nothing(tmp_path: Path, config: Path) -> None:
    run(config, "control")
    before = contents(tmp_path)
    lines = run(config, "control")
    assert contents(tmp_path) == before
    assert sum("is there" in line for line in lines) == 3


def test_each_interrupted_start_is_ended_by_the_next(tmp_path: Path, config: Path) -> None:
    whole = run(config, "control")
    made = contents(tmp_path)
    ends = [name for name in made if name.endswith((".pem", ".key", ".cluster"))]
    left = ["var/tls/controller.pem", "etc/operators/admin.pem", "etc/controller.cluster"]
    assert set(left) < set(ends)
    for name in left:
        (tmp_path / name).unlink()
    assert len(run(config, "control")) == len(whole)
    assert contents(tmp_path).keys() == made.keys()
    assert contents(tmp_path)["var/tls/ca.key"] == made["var/tls/ca.key"]


def test_an_authority_whose_making_was_interrupted_is_finished(
    tmp_path: Path, config: Path
) -> None:
    run(config, "control")
    tls = tmp_path / "var" / "tls"
    made = contents(tls)
    (tls / "ca.key").rename(tls / ".ca.key.unfinished")
    run(config, "control")
    assert contents(tls) == made
    # Before that, where the certificate was not written either.
    for path in tls.iterdir():
        path.unlink()
    (tls / ".ca.key.unfinished").write_bytes(made["ca.key"])
    (config.parent / "operators" / "admin.pem").unlink()
    run(config, "control")
    assert contents(tls).keys() == made.keys()
    assert contents(tls)["ca.key"] != made["ca.key"]


@pytest.mark.parametrize(("lost", "said"), [("ca.key", "its key"), ("ca.pem", "its certificate")])
def test_half_an_authority_is_neither_used_nor_replaced(
    tmp_path: Path, config: Path, lost: str, said: str
) -> None:
    run(config, "control")
    (tmp_path / "var/tls" / lost).unlink()
    before = contents(tmp_path)
    with pytest.raises(InitError, match=said):
        run(config, "control")
    assert contents(tmp_path) == before


def test_another_name_and_another_operator_are_added(tmp_path: Path, config: Path) -> None:
    run(config, "control")
    run(config, "control.site", operator="alice")
    assert hosts_of(certificate(tmp_path / "var/tls/controller.pem")) == ["control", "control.site"]
    assert sorted(path.name for path in (config.parent / "operators").iterdir()) == [
        "admin.pem",
        "alice.pem",
        "ca.pem",
    ]


def test_certificates_that_somebody_brought_are_left(tmp_path: Path, config: Path) -> None:
    config.write_text(config.read_text() + '[tls]\nca = "/etc/site/ca.pem"\n')
    before = contents(tmp_path)
    with pytest.raises(InitError, match=r"tls\.ca is '/etc/site/ca.pem' already"):
        run(config, "control")
    assert contents(tmp_path) == before


def test_an_address_that_somebody_chose_is_left(config: Path) -> None:
    text = config.read_text().replace(
        "unix:/run/everstep-controller/controller.sock", "10.0.0.1:9433"
    )
    config.write_text(text)
    lines = run(config, "control")
    assert load(ControllerConfig, config).listen == "10.0.0.1:9433"
    assert any("EVERSTEP_CONTROLLER=control:9433" in line for line in lines)


def test_certificates_that_have_ended_are_made_anew(tmp_path: Path, config: Path) -> None:
    run(config, "control", now_s=_T0_S - 400 * 86_400)
    old = contents(tmp_path)
    run(config, "control", now_s=_T0_S)
    new = contents(tmp_path)
    changed = {name for name in new if new[name] != old.get(name)}
    assert changed == {"var/tls/controller.pem", "etc/operators/admin.pem"}


def test_the_command_prints_one_sentence_for_a_mistake(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("listen = [")
    assert main(["--config", str(config)]) == 1
    assert capsys.readouterr().err.startswith(f"everstep-controller init: {config}: not valid TOML")


def test_a_viewer_gets_a_certificate_that_only_looks_in_the_folder_that_is_named(
    config: Path, tmp_path: Path
) -> None:
    people = People("ann", "prometheus", tmp_path / "people")
    lines = list(initialise(config, ["localhost"], people))
    assert any(line.startswith("viewer: ") for line in lines)
    found = {
        path.name: identity_of(x509.load_pem_x509_certificate(path.read_bytes())).role
        for path in (tmp_path / "people").iterdir()
        if path.name != "ca.pem"
    }
    assert found == {"ann.pem": Role.OPERATOR, "prometheus.pem": Role.VIEWER}
    assert not (config.parent / "operators").exists()
