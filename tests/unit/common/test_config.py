"""Configuration: every mistake of a file in one run, in the operator's words."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

from everstep_common.config import ConfigError, document, load, setting


class Mode(Enum):
    OBSERVE = "observe"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    slots: int = setting(3, help="Copies kept of each rank.")
    wait_s: float = setting(5.0, help="How long a step waits.", unit="seconds")

    def problems(self) -> list[str]:
        return [] if self.slots > 0 else [f"limits.slots: must be above 0, got {self.slots}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    controller: str = setting(help="Where the controller listens.", unit="host:port")
    probe_interval_s: float = setting(10.0, help="Time between probes.", unit="seconds")
    probe_timeout_s: float = setting(5.0, help="Deadline of a probe.", unit="seconds")
    mode: Mode = setting(Mode.OBSERVE, help="What may be done.")
    folder: Path = setting(Path("/var/lib/x"), help="Where state is kept.")
    peers: tuple[str, ...] = setting((), help="Peers.")
    modes: tuple[Mode, ...] = setting((), help="Modes.")
    name: str = setting(factory=lambda: "this-machine", shown="the host name", help="The name.")
    domain: str | None = setting(None, help="The rack.")
    quiet: bool = setting(False, help="Say less.")
    limits: Limits = field(default_factory=Limits)

    def problems(self) -> list[str]:
        found = []
        if ":" not in self.controller:
            found.append(f"controller: expected host:port, got {self.controller!r}")
        if self.probe_interval_s <= 0:
            found.append(f"probe_interval_s: must be above 0, got {self.probe_interval_s}")
        return found + self.limits.problems()


def _problems(folder: Path, text: str) -> list[str]:
    path = folder / "agent.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(Settings, path)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_a_file_becomes_a_frozen_value(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(
        'controller = "c:1"\nprobe_interval_s = 2\nmode = "enforce"\nfolder = "/x"\n'
        'peers = ["a", "b"]\nmodes = ["observe"]\ndomain = "r1"\nquiet = true\n'
        "[limits]\nslots = 4\n"
    )
    loaded = load(Settings, path)
    assert loaded == Settings(
        controller="c:1",
        probe_interval_s=2.0,
        mode=Mode.ENFORCE,
        folder=Path("/x"),
        peers=("a", "b"),
        modes=(Mode.OBSERVE,),
        domain="r1",
        quiet=True,
        limits=Limits(slots=4),
    )
    assert loaded.name == "this-machine"


def test_every_mistake_is_reported_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    assert _problems(
        tmp_path,
        'probe_intervall_s = 3\nprobe_timeout_s = "soon"\nmode = "auto"\nquiet = 1\npeers = [1]\n'
        "[limits]\nslot = 2\nwait_s = true\n",
    ) == [
        "probe_intervall_s: unknown key; did you mean probe_interval_s?"
        " docs/configuration.md lists all",
        "probe_timeout_s: expected a number, got 'soon'",
        "mode: expected one of 'observe', 'enforce', got 'auto'",
        "peers[0]: expected a string, got 1",
        "quiet: expected true or false, got 1",
        "limits.slot: unknown key; did you mean limits.slots? docs/configuration.md lists all",
        "limits.wait_s: expected a number, got True",
        "controller: missing; expected a string",
    ]


def test_a_path_that_no_system_has_is_a_mistake(tmp_path: Path) -> None:
    assert _problems(tmp_path, 'controller = "c:1"\nfolder = "/x\\u0000y"\n') == [
        "folder: expected a path, got '/x\\x00y'"
    ]


def test_bad_values_are_reported_together_with_wrong_types(tmp_path: Path) -> None:
    assert _problems(
        tmp_path,
        'controller = "nowhere"\nprobe_interval_s = "x"\n[limits]\nslots = 0\nwait_s = "y"\n',
    ) == [
        "probe_interval_s: expected a number, got 'x'",
        "limits.wait_s: expected a number, got 'y'",
        "controller: expected host:port, got 'nowhere'",
        "limits.slots: must be above 0, got 0",
    ]


def test_a_table_that_is_no_table_is_a_mistake(tmp_path: Path) -> None:
    assert _problems(tmp_path, 'controller = "c:1"\nlimits = 3\n') == [
        "limits: expected a table, got 3"
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[limits]\nzzz = 1", "limits.zzz: unknown key; docs/configuration.md lists all"),
        # As many as are alike.
        ("[limits]\nslot_s = 1", "limits.slot_s: unknown key; did you mean limits.slots? docs/"),
        ("probe_s = 1", "did you mean probe_timeout_s or probe_interval_s? docs/"),
        # A key in the wrong table is named with its own, whatever is like it there.
        ("wait_s = 1", "wait_s: unknown key; did you mean limits.wait_s? docs/"),
        ("wait = 1", "wait: unknown key; docs/"),
        ("wait_ss = 1", "wait_ss: unknown key; did you mean limits.wait_s? docs/"),
        ("[limits]\nquiet = true", "did you mean quiet before the first [table]? docs/"),
        ("[limits.name]\na = 1", "did you mean name before the first [table]? docs/"),
    ],
)
def test_a_key_that_is_not_known_is_told_with_the_few_that_may_be_meant(
    tmp_path: Path, text: str, hint: str
) -> None:
    (problem,) = _problems(tmp_path, f'controller = "c:1"\n{text}\n')
    assert hint in problem


def test_of_many_keys_that_are_alike_three_are_named(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True)
    class Alike:
        limit_a: int = 0
        limit_b: int = 0
        limit_c: int = 0
        limit_d: int = 0

    (tmp_path / "a.toml").write_text("limit_e = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(Alike, tmp_path / "a.toml", "docs/alike.md lists all")
    (problem,) = caught.value.problems
    assert problem.count("limit_") == 4
    assert problem.endswith("? docs/alike.md lists all")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = [", "not valid TOML"), (b"\xff", "not valid TOML"), (None, "cannot be read")],
)
def test_a_file_that_is_no_toml_or_no_file_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"x\.toml: {message}"):
        load(Settings, path)


def test_without_a_file_the_defaults_hold_and_what_is_required_is_named() -> None:
    assert load(Limits, None) == Limits()
    with pytest.raises(ConfigError, match="defaults: controller: missing"):
        load(Settings, None)


def test_the_reference_shows_every_key_with_unit_and_default() -> None:
    shown = {doc.key: (doc.type, doc.default, doc.unit) for doc in document(Settings)}
    assert shown == {
        "controller": ("a string", "required", "host:port"),
        "probe_interval_s": ("a number", "10.0", "seconds"),
        "probe_timeout_s": ("a number", "5.0", "seconds"),
        "mode": ("one of 'observe', 'enforce'", '"observe"', ""),
        "folder": ("a path", '"/var/lib/x"', ""),
        "peers": ("a list, each item a string", "[]", ""),
        "modes": ("a list, each item one of 'observe', 'enforce'", "[]", ""),
        "name": ("a string", "the host name", ""),
        "domain": ("a string", "not set", ""),
        "quiet": ("true or false", "false", ""),
        "limits.slots": ("a whole number", "3", ""),
        "limits.wait_s": ("a number", "5.0", "seconds"),
    }


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_no_number(tmp_path: Path, number: str) -> None:
    (problem,) = _numbers(tmp_path, f"each = [{{ share = {number} }}]")
    assert problem.endswith(f"each[0].share: expected a number, got {number}")


def test_one_wrong_key_in_a_list_of_tables_hides_no_other_mistake(tmp_path: Path) -> None:
    told = _numbers(tmp_path, 'each = [{ share = "much" }, { share = -1.0 }]')
    assert [problem.partition(": ")[2] for problem in told] == [
        "each[0].share: expected a number, got 'much'",
        "each[1].share: must be 0 or more",
    ]


def test_a_file_nested_without_end_is_no_configuration(tmp_path: Path) -> None:
    (problem,) = _numbers(tmp_path, "each = " + "[" * 5000)
    assert problem.endswith("nested too deeply")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    each: tuple[_Share, ...] = ()

    def problems(self) -> list[str]:
        return [
            f"each[{i}].share: must be 0 or more"
            for i, one in enumerate(self.each)
            if one.share < 0
        ]


def _numbers(folder: Path, text: str) -> list[str]:
    file = folder / "numbers.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(_Shares, file)
    return caught.value.problems


def test_a_whole_number_beyond_all_floats_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f'controller = "a:1"\nprobe_interval_s = 1{"0" * 400}\n')
    with pytest.raises(ConfigError, match="probe_interval_s: expected a number"):
        load(Settings, path)


def test_variables_of_the_environment_stand_in_texts_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        'controller = "${HOST_IP}:7433"\npeers = ["${A}", "${A}-${HOST_IP}", "$A", "${a}"]\n'
        "[limits]\nslots = 2\n"
    )
    made = load(Settings, path, environ={"HOST_IP": "10.0.0.1", "A": "x"})
    assert made.controller == "10.0.0.1:7433"
    assert made.peers == ("x", "x-10.0.0.1", "$A", "${a}")
    with pytest.raises(ConfigError) as raised:
        load(Settings, path, environ={"A": "x"})
    assert raised.value.problems == [
        f"{path}: controller: the environment has no variable HOST_IP, which ${{HOST_IP}} stands "
        "for",
        f"{path}: peers[1]: the environment has no variable HOST_IP, which ${{HOST_IP}} stands for",
    ]
