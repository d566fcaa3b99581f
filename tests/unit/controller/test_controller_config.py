import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import everstep_controller
import everstep_sim
from everstep_common.addresses import is_loopback, split_address
from everstep_common.config import ConfigError, document, load
from everstep_common.judging.findings import Mode
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.config.group_config import expanded_groups
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.drivers.drivers import DriversConfig
from everstep_proto.tls import TlsSettings

# So many names of fields another class may share with the settings, as a job's own choices do.
_BY_CHANCE = 3


def loaded(tmp_path: Path, text: str) -> ControllerConfig:
    file = tmp_path / "controller.toml"
    file.write_text(text)
    return load(ControllerConfig, file)


CORE = tuple(document(Settings))


def test_the_defaults_work_without_a_file() -> None:
    assert load(ControllerConfig, None).listen.startswith("unix:/")


@pytest.mark.parametrize(
    "journal", ["postgresql:everstep", "postgres:/db.example/everstep", "mysql://db.example/x"]
)
def test_an_address_that_is_no_databases_is_not_taken_for_a_file(
    tmp_path: Path, journal: str
) -> None:
    with pytest.raises(ConfigError, match="expected the path of a file or postgresql://"):
        loaded(tmp_path, f'journal = "{journal}"\n')


def test_without_a_file_the_core_decides_with_the_defaults_that_it_has_by_itself() -> None:
    assert load(ControllerConfig, None).core == Settings() == State().settings
    assert (type(ControllerConfig().core), type(State().settings)) == (Settings, Settings)


def test_every_default_that_the_reference_shows_is_the_one_that_holds(tmp_path: Path) -> None:
    text = "".join(f"{doc.key} = {doc.default}\n" for doc in CORE)
    assert loaded(tmp_path, f"[core]\n{text}").core == Settings()


def test_no_other_class_of_the_controller_or_the_simulation_defines_settings_of_the_core() -> None:
    """A copy would have defaults of its own, which some day are other ones."""
    known = {_stem(one.name) for one in fields(Settings)}
    copies = {
        kind
        for module in _modules(everstep_controller, everstep_sim)
        for kind in vars(module).values()
        # A group says of its own nodes what the settings say of all, and has no defaults for it.
        if isinstance(kind, type) and is_dataclass(kind) and kind not in (Settings, Group)
        if len(known & {_stem(one.name) for one in fields(kind)}) > _BY_CHANCE
    }
    assert copies == set()


def _stem(name: str) -> str:
    return name.removesuffix("_ns").removesuffix("_s")


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    for package in packages:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def test_the_core_table_becomes_the_settings_of_the_core(tmp_path: Path) -> None:
    text = '[core]\nmode = "enforce"\nobserve = ["Odd"]\n'
    text += "confirm_timeout_s = 0.5\nlast_call_timeout_s = 3\n"
    settings = loaded(tmp_path, text).core
    assert settings.mode is Mode.ENFORCE
    assert settings.mode_of("Odd") is Mode.OBSERVE
    assert settings.mode_of("XidFatal", Mode.ADVISE) is Mode.ADVISE
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


def test_bounds_are_told_in_the_words_of_the_file(tmp_path: Path) -> None:
    text = (
        "silence_s = 0\nprobation_s = -1\nsnapshot_every_min = 0\nsnapshot_every_max = -2\n"
        "isolation_budget_ratio = 1.5\nhang_patience_s = 1e11\nunsaved_max_ns = 5\n"
    )
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, f"[core]\n{text}")
    file = f"{tmp_path}/controller.toml"
    assert error.value.problems == [
        f"{file}: core.unsaved_max_ns: unknown key; did you mean core.unsaved_max_s? "
        "docs/configuration.md lists all",
        f"{file}: core.isolation_budget_ratio: must be from 0 to 1, got 1.5",
        f"{file}: core.silence_s: must be above 0, got 0.0",
        f"{file}: core.probation_s: must not be below 0, got -1.0",
        f"{file}: core.snapshot_every_min: must be above 0, got 0",
        f"{file}: core.snapshot_every_max: must not be below 0, got -2",
        f"{file}: core.hang_patience_s: must not be above 292 years, got 100000000000.0",
    ]


@pytest.mark.parametrize("key", [doc.key for doc in CORE if doc.unit == "s"])
@pytest.mark.parametrize("value", ["-1", "inf", "nan", "1e300"])
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


def test_groups_are_read_with_their_lists_and_all_their_mistakes_are_told_at_once(
    tmp_path: Path,
) -> None:
    text = '[groups.a]\nnodes = ["gpu-[01-03,7]", "login"]\nmode = "observe"\n'
    groups = expanded_groups(loaded(tmp_path, text).groups)
    nodes = ("gpu-01", "gpu-02", "gpu-03", "gpu-7", "login")
    assert sorted(groups["a"].nodes) == sorted(nodes)
    assert groups["a"] == Group(nodes=groups["a"].nodes, mode=Mode.OBSERVE)
    wrong = (
        '[groups."b c"]\nnodes = ["gpu-[1-"]\n[groups.empty]\nenforce_share = 1.5\n'
        '[groups.c]\nlabels = ["=x", "a=b,c"]\ndomains = ["/"]\ndrivers = ["comand", "command"]\n'
        'observe = ["X"]\nenforce = ["X"]\nenforce_shares = {X = 2.0}\nmodes = 3\n'
        'advise = ["xid fatal"]\n'
    )
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, wrong)
    told = [
        problem.removeprefix(f"{tmp_path}/controller.toml: ") for problem in error.value.problems
    ]
    keys = {one.split(":")[0] for one in told}
    assert keys == {
        "groups.b c",
        "groups.b c.nodes",
        "groups.empty.enforce_share",
        "groups.empty.nodes",
        "groups.c.labels",
        "groups.c.domains",
        "groups.c.drivers",
        "groups.c.observe",
        "groups.c.advise",
        "groups.c.enforce_shares.X",
        "groups.c.modes",
    }
    assert any("no driver is named 'comand'" in one for one in told)
    assert any("command is not configured" in one for one in told)


def test_names_of_conditions_are_known_by_how_they_are_written(tmp_path: Path) -> None:
    """One that is misspelt would be enforced on though it is to be observed."""
    wrong = (
        '[core]\nobserve = ["xidfatal"]\nadvise = ["LinkDown"]\n'
        '[groups.a]\nnodes = ["n"]\nenforce_shares = {"Xid Fatal" = 0.5}\n'
    )
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, wrong)
    told = [one.removeprefix(f"{tmp_path}/controller.toml: ") for one in error.value.problems]
    end = "is no condition: expected one as 'XidFatal'; docs/signals.md has all"
    assert told == [
        f"core.observe: 'xidfatal' {end}",
        f"groups.a.enforce_shares: 'Xid Fatal' {end}",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('journal = "mysql://x@h/d"', "expected the path of a file or postgresql://"),
        ('journal = "postgresql://x:swordfish@h/d"', "has a password in it"),
        ('journal = "postgresql://x@db.example/d"', "sslmode=verify-full"),
        ('journal = "postgresql://x@127.0.0.1"', "names no database"),
        ("journal = 7", "journal: expected a string, got 7"),
        ('journal = "/j"\njournal_password_file = "{file}"', "the journal is a file"),
        ('journal_password_file = "swordfish"', "expected the absolute path of a file"),
    ],
)
def test_a_journal_that_cannot_be_is_told_with_what_to_type(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "password"
    file.write_text("herring\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=sentence) as refused:
        loaded(tmp_path, text.replace("{file}", str(file)))
    assert "swordfish" not in str(refused.value)


def test_what_is_not_in_a_database_lies_in_the_folder_for_the_state(tmp_path: Path) -> None:
    config = loaded(tmp_path, 'journal = "postgresql://x@127.0.0.1/d"\nstate_folder = "/state"\n')
    assert config.hang_evidence == Path("/state/journal.hangs")
    assert config.webhook_cursor("pager") == Path("/state/journal.webhooks/pager.json")
    assert config.cluster_file_beside(tmp_path / "c.toml") == tmp_path / "c.cluster"
    file = loaded(tmp_path, 'journal = "/var/x/own.sqlite"\n')
    assert file.hang_evidence == Path("/var/x/own.hangs")
